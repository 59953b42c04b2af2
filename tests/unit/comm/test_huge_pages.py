"""Huge pages: asked for where they may be had, and shared memory is the same without them."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.comm import huge_pages
from sapwood.comm.address_space import PAGE
from sapwood.comm.huge_pages import HUGE_PAGE, PAUSE
from sapwood.comm.shared_memory import MappedBlocks, SharedBlock, private_view


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[int]]:
    """Have a kernel that answers with an error number; give the sizes that it was asked for."""
    sizes: list[int] = []

    def answer(error: int) -> list[int]:
        def madvise(_address: int, nbytes: int, _advice: int) -> int:
            sizes.append(nbytes)
            ctypes.set_errno(error)
            return -1 if error else 0

        monkeypatch.setattr(huge_pages, "_madvise", madvise)
        return sizes

    for name, value in {"refused": False, "pause": 0}.items():
        monkeypatch.setattr(huge_pages._asking, name, value)
    return answer


def huge_bytes(address: int) -> int:
    """Return how many bytes of the mapping at an address this process sees as huge pages."""
    found = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first:
            found = int(first.split("-")[0], 16) == address
        elif found and first == "ShmemPmdMapped:":
            return int(line.split()[1]) * 1024
    raise AssertionError("nothing is mapped there")


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def reserved(block: SharedBlock) -> int:
    return os.fstat(block.fd).st_blocks * 512


@pytest.mark.parametrize("error", [errno.EINVAL, errno.ENOSYS, errno.EPERM])
@pytest.mark.slow
def test_a_kernel_that_has_none_is_asked_once(
    asked: Callable[[int], list[int]], error: int
) -> None:
    sizes = asked(error)
    for _ in range(PAUSE + 2):
        with SharedBlock(HUGE_PAGE) as block:
            block.view[-1] = 1
            assert reserved(block) == HUGE_PAGE
    assert sizes == [HUGE_PAGE]


@pytest.mark.parametrize("error", huge_pages.NONE_FREE)
@pytest.mark.slow
def test_a_kernel_that_has_none_free_is_asked_again_later(
    asked: Callable[[int], list[int]], error: int
) -> None:
    sizes = asked(error)
    for _ in range(PAUSE + 2):
        SharedBlock(HUGE_PAGE).close()
    assert len(sizes) == 2


@pytest.mark.parametrize("error", huge_pages.FOR_THIS_ONE)
def test_a_kernel_that_gives_some_is_asked_for_each_block(
    asked: Callable[[int], list[int]], error: int
) -> None:
    sizes = asked(error)
    for nbytes in (HUGE_PAGE - PAGE, HUGE_PAGE, 5 * HUGE_PAGE + 3 * PAGE):
        SharedBlock(nbytes).close()
    assert sizes == [HUGE_PAGE, 5 * HUGE_PAGE]


def test_only_whole_huge_pages_are_asked_for(asked: Callable[[int], list[int]]) -> None:
    sizes = asked(0)
    SharedBlock(2 * HUGE_PAGE - PAGE).close()
    assert sizes == [HUGE_PAGE]


def test_every_mapping_of_a_large_block_lies_where_huge_pages_can() -> None:
    with SharedBlock(HUGE_PAGE) as block:
        blocks = MappedBlocks()
        views = [
            block.view,
            blocks.view(block.ref()),
            blocks.view(block.ref(), writable=True),
            private_view(block.ref()),
        ]
        assert [address(view) % HUGE_PAGE for view in views] == [0] * 4


@pytest.mark.slow
def test_blocks_have_huge_pages_where_the_kernel_gives_them() -> None:
    asking = huge_pages._asking
    for _ in range(5):  # a page may happen to be in use just when it is requested
        with SharedBlock(2 * HUGE_PAGE + PAGE) as block:
            block.view[:] = b"\1" * len(block.view)
            if asking.refused or asking.pause:
                pytest.skip("this kernel has no huge pages now")
            # Of another mapping, one access makes all of a huge page visible.
            seen = MappedBlocks().view(block.ref())
            assert seen[0] == seen[HUGE_PAGE] == 1
            found = [huge_bytes(address(view)) for view in (block.view, seen)]
            if found == [2 * HUGE_PAGE] * 2:
                return
    raise AssertionError(found)


@pytest.mark.parametrize("nbytes", [HUGE_PAGE, HUGE_PAGE + 1, 3 * HUGE_PAGE - 5 * PAGE])
def test_the_memory_for_all_of_it_is_reserved_and_no_more(nbytes: int) -> None:
    with SharedBlock(nbytes) as block:
        assert reserved(block) == block.capacity < nbytes + PAGE


WRITES = st.lists(
    st.tuples(st.integers(0, 3 * HUGE_PAGE - 1), st.binary(min_size=1, max_size=9000)),
    max_size=8,
)


@settings(max_examples=20)
@given(st.integers(HUGE_PAGE - PAGE, 3 * HUGE_PAGE), WRITES)
@pytest.mark.slow
def test_all_processes_see_what_any_of_them_writes(
    nbytes: int, writes: list[tuple[int, bytes]]
) -> None:
    with SharedBlock(nbytes) as block:
        copy = np.zeros(block.capacity, np.uint8)
        writer = MappedBlocks().view(block.ref(), writable=True)
        for turn, (place, drawn) in enumerate(writes):
            start = place % nbytes
            data = drawn[: nbytes - start]
            target = (block.view, writer)[turn % 2]
            target[start : start + len(data)] = data
            copy[start : start + len(data)] = np.frombuffer(data, np.uint8)
        own = private_view(block.ref())
        for view in (block.view, writer, MappedBlocks().view(block.ref()), own):
            assert np.array_equal(np.frombuffer(view, np.uint8), copy)
        own[:] = b"\xff" * len(own)
        assert np.array_equal(np.frombuffer(block.view, np.uint8), copy)
