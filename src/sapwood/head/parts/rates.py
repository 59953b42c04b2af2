"""What runs have measured of agents, kept for the next run: by owner and function.

The head does not read the rates, and clients use them as a first guess. Each owner has its own
entries, so no credential reads, changes or displaces the entries of another owner.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable
from typing import Final

from sapwood.core.errors import ProtocolError
from sapwood.head.protocol.call import HeadPart, Reach, call
from sapwood.head.protocol.caller import ServiceCaller
from sapwood.security.rights import RUN
from sapwood.store.base import Store

PREFIX: Final = "rates/"

MAX_KEPT: Final = 256
"""Functions of one owner of which something is kept, those that were written last."""

MAX_OWNERS: Final = 64
"""Owners of whom something is kept, those that wrote last."""

MAX_BYTES: Final = 2**19
"""Bytes of what is kept of one."""

_KEY: Final = re.compile(r"[0-9a-f]{64}")


class RunRates(HeadPart):
    """What runs have measured, in the store of a head.

    Args:
        store: Returns the store.
    """

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._written: dict[str, dict[str, None]] | None = None  # by owner, the oldest first

    @call("rates.read", right=RUN, reach=Reach.CALLER, slow=True)
    def measured(self, caller: ServiceCaller, key: str) -> bytes | None:
        """Return what runs of the caller have measured of agents with a function, if anything.

        Args:
            caller: The caller.
            key: The key of the function, a SHA-256.
        """
        return self.read(key, caller.granted.owner)

    @call("rates.keep", right=RUN, reach=Reach.CALLER, slow=True, in_order=True)
    def keep(self, caller: ServiceCaller, key: str, rates: bytes) -> None:
        """Keep what a run of the caller has measured.

        Args:
            caller: The caller.
            key: The key of the function, a SHA-256.
            rates: The measurements; the head does not read them.
        """
        with self._lock:
            self.write(key, rates, caller.granted.owner)

    def read(self, key: str, owner: str = "") -> bytes | None:
        """Return what is kept of an owner under a key; None if nothing is.

        Args:
            key: The key of a function.
            owner: See :class:`~sapwood.security.rights.Rights`; empty for the head's user.

        Raises:
            ProtocolError: It is not a key.
        """
        entry = self._store().get(_folder(owner) + _checked(key))
        return None if entry is None else entry.value

    def write(self, key: str, data: bytes, owner: str = "") -> None:
        """Keep something of an owner under a key, and forget what was written longest ago.

        Args:
            key: The key of a function.
            data: The rates.
            owner: See :class:`~sapwood.security.rights.Rights`; empty for the head's user.

        Raises:
            ProtocolError: It is not a key, or too much.
        """
        folder = _folder(owner)
        name = folder + _checked(key)
        if len(data) > MAX_BYTES:
            raise ProtocolError(f"rates of {len(data):,} bytes, at most {MAX_BYTES:,} are kept")
        store = self._store()
        if self._written is None:
            self._written = {}
            for entry in sorted(store.entries(PREFIX), key=lambda one: one.modified):
                self._note(self._written, entry.key)
        store.put(name, data)
        self._note(self._written, name)
        own = self._written[folder]
        while len(own) > MAX_KEPT:
            oldest = next(iter(own))
            store.delete(oldest)
            del own[oldest]
        while len(self._written) > MAX_OWNERS:
            for one in self._written.pop(next(iter(self._written))):
                store.delete(one)

    @staticmethod
    def _note(written: dict[str, dict[str, None]], name: str) -> None:
        """Make an entry the last one of its owner, and its owner the last one."""
        folder = name[: name.rindex("/") + 1]
        own = written.pop(folder, {})
        own.pop(name, None)
        own[name] = None
        written[folder] = own


def _folder(owner: str) -> str:
    """Return the start of all keys of an owner."""
    return f"{PREFIX}{hashlib.sha256(owner.encode()).hexdigest()[:32]}/" if owner else PREFIX


def _checked(key: str) -> str:
    if _KEY.fullmatch(key) is None:
        raise ProtocolError("malformed call: rates have a SHA-256 for their key")
    return key
