"""Whose chunk is sent next: bounded, in turns, and never held up by others."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.content import serving
from sapwood.content.refs import CHUNK
from sapwood.content.serving import MAX_IN_FLIGHT, MAX_OF_ONE, SendQueue
from sapwood.core.errors import ResourceError

EVENTS = st.lists(
    st.tuples(st.sampled_from(["add", "take"]), st.integers(1, 40), st.integers(1, CHUNK)),
    max_size=300,
)


@given(EVENTS, st.sets(st.integers(1, 40)))
@pytest.mark.slow
def test_all_pullers_that_take_get_everything_whatever_the_others_do(
    events: list[tuple[str, int, int]], stopped: set[int]
) -> None:
    queue: SendQueue[int] = SendQueue()
    added: Counter[int] = Counter()
    sent: dict[int, list[int]] = defaultdict(list)
    flying: dict[int, list[int]] = defaultdict(list)

    def pump() -> None:
        while (ready := queue.next()) is not None:
            puller, item, nbytes = ready
            sent[puller].append(item)
            flying[puller].append(nbytes)
        for puller, flights in flying.items():
            assert sum(flights) <= MAX_OF_ONE
            assert len(sent[puller]) == added[puller] or flights, "it waits for itself only"
        total = sum(map(sum, flying.values()))
        assert queue.in_flight == total <= MAX_IN_FLIGHT + CHUNK * len(queue)

    def take(puller: int) -> None:
        queue.taken(puller, flying[puller].pop(0))
        pump()

    for event, puller, nbytes in events:
        if event == "add":
            queue.add(puller, added[puller], nbytes)
            added[puller] += 1
            pump()
        elif puller not in stopped and flying[puller]:
            take(puller)
    while taking := [one for one, flights in flying.items() if flights and one not in stopped]:
        take(taking[0])
    for puller, count in added.items():
        assert sent[puller] == list(range(len(sent[puller])))
        assert puller in stopped or len(sent[puller]) == count
    assert {one for one, flights in flying.items() if flights} <= stopped


def test_pullers_take_turns() -> None:
    queue: SendQueue[str] = SendQueue()
    for item in "abc":
        queue.add(1, f"1{item}", 1)
    for item in "ab":
        queue.add(2, f"2{item}", 1)
    order = [queue.next() for _ in range(5)]
    assert [one[1] for one in order if one is not None] == ["1a", "2a", "1b", "2b", "1c"]


def test_what_one_puller_waits_for_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MAX_WAITING", 3)
    queue: SendQueue[int] = SendQueue()
    for item in range(3):
        queue.add(1, item, 1)
    with pytest.raises(ResourceError, match="more than 3 requests"):
        queue.add(1, 3, 1)
    queue.add(2, 0, 1)


def test_what_waits_can_be_refused() -> None:
    queue: SendQueue[int] = SendQueue()
    for item in range(6):
        queue.add(1, item, CHUNK)
        queue.add(2, item, CHUNK)
    assert queue.next() == (1, 0, CHUNK)
    assert sorted(queue.clear()) == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert queue.next() is None
    queue.taken(1, CHUNK)
    assert len(queue) == 0
