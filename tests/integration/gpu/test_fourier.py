"""cuFFT on a CPU gives what numpy gives."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

Array = npt.NDArray[Any]

C2C, R2C, C2R, Z2Z, D2Z, Z2D = 0x29, 0x2A, 0x2C, 0x69, 0x6A, 0x6C
FORWARD, INVERSE = -1, 1
LENGTHS = [1, 2, 3, 8, 12, 17, 64, 100, 257, 1000]


@pytest.fixture
def fourier(load_functions: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    """The functions, loaded."""
    return load_functions("fourier.cu")


def run(function: Any, *arguments: Any) -> None:
    given = [
        ctypes.c_void_p(each.ctypes.data) if isinstance(each, np.ndarray) else ctypes.c_long(each)
        for each in arguments
    ]
    assert function(*given) == 0


def transform(
    fourier: ctypes.CDLL, kind: int, shape: tuple[int, ...], given: Array, out: Array, way: int
) -> None:
    batch = given.shape[0] if len(shape) == 1 else 1
    sizes = np.array(shape, np.int32)
    run(fourier.transform, kind, len(shape), sizes, batch, given, out, way)


def complex_numbers(*shape: int) -> Array:
    generator = np.random.default_rng(1)
    found: Array = generator.normal(size=shape) + 1j * generator.normal(size=shape)
    return found


@pytest.mark.parametrize("n", LENGTHS)
def test_any_length_in_batches(fourier: ctypes.CDLL, n: int) -> None:
    x = complex_numbers(3, n)
    there, back = np.zeros_like(x), np.zeros_like(x)
    transform(fourier, Z2Z, (n,), x, there, FORWARD)
    np.testing.assert_allclose(there, np.fft.fft(x), rtol=0, atol=1e-12 * n)
    transform(fourier, Z2Z, (n,), there, back, INVERSE)
    np.testing.assert_allclose(back, n * x, rtol=0, atol=1e-12 * n)  # without a factor
    single = x.astype(np.complex64)
    transform(fourier, C2C, (n,), single, single, FORWARD)  # in place
    np.testing.assert_allclose(single, np.fft.fft(x), rtol=0, atol=1e-5 * n)


@pytest.mark.parametrize("n", LENGTHS)
def test_real_numbers_and_their_half_of_a_spectrum(fourier: ctypes.CDLL, n: int) -> None:
    x = np.random.default_rng(2).normal(size=(2, n))
    half, back = np.zeros((2, n // 2 + 1), complex), np.zeros_like(x)
    transform(fourier, D2Z, (n,), x, half, FORWARD)
    np.testing.assert_allclose(half, np.fft.rfft(x), rtol=0, atol=1e-12 * n)
    transform(fourier, Z2D, (n,), half, back, INVERSE)
    np.testing.assert_allclose(back, n * x, rtol=0, atol=1e-12 * n)


@pytest.mark.parametrize("shape", [(4, 6), (5, 8), (3, 4, 5), (2, 7, 6)])
def test_several_dimensions(fourier: ctypes.CDLL, shape: tuple[int, ...]) -> None:
    x, axes = complex_numbers(*shape), tuple(range(len(shape)))
    out = np.zeros_like(x)
    transform(fourier, Z2Z, shape, x, out, FORWARD)
    np.testing.assert_allclose(out, np.fft.fftn(x), atol=1e-12)
    real = np.ascontiguousarray(x.real.astype(np.float32))
    half = np.zeros((*shape[:-1], shape[-1] // 2 + 1), np.complex64)
    transform(fourier, R2C, shape, real, half, FORWARD)
    np.testing.assert_allclose(half, np.fft.rfftn(x.real, axes=axes), atol=1e-4)
    back = np.zeros_like(real)
    transform(fourier, C2R, shape, half, back, INVERSE)
    np.testing.assert_allclose(back, real.size * real, atol=1e-3)


def test_rows_are_longer_where_complex_numbers_replace_real_ones(fourier: ctypes.CDLL) -> None:
    rows, n = 5, 6
    room = np.zeros((rows, 2 * (n // 2 + 1)))
    room[:, :n] = x = np.random.default_rng(3).normal(size=(rows, n))
    transform(fourier, D2Z, (rows, n), room, room, FORWARD)
    np.testing.assert_allclose(room.view(complex), np.fft.rfft2(x), atol=1e-12)
    transform(fourier, Z2D, (rows, n), room, room, INVERSE)
    np.testing.assert_allclose(room[:, :n], rows * n * x, atol=1e-12)


def test_columns_and_padded_arrays(fourier: ctypes.CDLL) -> None:
    x = complex_numbers(7, 4)  # the columns, into rows that are longer
    out = np.full((4, 9), np.nan, complex)
    sizes, longer = np.array([7], np.int32), np.array([9], np.int32)
    run(fourier.transform_many, Z2Z, 1, sizes, sizes, 4, 1, longer, 1, 9, 4, x, out, FORWARD)
    np.testing.assert_allclose(out[:, :7], np.fft.fft(x.T), atol=1e-12)
    assert np.isnan(out[:, 7:]).all()
    pairs = np.zeros((2, 5, 8, 2))  # real images of 3 by 6 in larger ones, every second number
    pairs[:, :3, :6, 0] = images = np.random.default_rng(4).normal(size=(2, 3, 6))
    half = np.zeros((2, 3, 4), complex)
    shape = np.array([3, 6], np.int32)
    outer, inner = np.array([5, 8], np.int32), np.array([3, 4], np.int32)
    run(
        fourier.transform_many,
        *(D2Z, 2, shape, outer, 2, 5 * 8 * 2, inner, 1, 12, 2, pairs, half, FORWARD),
    )
    np.testing.assert_allclose(half, np.fft.rfft2(images), atol=1e-12)


def test_wrong_plans_are_errors(fourier: ctypes.CDLL) -> None:
    run(fourier.wrong_use, np.zeros(4, np.complex64))
