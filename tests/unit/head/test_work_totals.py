"""What sessions have done is added up, and no sum falls when sessions go or heads change."""

from __future__ import annotations

from sapwood.head import session_records
from sapwood.head.work_totals import WorkTotals


def told(session: str, **figures: object) -> session_records.SessionMetrics:
    return session_records.SessionMetrics(session, session_records.WorkMetrics(**figures))  # type: ignore[arg-type]


def test_sums_stay_when_sessions_go() -> None:
    totals = WorkTotals()
    for session in "ab":
        totals.note(told(session, buckets=[0, 0]))
    totals.note(told("a", calls=5, errors=1, seconds=2.0, agents=3, busy=2, buckets=[4, 0]))
    totals.note(told("b", calls=7, agents=1, memory=10, buckets=[0, 7]))
    totals.note(told("a", calls=6, errors=1, seconds=2.5, agents=3, busy=1, buckets=[4, 1]))
    total = totals.total(["a", "b"])
    assert (total.calls, total.errors, total.seconds, total.buckets) == (13, 1, 2.5, [4, 8])
    assert (total.agents, total.busy, total.memory) == (4, 1, 10)
    assert totals.total(["b"]).busy == 0
    assert totals.total([]).calls == 13


def test_a_new_head_counts_from_then_on() -> None:
    totals = WorkTotals()
    totals.note(told("a", calls=100, buckets=[100]))  # what its root told the former head
    assert (totals.total(["a"]).calls, totals.total(["a"]).buckets) == (0, [0])
    totals.note(told("a", calls=101, buckets=[101]))
    assert (totals.total(["a"]).calls, totals.total(["a"]).buckets) == (1, [1])


def test_a_root_that_began_again_takes_nothing_away() -> None:
    totals = WorkTotals()
    totals.note(told("a", calls=3, buckets=[3]))
    totals.note(told("a", calls=8, buckets=[8]))
    totals.note(told("a", buckets=[0]))
    totals.note(told("a", calls=2, buckets=[2]))
    assert (totals.total(["a"]).calls, totals.total(["a"]).buckets) == (7, [7])
