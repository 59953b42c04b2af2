"""Kernels that are cut say what the next blocks will read."""

from __future__ import annotations

import re

import pytest

from sapwood_cuda_cpu.parse import read_sources
from sapwood_cuda_cpu.patch import patch_sources


def asked(body: str) -> list[str]:
    code = f"__global__ void k(float *x, const float *y, int n) {{\n{body}\n}}\n"
    text = patch_sources(read_sources({"a.cu": code.encode()}))["a.cu"].text.decode()
    return [
        f"{array}[{index}]"
        for array, index in re.findall(r"ask_ahead\((\w+), (.*?), sapwood_b\.sx\)", text)
    ]


CUT = "__syncthreads(); x[0] = 1;"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (
            f"int i = blockIdx.x * blockDim.x + threadIdx.x; float v = i < n ? y[i] : 0;{CUT}",
            ["y[i]"],
        ),
        (f"int i = blockIdx.x * n + threadIdx.x; float v = y[i] + y[i] + x[i];{CUT}", 2),
        (f"int i = threadIdx.x; x[i] = 1;{CUT}", []),  # only written
        (f"int i = threadIdx.x; float v = y[i * 2];{CUT}", []),  # not one after the other
        (f"float v = 0; for (int j = 0; j < n; j++) v += y[threadIdx.x + j];{CUT}", []),
        (f"int i = threadIdx.x; y += n; float v = y[i];{CUT}", []),  # the pointer changes
        ("int i = threadIdx.x; x[i] = y[i];", []),  # nothing is cut: one long loop
    ],
)
@pytest.mark.slow
def test_what_is_asked_for(body: str, found: list[str] | int) -> None:
    names = asked(body)
    if isinstance(found, int):
        assert len(names) == found
    else:
        assert names == found


def test_no_more_than_a_few_arrays() -> None:
    sums = " + ".join(f"y[threadIdx.x + {each} * n]" for each in range(9))
    assert len(asked(f"float v = {sums}; {CUT}")) == 4
