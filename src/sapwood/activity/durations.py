"""Many durations in little room: how many fell between which bounds, to be added up anywhere.

Each bucket is a sixteenth of a power of two wide, so a quantile is right to 2.2 %. Two of them are
combined by adding numbers, so the quantiles of a machine follow from its agents' buckets.
That is the idea of Masson, Rim and Lee, DDSketch, PVLDB 12 (2019).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

Buckets = tuple[tuple[int, int], ...]
"""Number of a bucket and how many durations are in it, in order; none are empty."""

IN_A_DOUBLING: Final = 16
"""Buckets for each doubling of a duration."""

FIRST: Final = -30 * IN_A_DOUBLING
"""The first bucket: all up to a nanosecond."""

LAST: Final = 30 * IN_A_DOUBLING
"""The last bucket: all from 34 years on. So there are at most 961."""


class Durations:
    """Counts durations.

    Args:
        buckets: Counts to start from.

    Example:
        >>> counted = Durations()
        >>> for milliseconds in range(1, 101):
        ...     counted.add(milliseconds / 1e3)
        >>> 0.049 < counted.quantile(0.5) < 0.052
        True
    """

    __slots__ = ("_counts",)

    def __init__(self, buckets: Iterable[tuple[int, int]] = ()) -> None:
        self._counts = dict(buckets)

    @property
    def buckets(self) -> Buckets:
        """The counts."""
        return tuple(sorted(self._counts.items()))

    def add(self, seconds: float) -> None:
        """Count a duration."""
        bucket = FIRST
        if seconds > 0:
            bucket = min(max(math.floor(math.log2(seconds) * IN_A_DOUBLING), FIRST), LAST)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1

    def __add__(self, other: Durations) -> Durations:
        both = Durations(self._counts.items())
        for bucket, count in other._counts.items():
            both._counts[bucket] = both._counts.get(bucket, 0) + count
        return both

    def quantile(self, share: float) -> float:
        """Return a duration that ``share`` of all are not above, right to 2.2 %; 0 without any."""
        left = math.ceil(share * sum(self._counts.values()))
        for bucket, count in sorted(self._counts.items()):
            left -= count
            if left <= 0:
                return float(2 ** ((bucket + 0.5) / IN_A_DOUBLING))
        return 0.0
