"""The memory of results: a lent block holds its result, and is reused when it is returned."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.code.runner import result_pool
from sapwood.code.runner.calls import INLINE
from sapwood.code.runner.result_codec import Parts
from sapwood.code.runner.result_pool import ResultPool
from sapwood.comm import address_space, values
from sapwood.comm.shared_memory import MappedBlocks

LARGE = INLINE // 8 + 1
"""Items of the smallest array that is stored in shared memory."""


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


def made(pool: ResultPool, sizes: list[int], value: int, copied: int = -1) -> dict[str, Any]:
    """Return a result of arrays of the given sizes; one may be the user's own."""
    result: dict[str, Any] = {}
    for index, size in enumerate(sizes):
        array = pool.allocate((size,), np.dtype("f8"))
        if array is None or index == copied:
            array = np.empty(size)
        array.fill(value + index)
        result[f"{index}"] = array
    return result


@pytest.fixture
def pool() -> Iterator[ResultPool]:
    """Return the memory of a runner."""
    with closing(ResultPool()) as made:
        yield made


SIZES = st.lists(st.sampled_from([3, LARGE, LARGE + 1000, 3 * LARGE]), min_size=1, max_size=3)


@given(st.lists(st.tuples(SIZES, st.integers(-1, 2), st.booleans()), min_size=1, max_size=6))
@pytest.mark.slow
def test_any_results_in_turn_arrive_as_they_are(
    turns: list[tuple[list[int], int, bool]],
) -> None:
    with closing(ResultPool()) as pool:
        lend_and_read(pool, turns)


def lend_and_read(pool: ResultPool, turns: list[tuple[list[int], int, bool]]) -> None:
    """Lend results, each twice in a row, and compare what can be read."""
    for value, (sizes, copied, fails) in enumerate(turns):
        for _ in range(2):  # the second time it is like the first
            pool.context = ("map", str(sizes))
            result = made(pool, sizes, 10 * value, copied)
            if fails:
                pool.abandon()
                continue
            parts = pool.lend(result)
            found = read(parts)
            assert found.keys() == result.keys()
            assert all(np.array_equal(found[name], result[name]) for name in result)
            pool.take_back(inodes(parts))


DOINGS = st.sampled_from(["return", "return", "return", "reverse", "copy", "fail", "make more"])


@given(st.lists(st.tuples(st.sampled_from([3, LARGE, 2 * LARGE]), DOINGS, st.booleans())))
@pytest.mark.slow
def test_single_arrays_that_come_again_leave_alone_what_is_lent(
    turns: list[tuple[int, str, bool]],
) -> None:
    with closing(ResultPool()) as pool:
        lent: list[tuple[Parts, Any]] = []
        for value, (size, doing, all_returned) in enumerate(turns):
            array = pool.allocate(size, np.float64)
            array = np.empty(size) if array is None else array
            if doing == "make more":
                pool.allocate(LARGE, np.float64)
            array[:] = np.arange(size) + value
            array = {"reverse": array[::-1], "copy": array.copy()}.get(doing, array)
            if doing == "fail":
                pool.abandon()
                continue
            lent.append((pool.lend({"a": array}), array.copy()))
            for parts, expected in lent:
                assert np.array_equal(read(parts)["a"], expected)
            while lent and all_returned:
                parts, _ = lent.pop()
                pool.take_back(inodes(parts))


def test_a_single_array_that_comes_again_is_made_where_it_was(pool: ResultPool) -> None:
    parts = [pool.lend({"a": pool.allocate(LARGE, "f8")})]
    for _ in range(3):
        pool.take_back(inodes(parts[-1]))
        parts.append(pool.lend({"a": pool.allocate(LARGE, "f8")}))
    assert parts[1] == parts[2] == parts[3]
    assert parts[1][0] is parts[2][0] is parts[3][0]


def test_what_is_lent_is_left_alone_and_then_used_again(pool: ResultPool) -> None:
    first = pool.lend(made(pool, [LARGE], 1))
    second = pool.lend(made(pool, [LARGE], 2))
    assert read(first)["0"][0] == 1
    assert set(inodes(first)).isdisjoint(inodes(second))
    pool.take_back(inodes(first))
    third = pool.lend(made(pool, [LARGE], 3))
    assert inodes(third) == inodes(first)
    assert read(third)["0"][0] == 3
    assert read(second)["0"][0] == 2


def test_the_memory_of_a_call_that_failed_is_free(pool: ResultPool) -> None:
    block = inodes(pool.lend(made(pool, [LARGE], 1)))
    pool.take_back(block)
    made(pool, [LARGE, LARGE], 2)
    pool.abandon()
    made(pool, [LARGE], 3)
    pool.abandon()
    assert inodes(pool.lend(made(pool, [LARGE], 4))) == block


def test_what_user_code_did_to_an_array_does_not_stay(pool: ResultPool) -> None:
    for _ in range(3):
        result = made(pool, [LARGE], 1)
        assert result["0"].flags.writeable
        parts = pool.lend(result)
        result["0"].setflags(write=False)
        pool.take_back(inodes(parts))


@pytest.mark.slow
def test_free_memory_is_bounded(monkeypatch: pytest.MonkeyPatch, pool: ResultPool) -> None:
    monkeypatch.setattr(result_pool, "MAX_FREE_BYTES", 100 * 8 * LARGE)
    descriptors: list[int] = []
    for size in range(LARGE, 40 * LARGE, LARGE // 2):
        parts = pool.lend({"a": np.ones(size)})
        assert parts[1].shared is not None
        descriptors.append(os.dup(parts[1].shared.fd))
        pool.take_back(inodes(parts))
        assert read(pool.lend({"a": np.ones(3)}))["a"].sum() == 3
    try:
        held = {os.fstat(fd).st_ino: 512 * os.fstat(fd).st_blocks for fd in descriptors}
    finally:
        for fd in descriptors:
            os.close(fd)
    assert 2 * 39 * 8 * LARGE <= sum(held.values()) <= 100 * 8 * LARGE


def test_results_that_take_turns_keep_their_memory(
    monkeypatch: pytest.MonkeyPatch, pool: ResultPool
) -> None:
    monkeypatch.setattr(result_pool, "MAX_FREE_BYTES", 0)
    seen: set[int] = set()
    for number in range(10):
        both = [pool.lend({"a": np.full(size, number)}) for size in (LARGE, 9 * LARGE)]
        for parts in both:
            assert (read(parts)["a"] == number).all()
            seen |= set(inodes(parts))
            pool.take_back(inodes(parts))
    assert len(seen) <= 4  # the first of each is at an unexpected place


@pytest.mark.parametrize("most", [0, 2**28])
@pytest.mark.parametrize("sizes", [[LARGE], [LARGE, 2 * LARGE]])
@pytest.mark.parametrize("growth", [1, 3])
def test_an_array_that_user_code_keeps_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, pool: ResultPool, most: int, sizes: list[int], growth: int
) -> None:
    monkeypatch.setattr(result_pool, "MAX_FREE_BYTES", most)
    pool.context = ("call", "keeps")
    kept: list[Any] = []
    for turn in range(8):
        now = [size * growth ** (turn // 2) for size in sizes]
        if turn % 3 == 2:
            pool.lend({"a": np.ones(now[0])})
        result = made(pool, now, turn)
        if turn % 4 == 3:  # after some that were not kept, so that one array was expected
            kept.append((turn, result["0"][1:]))
        pool.take_back(inodes(pool.lend(result)))
        del result
        assert all((array == value).all() for value, array in kept)
    kept[0][1][:] = 5  # nothing happens
    assert read(pool.lend(made(pool, now, 1)))["0"].sum() == now[0]


def test_sizes_of_results_are_kept_in_mind_for_some_contexts(
    monkeypatch: pytest.MonkeyPatch, pool: ResultPool
) -> None:
    monkeypatch.setattr(result_pool, "MAX_CONTEXTS", 3)
    for number in range(20):
        pool.context = ("map", f"run-{number}")
        pool.take_back(inodes(pool.lend({"a": np.ones(LARGE)})))
    assert list(pool._wanted) == [("map", f"run-{number}") for number in (17, 18, 19)]


@pytest.mark.parametrize(
    "shape",
    [
        LARGE,
        np.int64(LARGE),
        (LARGE,),
        (np.int64(2), LARGE),
        [3, np.int32(LARGE)],
        np.array([2, LARGE]),
    ],
)
def test_shapes_are_what_they_are_to_numpy(pool: ResultPool, shape: Any) -> None:
    for value in range(4):  # from the third one on it is expected
        array = pool.allocate(shape, "f8")
        assert array is not None
        assert array.shape == np.empty(shape).shape
        array.fill(value)
        parts = pool.lend({"x": array})
        assert (read(parts)["x"] == value).all()
        pool.take_back(inodes(parts))


def test_a_shape_or_type_that_its_maker_changes_is_looked_at(pool: ResultPool) -> None:
    shape, kind = [2, LARGE], [("a", "f8")]

    def change() -> None:
        shape.reverse()
        shape[0] += 1
        kind[:] = [("b", "i4"), ("c", "i4")]

    for asked in ((shape, "f8"), (LARGE, kind)):
        for turn in range(6):
            if turn == 4:  # when it is expected
                change()
            array = pool.allocate(*asked)
            assert array is not None
            assert (array.shape, array.dtype) == (np.empty(*asked).shape, np.dtype(asked[1]))
            pool.take_back(inodes(pool.lend({"x": array})))


def test_arrays_of_several_threads_lie_apart(
    pool: ResultPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lend_and_read(pool, [([LARGE, LARGE], -1, False)])
    protect, made = address_space.protect, dict[str, Any]()

    def make(name: str) -> None:
        made[name] = pool.allocate(LARGE + 512, "f8")

    other = threading.Thread(target=make, args=("other",))

    def interrupted(address: int, nbytes: int, access: int) -> None:
        if not other.ident:
            other.start()
            other.join(0.1)  # unless it waits for its turn
        protect(address, nbytes, access)

    monkeypatch.setattr(address_space, "protect", interrupted)
    make("mine")
    other.join()
    assert not np.shares_memory(made["mine"], made["other"])


def test_one_thread_of_several_gets_the_array_that_comes_again(pool: ResultPool) -> None:
    last = pool.lend({"a": pool.allocate(LARGE, "f8")})
    for _ in range(20):
        pool.take_back(inodes(last))
        last = pool.lend({"a": pool.allocate(LARGE, "f8")})
        pool.take_back(inodes(last))
        begin, made = threading.Barrier(4), list[Any]()

        def make(begin: threading.Barrier, made: list[Any]) -> None:
            begin.wait()
            array = pool.allocate(LARGE, "f8")
            made.append(np.empty(LARGE) if array is None else array)

        threads = [threading.Thread(target=make, args=(begin, made)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        arrays = {f"{index}": array for index, array in enumerate(made)}
        for index, array in enumerate(made):
            array.fill(index)
        last = pool.lend(arrays)
        assert [read(last)[name].tolist() for name in arrays] == [[i] * LARGE for i in range(4)]
        del made, arrays, array
