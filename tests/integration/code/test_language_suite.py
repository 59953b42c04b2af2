"""The built-in languages pass the suite for languages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sapwood.code.languages.c import C
from sapwood.code.languages.cpp import Cpp
from sapwood.code.languages.python import Python
from sapwood.gpu.cuda.language import Cuda
from sapwood.testing.languages import CHECKS, Check, Sample

C_TEXT = """#include <stdint.h>
{extern}int64_t twice(int64_t i) {{ return 2 * i; }}

/** Adds up.
 * @array x[n] */
{extern}double total(const double *x, int64_t n) {{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum;
}}

/** @array x[n]
 *  @array y[n] */
{extern}void scale(const double *x, int64_t n, double factor, double *y) {{
    for (int64_t i = 0; i < n; i++) y[i] = factor * x[i];
}}
"""
PYTHON = '''"""Three functions."""


def twice(i):
    return 2 * i


def total(x):
    return x.sum()


def scale(x, factor):
    return {"y": factor * x}
'''
CUDA = """#include <cstdint>
__global__ void scale_all(const double *x, int64_t n, double factor, double *y) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = factor * x[i];
}

extern "C" int64_t twice(int64_t i) { return 2 * i; }

/** @array x[n] */
extern "C" double total(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum;
}

/** @array x[n]
 *  @array y[n] */
extern "C" void scale(const double *x, int64_t n, double factor, double *y) {
    double *in, *out;
    cudaMalloc(&in, n * sizeof(double));
    cudaMalloc(&out, n * sizeof(double));
    cudaMemcpy(in, x, n * sizeof(double), cudaMemcpyHostToDevice);
    scale_all<<<(n + 255) / 256, 256>>>(in, n, factor, out);
    cudaMemcpy(y, out, n * sizeof(double), cudaMemcpyDeviceToHost);
    cudaFree(in);
    cudaFree(out);
}
"""


def c_like(language: Any, source: str, text: str) -> Sample:
    return Sample(
        language=language,
        source=source,
        text=text,
        changed=text.replace("2 * i", "3 * i"),
        broken="\n" + text.replace("2 * i", "2 * j"),
        broken_line=next(n for n, line in enumerate(text.splitlines(), 2) if "2 * i" in line),
    )


SAMPLES = {
    "c": c_like(C(), "a.c", C_TEXT.format(extern="")),
    "c++": c_like(Cpp(), "a.cpp", C_TEXT.format(extern='extern "C" ')),
    "cuda": c_like(Cuda(), "a.cu", CUDA),
    "python": Sample(
        language=Python(),
        source="a.py",
        text=PYTHON,
        changed=PYTHON.replace("2 * i", "3 * i"),
        broken="x = 1\ndef twice(i:\n",
        broken_line=2,
        typed=False,
        mapped=False,
    ),
}


@pytest.mark.row("A-CODE-6")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", SAMPLES)
def test_language(name: str, check: Check, tmp_path: Path) -> None:
    # Only now the environment says where the cache is.
    environment = {**os.environ, "SAPWOOD_CUDA": "cpu", "CXXFLAGS": "-O0"}
    check(msgspec.structs.replace(SAMPLES[name], environment=environment), tmp_path)
