"""Measures calls as they happen, for the statistics of a run."""

from collections import deque

import msgspec

from sapwood.activity.statistics import FunctionStatistics

REMEMBERED_CALLS = 4096
"""Durations that are kept for percentiles."""


class PassedCall(msgspec.Struct, frozen=True, gc=False):
    """A call that passed: when it was asked for and answered, what the runner took, its bytes."""

    asked: float
    answered: float
    seconds: float
    bytes_in: int
    bytes_out: int


class FunctionMeter:
    """Counts and times the calls of one function.

    Args:
        name: The function.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0
        self.errors = 0
        self.total = 0.0
        self.maximum = 0.0
        self.bytes_in = 0
        self.bytes_out = 0
        self._durations: deque[float] = deque(maxlen=REMEMBERED_CALLS)

    def succeeded(self, seconds: float, bytes_in: int, bytes_out: int) -> None:
        """Note a call that returned."""
        self.calls += 1
        self.total += seconds
        self.maximum = max(self.maximum, seconds)
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out
        self._durations.append(seconds)

    def failed(self) -> None:
        """Note a call that did not."""
        self.calls += 1
        self.errors += 1

    def statistics(self) -> FunctionStatistics:
        """Return the figures so far."""
        good = self.calls - self.errors
        ordered = sorted(self._durations)
        return FunctionStatistics(
            name=self.name,
            calls=self.calls,
            errors=self.errors,
            total=self.total,
            mean=self.total / good if good else 0.0,
            p50=_quantile(ordered, 0.5),
            p95=_quantile(ordered, 0.95),
            maximum=self.maximum,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
        )


def _quantile(ordered: list[float], share: float) -> float:
    """Return the smallest value that at least ``share`` of all are not above."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
