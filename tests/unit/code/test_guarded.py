"""Arrays between guards: placed right, found changed, used again."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.code import guarded
from sapwood.comm.address_space import PAGE

DTYPES: list[Any] = ["u1", "i2", "f4", "f8", "c16", [("a", "i4"), ("b", "f8")]]


def change(array: np.ndarray, offset: int) -> None:
    """Write a byte at an offset from the begin of an array, as wrong native code does."""
    ctypes.memset(array.ctypes.data + offset, 0x11, 1)


def strayed(array: np.ndarray) -> int | None:
    return guarded.strayed(array.ctypes.data, array.nbytes)


@given(st.integers(0, 3000), st.sampled_from(DTYPES))
def test_an_array_is_aligned_zero_and_unmarked(count: int, kind: Any) -> None:
    array = guarded.zeros((count,), np.dtype(kind))
    assert array.shape == (count,)
    assert not array.tobytes().strip(b"\0")
    assert array.ctypes.data % guarded.ALIGNMENT == 0
    behind = -(array.ctypes.data + array.nbytes) % PAGE
    assert behind < guarded.ALIGNMENT or array.nbytes == 0
    assert strayed(array) is None
    array.view(np.uint8).fill(0x11)  # all of it, and nothing beside it
    assert strayed(array) is None


@given(st.integers(1, 2000), st.data())
def test_any_changed_byte_around_an_array_is_found(nbytes: int, data: st.DataObject) -> None:
    array = guarded.empty((nbytes,), np.dtype("u1"))
    address = array.ctypes.data
    first, end = -(address % PAGE), nbytes + -(address + nbytes) % PAGE
    outside = [*range(first, 0), *range(nbytes, end)]
    offset = data.draw(st.sampled_from(outside))
    change(array, offset)
    assert strayed(array) == offset
    assert strayed(array) is None  # marked again


def test_the_nearest_byte_before_an_array_is_told() -> None:
    array = guarded.empty((8,), np.dtype("f8"))
    change(array, -16)
    change(array, -9)
    assert strayed(array) == -9


def test_memory_is_used_again_when_nobody_has_it() -> None:
    first = guarded.zeros((77,), np.dtype("f8"))
    view, address = first[3:], first.ctypes.data
    del first
    gc.collect()
    second = guarded.zeros((77,), np.dtype("f8"))
    assert second.ctypes.data != address  # a view still looks at it
    del view
    assert guarded.zeros((77,), np.dtype("f8")).ctypes.data == address


@pytest.mark.parametrize("count", [0, 3, 700])
@pytest.mark.slow
def test_any_number_of_arrays_can_be_kept(count: int) -> None:
    kept = [guarded.zeros((count,), np.dtype("f8")) for _ in range(guarded.MAX_GUARDED + 200)]
    assert len({array.ctypes.data for array in kept}) == len(kept)
    for array in kept[-100:]:
        assert strayed(array) is None
        array.fill(7)
        assert strayed(array) is None
    change(kept[-1], kept[-1].nbytes)
    assert strayed(kept[-1]) == kept[-1].nbytes
    change(kept[-1], -3)
    assert strayed(kept[-1]) == -3


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,), (2, 0)])
def test_a_copy_is_equal(shape: tuple[int, ...]) -> None:
    given_array = np.arange(float(np.prod(shape))).reshape(shape)[...]
    for made in (guarded.copy(given_array), guarded.read_only(given_array)):
        np.testing.assert_array_equal(made, given_array)
        assert made.shape == shape


def test_a_negative_extent_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        guarded.zeros((-1,), np.dtype("f8"))


@pytest.mark.parametrize("distance", [64, 5000, 10**6, -5000, -(10**6)])
@pytest.mark.slow
def test_nobody_touches_the_guards(distance: int) -> None:
    array = guarded.zeros((16,), np.dtype("u1"))
    assert ends(lambda: change(array, distance)) == signal.SIGSEGV


def test_a_read_only_copy_cannot_be_written() -> None:
    array = guarded.read_only(np.zeros(4))
    assert ends(lambda: change(array, 0)) == signal.SIGSEGV


def ends(action: object) -> int:
    """Return the signal that ends a process which does something."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        action()  # type: ignore[operator]  # a function without arguments
        os._exit(0)
    return os.WTERMSIG(os.waitpid(pid, 0)[1])
