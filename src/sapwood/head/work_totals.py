"""What all sessions together have done, as their roots said: kept in memory, for metrics."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sapwood.head import session_records

_COUNTERS = ("calls", "errors", "seconds", "bytes_in", "bytes_out")
_GAUGES = ("agents", "busy", "memory")


class WorkTotals:
    """Adds up what sessions do. Sums never fall when sessions go; a new head begins at zero.

    Example:
        >>> totals = WorkTotals()
        >>> totals.note(session_records.SessionMetrics("a", session_records.WorkMetrics()))
        >>> done = session_records.WorkMetrics(calls=3, agents=2)
        >>> totals.note(session_records.SessionMetrics("a", done))
        >>> totals.total(["a"]).calls, totals.total(["a"]).agents
        (3, 2)
        >>> totals.total([]).calls, totals.total([]).agents
        (3, 0)
    """

    def __init__(self) -> None:
        self._last: dict[str, session_records.WorkMetrics] = {}
        self._sum = session_records.WorkMetrics()

    def note(self, report: session_records.SessionMetrics) -> None:
        """Note what a root says.

        Work that a session did before this head started does not count.
        """
        new, old = report.metrics, self._last.get(report.id, report.metrics)
        self._last[report.id] = new
        grown = {
            name: getattr(self._sum, name) + max(getattr(new, name) - getattr(old, name), 0)
            for name in _COUNTERS
        }
        known = self._sum.buckets or [0] * len(new.buckets)
        if len(known) == len(new.buckets) == len(old.buckets):
            more = zip(new.buckets, old.buckets, strict=True)
            known = [at + max(one - was, 0) for at, (one, was) in zip(known, more, strict=True)]
        self._sum = msgspec.structs.replace(self._sum, buckets=known, **grown)

    def total(self, live: Iterable[str]) -> session_records.WorkMetrics:
        """Return what all have done, and what those do that are there.

        Args:
            live: The ids of those; all others are forgotten.
        """
        self._last = {one: self._last[one] for one in live if one in self._last}
        now = {name: sum(getattr(one, name) for one in self._last.values()) for name in _GAUGES}
        return msgspec.structs.replace(self._sum, **now)
