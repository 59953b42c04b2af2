"""Kernels of many kinds give what numpy gives: two compilers, two modes, 1, 2 and 4 workers."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

RANDOM = np.random.default_rng(7)
F = RANDOM.normal(size=5003).astype(np.float32)
I = RANDOM.integers(0, 100, size=4096).astype(np.int32)  # noqa: E741 - the integers


def call(function: Any, *arguments: Any) -> int:
    return int(function(*(_given(argument) for argument in arguments)))


def _given(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return ctypes.c_void_p(argument.ctypes.data)
    return ctypes.c_int(argument)


def _bits(mask: npt.NDArray[Any]) -> int:
    return sum(1 << i for i in range(32) if mask[i])


def zeros(like: npt.NDArray[Any], size: int | None = None) -> npt.NDArray[Any]:
    return np.zeros(len(like) if size is None else size, like.dtype)


def test_map(kernels: ctypes.CDLL) -> None:
    out = zeros(F)
    assert call(kernels.map_run, F, out, len(F)) == 0
    np.testing.assert_allclose(out, 2 * F + 1, rtol=1e-6)


def test_grid_stride_with_continue(kernels: ctypes.CDLL) -> None:
    out = np.ones_like(F)
    assert call(kernels.stride_run, F, out, len(F)) == 0
    np.testing.assert_allclose(out, np.where(F < 0, 1, 0.5 * F + 1), rtol=1e-6)


def test_stencil_with_constant_memory(kernels: ctypes.CDLL) -> None:
    out = zeros(F)
    assert call(kernels.stencil_run, F, out, len(F)) == 0
    weights = np.array([0.1, 0.2, 0.4, 0.2, 0.1], np.float32)
    np.testing.assert_allclose(out, np.convolve(F, weights, "same"), atol=1e-5)


def test_reduction_in_dynamic_shared_memory(kernels: ctypes.CDLL) -> None:
    out = zeros(F, (len(F) + 255) // 256)
    assert call(kernels.tree_run, F, out, len(F)) == 0
    padded = np.append(F, np.zeros(-len(F) % 256, np.float32))
    np.testing.assert_allclose(out, padded.reshape(-1, 256).sum(axis=1), atol=1e-3)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 1000])
def test_threads_that_return_before_a_barrier(kernels: ctypes.CDLL, n: int) -> None:
    out = zeros(I, n)
    assert call(kernels.early_run, I, out, n) == 0
    following = np.append(I[1:n], 0)
    following[63::64] = 0
    np.testing.assert_array_equal(out, I[:n] + following)


@pytest.mark.parametrize("n", [256, 200])
def test_scan(kernels: ctypes.CDLL, n: int) -> None:
    out = zeros(I, 8 * n)
    assert call(kernels.scan_run, I, out, 8, n) == 0
    np.testing.assert_array_equal(out.reshape(8, n), I[: 8 * n].reshape(8, n).cumsum(axis=1))


def test_exclusive_scan_with_a_common_variable(kernels: ctypes.CDLL) -> None:
    data = I[:512].copy()
    assert call(kernels.blelloch_run, data, 512) == 0
    np.testing.assert_array_equal(data, np.append(0, I[:512].cumsum()[:-1]))


def test_histogram_with_shared_atomics(kernels: ctypes.CDLL) -> None:
    data = RANDOM.integers(0, 256, size=20011).astype(np.uint8)
    bins = np.zeros(256, np.uint32)
    assert call(kernels.histogram_run, data, bins, len(data)) == 0
    np.testing.assert_array_equal(bins, np.bincount(data, minlength=256))


@pytest.mark.parametrize("n", [64, 53])
def test_tiled_matrix_product(kernels: ctypes.CDLL, n: int) -> None:
    a, b = F[: n * n].reshape(n, n).copy(), F[100 : 100 + n * n].reshape(n, n).copy()
    out = np.zeros((n, n), np.float32)
    assert call(kernels.matmul_run, a, b, out, n) == 0
    np.testing.assert_allclose(out, a @ b, rtol=1e-3, atol=1e-3)


def test_transpose(kernels: ctypes.CDLL) -> None:
    x, out = I[: 70 * 45].copy(), zeros(I, 70 * 45)
    assert call(kernels.transpose_run, x, out, 70, 45) == 0
    np.testing.assert_array_equal(out.reshape(70, 45), x.reshape(45, 70).T)


def test_n_body(kernels: ctypes.CDLL) -> None:
    p = np.abs(F[: 4 * 150]).reshape(150, 4).copy()
    out = np.zeros_like(p)
    assert call(kernels.nbody_run, p, out, 150) == 0
    d = p[None, :, :3] - p[:, None, :3]
    weight = p[None, :, 3] * ((d**2).sum(axis=2) + 0.01) ** -1.5
    np.testing.assert_allclose(
        out[:, :3], (d * weight[:, :, None]).sum(axis=1), rtol=1e-2, atol=1e-2
    )


def test_bitonic_sort(kernels: ctypes.CDLL) -> None:
    x = I[: 4 * 256].copy()
    assert call(kernels.bitonic_run, x, 4) == 0
    np.testing.assert_array_equal(x.reshape(4, 256), np.sort(I[: 4 * 256].reshape(4, 256), axis=1))


def test_rows_by_pointers_in_managed_memory(kernels: ctypes.CDLL) -> None:
    x, out = F[: 7 * 91].copy(), zeros(F, 7)
    assert call(kernels.rows_run, x, out, 7, 91) == 0
    np.testing.assert_allclose(out, x.reshape(7, 91).sum(axis=1), atol=1e-3)


def test_a_parameter_that_threads_change(kernels: ctypes.CDLL) -> None:
    out = zeros(I, 96)
    assert call(kernels.changed_run, out, 3) == 0
    t = np.arange(32)
    np.testing.assert_array_equal(out.reshape(3, 32), [(7 + 31 - t) * 100 + 7 + t] * 3)


def test_pointers_to_variables_of_the_other_side_of_a_barrier(kernels: ctypes.CDLL) -> None:
    out = zeros(I, 96)
    assert call(kernels.pointed_run, out, len(out)) == 0
    t = np.arange(96)
    np.testing.assert_array_equal(out, 10 * t + 1000 * (t + 1) + t**2 + 10 * t + 5 * t)


def test_parameters_of_which_each_thread_changes_its_own(kernels: ctypes.CDLL) -> None:
    out = zeros(I, 96)
    assert call(kernels.own_run, out, len(out)) == 0
    t = np.arange(96)
    np.testing.assert_array_equal(out, 6 + 6 * t + 1000 * (2 + 4 * t) + 100 + t + 7 + t)


def test_template_with_functor(kernels: ctypes.CDLL) -> None:
    x = F[:1000].astype(np.float64)
    assert call(kernels.functor_run, x, len(x)) == 0
    np.testing.assert_allclose(x, F[:1000].astype(np.float64) ** 3)


def test_kernels_as_values(kernels: ctypes.CDLL) -> None:
    x = I.copy()
    assert call(kernels.value_run, x, len(x)) == 0
    np.testing.assert_array_equal(x, (I + 1) * 2)


def test_three_dimensions(kernels: ctypes.CDLL) -> None:
    x = np.zeros((5, 9, 13), np.int32)
    assert call(kernels.cube_run, x, 13, 9, 5) == 0
    k, j, i = np.indices(x.shape)
    np.testing.assert_array_equal(x, i + 100 * j + 10000 * k)


def test_device_variable_and_header(kernels: ctypes.CDLL) -> None:
    assert call(kernels.counter_run, I, len(I)) == np.count_nonzero(I % 3 == 0)


def test_atomics(kernels: ctypes.CDLL) -> None:
    n = 777
    x, u, f = np.zeros(6, np.int32), np.zeros(1, np.uint32), np.zeros(1, np.float32)
    assert call(kernels.atomics_run, x, u, f, n) == 0
    wanted = [1 - n, n - 1, np.bitwise_xor.reduce(np.arange(n)), 2**31 - 1, -2 * n, 3 * n]
    assert (list(x), u[0], f[0]) == (wanted, n % 10, n / 2)


def test_a_wrong_launch_is_an_error_once(kernels: ctypes.CDLL) -> None:
    assert call(kernels.bad_launch_run) == 9000


def test_reduction_by_shuffles(kernels: ctypes.CDLL) -> None:
    out = zeros(F, 1)
    assert call(kernels.shuffle_run, F, out, len(F)) == 0
    np.testing.assert_allclose(out[0], F.sum(), atol=1e-2)


def test_scan_by_shuffles(kernels: ctypes.CDLL) -> None:
    x, out = I[:320].copy(), zeros(I, 320)
    assert call(kernels.warp_scan_run, x, out, 10) == 0
    sums = x.reshape(10, 32).cumsum(axis=1)
    lane = np.arange(32) ^ 1
    np.testing.assert_array_equal(out.reshape(10, 32), sums + 1000 * sums[:, 31:] + lane)


def test_some_warps_of_a_block(kernels: ctypes.CDLL) -> None:
    x, out = I[:96].copy(), np.ones(96, np.int32)
    assert call(kernels.some_warps_run, x, out, 32) == 0
    assert not out[:32].any()
    assert out[32] == x[32:64].sum() + 1000
    assert not out[64:].any()


def test_half_a_warp_where_a_whole_one_is_asked_for(kernels: ctypes.CDLL) -> None:
    x, out = I[:96].copy(), np.ones(96, np.int32)
    assert call(kernels.some_warps_run, x, out, 16) == 0
    assert out[32] == x[32:48].sum() + 1000


def test_lanes_that_wait_elsewhere_are_a_deadlock_with_its_line(kernels: ctypes.CDLL) -> None:
    kernels.half_warp_run.restype = ctypes.c_char_p
    x, out = I[:32].copy(), zeros(I, 32)
    text = kernels.half_warp_run(*map(_given, (x, out))).decode()
    kernels.reset_run()
    assert "deadlock in kernel half_warp_kernel: warps.cu:" in text


def test_totals_of_blocks_and_votes(kernels: ctypes.CDLL) -> None:
    x, out = I[:288].copy(), zeros(I, 288)
    assert call(kernels.totals_run, x, out, 3) == 0
    totals = np.repeat(x.reshape(3, 96).sum(axis=1), 96)
    odd = np.repeat((x.reshape(9, 32) & 1).sum(axis=1), 32)
    np.testing.assert_array_equal(out, totals * 100 + odd)


def test_votes_and_match_with_masks(kernels: ctypes.CDLL) -> None:
    x, out = I[:128].copy(), np.zeros(512, np.uint32)
    assert call(kernels.votes_run, x, out, 4) == 0
    for warp in range(4):
        v = x[32 * warp : 32 * warp + 32]
        for lane in range(32):
            half = slice(0, 16) if lane < 16 else slice(16, 32)
            wanted = [_bits(v & 1), _bits(v % 4 == v[lane] % 4), (v[half] & 1).sum()]
            wanted.append(2 * (v == 3).any() + (v >= 0).all())
            assert list(out[4 * (32 * warp + lane) :][:4]) == wanted


def test_counting_barriers_after_returns(kernels: ctypes.CDLL) -> None:
    n = 150
    out = zeros(I, n)
    assert call(kernels.counts_run, I, out, n) == 0
    for start in range(0, n, 64):
        v = I[start : min(start + 64, n)]
        wanted = (v > 0).sum() * 100 + (v > 98).any() * 10 + (v >= 0).all()
        assert set(out[start : start + 64]) == {wanted}


def test_barriers_in_device_functions(kernels: ctypes.CDLL) -> None:
    x = I[:384].copy()
    assert call(kernels.device_barrier_run, x, 3) == 0
    np.testing.assert_array_equal(x.reshape(3, 128), I[:384].reshape(3, 128)[:, ::-1])


def test_cooperative_groups(kernels: ctypes.CDLL) -> None:
    x, out = I[:192].copy(), zeros(I, 192)
    assert call(kernels.groups_run, x, out, 3) == 0
    np.testing.assert_array_equal(out, np.repeat(x.reshape(-1, 8).sum(axis=1), 8) * 10 + 1)


def test_streams_and_events(kernels: ctypes.CDLL) -> None:
    kernels.events_run.restype = ctypes.c_float
    assert 0 <= kernels.events_run() < 1000


def test_a_deadlock_is_an_error_with_its_line(kernels: ctypes.CDLL) -> None:
    kernels.stuck_run.restype = ctypes.c_char_p
    text = kernels.stuck_run(ctypes.c_void_p(zeros(I, 1).ctypes.data)).decode()
    kernels.reset_run()
    assert "deadlock in kernel stuck_kernel: warps.cu:" in text
    assert "waits for threads that will not come" in text
