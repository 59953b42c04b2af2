import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.core.errors import ProtocolError
from sapwood.core.rankset import (
    MAX_RANKS,
    Ranges,
    fold,
    from_ranges,
    joined,
    parse_ranks,
    to_ranges,
)

rank_sets = st.sets(st.integers(0, 300))


@given(rank_sets)
def test_ranges_hold_exactly_the_ranks(ranks: set[int]) -> None:
    assert from_ranges(to_ranges(ranks)) == ranks


@given(rank_sets)
def test_ranges_are_sorted_and_as_few_as_possible(ranks: set[int]) -> None:
    ranges = to_ranges(ranks)
    assert all(start < stop for start, stop in ranges)
    assert all(left[1] < right[0] for left, right in itertools.pairwise(ranges))


@given(rank_sets, rank_sets)
def test_joining_disjoint_sets_is_their_union(left: set[int], right: set[int]) -> None:
    right -= left
    merged = joined([*to_ranges(left), *to_ranges(right)])
    assert merged == to_ranges(left | right)
    assert merged == joined([*to_ranges(right), *to_ranges(left)])


@given(st.lists(st.integers(0, 50)))
def test_order_and_repetition_do_not_matter(ranks: list[int]) -> None:
    assert to_ranges(ranks) == to_ranges(sorted(set(ranks)))


@given(st.sets(st.integers(0, 300), min_size=1))
def test_folded_text_names_exactly_the_ranks(ranks: set[int]) -> None:
    text = fold("agent", ranks)
    named: set[int] = set()
    for part in text.removeprefix("agent").strip(" []").split(","):
        first, _, last = part.partition("-")
        named.update(range(int(first), int(last or first) + 1))
    assert named == ranks


def test_one_rank_is_written_without_brackets() -> None:
    assert fold("agent", [4]) == "agent 4"
    assert fold("agent", [4, 5]) == "agent[4-5]"


@pytest.mark.parametrize("ranges", [((0, 2**40),), ((0, MAX_RANKS), (5, 6)), ((-(2**63), 2**63),)])
def test_ranges_from_a_peer_cannot_take_all_memory(ranges: Ranges) -> None:
    with pytest.raises(ProtocolError, match="more than"):
        from_ranges(ranges)


@pytest.mark.parametrize("text", ["", "a", "3-", "-3", "1,,2", "1-2-3", "1-99999999999", "²"])
def test_what_names_no_ranks_is_nothing(text: str) -> None:
    assert parse_ranks(text) == set()


@given(st.sets(st.integers(1, 500), min_size=1))
def test_ranks_are_read_as_they_are_written(ranks: set[int]) -> None:
    assert parse_ranks(fold("", ranks).strip(" []")) == ranks
