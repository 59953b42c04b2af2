"""C sources beside CUDA sources: they call the runtime API, as with nvcc."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from sapwood.code import load_program
from sapwood.code.build import build
from sapwood.code.image import make_image, open_image
from sapwood_cuda_cpu.executable import build_executable

KERNEL = """#include <cuda_runtime.h>
__global__ void twice(float *x) { x[threadIdx.x] *= 2; }
extern "C" void run_twice(float *x, cudaStream_t stream) { twice<<<1, 8, 0, stream>>>(x); }
"""
MAIN = """#include <assert.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include "other.h"

extern void run_twice(float *x, cudaStream_t stream);

static void CUDART_CB done(void *data) { *(int *)data = 1; }

int main(void) {
    struct cudaDeviceProp p;
    int overlap = 0, engines = 0, called = 0;
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, *d, ms;
    float4 v = make_float4(1, 2, 3, 4);
    dim3 grid = {1, 2, 3};
    cudaStream_t stream;
    cudaEvent_t first, last;
    assert(use_device(0) == cudaSuccess);
    assert(cudaGetDeviceProperties(&p, 0) == cudaSuccess);
    cudaDeviceGetAttribute(&overlap, cudaDevAttrGpuOverlap, 0);
    cudaDeviceGetAttribute(&engines, cudaDevAttrAsyncEngineCount, 0);
    printf("%s %d %d %d\\n", p.name, p.warpSize, overlap, engines);
    printf("%d %d %g %u\\n", p.deviceOverlap, p.asyncEngineCount, v.w, grid.z);
    cudaStreamCreate(&stream), cudaEventCreate(&first), cudaEventCreate(&last);
    cudaMalloc((void **)&d, sizeof x);
    cudaMemcpyAsync(d, x, sizeof x, cudaMemcpyHostToDevice, stream);
    cudaEventRecord(first, stream);
    run_twice(d, stream);
    cudaEventRecord(last, stream);
    cudaLaunchHostFunc(stream, done, &called);
    assert(cudaStreamSynchronize(stream) == cudaSuccess);
    cudaMemcpy(x, d, sizeof x, cudaMemcpyDeviceToHost);
    assert(cudaEventElapsedTime(&ms, first, last) == cudaSuccess && ms >= 0 && called);
    printf("%g %s\\n", x[7], cudaGetErrorName(cudaSetDevice(3)));
    assert(cudaGetLastError() == cudaErrorInvalidDevice);
    d[8] = 1;
    cudaFree(d);
    printf("%s\\n", cudaGetErrorString(cudaGetLastError()));
    return 0;
}
""".replace("\\\\n", "\\n")
OTHER = """int cudaSetDevice(int device);
int use_device(int n) { return cudaSetDevice(n); }
"""


@pytest.mark.parametrize("compiler", ["clang++", "g++"])
def test_c_calls_the_runtime(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"this machine has no {compiler}")
    sources = {"main.c": MAIN, "other.c": OTHER, "kernel.cu": KERNEL}
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "other.h").write_text("int use_device(int n);\n")
    program = tmp_path / "program"
    environment = {**os.environ, "CXX": compiler, "CXXFLAGS": "-O0 -g0", "CFLAGS": "-O0 -g0"}
    build_executable([tmp_path / name for name in sources], program, environment=environment)
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=True)
    line = MAIN[: MAIN.index("cudaMalloc(")].count("\n") + 1
    wrote = f"something wrote to byte 32 of the 32 bytes that cudaMalloc gave at main.c:{line}"
    assert done.stdout.replace(f"{tmp_path}/", "").splitlines() == [
        "CPU (Sapwood) 32 1 1",
        "1 1 4 3",
        "16 cudaErrorInvalidDevice",
        f"{wrote}; the last kernel was twice",
    ]


PROGRAM = """
from sapwood import Program, native


class Twice(Program):
    sources = ("twice.c", "kernel.cu")
    inputs = ("x",)
    map = native("twice")
"""
TWICE = """#include <cuda_runtime.h>
void run_twice(float *x, cudaStream_t stream);

// @array x[n], y[n]
int twice(const float *x, long n, float *y) {
    float *d;
    cudaMalloc((void **)&d, n * sizeof *d);
    cudaMemcpy(d, x, n * sizeof *d, cudaMemcpyHostToDevice);
    run_twice(d, 0);
    cudaMemcpy(y, d, n * sizeof *d, cudaMemcpyDeviceToHost);
    return cudaFree(d);
}
"""


def test_c_of_a_program_calls_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAPWOOD_CUDA", "cpu")
    monkeypatch.setenv("CXXFLAGS", "-O0")
    for name, text in {"kernel.cu": KERNEL, "twice.c": TWICE, "twice.py": PROGRAM}.items():
        (tmp_path / name).write_text(text)
    program = load_program(tmp_path / "twice.py")
    built = build(program)
    assert {each.name for each in built.interface.functions} == {"twice"}
    opened = open_image(make_image(program, built))
    x = np.arange(8, dtype=np.float32)
    try:
        assert list(opened.call("twice", [x], {})["y"]) == list(2 * x)
    finally:
        opened.close()
