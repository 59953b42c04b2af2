"""Agents that are added to a tree: they are there together, or there are none. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from sapwood.core.errors import AgentLostError, SapwoodError
from sapwood.core.futures import CallerFuture
from sapwood.core.rankset import fold
from sapwood.session.options import PlacesChanged


class Expansion:
    """The state of agents that are starting; on the loop's thread, except ``done``.

    If it fails, those that did begin are to leave again: the tree is as before then.

    Attributes:
        done: Done when all of them are there; fails with AgentLostError if some never will be.

    Example:
        >>> expansion = Expansion()
        >>> expansion.begun((5, 6))
        (5, 6)
        >>> expansion.changed(PlacesChanged((5,), (5,), back=True, reason="", added=True))
        >>> expansion.done.done()
        False
        >>> expansion.changed(PlacesChanged((6,), (6,), back=True, reason="", added=True))
        >>> expansion.done.done()
        True
    """

    def __init__(self) -> None:
        self.done: Future[None] = CallerFuture()
        self._ranks: tuple[int, ...] = ()
        self._missing: set[int] = set()

    def begun(self, ranks: Sequence[int]) -> tuple[int, ...]:
        """Note which ones begin; return them."""
        self._ranks = tuple(ranks)
        self._missing = set(ranks)
        self._look()
        return self._ranks

    def changed(self, change: PlacesChanged) -> None:
        """Take in how places have changed."""
        if self.done.done() or self._missing.isdisjoint(change.ranks):
            return
        if change.added:
            self._missing.difference_update(change.ranks)
            self._look()
        elif change.for_good:
            self.done.set_exception(AgentLostError(change.reason, where=fold("agent", self._ranks)))

    def abandon(self, error: SapwoodError) -> None:
        """End the wait for them, because the session ends."""
        if not self.done.done():
            self.done.set_exception(error)

    def _look(self) -> None:
        if not self._missing:
            self.done.set_result(None)
