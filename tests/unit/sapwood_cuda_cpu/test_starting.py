"""Which variables get a first value where lanes hand their values to each other."""

from __future__ import annotations

import pytest

from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.parse import CudaSource, read_sources
from sapwood_cuda_cpu.patch import patch_sources
from sapwood_cuda_cpu.starting import start_variables


def started(body: str) -> str:
    source = CudaSource("a.cu", f"__device__ void f(int n) {{ {body} }}".encode())
    edits = Edits(source.data)
    start_variables(source.functions[0], edits)
    return edits.apply().decode()


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("int p; n = p;", "int p{};"),
        ("unsigned long long p, q = 1;", "unsigned long long p{}, q = 1;"),
        ("if (n) { uint32_t p; n = p; }", "uint32_t p{};"),
        ("float p, q;", "float p{}, q{};"),
        ("T value;", "T value{};"),
    ],
)
def test_a_first_value(body: str, wanted: str) -> None:
    assert wanted in started(body)


@pytest.mark.parametrize(
    "body",
    [
        "int p = 3;",
        "int p[4];",
        "int *p;",
        "static int p;",
        "__shared__ int p;",
        "Large p;",
        "switch (n) { case 1: int p; break; case 2: n = 1; }",
        "int p; if (n) goto end; end: return;",
        "for (int i; n;) n--;",
    ],
)
def test_none(body: str) -> None:
    assert "{}" not in started(body)


def test_kernels_that_are_cut_are_left_as_they_are() -> None:
    def patched(body: str) -> bytes:
        code = f"__global__ void k(int *x) {{ int p; {body} x[0] = p; }}".encode()
        return patch_sources(read_sources({"a.cu": code}))["a.cu"].text

    assert b"int p{};" not in patched("p = x[threadIdx.x]; __syncthreads();")
    assert b"int p{};" in patched("p = x[1]; if (threadIdx.x) __syncthreads();")
