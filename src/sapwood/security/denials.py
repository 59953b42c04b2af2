"""Which credentials were revoked: a list that grows, with an epoch, which travels as it changes.

The head has the list, and counts its changes: that is the *epoch*. It tells everybody who verifies
credentials the additions of each epoch. A receiver that has missed one says so, and gets the whole
list.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import msgspec

MAX_DENIED = 100_000
"""Ids that a list may have."""


class DenialUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """The additions of some epochs.

    Attributes:
        since: The epoch that it continues; 0 for the whole list.
        epoch: The epoch that the list has then.
        ids: Those that came meanwhile.
        generation: Which head counts: another one's epochs say nothing.
    """

    since: int
    epoch: int
    ids: list[str]
    generation: int = 0


class Denials:
    """The list of revoked ids of a verifier of credentials; for any thread.

    Example:
        >>> list_ = Denials()
        >>> list_.take(DenialUpdate(since=0, epoch=3, ids=["a"]))
        True
        >>> list_.take(DenialUpdate(since=4, epoch=5, ids=["c"]))  # one was missed
        False
        >>> "a" in list_, "c" in list_, list_.epoch
        (True, True, 3)
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.generation = 0
        self._ids: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self._listeners: list[Callable[[frozenset[str]], None]] = []

    def take(self, update: DenialUpdate) -> bool:
        """Take an update in; what it denies is denied from now on in any case.

        Returns:
            Whether the list is whole. If not, ask for the whole list.
        """
        with self._lock:
            ids = frozenset(update.ids)
            whole = update.since == 0
            known = update.generation == self.generation
            fits = whole or (known and update.since <= self.epoch)
            if whole and (not known or update.epoch >= self.epoch):
                came, self._ids = ids - self._ids, ids
            else:
                came, self._ids = ids - self._ids, self._ids | ids
            if fits:
                newer = max(self.epoch, update.epoch) if known else update.epoch
                self.epoch, self.generation = newer, update.generation
            listeners = list(self._listeners)
        if came:
            for listener in listeners:
                listener(came)
        return fits

    def subscribe(self, listener: Callable[[frozenset[str]], None]) -> None:
        """Call a function for new ids, on the thread that brings them."""
        with self._lock:
            self._listeners.append(listener)

    def any_of(self, ids: Iterable[str]) -> str:
        """Return one of some ids that was revoked; empty if none was."""
        denied = self._ids
        return next((one for one in ids if one in denied), "")

    def __contains__(self, one: object) -> bool:
        return one in self._ids

    def __len__(self) -> int:
        return len(self._ids)
