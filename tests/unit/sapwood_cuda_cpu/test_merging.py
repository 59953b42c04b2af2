"""Blocks are merged only where a kernel cannot tell."""

from __future__ import annotations

import pytest

from sapwood_cuda_cpu.parse import read_sources
from sapwood_cuda_cpu.patch import patch_sources

I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"  # noqa: E741 - the usual index


def view(body: str, before: str = "") -> str:
    text = f"{before}__global__ void k(int *x, int n) {{ {body} }}"
    patched = patch_sources(read_sources({"a.cu": text.encode()}))["a.cu"].text.decode()
    return patched.split("sapwood_b = ::sapwood_cuda::")[1].split(";")[0]


@pytest.mark.row("A-GPU-3")
@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (f"{I} if (i < n) x[i] = 1;", "merged_view(false)"),
        (f"{I} if (i >= n) return; x[i] = 1;", "merged_view(false)"),
        ("x[threadIdx.x + (blockDim.x * blockIdx.x)] = 1;", "merged_view(false)"),
        (f"{I} x[i] = gridDim.x * blockDim.x;", "merged_view(true)"),
        (f"for ({I} i < n; i += blockDim.x * gridDim.x) x[i] = 1;", "merged_view(true)"),
        (f"{I} atomicAdd(x + blockIdx.y, i);", "merged_view(false)"),
    ],
)
@pytest.mark.slow
def test_merged(body: str, wanted: str) -> None:
    assert view(body) == wanted


@pytest.mark.parametrize(
    "body",
    [
        f"{I} x[i] = threadIdx.x;",
        f"{I} x[i] = blockIdx.x;",
        "x[blockIdx.x * 256 + threadIdx.x] = 1;",
        f"{I} x[i] = blockDim.x;",
        f"{I} __shared__ int s[64]; s[i % 64] = n; x[i] = s[i % 64];",
        f"{I} assert(i < n);",
        f"{I} int v = x[i + 1]; __syncthreads(); x[i] = v;",
        f"{I} x[i] = where();",
        "x[PLACE] = 1;",
    ],
)
@pytest.mark.slow
def test_not_merged(body: str) -> None:
    before = "#define PLACE threadIdx.x\n__device__ int where() { return blockIdx.x; }\n"
    assert view(body, before) == "view()"
