"""What runs have measured of agents, kept for the next run: by function, the oldest forgotten.

The head does not read what it keeps: whoever asks for it takes it for a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from sapwood.core.errors import ProtocolError
from sapwood.store.base import Store

PREFIX: Final = "rates/"

MAX_KEPT: Final = 256
"""Functions of which something is kept, those that were written last."""

MAX_BYTES: Final = 2**19
"""Bytes of what is kept of one."""

_KEY: Final = re.compile(r"[0-9a-f]{64}")


class RateKeeper:
    """Keeps them in the store of a head.

    Args:
        store: Returns the store.
    """

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._written: dict[str, None] | None = None

    def read(self, key: str) -> bytes | None:
        """Return what is kept under a key; None if nothing is.

        Raises:
            ProtocolError: It is no key.
        """
        entry = self._store().get(PREFIX + _checked(key))
        return None if entry is None else entry.value

    def write(self, key: str, data: bytes) -> None:
        """Keep something under a key, and forget what was written longest ago.

        Raises:
            ProtocolError: It is no key, or too much.
        """
        name = PREFIX + _checked(key)
        if len(data) > MAX_BYTES:
            raise ProtocolError(f"rates of {len(data):,} bytes, at most {MAX_BYTES:,} are kept")
        store = self._store()
        if self._written is None:
            there = sorted(store.entries(PREFIX), key=lambda entry: entry.modified)
            self._written = {entry.key: None for entry in there}
        store.put(name, data)
        self._written.pop(name, None)
        self._written[name] = None
        while len(self._written) > MAX_KEPT:
            oldest = next(iter(self._written))
            store.delete(oldest)
            del self._written[oldest]


def _checked(key: str) -> str:
    if _KEY.fullmatch(key) is None:
        raise ProtocolError("malformed call: rates have a SHA-256 for their key")
    return key
