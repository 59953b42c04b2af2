"""16-bit floats round as CUDA's do: all values of both types, in every mode."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

Array = npt.NDArray[Any]

ALL = np.arange(65536, dtype=np.uint16)
HALF = ALL.view(np.float16).astype(np.float64)
with np.errstate(invalid="ignore"):  # some of them are signalling NaNs
    BRAIN = (ALL.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@pytest.fixture
def floats(load_kernels: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    """The kernels, loaded."""
    return load_kernels("short_floats.cu")


def run(function: Any, *arguments: Any) -> None:
    given = [
        ctypes.c_void_p(each.ctypes.data) if isinstance(each, np.ndarray) else ctypes.c_long(each)
        for each in arguments
    ]
    assert function(*given) == 0


class Format:
    """A type by the list of its values: rounding is a search in it."""

    def __init__(self, values: Array) -> None:
        self.values = values
        self.infinity = int(np.flatnonzero(np.isposinf(values))[0])
        self.sizes = values[: self.infinity]
        top = 2 * self.sizes[-1] - self.sizes[-2]
        self.steps = np.append(self.sizes, top)  # from the middle below the last on it is infinite

    def rounded(self, x: Array, how: str = "nearest") -> Array:
        """Return the bits of exact numbers, rounded."""
        size, sign = np.abs(x), np.signbit(x)
        with np.errstate(invalid="ignore"):
            below = np.clip(
                np.searchsorted(self.steps, size, side="right") - 1, 0, len(self.steps) - 1
            )
        above = np.minimum(below + 1, self.infinity)
        exact = self.steps[below] == size
        if how == "nearest":
            down, up = size - self.steps[below], self.steps[above] - size
            high = (up < down) | ((up == down) & (above % 2 == 0))
            bits = np.where(exact | ~high, below, above)
        else:
            away = {"zero": np.zeros_like(sign), "up": ~sign, "down": sign}[how]
            limit = np.where(away, self.infinity, self.infinity - 1)
            bits = np.where(exact, below, np.where(away, above, np.minimum(below, limit)))
            bits = np.minimum(bits, limit)
        bits = np.where(np.isinf(x), self.infinity, bits)
        bits = np.where(np.isnan(x), self.infinity + 1, bits)
        found: Array = (bits | sign.astype(np.int64) << 15).astype(np.uint16)
        return found

    def same(self, bits: Array, wanted: Array) -> None:
        """Compare bits; all NaNs are the same."""
        nan = np.isnan(self.values[wanted])
        np.testing.assert_array_equal(np.isnan(self.values[bits]), nan)
        np.testing.assert_array_equal(bits[~nan], wanted[~nan])


FORMATS = (Format(HALF), Format(BRAIN))


def test_all_values_as_floats(floats: ctypes.CDLL) -> None:
    half, brain = np.zeros(65536, np.float32), np.zeros(65536, np.float32)
    run(floats.to_floats_run, ALL, half, brain, 65536)
    with np.errstate(invalid="ignore"):
        wanted = HALF.astype(np.float32), BRAIN.astype(np.float32)
    np.testing.assert_array_equal(half, wanted[0])
    np.testing.assert_array_equal(brain, wanted[1])
    signs = ALL >= 0x8000
    number = ~np.isnan(HALF)
    np.testing.assert_array_equal(np.signbit(half)[number], signs[number])


def edges(values: Array) -> Array:
    """Return all values, the middles between neighbours, and what is beside these."""
    finite = np.unique(values[np.isfinite(values)])
    middle = (finite[1:] + finite[:-1]) / 2
    last = 2 * finite[-1] - finite[-2]
    middle = np.concatenate([middle, [(finite[-1] + last) / 2, last, -last, 1e300, 1e-300]])
    found = [finite, middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)]
    return np.concatenate([*found, [np.inf, -np.inf, np.nan, -0.0, 0.0]])


@pytest.mark.parametrize("which", [0, 1])
def test_doubles_and_floats_are_rounded_once(floats: ctypes.CDLL, which: int) -> None:
    form = FORMATS[which]
    x = edges(form.values)
    out = np.zeros((2, 5, len(x)), np.uint16)
    run(floats.from_doubles_run, x, out[0], out[1], len(x))
    form.same(out[which, 0], form.rounded(x))
    with np.errstate(over="ignore"):
        single = x.astype(np.float32).astype(np.float64)
    for row, how in enumerate(("nearest", "zero", "up", "down"), 1):
        form.same(out[which, row], form.rounded(single, how))


@pytest.mark.parametrize("which", [0, 1])
def test_integers(floats: ctypes.CDLL, which: int) -> None:
    form = FORMATS[which]
    near = np.concatenate([[2**k + d for d in (-1, 0, 1, 3)] for k in range(4, 62)])
    middles = [2**k + 2 ** (k - 8) + d for k in range(9, 62) for d in (-1, 0, 1)]
    x = np.concatenate([near, -near, middles, np.arange(-33000, 33000)]).astype(np.int64)
    back = np.resize(ALL, len(x))
    out, whole = np.zeros((2, 4, len(x)), np.uint16), np.zeros((2, 4, len(x)), np.int64)
    run(floats.integers_run, x, out[0], out[1], back, whole[0], whole[1], len(x))
    exact = x.astype(np.float64)  # to odd, where the number has more bits
    lost = np.array([int(a) - int(b) for a, b in zip(x, exact, strict=True)])
    odd = exact.view(np.int64) % 2 == 1
    exact = np.where((lost != 0) & ~odd, np.nextafter(exact, np.copysign(np.inf, lost)), exact)
    for row, how in enumerate(("nearest", "zero", "up", "down")):
        form.same(out[which, row], form.rounded(exact, how))
    value = form.values[back]
    value = np.where(np.isnan(value), 0, value)
    limits = [(-(2**31), 2**31 - 1)] * 2 + [(-(2**15), 2**15 - 1), (0, 2**16 - 1)]
    for row, rounded in enumerate((np.rint, np.trunc, np.ceil, np.floor)):
        wanted = np.clip(rounded(value), *limits[row])
        np.testing.assert_array_equal(whole[which, row], wanted.astype(np.int64))


@pytest.mark.parametrize("which", [0, 1])
def test_arithmetic_is_rounded_once(floats: ctypes.CDLL, which: int) -> None:
    form, generator = FORMATS[which], np.random.default_rng(5)
    a = np.concatenate([ALL, ALL, generator.integers(0, 65536, 65536)]).astype(np.uint16)
    b = generator.permutation(a)
    b[:2000] = np.resize([0, 0x8000, 1, form.infinity, 0x7FFF, 0x3C00, 0x3F80], 2000)
    b[65536 : 2 * 65536] = a[65536 : 2 * 65536] ^ 0x8001
    c = generator.permutation(a)
    n = len(a)
    out = np.zeros((2, 10, n), np.uint16)
    run(floats.arithmetic_run, a, b, c, out[0], out[1], n)
    x, y = form.values[a], form.values[b]
    with np.errstate(all="ignore"):
        # Sums and products of 16-bit floats are exact in long doubles or far from any middle.
        wide = x.astype(np.longdouble), y.astype(np.longdouble)
        results = [wide[0] + wide[1], wide[0] - wide[1], x * y, wide[0] / wide[1]]
        for row, result in enumerate(results):
            form.same(out[which, row], form.rounded(to_odd(result)))
        form.same(out[which, 5], form.rounded(to_odd(np.sqrt(wide[0]))))
        order = (x < y) | (x <= y) << 1 | (x == y) << 2 | (x != y) << 3
        order |= ((x < y) | (x > y)) << 4 | ~(x >= y) << 5 | ~((x < y) | (x > y)) << 6
    order |= np.isnan(x) << 7 | np.isinf(x) << 8
    np.testing.assert_array_equal(out[which, 9], order)
    form.same(out[which, 6], pick(form, a, b, np.fmax))
    form.same(out[which, 7], pick(form, a, b, np.minimum))
    total = form.values[out[which, 0]]
    form.same(out[which, 8], form.rounded(np.clip(np.where(np.isnan(total), 0, total), 0, 1) + 0.0))


def to_odd(x: Any) -> Array:
    """Return numbers as float64, so that rounding them once more is right."""
    near = x.astype(np.float64)
    lost = x - near
    odd = near.view(np.int64) % 2 == 1
    towards = np.where(lost > 0, np.inf, -np.inf)
    change = (lost != 0) & ~odd & np.isfinite(near) & ~np.isnan(lost)
    moved: Array = np.where(change, np.nextafter(near, towards), near)
    return moved


def pick(form: Format, a: Array, b: Array, function: Any) -> Array:
    """Return what a minimum or maximum takes; of zeros, by their signs."""
    with np.errstate(invalid="ignore"):
        found = form.rounded(function(form.values[a], form.values[b]))
    zeros = (a & 0x7FFF == 0) & (b & 0x7FFF == 0)
    zero = a & b if function is np.fmax else a | b
    chosen: Array = np.where(zeros, zero, found).astype(np.uint16)
    return chosen


@pytest.mark.parametrize("which", [0, 1])
def test_a_product_and_a_sum_are_rounded_once(floats: ctypes.CDLL, which: int) -> None:
    form, generator = FORMATS[which], np.random.default_rng(3)
    triples = generator.integers(0, form.infinity, (3000, 3)).tolist()
    # A product in the middle between two values, and next to nothing added to it.
    digits = 10 if which == 0 else 7
    one = int(np.flatnonzero(form.values == 1.0)[0])
    for k in range(1, 1 << digits, 3):
        near = [one + k, one + (1 << digits) - k]
        triples += [[*near, 1], [*near, 0x8001], [near[0], one, one - (digits + 1 << digits)]]
    if which:  # 1 + 2^-8 is 129 * 257 / 2^15: no factor of seven digits has 257
        triples += [[0x3F81, 0x3F81, 0x0001], [0x3F81, 0x3FC0, 0x8001]]
    a, b, c = np.array(triples, np.uint16).T.copy()
    out = np.zeros((2, 10, len(a)), np.uint16)
    run(floats.arithmetic_run, a, b, c, out[0], out[1], len(a))
    wanted = [exact_bits(form, *triple) for triple in triples]
    np.testing.assert_array_equal(out[which, 4], wanted)


def exact_bits(form: Format, *bits: int) -> int:
    """Return a*b + c, exact and then rounded."""
    a, b, c = (Fraction(float(form.values[each])) for each in bits)
    exact = a * b + c
    size = abs(exact)
    low, high = 0, len(form.steps) - 1
    if size >= Fraction(float(form.steps[-1])):
        return form.infinity | (exact < 0) << 15
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if Fraction(float(form.steps[middle])) <= size else (low, middle)
    down = size - Fraction(float(form.steps[low]))
    up = Fraction(float(form.steps[high])) - size
    chosen = high if up < down or (up == down and high % 2 == 0) else low
    return chosen | (exact < 0) << 15


def test_pairs(floats: ctypes.CDLL) -> None:
    values = np.random.default_rng(1).uniform(-4, 4, 1024).astype(np.float16)
    out, total = np.zeros(1024, np.float16), np.zeros(1, np.float32)
    run(floats.pairs_run, values, out, total, 1024)
    made = (values.reshape(4, 128, 2).astype(np.float64) * 2 + [1, 0.5]).astype(np.float16)
    wanted = made[:, ::-1, ::-1]
    np.testing.assert_array_equal(out.reshape(4, 128, 2), wanted)
    np.testing.assert_allclose(total[0], wanted.astype(np.float64).sum(), rtol=1e-4)


def test_warps_and_atomic_operations(floats: ctypes.CDLL) -> None:
    values, out = np.arange(32).astype(np.float16), np.zeros(32, np.float16)
    total, both = np.zeros(1, np.float16), np.zeros(2, np.float16)
    brain = np.zeros(1, np.uint16)
    run(floats.lanes_run, values, out, total, both, brain)
    np.testing.assert_array_equal(out, np.full(32, 496, np.float16))
    assert (total[0], *both, BRAIN[brain[0]]) == (32, 32, 64, 16)
