"""8-bit floats are converted as CUDA's are: all values of both types, and numbers between them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

Array = npt.NDArray[Any]


def values_of(exponent_bits: int) -> Array:
    """Return what the 128 sizes of a type are, by the definition of its fields."""
    fraction_bits = 7 - exponent_bits
    bias = 2 ** (exponent_bits - 1) - 1
    sizes = np.arange(128)
    exponent, fraction = sizes >> fraction_bits, sizes % (1 << fraction_bits)
    normal = (1 + fraction / 2**fraction_bits) * 2.0 ** (exponent - bias)
    found: Array = np.where(
        exponent > 0, normal, fraction * 2.0 ** (1 - bias - fraction_bits)
    ).astype(np.float64)
    if exponent_bits == 4:
        found[127] = np.nan
    else:
        found[124], found[125:] = np.inf, np.nan
    return found


SIZES = {"e4m3": values_of(4), "e5m2": values_of(5)}


@pytest.fixture
def floats(load_functions: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    """The kernels, loaded."""
    return load_functions("byte_floats.cu")


def run(function: Any, *arguments: Any) -> None:
    given = [
        ctypes.c_void_p(each.ctypes.data) if isinstance(each, np.ndarray) else ctypes.c_long(each)
        for each in arguments
    ]
    assert function(*given) == 0


def rounded(x: Array, sizes: Array, *, saturated: bool) -> Array:
    """Return the bits of the nearest value: a search, in which ties go to the even one."""
    finite = sizes[np.isfinite(sizes)]
    steps = np.append(finite, 2 * finite[-1] - finite[-2])
    size = np.minimum(np.abs(x), steps[-1])
    below = np.clip(np.searchsorted(steps, size, side="right") - 1, 0, len(steps) - 2)
    down, up = size - steps[below], steps[below + 1] - size
    bits = below + ((up < down) | ((up == down) & (below % 2 == 1)))
    if saturated:
        bits = np.minimum(bits, len(finite) - 1)
    bits = np.where(np.isnan(x), 0x7F, bits | np.signbit(x) * 0x80)
    made: Array = bits.astype(np.uint8)
    return made


def same(bits: Array, wanted: Array, sizes: Array) -> None:
    """Compare bits; all NaNs are the same."""
    nan = np.isnan(sizes[wanted & 0x7F])
    np.testing.assert_array_equal(np.isnan(sizes[bits & 0x7F]), nan)
    np.testing.assert_array_equal(bits[~nan], wanted[~nan])


@pytest.mark.parametrize("name", SIZES)
def test_from_numbers(floats: ctypes.CDLL, name: str) -> None:
    sizes = SIZES[name]
    finite = sizes[np.isfinite(sizes)]
    middle = (finite[1:] + finite[:-1]) / 2
    beyond = [finite[-1] + 0.5 * (finite[-1] - finite[-2]), 1e5, 1e30, 1e300, np.inf]
    x = np.concatenate([finite, middle, np.nextafter(middle, 0), np.nextafter(middle, 1e9), beyond])
    x = np.concatenate([x, -x, [np.nan, 1e-30, -1e-300]])
    out = np.zeros((5, len(x)), np.uint8)
    run(getattr(floats, f"from_{name}"), x, out, len(x))
    with np.errstate(over="ignore"):
        single = x.astype(np.float32)
        half = single.astype(np.float16).astype(np.float64)
    with np.errstate(invalid="ignore"):
        bits = single.view(np.uint32).astype(np.uint64)
        brain_bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16
        brain = brain_bits.astype(np.uint32).view(np.float32).astype(np.float64)
    for at, given in enumerate((x, single.astype(np.float64), half, brain)):
        same(out[at], rounded(given, sizes, saturated=True), sizes)
    same(out[4], rounded(x, sizes, saturated=False), sizes)


@pytest.mark.parametrize("name", SIZES)
def test_to_numbers(floats: ctypes.CDLL, name: str) -> None:
    wanted = np.concatenate([SIZES[name], -SIZES[name]])
    out, halves = np.zeros(256, np.float32), np.zeros(256, np.float32)
    whole, small = np.zeros(256, np.int32), np.zeros(256, np.uint8)
    some = np.zeros(256, np.bool_)
    run(getattr(floats, f"to_{name}"), out, halves, whole, small, some)
    np.testing.assert_array_equal(out, wanted)
    np.testing.assert_array_equal(halves, wanted)
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(whole[finite], np.trunc(wanted[finite]))
    np.testing.assert_array_equal(small[finite], np.clip(np.trunc(wanted[finite]), 0, 255))
    np.testing.assert_array_equal(some, wanted != 0)


@pytest.mark.parametrize("name", SIZES)
def test_pairs_and_fours(floats: ctypes.CDLL, name: str) -> None:
    sizes = SIZES[name]
    x = np.random.default_rng(5).normal(scale=20, size=256).astype(np.float32)
    x = x.astype(np.float16).astype(np.float32)
    out, back = np.zeros(192, np.uint32), np.zeros((64, 6), np.float32)
    run(getattr(floats, f"groups_{name}"), x, out, back)
    bits = rounded(x.astype(np.float64), sizes, saturated=True).reshape(64, 4)
    fours = (bits.astype(np.uint32) << np.array([0, 8, 16, 24], np.uint32)).sum(axis=1)
    np.testing.assert_array_equal(out[:64], fours)
    np.testing.assert_array_equal(out[64:128], fours)
    np.testing.assert_array_equal(out[128:], fours >> 16)
    numbers = np.where(bits & 0x80, -1, 1) * sizes[bits & 0x7F]
    np.testing.assert_array_equal(back[:, :4], numbers)
    np.testing.assert_array_equal(back[:, 4:], numbers[:, 2:])
