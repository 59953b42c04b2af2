"""Arithmetic with a direction of rounding gives what the processor gives in that mode."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

Array = npt.NDArray[Any]

NAMES = ("add", "sub", "mul", "div", "rcp", "sqrt", "fma")
MODES = ("rn", "rz", "ru", "rd")


@pytest.fixture
def directed(load_functions: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    """The kernels, loaded."""
    return load_functions("directed.cu")


def operands(kind: type, seed: int) -> Array:
    """Return numbers of all sizes, some of them special."""
    generator = np.random.default_rng(seed)
    bits = np.uint32 if kind is np.float32 else np.uint64
    info = np.finfo(kind)
    wide: Array = generator.integers(0, np.iinfo(bits).max, 2000, dtype=bits).view(kind)
    near: Array = generator.uniform(-2, 2, 2000).astype(kind)
    whole: Array = generator.integers(-8, 8, 500).astype(kind)
    special = [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, info.max, -info.max, info.tiny]
    special += [1 + info.eps, 1 - info.eps / 2, info.smallest_subnormal]
    both = np.concatenate([wide, near, whole, np.resize(np.array(special, kind), 500)])
    shuffled: Array = generator.permutation(both)
    return shuffled


@pytest.mark.parametrize("name", ["float", "double"])
def test_every_direction(directed: ctypes.CDLL, name: str) -> None:
    kind = np.float32 if name == "float" else np.float64
    with np.errstate(invalid="ignore"):
        a, b, c = (operands(kind, seed) for seed in (1, 2, 3))
    b[::7] = -a[::7]
    n = len(a)
    out, wanted = (np.zeros((len(MODES), len(NAMES), n), kind) for _ in range(2))
    pointers = [ctypes.c_void_p(each.ctypes.data) for each in (a, b, c, out, wanted)]
    assert getattr(directed, f"{name}_run")(*pointers, ctypes.c_long(n)) == 0
    for mode, ours, theirs in zip(MODES, out, wanted, strict=True):
        for operation, one, other in zip(NAMES, ours, theirs, strict=True):
            same = (one == other) & (np.signbit(one) == np.signbit(other))
            wrong = np.flatnonzero(~(same | (np.isnan(one) & np.isnan(other))))
            first = [(a[i], b[i], c[i], one[i], other[i]) for i in wrong[:3]]
            assert not first, f"{operation}_{mode}: {first}"


def test_functions_that_the_c_library_lacks(directed: ctypes.CDLL) -> None:
    x = np.linspace(-20, 20, 101)
    out = np.zeros((6, 101))
    pointers = [ctypes.c_void_p(each.ctypes.data) for each in (x, out)]
    assert directed.others_run(*pointers, ctypes.c_long(101)) == 0
    np.testing.assert_allclose(out[0], np.i0(x), rtol=1e-12)
    step = 1e-5
    slope = (np.i0(x + step) - np.i0(x - step)) / (2 * step)
    np.testing.assert_allclose(out[1], slope, rtol=1e-6, atol=1e-6)
    length = np.sqrt(x**2 + 13)
    np.testing.assert_allclose(out[2], length, rtol=1e-14)
    np.testing.assert_allclose(out[3], 1 / length, rtol=1e-6)
    np.testing.assert_allclose(out[4], x / 3, rtol=1e-6)
    np.testing.assert_array_equal(out[5], 2.0**63)
