"""Generators of random numbers give their published numbers, with the right distributions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

Array = npt.NDArray[Any]


@pytest.fixture
def numbers(load_functions: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    """The kernels, loaded."""
    return load_functions("random.cu")


def run(function: Any, *arguments: Any) -> None:
    given = [
        ctypes.c_void_p(each.ctypes.data)
        if isinstance(each, np.ndarray)
        else ctypes.c_ulonglong(each)
        for each in arguments
    ]
    assert function(*given) == 0


def first(
    numbers: ctypes.CDLL, seed: int, sequence: int, offset: int, n: int
) -> tuple[Array, Array]:
    wow, philox = np.zeros(n, np.uint32), np.zeros(n, np.uint32)
    run(numbers.first_numbers_run, wow, philox, seed, sequence, offset, n)
    return wow, philox


def xorwow(seed: int, n: int) -> list[int]:
    """Return the numbers of Marsaglia's generator, with the state that a seed gives."""
    mask = 0xFFFFFFFF
    t0 = 1099087573 * ((seed & mask) ^ 0xAAD26B49) & mask
    t1 = 2591861531 * ((seed >> 32) ^ 0xF7DCEFDD) & mask
    v = [123456789 + t0, 362436069 ^ t0, 521288629 + t1, 88675123 ^ t1, 5783321 + t0]
    v = [each & mask for each in v]
    d, found = (6615241 + t1 + t0) & mask, []
    for _ in range(n):
        t = v[0] ^ v[0] >> 2
        v = [*v[1:], v[4] ^ (v[4] << 4 & mask) ^ t ^ (t << 1 & mask)]
        d = (d + 362437) & mask
        found.append((v[4] + d) & mask)
    return found


def test_xorwow_from_any_place(numbers: ctypes.CDLL) -> None:
    for seed in (0, 1234, 2**63 + 5):
        wanted = xorwow(seed, 1100)
        for offset in (0, 1, 1000):
            wow, _ = first(numbers, seed, 0, offset, 50)
            assert wow.tolist() == wanted[offset : offset + 50]


def test_philox_gives_its_published_numbers(numbers: ctypes.CDLL) -> None:
    _, philox = first(numbers, 0, 0, 0, 9)
    assert [hex(each) for each in philox[:4]] == [
        "0x6627e8d5",
        "0xe169c58d",
        "0xbc57ac4c",
        "0x9b00dbd8",
    ]
    for offset in range(6):
        _, later = first(numbers, 0, 0, offset, 3)
        assert later.tolist() == philox[offset : offset + 3].tolist()
    assert first(numbers, 1, 0, 0, 9)[1].tolist() != philox.tolist()
    assert first(numbers, 0, 1, 0, 9)[1].tolist() != philox.tolist()


def test_sequences_are_far_apart(numbers: ctypes.CDLL) -> None:
    out = np.zeros(4, np.uint32)
    run(numbers.long_jumps_run, out)
    assert out[0] == out[1]
    assert out[2] == out[3]


def test_distributions(numbers: ctypes.CDLL) -> None:
    threads, each = 256, 200
    n = threads * each
    uniform, normal = np.zeros(n, np.float32), np.zeros(n, np.float32)
    wide, poisson = np.zeros(n), np.zeros(n, np.uint32)
    run(numbers.draws_run, uniform, normal, wide, poisson, threads, each)
    assert uniform.min() > 0
    assert uniform.max() <= 1
    counts, _ = np.histogram(uniform, 20, (0, 1))
    assert abs(counts - n / 20).max() < 5 * np.sqrt(n / 20)
    for values in (normal, wide):
        assert abs(values.mean()) < 5 / np.sqrt(n)
        assert abs(values.std() - 1) < 0.02
        assert abs((values < 1).mean() - 0.8413) < 0.01
    assert abs(poisson.mean() - 3) < 0.05
    assert abs(poisson.var() - 3) < 0.15
    assert (
        abs(np.corrcoef(uniform.reshape(threads, each)[:-1].ravel(), uniform[each:])[0, 1]) < 0.02
    )


@pytest.mark.parametrize("kind", [100, 101, 161])
def test_generators_of_the_host(numbers: ctypes.CDLL, kind: int) -> None:
    n, found = 10_000, []
    for seed in (1, 1, 2):
        words, uniform = np.zeros(n, np.uint32), np.zeros(n, np.float32)
        wide, normal = np.zeros(n), np.zeros(n, np.float32)
        run(numbers.host_run, kind, seed, words, uniform, wide, normal, n)
        found.append(words)
        assert len(np.unique(words)) > n - 5
        for values in (uniform, wide):
            assert values.min() > 0
            assert values.max() <= 1
            assert abs(values.mean() - 0.5) < 0.02
        assert abs(normal.mean() - 2) < 0.03
        assert abs(normal.std() - 0.5) < 0.02
    assert found[0].tolist() == found[1].tolist()
    assert found[0].tolist() != found[2].tolist()


def test_quasi_random_numbers_are_not_there(numbers: ctypes.CDLL) -> None:
    none = np.zeros(1)
    pointer = ctypes.c_void_p(none.ctypes.data)
    assert (
        numbers.host_run(
            ctypes.c_long(200), ctypes.c_ulonglong(1), *[pointer] * 4, ctypes.c_long(1)
        )
        == 1
    )
