"""Rebalancing: cuts by rates, moves that pay, stragglers, one answer for each item."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sapwood.activity.delegation import (
    DelegationOptions,
    FirstContribution,
    Rates,
    Regret,
    SpeculativeRange,
    Substitute,
    assign,
    decide,
    late,
    late_at,
    moved,
    seconds_of,
)

OPTIONS = DelegationOptions(how="measured")

rates_of_agents = st.dictionaries(st.integers(1, 40), st.floats(1e-3, 1e9), min_size=1, max_size=12)


def flat(given_items: dict[int, range]) -> list[int]:
    return [item for rank in sorted(given_items) for item in given_items[rank]]


# --- rates ---


def test_one_short_map_that_was_disturbed_changes_no_rate() -> None:
    rates = Rates()
    for seconds in (0.01, 0.01, 0.09, 0.01):
        rates.note(1, 1, seconds)
    assert rates.of([1]) == {1: 100.0}


@pytest.mark.parametrize("seconds", [4.0, 0.25])
def test_one_long_map_is_believed(seconds: float) -> None:
    rates = Rates()
    for _ in range(5):
        rates.note(1, 100, 1.0)
    rates.note(1, 100, seconds)
    assert rates.of([1]) == {1: 100 / seconds}


def test_another_rate_is_believed_after_an_eighth_of_a_second() -> None:
    rates = Rates()
    for _ in range(20):
        rates.note(1, 4, 0.02)
    for _ in range(6):
        assert rates.of([1]) == {1: 200.0}
        rates.note(1, 1, 0.02)
    rates.note(1, 1, 0.02)
    assert rates.of([1]) == {1: 50.0}


@pytest.mark.parametrize("first", [{1: 1000.0, 2: 1.0}, {1: 0.0, 2: math.nan}, {2: math.inf}, {}])
def test_a_wrong_first_guess_is_forgotten_as_soon_as_agents_are_measured(
    first: dict[int, float],
) -> None:
    rates = Rates(first)
    for rank in (1, 2):
        rates.note(rank, 100, 1.0)
    assert rates.of([1, 2]) == {1: 100.0, 2: 100.0}


@pytest.mark.parametrize(
    ("items", "seconds"),
    [(0, 1.0), (-5, 1.0), (10, 0.0), (10, -3.0), (10, math.nan), (10, math.inf), (10, 5e-324)],
)
def test_what_cannot_be_says_nothing(items: int, seconds: float) -> None:
    """A clock that jumps back, a map of nothing, a time too short to be one."""
    rates = Rates()
    rates.note(1, items, seconds)
    assert not rates.measured(1)
    assert rates.of([1]) == {}


def test_who_is_unknown_counts_as_the_mean() -> None:
    rates = Rates({1: 10.0, 2: 30.0, 3: 0.0, 4: math.nan})
    assert rates.of([1, 2, 3, 4]) == {1: 10.0, 2: 30.0, 3: 20.0, 4: 20.0}


def test_what_is_measured_counts_more_than_a_guess() -> None:
    rates = Rates({1: 10.0})
    rates.note(1, 100, 2.0)
    assert rates.of([1]) == {1: 50.0}
    rates.forget(1)
    assert rates.of([1]) == {1: 10.0}


# --- cuts ---


@given(start=st.integers(-50, 50), count=st.integers(0, 500), rates=rates_of_agents)
@pytest.mark.slow
def test_each_item_is_given_to_one_agent(start: int, count: int, rates: dict[int, float]) -> None:
    items = range(start, start + count)
    assert flat(assign(items, rates)) == list(items)


@given(count=st.integers(0, 300), chunk=st.integers(1, 40), rates=rates_of_agents)
@pytest.mark.slow
def test_chunks_stay_together(count: int, chunk: int, rates: dict[int, float]) -> None:
    given_items = assign(range(count), rates, chunk)
    assert flat(given_items) == list(range(count))
    for part in given_items.values():
        assert part.start % chunk == 0 or part.start == count
        assert len(part) % chunk == 0 or part.stop == count


@given(count=st.integers(1, 2000), rates=rates_of_agents)
def test_nobody_is_without_items_where_there_are_enough(
    count: int, rates: dict[int, float]
) -> None:
    assume(count >= len(rates))
    assert all(assign(range(count), rates).values())


@given(
    count=st.integers(2000, 20000),
    rates=st.lists(st.floats(1.0, 20.0), min_size=1, max_size=8),
)
def test_an_iteration_takes_as_long_as_it_must(count: int, rates: list[float]) -> None:
    by_rank = dict(enumerate(rates, start=1))
    ideal = count / sum(rates)
    assert seconds_of(assign(range(count), by_rank), by_rank) <= ideal * 1.02 + 1 / min(rates)


def test_the_slowest_have_nothing_where_items_are_few() -> None:
    assert assign(range(2), {1: 1.0, 2: 9.0, 3: 5.0}) == {
        1: range(0),
        2: range(1),
        3: range(1, 2),
    }


@given(count=st.integers(0, 300), one=rates_of_agents, other=rates_of_agents)
@pytest.mark.slow
def test_what_moves_is_what_another_has_afterwards(
    count: int, one: dict[int, float], other: dict[int, float]
) -> None:
    before, after = assign(range(count), one), assign(range(count), other)
    owner = {item: rank for rank, part in before.items() for item in part}
    changed = sum(owner[item] != rank for rank, part in after.items() for item in part)
    assert sum(items for _, _, items in moved(before, after)) == changed


# --- moves ---

EQUAL = {1: range(50), 2: range(50, 100)}


def test_equal_agents_keep_what_they_have() -> None:
    assert decide(EQUAL, {1: 10.0, 2: 10.4}, OPTIONS, cost=0.0, ahead=1e9) is None


def test_items_move_to_the_faster_agent() -> None:
    decision = decide(EQUAL, {1: 10.0, 2: 30.0}, OPTIONS, cost=0.5, ahead=10)
    assert decision is not None
    assert decision.given == {1: range(25), 2: range(25, 100)}
    assert (decision.before, decision.after) == (5.0, 2.5)
    assert "agent 1" in decision.reason
    assert "50 %" in decision.reason


@pytest.mark.parametrize(("cost", "ahead", "moves"), [(24.9, 10, True), (25.1, 10, False)])
def test_a_move_must_gain_more_than_it_costs(cost: float, ahead: float, moves: bool) -> None:
    found = decide(EQUAL, {1: 10.0, 2: 30.0}, OPTIONS, cost=cost, ahead=ahead)
    assert (found is not None) is moves


def test_nothing_moves_where_nothing_comes() -> None:
    assert decide(EQUAL, {1: 10.0, 2: 30.0}, OPTIONS, cost=0.0, ahead=0) is None


def test_nothing_moves_where_it_is_static() -> None:
    static = DelegationOptions(how="static")
    assert decide(EQUAL, {1: 10.0, 2: 30.0}, static, cost=0.0, ahead=100) is None


def test_nothing_moves_before_all_are_known() -> None:
    assert decide(EQUAL, {1: 10.0}, OPTIONS, cost=0.0, ahead=100) is None


@given(rates=st.lists(st.floats(0.1, 1000.0), min_size=2, max_size=8), cost=st.floats(0, 10))
@settings(max_examples=200)
@pytest.mark.slow
def test_after_a_move_none_is_wanted(rates: list[float], cost: float) -> None:
    """With the same rates, items do not go to and fro."""
    by_rank = dict(enumerate(rates, start=1))
    before = assign(range(10000), dict.fromkeys(by_rank, 1.0))
    decision = decide(before, by_rank, OPTIONS, cost=cost, ahead=50)
    if decision is not None:
        assert decision.after < decision.before
        assert flat(decision.given) == list(range(10000))
        assert decide(decision.given, by_rank, OPTIONS, cost=cost, ahead=50) is None


# --- regret ---


@given(
    gains=st.lists(st.floats(0.0, 5.0), min_size=1, max_size=60),
    cost=st.floats(0.01, 20.0),
    steps=st.integers(1, 4),
)
def test_whoever_waits_for_the_cost_pays_no_more_than_twice(
    gains: list[float], cost: float, steps: int
) -> None:
    """The loss before the cut is at most its cost plus the loss of one iteration."""
    regret = Regret()
    lost = 0.0
    for number, gain in enumerate(gains, start=1):
        lost = regret.after(number * steps, gain)
        assert lost <= steps * sum(gains[:number]) + 1e-9
        if lost >= cost:
            assert lost <= cost + steps * gain + 1e-9
            return
    assert lost < cost


def test_what_was_lost_is_forgotten_when_nothing_is_to_be_gained() -> None:
    regret = Regret(3)
    assert regret.after(5, 1.0) == 2.0
    assert regret.after(6, 0.0) == 0.0
    assert regret.after(7, 0.5) == 0.5


# --- late ---

THREE = {1: range(10), 2: range(10, 20), 3: range(20, 30)}
TEN = dict.fromkeys(THREE, 10.0)


def test_a_late_agent_is_helped_by_all_that_are_done() -> None:
    assert late(THREE, {1: 3.0}, TEN, OPTIONS, divisible=True) == (
        1,
        [SpeculativeRange(2, 0, 5), SpeculativeRange(3, 5, 10)],
        "busy for 3 s where 1 s were expected",
    )


def test_what_cannot_be_divided_goes_to_the_fastest() -> None:
    found = late(THREE, {1: 3.0}, {1: 10.0, 2: 10.0, 3: 11.0}, OPTIONS, divisible=False)
    assert found is not None
    assert found[1] == [SpeculativeRange(3, 0, 10)]


def test_the_latest_is_helped_first() -> None:
    found = late(THREE, {1: 3.0, 2: 5.0}, TEN, OPTIONS, divisible=True)
    assert found is not None
    assert (found[0], found[1]) == (2, [SpeculativeRange(3, 10, 20)])


@pytest.mark.parametrize(
    "busy",
    [{}, {1: 1.2}, {1: 1.7}, {1: 9.0, 2: 9.0, 3: 9.0}],
    ids=["all done", "in time", "others need as long", "no agent is free"],
)
def test_nobody_is_helped_without_need(busy: dict[int, float]) -> None:
    assert late(THREE, busy, TEN, OPTIONS, divisible=True) is None


@given(
    counts=st.lists(st.integers(0, 50), min_size=2, max_size=6),
    rates=st.lists(st.floats(0.5, 50.0), min_size=6, max_size=6),
    seconds=st.floats(0, 100),
)
@pytest.mark.slow
def test_nobody_is_late_before_the_time_that_was_told(
    counts: list[int], rates: list[float], seconds: float
) -> None:
    given_items, start = {}, 0
    for rank, count in enumerate(counts, start=1):
        given_items[rank] = range(start, start + count)
        start += count
    by_rank = {rank: rates[rank - 1] for rank in given_items}
    assume(seconds < late_at(given_items, by_rank, OPTIONS) - 1e-6)
    for helper in given_items:
        busy = {rank: seconds for rank in given_items if rank != helper}
        assert late(given_items, busy, by_rank, OPTIONS, divisible=True) is None


def test_who_was_never_measured_gets_more_time() -> None:
    rates = Rates({1: 10.0})
    rates.note(2, 10, 1.0)
    rates.note(3, 10, 1.0)
    known = rates.at_least([1, 2, 3])
    assert late(THREE, {1: 20.0}, known, OPTIONS, divisible=True) is None
    assert late(THREE, {1: 30.0}, known, OPTIONS, divisible=True) is not None
    assert Rates().at_least([1]) == {}


def test_nobody_is_helped_where_it_is_static() -> None:
    static = DelegationOptions(how="static")
    assert late(THREE, {1: 99.0}, TEN, static, divisible=True) is None


@given(
    counts=st.lists(st.integers(1, 50), min_size=2, max_size=6),
    busy=st.dictionaries(st.integers(1, 6), st.floats(0, 100), max_size=6),
    divisible=st.booleans(),
)
@pytest.mark.slow
def test_pieces_are_the_items_of_the_late_agent(
    counts: list[int], busy: dict[int, float], divisible: bool
) -> None:
    given_items, start = {}, 0
    for rank, count in enumerate(counts, start=1):
        given_items[rank] = range(start, start + count)
        start += count
    found = late(given_items, busy, dict.fromkeys(given_items, 5.0), OPTIONS, divisible=divisible)
    if found is not None:
        rank, pieces, _ = found
        assert [i for one in pieces for i in range(one.start, one.stop)] == list(given_items[rank])
        assert all(one.by != rank and one.by not in busy for one in pieces)
        assert len({one.by for one in pieces}) == len(pieces)


# --- one answer ---


@given(
    st.permutations(
        [SpeculativeRange(2, 0, 5), SpeculativeRange(3, 5, 7), SpeculativeRange(4, 7, 9)]
    ),
    st.data(),
)
def test_a_substitute_is_complete_once(order: list[SpeculativeRange], data: st.DataObject) -> None:
    """Whoever answers twice, and in whatever order."""
    substitute: Substitute[str] = Substitute(order, "".join)
    answers = [*order, *data.draw(st.lists(st.sampled_from(order), max_size=4))]
    found = [substitute.answered(one, f"{one.start}-{one.stop} ") for one in answers]
    assert [one for one in found if one is not None] == ["0-5 5-7 7-9 "]


def test_a_substitute_that_failed_is_never_complete() -> None:
    substitute: Substitute[int] = Substitute(
        [SpeculativeRange(2, 0, 5), SpeculativeRange(3, 5, 9)], sum
    )
    assert substitute.answered(SpeculativeRange(2, 0, 5), 1) is None
    substitute.failed()
    assert substitute.answered(SpeculativeRange(3, 5, 9), 1) is None


def test_what_nobody_was_asked_for_is_no_answer() -> None:
    substitute: Substitute[int] = Substitute([SpeculativeRange(2, 0, 5)], sum)
    assert substitute.answered(SpeculativeRange(2, 0, 4), 1) is None
    assert substitute.answered(SpeculativeRange(3, 0, 5), 1) is None
    assert substitute.answered(SpeculativeRange(2, 0, 5), 1) == 1


def test_only_the_first_answer_to_a_wave_counts() -> None:
    first = FirstContribution()
    assert not first.counts(1)
    first.wanted(1)
    assert first.counts(1)
    assert not first.counts(1)
    first.wanted(2)
    assert not first.counts(1)
    assert first.counts(2)
