from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.comm import values
from sapwood.comm.reductions import make_reduction
from sapwood.core.errors import ExecutionError

KIND = "sum:reproducible"


def travelled(value: Any) -> Any:
    encoded = values.encode(value)
    return values.decode(encoded.body, bytes(encoded.payload()))


def reference(parts: dict[int, Any]) -> Any:
    """Add in the order of the docstring, written down another way: by halving the ranks."""

    def total(low: int, size: int) -> Any:
        if size == 1:
            return parts.get(low)
        left, right = total(low, size // 2), total(low + size // 2, size // 2)
        if left is None or right is None:
            return right if left is None else left
        return left + right

    agents = total(1, 64)
    front = parts.get(0)
    if front is None or agents is None:
        return agents if front is None else front
    return front + agents


def in_a_random_tree(parts: dict[int, Any], chance: random.Random) -> Any:
    """Reduce any subsets in any order, over any number of levels: subtrees need not be ranges."""
    pending = list(parts.items())
    while len(pending) > 1 or chance.random() < 0.3:
        chance.shuffle(pending)
        size = chance.randint(1, len(pending))
        group, pending = pending[:size], pending[size:]
        junction = make_reduction(KIND)
        for rank, value in group:
            junction.add(travelled(value), rank, 1.0)
        pending.append((group[0][0], junction.partial()))
    root = make_reduction(KIND)
    root.add(travelled(pending[0][1]), pending[0][0], 1.0)
    return root.total()


@pytest.mark.row("C2-RED")
@given(
    st.sets(st.integers(0, 64), min_size=1, max_size=40),
    st.sampled_from(["f8", "f4", "c16"]),
    st.sampled_from([(), (1,), (5,), (2, 3)]),
    st.integers(0, 2**32 - 1),
)
@pytest.mark.slow
def test_any_tree_any_order_and_any_members_give_the_same_bits(
    ranks: set[int], dtype: str, shape: tuple[int, ...], seed: int
) -> None:
    numbers = np.random.default_rng(seed)
    parts = {
        rank: (numbers.normal(size=shape) * 10.0 ** numbers.integers(-12, 12)).astype(dtype)
        if shape
        else float(numbers.normal() * 10.0 ** numbers.integers(-12, 12))
        for rank in ranks
    }
    expected = np.asarray(reference(parts))
    for turn in range(3):
        total = np.asarray(in_a_random_tree(parts, random.Random(seed + turn)))  # noqa: S311 - chance that can be repeated
        assert total.dtype == expected.dtype
        assert total.tobytes() == expected.tobytes()


def test_the_plain_sum_does_depend_on_the_order() -> None:
    # Else the test above could not fail.
    parts = [1e16, 1.0, -1e16, 1.0]
    forward, other = make_reduction("sum"), make_reduction("sum")
    for rank, part in enumerate(parts):
        forward.add(part, rank, 1.0)
    for rank in (0, 2, 1, 3):
        other.add(parts[rank], rank, 1.0)
    assert forward.total() != other.total()


def parts_of(ranks: Sequence[int]) -> int:
    junction = make_reduction(KIND)
    for rank in ranks:
        junction.add(np.ones(2), rank, 1.0)
    return len(junction.partial()["parts"])


def test_a_junction_over_whole_pairs_hands_on_one_array() -> None:
    assert parts_of(range(9, 17)) == 1
    assert parts_of(range(1, 65)) == 1


@given(st.integers(1, 1000), st.integers(1, 500))
@pytest.mark.slow
def test_a_junction_over_neighbours_hands_on_few(first: int, count: int) -> None:
    assert parts_of(range(first, first + count)) <= max(1, 2 * int(np.log2(count)))


def test_what_contributors_lent_is_not_written_to() -> None:
    lent = [np.full(3, float(rank)) for rank in range(1, 6)]
    for array in lent:
        array.flags.writeable = False
    reduction = make_reduction(KIND)
    for rank, array in enumerate(lent, start=1):
        reduction.add(array, rank, 1.0)
    assert reduction.total().tolist() == [15.0] * 3
    alone = make_reduction(KIND)
    alone.add(lent[0], 1, 1.0)
    assert alone.total() is not lent[0]


def test_booleans_count_as_in_a_plain_sum() -> None:
    reduction = make_reduction(KIND)
    for rank in (1, 2, 3):
        reduction.add(np.array([True, rank > 1]), rank, 1.0)
    assert reduction.total().tolist() == [3, 2]


@pytest.mark.parametrize(
    "second", [np.ones(3), np.ones(2, "f4"), {"parts": [[0, 0, 1.0]]}, {"x": 1}, "text"]
)
def test_what_does_not_fit_is_an_error(second: Any) -> None:
    reduction = make_reduction(KIND)
    reduction.add(np.ones(2), 1, 1.0)
    with pytest.raises(ExecutionError):
        reduction.add(second, 2, 1.0)
