"""Names of the host that are CUDA's in device code."""

from __future__ import annotations

import pytest

from sapwood_cuda_cpu.host_names import may_hold, rename_on_host
from sapwood_cuda_cpu.parse import parse


def renamed(text: str) -> str:
    data = text.encode()
    if not may_hold(data):
        return text
    return rename_on_host(data, parse(data).root_node).decode()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "void f() { dim3 blockDim(8, 8); g(blockDim.x); }",
            "void f() { dim3 sapwood_host_blockDim(8, 8); g(sapwood_host_blockDim.x); }",
        ),
        (
            "void f(dim3 gridDim) { k<<<gridDim, 8>>>(); }",
            "void f(dim3 sapwood_host_gridDim) { k<<<sapwood_host_gridDim, 8>>>(); }",
        ),
        ("int n = plan.blockDim.x;", "int n = plan.sapwood_host_blockDim.x;"),
        (
            "void f() { int blockIdx; } __global__ void k() { use(blockDim); }",
            "void f() { int sapwood_host_blockIdx; } __global__ void k() { use(blockDim); }",
        ),
    ],
)
def test_the_host_gets_names_of_its_own(text: str, wanted: str) -> None:
    assert renamed(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "__global__ void k(int *x) { x[threadIdx.x] = blockDim.x; }",
        "__device__ int f() { dim3 d = blockDim; return d.x; }",
        "#define AT (blockIdx.x * blockDim.x)\nvoid f() { int n = AT; }",
        "void f() { auto g = [=] __device__ (int i) { return size_of(blockDim); }; }",
    ],
)
def test_device_code_keeps_them(text: str) -> None:
    assert renamed(text) == text
