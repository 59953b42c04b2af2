"""What sessions have done is added up, and no sum falls when sessions go or heads change."""

from __future__ import annotations

from sapwood.head import calls
from sapwood.head.figure_book import FigureBook


def told(session: str, **figures: object) -> calls.SessionFigures:
    return calls.SessionFigures(session, calls.WorkFigures(**figures))  # type: ignore[arg-type]


def test_sums_stay_when_sessions_go() -> None:
    book = FigureBook()
    for session in "ab":
        book.note(told(session, buckets=[0, 0]))
    book.note(told("a", calls=5, errors=1, seconds=2.0, agents=3, busy=2, buckets=[4, 0]))
    book.note(told("b", calls=7, agents=1, memory=10, buckets=[0, 7]))
    book.note(told("a", calls=6, errors=1, seconds=2.5, agents=3, busy=1, buckets=[4, 1]))
    total = book.total(["a", "b"])
    assert (total.calls, total.errors, total.seconds, total.buckets) == (13, 1, 2.5, [4, 8])
    assert (total.agents, total.busy, total.memory) == (4, 1, 10)
    assert book.total(["b"]).busy == 0
    assert book.total([]).calls == 13


def test_a_new_head_counts_from_then_on() -> None:
    book = FigureBook()
    book.note(told("a", calls=100, buckets=[100]))  # what its root told the former head
    assert (book.total(["a"]).calls, book.total(["a"]).buckets) == (0, [0])
    book.note(told("a", calls=101, buckets=[101]))
    assert (book.total(["a"]).calls, book.total(["a"]).buckets) == (1, [1])


def test_a_root_that_began_again_takes_nothing_away() -> None:
    book = FigureBook()
    book.note(told("a", calls=3, buckets=[3]))
    book.note(told("a", calls=8, buckets=[8]))
    book.note(told("a", buckets=[0]))
    book.note(told("a", calls=2, buckets=[2]))
    assert (book.total(["a"]).calls, book.total(["a"]).buckets) == (7, [7])
