"""Shifts in device code say what a GPU does with amounts beyond the bits of a value."""

from __future__ import annotations

import pytest

from sapwood_cuda_cpu.parse import read_sources
from sapwood_cuda_cpu.patch import patch_sources


def patched(code: str, *, fiber_only: str = "") -> str:
    sources = read_sources({"a.cu": code.encode()})
    return patch_sources(sources, fiber_only=fiber_only)["a.cu"].text.decode()


@pytest.mark.parametrize("fiber_only", ["", "asked for"])
@pytest.mark.parametrize(
    ("shift", "made"),
    [
        ("1 << n", "1 << ::sapwood_cuda::by << n"),
        ("n >> 32", "n >> ::sapwood_cuda::by >> 32"),
        ("n <<= n", "n <<= ::sapwood_cuda::by <<= n"),
        ("n >> 31", "n >> 31"),
        ("n >> (n & 0x1f)", "n >> (n & 0x1f)"),
        ("n >> (n & 0x3f)", "n >> ::sapwood_cuda::by >> (n & 0x3f)"),
    ],
)
def test_only_amounts_that_may_be_too_large(shift: str, made: str, fiber_only: str) -> None:
    kernel = f"__global__ void k(int *x, int n) {{ x[threadIdx.x] = ({shift}); }}"
    assert f"({made})" in patched(kernel, fiber_only=fiber_only)
    function = f"__device__ int f(int n) {{ return ({shift}); }}"
    assert f"({made})" in patched(function, fiber_only=fiber_only)


def test_the_host_and_its_streams_are_left_alone() -> None:
    text = patched("int f(int n) { return 1 << n; }\nvoid g(int n) { std::cout << n; }")
    assert "sapwood_cuda::by" not in text
