"""Places that are about to connect to others, each at its time."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable


class Tries:
    """What is to be connected, and when.

    Args:
        time: Returns the time, seconds.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._due: list[tuple[float, int, int, int]] = []
        self._order = itertools.count()

    def add(self, rank: int, to: int, pause: float) -> None:
        """Have a place connect to another one after a pause, seconds."""
        heapq.heappush(self._due, (self._time() + pause, next(self._order), rank, to))

    def forget(self, rank: int) -> None:
        """Drop what a place was about to do."""
        self._due = [entry for entry in self._due if entry[2] != rank]
        heapq.heapify(self._due)

    def __bool__(self) -> bool:
        """Whether any place is about to connect, now or later."""
        return bool(self._due)

    def take(self) -> tuple[int, int] | None:
        """Take out who is to connect to whom now."""
        if not self._due or self._due[0][0] > self._time():
            return None
        _, _, rank, to = heapq.heappop(self._due)
        return rank, to

    def next_due(self) -> float:
        """Return when the next one is due; infinite if there is none."""
        return self._due[0][0] if self._due else math.inf
