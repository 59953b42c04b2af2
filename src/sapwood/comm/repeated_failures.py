"""Pauses before links end that fail again and again, so that their peers do not reconnect at once.

A message that makes the protocol core fail is often sent again on the next link. Without a pause
the two sides would connect, fail and connect again hundreds of times a second. No I/O, no clock.
"""

from __future__ import annotations

from typing import Final

FIRST_PAUSE: Final = 0.1
"""Seconds before a link ends that fails for the second time; each further time twice as many."""

LONGEST_PAUSE: Final = 5.0
"""Seconds before a link ends, at most."""

QUIET: Final = 60.0
"""Seconds without a failure after which the next one counts as the first."""


class RepeatedFailures:
    """How often the links to each peer have failed lately.

    Example:
        >>> failures = RepeatedFailures()
        >>> [failures.pause(7, 0.0) for _ in range(4)]
        [0.0, 0.1, 0.2, 0.4]
        >>> failures.pause(8, 0.0), failures.pause(7, 100.0)
        (0.0, 0.0)
    """

    def __init__(self) -> None:
        self._failed: dict[int, tuple[int, float]] = {}

    def pause(self, rank: int, now: float) -> float:
        """Count a failure of a peer's link; return the seconds for which the link is kept."""
        times, last = self._failed.get(rank, (0, now))
        if now - last > QUIET:
            times = 0
        self._failed[rank] = (times + 1, now)
        if not times:
            return 0.0
        return float(min(FIRST_PAUSE * 2 ** min(times - 1, 30), LONGEST_PAUSE))
