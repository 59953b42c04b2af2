"""The memory of results: what was lent holds the result, and is used again once it is back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.code.runner.calls import INLINE
from sapwood.code.runner.lending import Lending
from sapwood.code.runner.like_results import Parts
from sapwood.comm import values
from sapwood.comm.shared_memory import MappedBlocks

LARGE = INLINE // 8 + 1
"""Items of the smallest array that lies in shared memory."""


def read(parts: Parts) -> Any:
    """Return the result as the agent sees it."""
    body, payload = parts
    blocks = MappedBlocks()
    return values.decode(
        body.inline if body.shared is None else blocks.view(body.shared),
        payload.inline if payload.shared is None else blocks.view(payload.shared),
    )


def inodes(parts: Parts) -> tuple[int, ...]:
    """Return the blocks that were lent."""
    return tuple(bulk.shared.inode for bulk in parts if bulk.shared is not None)


def made(lending: Lending, sizes: list[int], value: int, copied: int = -1) -> dict[str, Any]:
    """Return a result of arrays of the given sizes; one may be the user's own."""
    result: dict[str, Any] = {}
    for index, size in enumerate(sizes):
        array = lending.allocate((size,), np.dtype("f8"))
        if array is None or index == copied:
            array = np.empty(size)
        array.fill(value + index)
        result[f"{index}"] = array
    return result


@pytest.fixture
def lending() -> Iterator[Lending]:
    """Return the memory of a runner."""
    with closing(Lending()) as made:
        yield made


SIZES = st.lists(st.sampled_from([3, LARGE, LARGE + 1000, 3 * LARGE]), min_size=1, max_size=3)


@given(st.lists(st.tuples(SIZES, st.integers(-1, 2), st.booleans()), min_size=1, max_size=6))
def test_any_results_in_turn_arrive_as_they_are(
    turns: list[tuple[list[int], int, bool]],
) -> None:
    with closing(Lending()) as lending:
        lend_and_read(lending, turns)


def lend_and_read(lending: Lending, turns: list[tuple[list[int], int, bool]]) -> None:
    """Lend results, each twice in a row, and compare what can be read."""
    for value, (sizes, copied, fails) in enumerate(turns):
        for _ in range(2):  # the second time it is like the first
            lending.context = ("map", str(sizes))
            result = made(lending, sizes, 10 * value, copied)
            if fails:
                lending.abandon()
                continue
            parts = lending.lend(result)
            found = read(parts)
            assert found.keys() == result.keys()
            assert all(np.array_equal(found[name], result[name]) for name in result)
            lending.take_back(inodes(parts))


DOINGS = st.sampled_from(["return", "return", "return", "reverse", "copy", "fail", "make more"])


@given(st.lists(st.tuples(st.sampled_from([3, LARGE, 2 * LARGE]), DOINGS, st.booleans())))
def test_single_arrays_that_come_again_leave_alone_what_is_lent(
    turns: list[tuple[int, str, bool]],
) -> None:
    with closing(Lending()) as lending:
        lent: list[tuple[Parts, Any]] = []
        for value, (size, doing, all_returned) in enumerate(turns):
            array = lending.allocate(size, np.float64)
            array = np.empty(size) if array is None else array
            if doing == "make more":
                lending.allocate(LARGE, np.float64)
            array[:] = np.arange(size) + value
            array = {"reverse": array[::-1], "copy": array.copy()}.get(doing, array)
            if doing == "fail":
                lending.abandon()
                continue
            lent.append((lending.lend({"a": array}), array.copy()))
            for parts, expected in lent:
                assert np.array_equal(read(parts)["a"], expected)
            while lent and all_returned:
                parts, _ = lent.pop()
                lending.take_back(inodes(parts))


def test_a_single_array_that_comes_again_is_made_where_it_was(lending: Lending) -> None:
    parts = [lending.lend({"a": lending.allocate(LARGE, "f8")})]
    for _ in range(3):
        lending.take_back(inodes(parts[-1]))
        parts.append(lending.lend({"a": lending.allocate(LARGE, "f8")}))
    assert parts[1] is parts[2] is parts[3]


def test_what_is_lent_is_left_alone_and_then_used_again(lending: Lending) -> None:
    first = lending.lend(made(lending, [LARGE], 1))
    second = lending.lend(made(lending, [LARGE], 2))
    assert read(first)["0"][0] == 1
    assert set(inodes(first)).isdisjoint(inodes(second))
    lending.take_back(inodes(first))
    third = lending.lend(made(lending, [LARGE], 3))
    assert inodes(third) == inodes(first)
    assert read(third)["0"][0] == 3
    assert read(second)["0"][0] == 2


def test_the_memory_of_a_call_that_failed_is_free(lending: Lending) -> None:
    block = inodes(lending.lend(made(lending, [LARGE], 1)))
    lending.take_back(block)
    made(lending, [LARGE, LARGE], 2)
    lending.abandon()
    made(lending, [LARGE], 3)
    lending.abandon()
    assert inodes(lending.lend(made(lending, [LARGE], 4))) == block


def test_what_user_code_did_to_an_array_does_not_stay(lending: Lending) -> None:
    for _ in range(3):
        result = made(lending, [LARGE], 1)
        assert result["0"].flags.writeable
        parts = lending.lend(result)
        result["0"].setflags(write=False)
        lending.take_back(inodes(parts))
