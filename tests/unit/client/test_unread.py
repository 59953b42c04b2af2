"""Results that wait to be read: reports of their number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.client import unread as module
from sapwood.client.unread import READ_AT_ONCE, EndFuture, Unread
from sapwood.core.errors import ResourceError
from sapwood.session.wave_result import WaveResult


def value(rank: int, number: int = 0, wave: int = 0) -> WaveResult:
    return WaveResult(number, ((rank, rank + 1),), 1.0, wave)


def read(unread: Unread) -> int:
    with unread.changed:
        future = unread.first()
    assert future is not None
    unread.read(future)
    return int(future.result().total)


@given(st.lists(st.integers(1, 3), max_size=200), st.integers(0, 200))
def test_agents_are_told_of_what_was_read_and_of_nothing_else(ranks: list[int], upto: int) -> None:
    told: dict[int, int] = {}

    def tell(counts: dict[int, int]) -> None:
        for rank, count in counts.items():
            told[rank] = told.get(rank, 0) + count

    unread = Unread(tell, latest=False)
    for number, rank in enumerate(ranks):
        unread.add(value(rank, number))
    done = ranks[:upto]
    assert [read(unread) for _ in done] == list(range(len(done)))
    for rank in (1, 2, 3):
        assert 0 <= done.count(rank) - told.get(rank, 0) < READ_AT_ONCE
    assert unread.dropped == 0


def test_while_somebody_waits_for_a_wave_agents_are_told_at_once() -> None:
    told: list[dict[int, int]] = []
    unread = Unread(told.append, latest=False)
    future = EndFuture(unread)
    unread.add(value(1))
    assert told == []
    assert not future.done()
    unread.add(value(2))
    assert told == [{1: 1}, {2: 1}]
    future.set_result(value(1, wave=1))
    unread.add(value(2))
    assert told == [{1: 1}, {2: 1}]
    assert [read(unread) for _ in range(3)] == [0, 0, 0]


def test_a_wave_is_refused_when_too_many_answers_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ANSWERS", 3)
    unread = Unread(lambda _counts: None, latest=False)
    for number in range(3):
        unread.check_room()
        unread.add(value(1, number, wave=number + 1))
    with pytest.raises(ResourceError, match="3 results of the stream wait"):
        unread.check_room()
    read(unread)
    unread.check_room()
