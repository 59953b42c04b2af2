"""Mappings at chosen addresses: where they lie, how long they live, what they do not count as."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import resource
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.comm import address_space
from sapwood.comm.address_space import PAGE, WRITABLE

MIB = 2**20


@pytest.fixture
def file() -> Iterator[int]:
    """Give a file of 16 pages in memory; its first bytes are not zero."""
    fd = os.memfd_create("address-space")
    os.ftruncate(fd, 16 * PAGE)
    os.pwrite(fd, b"abc", 0)
    yield fd
    os.close(fd)


def mappings() -> int:
    return Path("/proc/self/maps").read_text().count("/memfd:address-space")


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def reserved(begin: int, end: int) -> int:
    """Return how many bytes between two addresses are mapped without access rights."""
    total = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, access, *_rest = line.split()
        first, last = (int(part, 16) for part in span.split("-"))
        if access.startswith("---"):
            total += max(0, min(last, end) - max(first, begin))
    return total


def in_a_fork(work: Callable[[], None]) -> None:
    """Do something in a process without other threads and with its own limits and mappings."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - it must not continue the tests
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


@given(
    st.integers(1, 40),
    st.sampled_from([PAGE, 16 * PAGE, 2 * MIB]),
    st.sampled_from([0, PAGE, 8 * MIB]),
)
@pytest.mark.slow
def test_reserved_space_is_aligned_and_has_its_margins(
    pages: int, alignment: int, margin: int
) -> None:
    nbytes = pages * PAGE
    begin = address_space.reserve(nbytes, alignment=alignment, margin=margin)
    assert begin % alignment == 0
    assert reserved(begin - margin, begin + nbytes + margin) == nbytes + 2 * margin
    address_space.release(begin - margin, nbytes + 2 * margin)


@pytest.mark.slow
def test_what_alignment_took_beside_it_is_given_back() -> None:
    def reserve_and_release() -> None:
        before = reserved(0, 2**63)
        spaces = [address_space.reserve(3 * PAGE, alignment=2 * MIB, margin=PAGE) for _ in "12345"]
        assert reserved(0, 2**63) - before == 5 * 5 * PAGE
        for begin in spaces:
            address_space.release(begin - PAGE, 5 * PAGE)
        assert reserved(0, 2**63) == before

    in_a_fork(reserve_and_release)


def test_more_than_there_is_is_an_error() -> None:
    with pytest.raises(OSError, match="memory"):
        address_space.reserve(2**60)


def test_a_limit_of_data_does_not_count_it() -> None:
    def reserve_more() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (256 * MIB, 256 * MIB))
        address_space.reserve(2**36, alignment=2 * MIB)

    in_a_fork(reserve_more)


def test_a_file_is_mapped_where_it_shall_be(file: int) -> None:
    view = address_space.mapped(file, 16 * PAGE, WRITABLE, mmap.MAP_SHARED, alignment=2 * MIB)
    assert address(view) % (2 * MIB) == 0
    assert bytes(view[:3]) == b"abc"
    view[PAGE] = 7
    assert os.pread(file, 1, PAGE) == b"\7"


def test_without_the_right_to_write_a_view_is_read_only(file: int) -> None:
    view = address_space.mapped(file, PAGE, mmap.PROT_READ, mmap.MAP_SHARED, alignment=PAGE)
    assert view.readonly
    assert bytes(view[:3]) == b"abc"


@pytest.mark.slow
def test_it_stays_mapped_as_long_as_somebody_looks_at_it(file: int) -> None:
    view = address_space.mapped(file, 16 * PAGE, WRITABLE, mmap.MAP_SHARED, alignment=2 * MIB)
    part = view[2:100]
    array = np.frombuffer(part, np.uint8)[:1]
    view.release()
    del view, part
    gc.collect()
    assert mappings() == 1
    assert array[0] == ord("c")
    del array
    assert mappings() == 0


@pytest.mark.slow
def test_what_cannot_be_mapped_leaves_nothing_behind(file: int) -> None:
    def map_for_writing() -> None:
        read_only = os.open(f"/proc/self/fd/{file}", os.O_RDONLY)
        before = reserved(0, 2**63)
        with pytest.raises(PermissionError):
            address_space.mapped(read_only, PAGE, WRITABLE, mmap.MAP_SHARED, alignment=2 * MIB)
        assert reserved(0, 2**63) == before

    in_a_fork(map_for_writing)


def test_a_forked_child_unmaps_only_its_own(file: int) -> None:
    view = address_space.mapped(file, 16 * PAGE, WRITABLE, mmap.MAP_SHARED, alignment=2 * MIB)

    def write_and_release() -> None:
        view[0] = ord("x")
        view.release()
        assert mappings() == 0

    in_a_fork(write_and_release)
    assert bytes(view[:3]) == b"xbc"


def test_protected_pages_say_so() -> None:
    begin = address_space.reserve(4 * PAGE)
    address_space.protect(begin, 4 * PAGE, WRITABLE)
    assert reserved(begin, begin + 4 * PAGE) == 0
    ctypes.memset(begin, 1, 4 * PAGE)
    address_space.protect(begin + PAGE, PAGE, address_space.NO_ACCESS)
    assert reserved(begin, begin + 4 * PAGE) == PAGE
    address_space.release(begin, 4 * PAGE)
    with pytest.raises(MemoryError):
        address_space.protect(begin, 4 * PAGE, WRITABLE)
