"""The memory of results: one array after the other, each before a guard."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.code.array_address import address_of
from sapwood.code.runner.arena import Arena
from sapwood.comm.address_space import PAGE
from sapwood.comm.huge_pages import HUGE_PAGE
from sapwood.comm.shared_memory import ALIGNMENT, MappedBlocks

BYTES = np.dtype("u1")

opened: list[Arena] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close the arenas of a test."""
    yield
    while opened:
        opened.pop().close()


def made(nbytes: int) -> Arena:
    opened.append(Arena(nbytes))
    return opened[-1]


SIZES = st.lists(st.integers(1, 3 * PAGE), max_size=6)


def test_arrays_lie_as_in_the_result_before_and_have_guards_as_well() -> None:
    arena = made(8 * PAGE)
    first = [arena.array(BYTES, PAGE, first=True), arena.array(BYTES, 2 * PAGE)]
    again = [arena.array(BYTES, PAGE, first=True), arena.array(BYTES, 2 * PAGE)]
    assert all(one is other for one, other in zip(first, again, strict=True))
    assert writes(arena, PAGE) == writes(arena, 4 * PAGE) == signal.SIGSEGV
    other = arena.array(np.dtype("f8"), 5 * PAGE, first=True)  # over the guards of the others
    assert other is not None
    assert other.size == 5 * PAGE // 8
    other.fill(1.0)
    assert writes(arena, 5 * PAGE) == signal.SIGSEGV
    more = arena.array(BYTES, PAGE)
    assert more is not None
    assert address_of(more) - arena.address == 6 * PAGE


def writes(arena: Arena, offset: int) -> int:
    """Return the signal that a process gets which writes there; 0 for none."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        ctypes.memset(arena.address + offset, 1, 1)
        os._exit(0)
    return os.WTERMSIG(os.waitpid(pid, 0)[1])


@given(st.lists(SIZES, min_size=1, max_size=4))
def test_arrays_of_any_layout_can_be_written_and_do_not_meet(layouts: list[list[int]]) -> None:
    arena = made(16 * PAGE)
    for sizes in layouts:
        end = 0
        for index, size in enumerate(sizes):
            array = arena.array(BYTES, size, first=index == 0)
            if array is None:
                break
            assert array.size == size
            start = address_of(array) - arena.address
            assert start % ALIGNMENT == 0
            assert start >= end
            array.fill(1)
            end = -(-(start + size) // PAGE) * PAGE + PAGE
            assert arena.end == start + size
    arena.open()[:] = b"\2" * arena.capacity


def test_what_does_not_fit_is_refused() -> None:
    arena = made(2 * PAGE)
    assert arena.allocate(2 * PAGE + 1) is None
    assert arena.allocate(PAGE) == 0
    assert arena.allocate(PAGE) is None


@pytest.mark.parametrize("beside", [-1, PAGE, 3 * PAGE, 3 * PAGE + 5000])
@pytest.mark.slow
def test_a_write_beside_an_array_ends_the_process(beside: int) -> None:
    arena = made(3 * PAGE)
    assert arena.allocate(PAGE) == 0
    assert arena.allocate(PAGE) == 2 * PAGE
    assert writes(arena, 0) == writes(arena, 2 * PAGE) == 0
    assert writes(arena, beside) == signal.SIGSEGV


@pytest.mark.slow
def test_a_large_array_lies_where_huge_pages_can_and_before_a_guard() -> None:
    arena = made(2 * HUGE_PAGE + 2 * PAGE)
    assert arena.address % HUGE_PAGE == 0
    assert arena.allocate(2 * HUGE_PAGE) == 0
    arena.view[: 2 * HUGE_PAGE] = b"\1" * 2 * HUGE_PAGE
    assert writes(arena, 2 * HUGE_PAGE - 1) == 0
    assert writes(arena, 2 * HUGE_PAGE) == signal.SIGSEGV
    assert writes(arena, -1) == signal.SIGSEGV
    assert (
        arena.array(BYTES, HUGE_PAGE + 1, first=True) is not None
    )  # its guard divides a huge page
    assert writes(arena, HUGE_PAGE + PAGE) == signal.SIGSEGV
    assert bytes(arena.view[HUGE_PAGE - 1 : HUGE_PAGE + 1]) == b"\1\1"
    arena.open()[:] = b"\2" * arena.capacity
    assert MappedBlocks().view(arena.ref(arena.capacity)) == b"\2" * arena.capacity


def test_others_read_what_was_written() -> None:
    arena = made(3 * PAGE)
    start = arena.allocate(PAGE)
    assert start is not None
    arena.view[start] = 77
    assert MappedBlocks().view(arena.ref(arena.end))[start] == 77


def test_where_there_is_no_address_space_nothing_stays_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_nbytes: int, fd: int) -> int:
        tried.append(fd)
        raise MemoryError("no room")

    tried: list[int] = []
    monkeypatch.setattr("sapwood.code.guarded.reserve", refuse)
    with pytest.raises(MemoryError, match="no room"):
        Arena(PAGE)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(tried[0])
