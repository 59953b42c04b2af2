"""``tally:K``: numbers added up by their keys, as many keys as asked for."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from sapwood.core.errors import ExecutionError, ProgramError

MAX_KEYS: Final = 2**16
"""Keys that one reduction keeps."""

OTHERS: Final = ""
"""The key under which the numbers of the other keys are added up."""


class Tally:
    """Adds numbers by key; of more keys than asked for, it adds the smallest under ``""``.

    Args:
        most: How many keys to keep.

    Example:
        >>> tally = Tally("2")
        >>> tally.add({"a": 1, "b": 5}, 1, 1.0)
        >>> tally.add({"b": 1, "c": 2, "d": 1}, 2, 1.0)
        >>> tally.total()
        {'b': 6, 'c': 2, '': 2}
    """

    __slots__ = ("_most", "counts")

    def __init__(self, most: str) -> None:
        if not most.isdecimal() or not 1 <= int(most) <= MAX_KEYS:
            raise ProgramError(
                f"tally:{most} is not a reduction",
                hint=f"write a whole number from 1 to {MAX_KEYS}, as in tally:100",
            )
        self._most = int(most)
        self.counts: dict[Any, Any] = {}

    def add(self, value: Any, _rank: int, _weight: float) -> None:
        """Take one more contribution: a dictionary of numbers, or the sums of a subtree."""
        if not isinstance(value, Mapping):
            raise ExecutionError(f"{type(value).__name__} is not a dictionary of numbers")
        counts = self.counts
        for key, one in value.items():
            if not isinstance(one, (int, float, np.integer, np.floating)):
                raise ExecutionError(f"{type(one).__name__} is not a number")
            counts[key] = counts.get(key, 0) + one
        if len(counts) > 2 * self._most:
            self.counts = self._largest()

    def _largest(self) -> dict[Any, Any]:
        """Return the keys with the largest numbers, in falling order, and the sum of the others."""
        counts = dict(self.counts)
        others = counts.pop(OTHERS, 0)
        kept = heapq.nlargest(self._most, counts.items(), key=lambda item: item[1])
        found = dict(kept)
        left = sum(one for key, one in counts.items() if key not in found) + others
        return {**found, OTHERS: left} if left else found

    def partial(self) -> Any:
        """Return what travels on to the next vertex."""
        return self._largest()

    def total(self) -> Any:
        """Return the result."""
        return self._largest()
