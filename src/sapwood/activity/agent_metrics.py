"""What agents do, in few numbers, which are added up on their way to the root of a session.

They are contributions to the waves of a stream: each place adds its children's, so the root
gets as many messages as it has children, however many agents there are.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

BOUNDS: Final = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
"""Seconds up to which calls are counted together; one more count has all that took longer."""

BUCKETS: Final = tuple(f"bucket {number}" for number in range(len(BOUNDS) + 1))
"""What these counts are called in a contribution."""

REDUCE: Final = dict.fromkeys(
    ("agents", "busy", "memory", "calls", "errors", "seconds", "bytes_in", "bytes_out", *BUCKETS),
    "sum",
)
"""The fields of a contribution, and how each is reduced."""


class AgentMetrics:
    """Counts the calls of an agent since it was asked last: maps of runs, and tasks.

    Each agent reports only increments, so the sum at the root never falls when agents leave.

    Example:
        >>> counted = AgentMetrics()
        >>> counted.succeeded(0.5, 10, 20)
        >>> counted.failed()
        >>> values = counted.take(busy=False, memory=4096)
        >>> values["calls"], values["errors"], values["bucket 3"], values["memory"]
        (2, 1, 1, 4096)
        >>> counted.take(busy=True, memory=0)["calls"]
        0
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._calls = self._errors = self._bytes_in = self._bytes_out = 0
        self._seconds = 0.0
        self._buckets = [0] * len(BUCKETS)

    def succeeded(self, seconds: float, bytes_in: int, bytes_out: int) -> None:
        """Note a call that returned."""
        self._calls += 1
        self._seconds += seconds
        self._bytes_in += bytes_in
        self._bytes_out += bytes_out
        self._buckets[bisect_left(BOUNDS, seconds)] += 1

    def failed(self) -> None:
        """Note a call that did not."""
        self._calls += 1
        self._errors += 1

    def take(self, *, busy: bool, memory: int) -> dict[str, int | float]:
        """Return what was counted since the last time.

        Args:
            busy: Whether a call is under way.
            memory: Bytes that the agent and its runner hold.
        """
        values: dict[str, int | float] = {
            "agents": 1,
            "busy": int(busy),
            "memory": memory,
            "calls": self._calls,
            "errors": self._errors,
            "seconds": self._seconds,
            "bytes_in": self._bytes_in,
            "bytes_out": self._bytes_out,
            **dict(zip(BUCKETS, self._buckets, strict=True)),
        }
        self._forget()
        return values
