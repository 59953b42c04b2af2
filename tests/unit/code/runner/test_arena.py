"""The memory of results: one array after the other, each before a guard."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.code.runner.arena import PAGE, Arena
from sapwood.comm.shared_memory import ALIGNMENT, MappedBlocks

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
        arena.begin()
        end = 0
        for size in sizes:
            start = arena.allocate(size)
            if start is None:
                break
            assert start % ALIGNMENT == 0
            assert start >= end
            arena.view[start : start + size] = b"\1" * size
            end = -(-(start + size) // PAGE) * PAGE + PAGE
            assert arena.end == start + size
    arena.open()[:] = b"\2" * arena.capacity


def test_what_does_not_fit_is_refused() -> None:
    arena = made(2 * PAGE)
    assert arena.allocate(2 * PAGE + 1) is None
    assert arena.allocate(PAGE) == 0
    assert arena.allocate(PAGE) is None


@pytest.mark.parametrize("beside", [-1, PAGE, 3 * PAGE, 3 * PAGE + 5000])
def test_a_write_beside_an_array_ends_the_process(beside: int) -> None:
    arena = made(3 * PAGE)
    assert arena.allocate(PAGE) == 0
    assert arena.allocate(PAGE) == 2 * PAGE
    assert writes(arena, 0) == writes(arena, 2 * PAGE) == 0
    assert writes(arena, beside) == signal.SIGSEGV


def test_others_read_what_was_written() -> None:
    arena = made(3 * PAGE)
    start = arena.allocate(PAGE)
    assert start is not None
    arena.view[start] = 77
    assert MappedBlocks().view(arena.ref(arena.end))[start] == 77
