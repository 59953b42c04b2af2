"""Which kernels with warp operations are cut, and which keep a stack for each thread."""

from __future__ import annotations

import pytest

from sapwood_cuda_cpu.parse import read_sources
from sapwood_cuda_cpu.patch import Mode, patch_sources

HELPERS = """
namespace cg = cooperative_groups;
__device__ float warp_sum(float v) {
  for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(~0u, v, d);
  return v;
}
template <class T> __device__ T block_sum(T v) {
  static __shared__ T partial[32];
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
  __syncthreads();
  return partial[0];
}
__device__ float early(float v) { if (v > 0) return v; return __shfl_xor_sync(~0u, v, 1); }
"""


TILE = "auto t = cg::tiled_partition<8>(b)"


def patched(body: str) -> tuple[Mode, str, str]:
    any_width = "ANY" in body
    body = body.replace("TILE", TILE).replace("ANY", TILE.replace("8", "WIDE"))
    template = "template <int WIDE> " if any_width else ""
    code = f"{HELPERS}{template}__global__ void k(float *x, int n) {{\n{body}\n}}\n"
    made = patch_sources(read_sources({"a.cu": code.encode()}))["a.cu"]
    text = made.text.decode()
    assert text.count("\n") == code.count("\n") + 1  # every line stays on its line
    (mode,) = made.kernels
    return mode.mode, mode.reason, text


@pytest.mark.parametrize(
    "body",
    [
        "float v = x[threadIdx.x]; v = warp_sum(v); x[threadIdx.x] = v;",
        "float v = x[threadIdx.x]; v += __shfl_xor_sync(~0u, v, 4, 8); x[0] = v;",
        "float v = x[threadIdx.x];\nfloat w = block_sum(v);\nx[threadIdx.x] = w;",
        "float v = x[threadIdx.x]; if (threadIdx.x < 32) v = warp_sum(v); x[0] = v;",
        "float v = x[threadIdx.x]; unsigned m = __ballot_sync(~0u, v > 0); x[0] = m;",
        "auto b = cg::this_thread_block(); x[b.thread_rank()] = 1; b.sync(); x[0] = x[1];",
        "auto b = cg::this_thread_block(); TILE; float v = x[0]; v += t.shfl_down(v, 1); x[0] = v;",
        "x[threadIdx.x] = 1; __syncwarp(); x[0] = x[1];",
        "int k = __syncthreads_count(x[threadIdx.x] > 0); x[threadIdx.x] = k;",
        "while (n) { bool d = x[threadIdx.x] > n; if (__syncthreads_and(d)) break; x[0] = 1; }",
        "bool c; do { c = x[threadIdx.x] > n; x[0] = 1; } while (__syncthreads_or(c));",
        "bool c; do { c = x[threadIdx.x] > n; } while (!__syncthreads_and(c) && n > 2);",
        "float v = x[threadIdx.x]; if (__all_sync(~0u, v > 1)) x[0] = v;",
        "float v = x[0]; v += __shfl_down(v, 4); x[0] = v;",
        "auto b = cg::this_thread_block(); ANY; float v = x[0]; v += t.shfl(v, t.size() / 2);",
        "auto b = cg::this_thread_block(); auto c = b; cg::sync(c); x[c.group_index().x] = 1;",
        "if (threadIdx.x > 3) return; float v = x[0]; x[0] = __ballot_sync(~0u, v > 0);",
        "if (threadIdx.x > 3) return; float v = x[0]; x[0] = __all_sync(~0u, v > 0);",
        "if (threadIdx.x > 3) return; x[0] = __syncthreads_count(n);",
        "int v = x[0]; x[0] = __match_any_sync(~0u, v) + __shfl_sync(~0u, v, 1);",
        "int v = x[0], all; unsigned m = __match_all_sync(~0u, v, &all); x[m] = all;",
        "unsigned v = x[0]; x[0] = __reduce_max_sync(~0u, v) + __reduce_add_sync(0xffu, v);",
        "auto b = cg::this_thread_block(); TILE; int v = n; x[1] = reduce(t, v, cg::less<int>());",
        "auto g = cg::this_grid(); x[g.thread_rank()] = 1; g.sync(); x[0] = g.size();",
    ],
)
@pytest.mark.slow
def test_what_all_threads_come_to_is_cut(body: str) -> None:
    mode, reason, _ = patched(body)
    assert mode is Mode.BLOCK, reason


@pytest.mark.parametrize(
    "body",
    [
        "float v = x[0]; for (int i = threadIdx.x; i < n; i++) v += __shfl_sync(~0u, v, 0);",
        "float v = x[0]; if (threadIdx.x < 3) v = early(v); x[0] = v;",
        "float v = x[0]; if (n > 3 && __shfl_sync(~0u, v, 0) > 1) x[0] = v;",
        "float v = x[0]; v = n ? __shfl_sync(~0u, v, 0) : 0; x[0] = v;",
        "auto b = cg::this_thread_block(); use(b); b.sync();",
        "if (threadIdx.x > 3) return; int v = x[0]; x[0] = __match_any_sync(~0u, v);",
        "if (threadIdx.x > 3) return; unsigned v = x[0]; x[0] = __reduce_max_sync(~0u, v);",
        "auto b = cg::this_thread_block(); TILE; float v = x[0]; x[1] = cg::reduce(t, v, own());",
        "if (threadIdx.x > 3) cg::this_grid().sync();",
        "if (threadIdx.x > 3) x[0] = __syncthreads_count(n);",
        "bool c; do { c = x[0] > n; if (n) continue; x[0] = 1; } while (__syncthreads_or(c));",
        "bool c = true; while (__syncthreads_or(c)) c = x[threadIdx.x] > n;",
    ],
)
@pytest.mark.slow
def test_what_may_not_be_so_keeps_its_stacks(body: str) -> None:
    mode, _, text = patched(body)
    assert mode is Mode.FIBER
    assert "sapwood_e" not in text


@pytest.mark.slow
def test_a_condition_that_lanes_must_share_is_watched() -> None:
    body = "float v = x[0]; if (threadIdx.x < 16) v = warp_sum(v); x[0] = v;"
    assert "require_lanes" in patched(body + " __syncthreads(); x[1] = 1;")[2]
    assert "require_lanes" not in patched(body)[2]


@pytest.mark.slow
def test_lanes_that_exchange_with_one_neighbour_are_decided_for_the_block() -> None:
    loop = "for (int m = 16; m > 0; m /= 2) v += __shfl_xor_sync(~0u, v, m); x[0] = v;"
    text = patched(f"float v = x[threadIdx.x]; {loop}")[2]
    assert "= ::sapwood_cuda::is_one_lane(m);" in text
    assert "exchange_xor(sapwood_g1, sapwood_e" in text
    own = "int m = threadIdx.x; v += __shfl_xor_sync(~0u, v, m); x[0] = v;"
    assert "is_one_lane" not in patched(f"float v = x[threadIdx.x]; {own}")[2]


@pytest.mark.slow
def test_an_exchange_is_cleared_behind_the_threads_where_all_of_them_write() -> None:
    body = "float v = x[threadIdx.x]; v += __shfl_down_sync(~0u, v, 1); x[threadIdx.x] = v;"
    assert "clear_exchange_end(sapwood_e" in patched(body)[2]
    text = patched(f"if (threadIdx.x > 40) return; {body}")[2]
    assert "[::sapwood_cuda::exchange_size] = {};" in text
