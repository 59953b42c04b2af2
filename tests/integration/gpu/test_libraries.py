"""cuBLAS, cuBLASLt and cuSPARSE give what numpy gives, with the machine's BLAS and without one."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from sapwood_cuda_cpu.language import BLAS, bundled_blas

Array = npt.NDArray[Any]

KINDS = {"S": np.float32, "D": np.float64, "C": np.complex64, "Z": np.complex128}


@pytest.fixture(params=["numpy's", "none"])
def libraries(
    request: pytest.FixtureRequest,
    load_kernels: Callable[..., ctypes.CDLL],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> ctypes.CDLL:
    """The functions, loaded; a library keeps the BLAS that it has found first."""
    path = str(shutil.copy(str(load_kernels("libraries.cu")._name), tmp_path))
    name = bundled_blas() if request.param == "numpy's" else "none"
    if not name:
        pytest.skip("numpy brings no BLAS here")
    monkeypatch.setenv(BLAS, name)
    return ctypes.CDLL(path)


def run(function: Any, *arguments: Any) -> None:
    given = [
        ctypes.c_void_p(each.ctypes.data) if isinstance(each, np.ndarray) else ctypes.c_long(each)
        for each in arguments
    ]
    assert function(*given) == 0


def numbers(generator: np.random.Generator, kind: Any, *shape: int) -> Array:
    found = generator.uniform(-1, 1, shape).astype(kind)
    if np.issubdtype(kind, np.complexfloating):
        found = found + 1j * generator.uniform(-1, 1, shape).astype(kind)
    made: Array = found.astype(kind)
    return made


def turned(a: Array, how: int) -> Array:
    return a if how == 0 else a.swapaxes(1, 2) if how == 1 else a.conj().swapaxes(1, 2)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("transposed", [(0, 0), (1, 0), (0, 2), (2, 1)])
@pytest.mark.parametrize("size", [(3, 4, 5), (40, 31, 52), (7, 1, 0)])
def test_products(
    libraries: ctypes.CDLL, name: str, transposed: tuple[int, int], size: tuple[int, int, int]
) -> None:
    kind, (m, n, k) = KINDS[name], size
    generator, batch = np.random.default_rng(1), 2
    left = numbers(generator, kind, batch, *((k, m) if transposed[0] else (m, k)))
    right = numbers(generator, kind, batch, *((n, k) if transposed[1] else (k, n)))
    scale = numbers(generator, kind, 2)
    c = numbers(generator, kind, batch, m, n)
    wanted = scale[0] * turned(left, transposed[0]) @ turned(right, transposed[1]) + scale[1] * c
    columns = [np.ascontiguousarray(each.swapaxes(1, 2)) for each in (left, right, c)]
    a, b, out = columns
    function = getattr(libraries, f"gemm_{name}")
    run(function, *transposed, m, n, k, scale[:1], a, b, scale[1:].copy(), out, batch)
    within = 1e-5 if kind in {np.float32, np.complex64} else 1e-13
    np.testing.assert_allclose(out.swapaxes(1, 2), wanted, rtol=within, atol=within)


def test_a_beta_of_zero_does_not_read(libraries: ctypes.CDLL) -> None:
    a, out = np.eye(3), np.full((3, 3), np.nan)
    run(libraries.gemm_D, 0, 0, 3, 3, 3, np.ones(1), a, a, np.zeros(1), out, 1)
    np.testing.assert_array_equal(out, np.eye(3))


@pytest.mark.parametrize("name", KINDS)
def test_vectors_and_triangles(libraries: ctypes.CDLL, name: str) -> None:
    kind, n, generator = KINDS[name], 9, np.random.default_rng(2)
    a = numbers(generator, kind, n, n) + 3 * np.eye(n, dtype=kind)
    b, c = numbers(generator, kind, n, n), np.zeros((n, n), kind)
    x, y = numbers(generator, kind, n), np.full(n, np.nan).astype(kind)
    c[0, 0] = 1
    rows = [np.ascontiguousarray(each.T) for each in (a, b, c)]
    run(getattr(libraries, f"others_{name}"), n, rows[0], rows[1], rows[2], x, y)
    within = 1e-4 if kind in {np.float32, np.complex64} else 1e-12
    np.testing.assert_allclose(y, a.T @ x, rtol=within, atol=within)
    np.testing.assert_allclose(rows[1].T @ np.triu(a), b, rtol=within, atol=within)
    np.testing.assert_allclose(rows[2].T, a + a.T, rtol=within, atol=within)


def test_lengths_and_places(libraries: ctypes.CDLL) -> None:
    x = np.array([3.0, -7, 2, 1e-3, 5, 0.5])
    y, out, where = np.arange(6.0), np.zeros(3), np.zeros(2, np.int32)
    wanted, doubled = y + 2 * x, x.copy()
    doubled[::2] *= 2
    length = [x @ y, np.linalg.norm(x), np.abs(x).sum()]
    run(libraries.vectors, 6, x, y, out, where)
    np.testing.assert_allclose(out, length, rtol=1e-14)
    assert where.tolist() == [2, 4]
    np.testing.assert_allclose(y, wanted)
    np.testing.assert_array_equal(x, doubled)


def test_batches_of_small_systems(libraries: ctypes.CDLL) -> None:
    n, count, generator = 6, 3, np.random.default_rng(4)
    a, b = generator.normal(size=(count, n, n)), generator.normal(size=(count, n))
    inverse = np.zeros_like(a)
    factors, solution = np.ascontiguousarray(a.swapaxes(1, 2)), b.copy()
    run(libraries.batched, n, count, factors, inverse, solution)
    np.testing.assert_allclose(inverse.swapaxes(1, 2), np.linalg.inv(a), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(solution, np.linalg.solve(a, b[..., None])[..., 0], rtol=1e-9)


def test_mixed_types(libraries: ctypes.CDLL) -> None:
    m, n, k, generator = 33, 20, 40, np.random.default_rng(3)
    a, b = (generator.uniform(-1, 1, s).astype(np.float16) for s in ((m, k), (k, n)))
    half, single = np.zeros((n, m), np.float16), np.zeros((n, m), np.float32)
    ai, bi = (generator.integers(-128, 128, s).astype(np.int8) for s in ((m, k), (k, n)))
    whole = np.zeros((n, m), np.int32)
    columns = [np.ascontiguousarray(each.T) for each in (a, b, ai, bi)]
    scale = np.array([2, 0], np.float32)
    run(libraries.gemm_mixed, m, n, k, scale, *columns[:2], half, single, *columns[2:], whole)
    wanted = 2 * a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(single.T, wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(half.T, wanted, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(whole.T, ai.astype(np.int64) @ bi.astype(np.int64))


def test_sizes_are_checked(libraries: ctypes.CDLL) -> None:
    run(libraries.wrong_sizes, np.zeros((4, 4), np.float32))


R32, R64, R16 = 0, 1, 2  # of cudaDataType
TYPES = {R32: np.float32, R64: np.float64, R16: np.float16}


def gelu(x: Array) -> Array:
    made: Array = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return made


def by_columns(x: Array) -> Array:
    return np.ascontiguousarray(x.swapaxes(1, 2))


def described(
    libraries: ctypes.CDLL, kind: int, epilogue: int, turned: tuple[int, int], order: int
) -> tuple[Array, Array, Array, Array, Array]:
    """Return the inputs of a product, its result, and what the two other arrays hold then."""
    m, n, k, batch, generator = 7, 5, 9, 2, np.random.default_rng(10)
    a, b, c = (
        generator.normal(size=(batch, *shape)).astype(TYPES[kind])
        for shape in ((k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n), (m, n))
    )
    out, bias = np.zeros(c.shape, c.dtype), generator.normal(size=m).astype(TYPES[kind])
    second = by_columns(generator.normal(size=c.shape).astype(TYPES[kind]))
    sizes = np.array([kind, *turned, order, m, n, k, epilogue, batch], np.int64)
    scale = np.array([2, 0.5], np.float32)
    result = out if order else by_columns(out)
    columns = (by_columns(a), by_columns(b), by_columns(c))
    wanted = 2 * turned_of(a, turned[0]) @ turned_of(b, turned[1]) + 0.5 * c.astype(float)
    before = bias.astype(float), second.swapaxes(1, 2).astype(float)
    run(libraries.described, sizes, scale, *columns, result, bias, second)
    if epilogue & 4:
        wanted = wanted + before[0][:, None]
    if epilogue & 64:
        step = 1e-6
        wanted = wanted * (gelu(before[1] + step) - gelu(before[1] - step)) / (2 * step)
    return wanted, result if order else result.swapaxes(1, 2), bias, second.swapaxes(1, 2), a


def turned_of(x: Array, how: int) -> Array:
    found: Array = turned(x, how).astype(float)
    return found


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("how", [(0, 0), (1, 0), (0, 1)])
@pytest.mark.parametrize("order", [0, 1])
def test_described_products(
    libraries: ctypes.CDLL, kind: int, how: tuple[int, int], order: int
) -> None:
    within = {R32: 1e-5, R64: 1e-9, R16: 3e-3}[kind]
    wanted, found, _, second, _ = described(libraries, kind, 164, how, order)
    np.testing.assert_allclose(found, gelu(wanted), rtol=within, atol=10 * within)
    np.testing.assert_allclose(second, wanted, rtol=within, atol=10 * within)
    wanted, found, *_ = described(libraries, kind, 1, how, order)
    np.testing.assert_allclose(found, wanted, rtol=within, atol=10 * within)


def test_what_follows_described_products(libraries: ctypes.CDLL) -> None:
    wanted, found, *_ = described(libraries, R64, 6, (0, 0), 0)
    np.testing.assert_allclose(found, np.maximum(wanted, 0), rtol=1e-9)
    wanted, found, *_ = described(libraries, R64, 36, (1, 1), 0)
    np.testing.assert_allclose(found, gelu(wanted), rtol=1e-9, atol=1e-12)
    wanted, found, bias, *_ = described(libraries, R64, 208, (0, 0), 0)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(bias, wanted[-1].sum(axis=1), rtol=1e-6)  # of the last of the batch
    wanted, found, bias, _, a = described(libraries, R64, 256, (0, 0), 0)
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    np.testing.assert_allclose(bias, a[-1].sum(axis=1), rtol=1e-9)


def test_what_may_follow_only_on_a_gpu_is_refused(libraries: ctypes.CDLL) -> None:
    with pytest.raises(AssertionError, match="15"):  # CUBLAS_STATUS_NOT_SUPPORTED
        described(libraries, R64, 130, (0, 0), 0)


def a_sparse_matrix(m: int, n: int) -> Array:
    generator = np.random.default_rng(6)
    dense: Array = generator.normal(size=(m, n)) * (generator.uniform(size=(m, n)) < 0.2)
    return dense


def rows_of(dense: Array, kind: Any) -> tuple[Array, Array, Array]:
    offsets = np.concatenate([[0], (dense != 0).sum(axis=1).cumsum()]).astype(np.int32)
    return offsets, np.nonzero(dense)[1].astype(np.int32), dense[dense != 0].astype(kind)


def test_sparse_products(libraries: ctypes.CDLL) -> None:
    m, k, n, generator = 30, 23, 7, np.random.default_rng(5)
    dense = a_sparse_matrix(m, k)
    offsets, indices, values = rows_of(dense, np.float32)
    x, y = (generator.normal(size=s).astype(np.float32) for s in (k, m))
    b, c = generator.normal(size=(k, n)).astype(np.float32), np.full((n, m), np.nan, np.float32)
    other, start = np.full(k, np.nan, np.float32), y.copy()
    run(libraries.sparse, m, k, n, len(values), offsets, indices, values, x, y, b, c, other)
    np.testing.assert_allclose(y, 2 * dense @ x + 0.5 * start, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(c.T, 2 * dense @ b, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(other, 2 * dense.T @ y, rtol=1e-4, atol=1e-4)


def test_forms_of_sparse_matrices(libraries: ctypes.CDLL) -> None:
    n = 17
    dense = a_sparse_matrix(n, n) + 2 * np.eye(n)
    room = n * n
    offsets, indices, values = np.zeros(n + 1, np.int32), np.zeros(room, np.int32), np.zeros(room)
    counts, columns, results = (
        np.zeros(n + 1, np.int32),
        np.zeros(room, np.int32),
        np.zeros(room),
    )
    csc: tuple[Array, ...] = np.zeros(n + 1, np.int32), np.zeros(room, np.int32), np.zeros(room)
    entries, b, x = np.zeros(1, np.int64), np.arange(1.0, n + 1), np.zeros(n)
    run(
        libraries.sparse_forms,
        *(n, dense, offsets, indices, values, counts, columns, results, entries, *csc, b, x),
    )
    ours: tuple[Array, ...] = offsets, indices, values
    for found, wanted in zip(ours, rows_of(dense, float), strict=True):
        np.testing.assert_array_equal(found[: len(wanted)], wanted)
    for found, wanted in zip(csc, rows_of(dense.T, float), strict=True):
        np.testing.assert_array_equal(found[: len(wanted)], wanted)
    made = np.zeros((n, n))
    for row in range(n):
        part = slice(counts[row], counts[row + 1])
        made[row, columns[part]] = results[part]
    np.testing.assert_allclose(made, 2 * dense @ dense, rtol=1e-12, atol=1e-12)
    assert int(entries[0]) == int(counts[-1])
    np.testing.assert_allclose(np.tril(dense) @ x, b, rtol=1e-10)


def test_counts_and_sums_of_sparse_matrices(libraries: ctypes.CDLL) -> None:
    m, n, generator = 12, 9, np.random.default_rng(11)
    a, b = (generator.normal(size=(m, n)) * (generator.random((m, n)) < 0.3) for _ in range(2))
    of_rows, of_columns, total = (np.zeros(k, np.int32) for k in (m, n, 2))
    offsets, indices, values = (
        np.zeros(m + 1, np.int32),
        np.zeros(m * n, np.int32),
        np.zeros(m * n, np.float32),
    )
    dense = np.ascontiguousarray(a.T.astype(np.float32))
    sparse = *rows_of(a, np.float32), *rows_of(b, np.float32)
    run(
        libraries.typed,
        *(m, n, dense, of_rows, of_columns, total, *sparse, offsets, indices, values),
    )
    np.testing.assert_array_equal(of_rows, (a != 0).sum(axis=1))
    np.testing.assert_array_equal(of_columns, (a != 0).sum(axis=0))
    assert total.tolist() == [(a != 0).sum()] * 2
    made, places = np.zeros((m, n)), np.zeros((m, n), bool)
    for row in range(m):
        part = slice(offsets[row], offsets[row + 1])
        made[row, indices[part]], places[row, indices[part]] = values[part], True
    np.testing.assert_allclose(made, 2 * a + 3 * b, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(places, (a != 0) | (b != 0))


def test_matrices_that_must_not_change_and_parts_of_descriptions(libraries: ctypes.CDLL) -> None:
    dense = a_sparse_matrix(12, 9)
    offsets, indices, values = rows_of(dense, np.float32)
    x, y = np.random.default_rng(14).normal(size=9).astype(np.float32), np.zeros(12, np.float32)
    run(libraries.constant, 12, 9, offsets, indices, values, len(values), x, y)
    np.testing.assert_allclose(y, dense @ x, rtol=1e-4, atol=1e-5)


def test_systems_of_three_diagonals(libraries: ctypes.CDLL) -> None:
    m, n, generator = 11, 3, np.random.default_rng(12)
    lower, middle, upper = (generator.normal(size=(n, m)) for _ in range(3))
    middle[0, 4] = 0  # without exchanging rows this would be a division by 0
    lower[:, 0], upper[:, -1] = 0, 0
    right = generator.normal(size=(n, m))
    whole = [
        np.diag(d) + np.diag(low[1:], -1) + np.diag(up[:-1], 1)
        for low, d, up in zip(lower, middle, upper, strict=True)
    ]
    alike, strided = right.copy(), right.copy()
    # The interleaved systems are these diagonals, read with the batch as the last axis.
    turned = [each.reshape(m, n) for each in (lower, middle, upper)]
    together = generator.normal(size=(m, n))
    wanted = [
        np.linalg.solve(
            np.diag(turned[1][:, j])
            + np.diag(turned[0][1:, j], -1)
            + np.diag(turned[2][:-1, j], 1),
            together[:, j],
        )
        for j in range(n)
    ]
    run(libraries.diagonals, m, n, lower, middle, upper, alike, strided, together)
    for j in range(n):
        np.testing.assert_allclose(alike[j], np.linalg.solve(whole[0], right[j]), rtol=1e-9)
        np.testing.assert_allclose(strided[j], np.linalg.solve(whole[j], right[j]), rtol=1e-9)
        np.testing.assert_allclose(together[:, j], wanted[j], rtol=1e-8)


def test_sparse_and_dense_vectors(libraries: ctypes.CDLL) -> None:
    n, generator = 20, np.random.default_rng(13)
    places = np.sort(generator.permutation(n)[:7]).astype(np.int64)
    x, y = (generator.normal(size=k).astype(np.float32) for k in (7, n))
    sums, turned_x, turned_y = y.copy(), x.copy(), y.copy()
    run(libraries.with_vectors, n, 7, places, x, sums, turned_x, turned_y)
    wanted = 3 * y
    wanted[places] += 2 * x
    np.testing.assert_allclose(sums, wanted, rtol=1e-6)
    np.testing.assert_allclose(turned_x, 0.6 * x + 0.8 * y[places], rtol=1e-5, atol=1e-6)
    wanted = y.copy()
    wanted[places] = 0.6 * y[places] - 0.8 * x
    np.testing.assert_allclose(turned_y, wanted, rtol=1e-5, atol=1e-6)


def test_batches_of_sampled_products(libraries: ctypes.CDLL) -> None:
    batch, m, k, n, generator = 3, 8, 5, 9, np.random.default_rng(8)
    a, b = (generator.normal(size=s).astype(np.float32) for s in ((batch, m, k), (batch, k, n)))
    chosen = np.zeros((batch, m, n), bool)
    for each in chosen:
        each.ravel()[generator.permutation(m * n)[:20]] = True
    offsets = np.zeros((batch, m + 1), np.int32)
    offsets[:, 1:] = chosen.sum(axis=2).cumsum(axis=1)
    indices, values = np.nonzero(chosen)[2].astype(np.int32), np.zeros(batch * 20, np.float32)
    run(libraries.sampled, batch, m, k, n, 20, a, b, offsets, indices, values)
    np.testing.assert_allclose(values, (a @ b)[chosen], rtol=1e-4, atol=1e-5)


def test_least_squares(libraries: ctypes.CDLL) -> None:
    m, n, generator = 9, 4, np.random.default_rng(9)
    a, b = numbers(generator, np.float64, m, n), numbers(generator, np.float64, m)
    ca, cb = numbers(generator, np.complex128, m, n), numbers(generator, np.complex128, m)
    wanted = [np.linalg.lstsq(x, y)[0] for x, y in ((a, b), (ca, cb))]
    rows = [np.ascontiguousarray(each.T) for each in (a, ca)]
    run(libraries.nearest, m, n, rows[0], b, rows[1], cb)
    np.testing.assert_allclose(b[:n], wanted[0], rtol=1e-10)
    np.testing.assert_allclose(cb[:n], wanted[1], rtol=1e-10)


def incomplete_lu(dense: Array, raised: float | None = None) -> Array:
    """Gauss's elimination that drops whatever falls on a zero of the matrix."""
    a: Array = dense.copy()
    places = dense != 0
    for k in range(len(a)):
        if raised is not None and abs(a[k, k]) < 1e-9:
            a[k, k] = raised
        for i in range(k + 1, len(a)):
            if places[i, k]:
                a[i, k] /= a[k, k]
                a[i, k + 1 :] -= np.where(places[i, k + 1 :], a[i, k] * a[k, k + 1 :], 0)
    return a


def incomplete_cholesky(dense: Array) -> Array:
    a: Array = np.tril(dense)
    for k in range(len(a)):
        a[k, k] = np.sqrt(a[k, k])
        a[k + 1 :, k] /= a[k, k]
        for j in range(k + 1, len(a)):
            a[j:, j] -= np.where(a[j:, j] != 0, a[j:, k] * a[j, k], 0)
    return a


def some_factors(
    libraries: ctypes.CDLL, dense: Array, x: Array | None = None, parts: int = 1
) -> tuple[Array, Array, list[int], Array]:
    """The factors; each value is given as a sum of `parts`, and each row has an order by chance."""
    offsets, indices, values = rows_of(dense, np.float64)
    for i, (begin, end) in enumerate(pairwise(offsets)):
        order = np.random.default_rng(i).permutation(end - begin) + begin
        indices[begin:end], values[begin:end] = indices[order], values[order]
    offsets, indices = offsets * parts, np.repeat(indices, parts)
    values = np.repeat(values / parts, parts)
    lu, boosted, cholesky = values.copy(), values.copy(), values.astype(np.float32)
    places, m = np.zeros(3, np.int32), len(dense)
    x = np.ones(m) if x is None else x
    function = libraries.incomplete
    run(function, m, len(values), offsets + 1, indices + 1, lu, cholesky, places, boosted, x)
    rows = np.repeat(np.arange(m), np.diff(offsets))
    made = [np.zeros(dense.shape) for _ in range(3)]
    for out, found in zip(made, (lu, cholesky, boosted), strict=True):
        np.add.at(out, (rows, indices), found)
    return made[0], made[1], places.tolist(), made[2]


@pytest.mark.parametrize("parts", [1, 2])
def test_incomplete_factors(libraries: ctypes.CDLL, parts: int) -> None:
    n = 12
    dense = a_sparse_matrix(n, n)
    dense = dense + dense.T + 8 * np.eye(n)
    right = np.random.default_rng(14).normal(size=n)
    x = right.copy()
    lu, cholesky, places, _ = some_factors(libraries, dense, x, parts)
    np.testing.assert_allclose(lu, incomplete_lu(dense), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose((np.tril(lu, -1) + np.eye(n)) @ np.triu(lu) @ x, right, rtol=1e-10)
    wanted = incomplete_cholesky(dense) + np.triu(dense, 1)  # the upper values stay
    np.testing.assert_allclose(cholesky, wanted, rtol=1e-5)
    assert places == [-1, -1, -1]


def test_pivots_of_incomplete_factors(libraries: ctypes.CDLL) -> None:
    dense = np.array([[2.0, 4, 1, 0], [1, 2, 0, 3], [1, 0, 5, 0], [0, 1, 0, 7]])
    lu, _, places, boosted = some_factors(libraries, dense)
    # Row 2 becomes (1/2, 2 - 4/2, ...): a numerical zero.
    assert places == [-1, 2, -1]
    assert lu[1, 1] == 0
    np.testing.assert_allclose(boosted, incomplete_lu(dense, raised=0.5), rtol=1e-12)
    dense[2, 2] = 0
    assert some_factors(libraries, dense)[2] == [3, 2, 3]


COMPLEX_HALF, SHORT, BYTE_FLOAT = 6, 20, 28  # of cudaDataType


@pytest.mark.parametrize("kind", [COMPLEX_HALF, SHORT, BYTE_FLOAT])
def test_types_that_cannot_be_computed_with_are_refused(libraries: ctypes.CDLL, kind: int) -> None:
    run(libraries.taken_types, kind)


def test_vectors_of_negative_increments(libraries: ctypes.CDLL) -> None:
    x, y = np.arange(5, dtype=np.float16), np.array([1, 0, 2, 5, 3], np.float16)
    wanted, dot = y + 2 * x[::-1], np.zeros(1, np.float32)
    product = float(x[::-1] @ y)
    run(libraries.turned_vectors, 5, x, y, dot)
    assert dot[0] == product
    np.testing.assert_array_equal(y, wanted)
