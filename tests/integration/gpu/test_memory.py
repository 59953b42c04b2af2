"""Writes beside memory of the device: found after the launch or the call, and named."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import sapwood
from sapwood.code import load_program
from sapwood.code.build import build
from sapwood.code.image import make_image, open_image
from sapwood.core.errors import ExecutionError
from sapwood_cuda_cpu.executable import build_executable
from sapwood_cuda_cpu.language import MODE

CALLS = """#include <cstdio>
__global__ void fill(int *x, int from, int to) {
    int i = from + blockIdx.x * blockDim.x + threadIdx.x;
    if (i < to) x[i] = i;
}
void say(cudaError_t error) {
    printf("%d %s\\n", error, cudaGetErrorString(error));
    cudaDeviceReset();
}
int main() {
    int *a, *b, *c, out[200];
    char *d;
    cudaMalloc(&a, 400);
    cudaMallocManaged(&b, 399);
    cudaMallocHost(&c, 4);
    cudaMalloc(&d, 1);
    fill<<<1, 128>>>(a, 0, 100); // just as many
    say(cudaDeviceSynchronize());
    fill<<<1, 128>>>(a, 0, 101);
    say(cudaGetLastError());
    fill<<<1, 128>>>(a, -3, 0);
    say(cudaDeviceSynchronize());
    b[99] = 0; // the host, by one byte
    say(cudaFree(b));
    d[1] = 0;
    say(cudaMemcpy(out, a, 400, cudaMemcpyDeviceToHost));
    c[-64] = 0; // farther away, seen at the end
    say(cudaFreeHost(c));
    say(cudaMemcpy(out, a, 401, cudaMemcpyDeviceToHost));
    say(cudaMemcpy(a + 1, out, 400, cudaMemcpyHostToDevice));
    say(cudaMemset(a, 0, 401));
    say(cudaFree(a + 1));
    say(cudaFree(a));
    say(cudaFree(a));
    say(cudaFree(nullptr));
}
"""


def wrote(byte: int, size: int, call: str, line: int) -> str:
    gave = f"the {size} bytes that {call} gave at calls.cu:{line}"
    return f"700 something wrote to byte {byte} of {gave}; the last kernel was fill"


@pytest.mark.row("A-GPU-3")
@pytest.mark.parametrize("compiler", ["clang++", pytest.param("g++", marks=pytest.mark.nightly)])
def test_each_write_beside_an_allocation_is_named(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"this machine has no {compiler}")
    (tmp_path / "calls.cu").write_text(CALLS)
    program = tmp_path / "calls"
    environment = {**os.environ, "CXX": compiler, "CXXFLAGS": "-O0 -g0"}
    build_executable([tmp_path / "calls.cu"], program, environment=environment)
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=True)
    text = done.stdout.replace(f"{tmp_path}/", "")
    assert text.splitlines() == [
        "0 no error",
        wrote(400, 400, "cudaMalloc", 13),
        wrote(-1, 400, "cudaMalloc", 13),
        wrote(399, 399, "cudaMallocManaged", 14),
        wrote(1, 1, "cudaMalloc", 16),
        wrote(-253, 4, "cudaMallocHost", 15),
        *["1 invalid argument"] * 4,
        "0 no error",
        "1 invalid argument",
        "0 no error",
    ]


DECLARED = """#include <cstdio>
__device__ float table[10];
__constant__ int weights[4] = {1, 2, 3, 4}; __device__ volatile int flags[2];
__global__ void fixed(float *x, int at) {
    __shared__ float s[64], u[32];
    int t = threadIdx.x;
    s[t] = x[t], u[t % 32] = 1;
    __syncthreads();
    if (t == 0 && at) s[at] = 5, flags[1] = 1;
    __syncthreads();
    x[t] = s[63 - t] + u[0];
}
__global__ void dynamic(float *x, int at) {
    extern __shared__ float d[];
    d[int(threadIdx.x) + at] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = d[63 - threadIdx.x];
}
__device__ float helper(int t, int at) {
    __shared__ double h[16];
    h[t % 16] = t;
    if (at && t == 0) h[at] = 3;
    return h[0];
}
__global__ void calling(float *x, int at) { x[threadIdx.x] = helper(threadIdx.x, at); }
template <class T> __global__ void rows(T *x, int at) {
    __shared__ __align__(16) T s[8][9];
    if (threadIdx.x < 8) { s[threadIdx.x][0] = 1; __syncthreads(); }
    if (threadIdx.x == 0 && at) s[7][at] = 1;
    x[threadIdx.x] = s[threadIdx.x % 8][0];
}
__global__ void device(int at) { table[int(threadIdx.x) + at] = weights[threadIdx.x % 4]; }
void say() {
    cudaError_t error = cudaDeviceSynchronize();
    printf("%d %s\\n", error, cudaGetErrorString(error));
    cudaDeviceReset();
    cudaGetLastError();
}
int main() {
    float *x;
    cudaMalloc(&x, 256);
    cudaMemset(x, 0, 256);
    for (int at : {0, 64, -1, 70}) fixed<<<3, 64>>>(x, at), say();
    for (int at : {0, 1, -1}) dynamic<<<3, 64, 256>>>(x, at), say();
    dynamic<<<1, 64>>>(x, 0), say(); // the launch asks for none
    for (int at : {0, 16, -1}) calling<<<3, 64>>>(x, at), say();
    for (int at : {0, 9, 10}) rows<<<3, 8>>>(x, at), say();
    for (int at : {0, 1, -1}) device<<<1, 10>>>(at), say();
    int back[4];
    cudaMemcpyFromSymbol(back, weights, sizeof back);
    printf("%d %d\\n", back[3], cudaFree(weights));
}
"""


def shared(kernel: str, byte: int, size: int, name: str, line: int) -> str:
    array = f"the shared array {name} at declared.cu:{line}"
    return f"700 kernel {kernel} wrote to byte {byte} of the {size} bytes of {array}"


def asked_for(byte: int, size: int) -> str:
    memory = "dynamic shared memory that its launch asked for"
    return f"700 kernel dynamic wrote to byte {byte} of the {size} bytes of {memory}"


def declared(byte: int) -> str:
    where = "the 40 bytes of table at declared.cu:2"
    return f"700 something wrote to byte {byte} of {where}; the last kernel was device"


@pytest.mark.row("A-GPU-3")
@pytest.mark.parametrize(
    ("compiler", "mode"),
    [
        ("clang++", "fiber"),
        ("g++", "block"),
        pytest.param("clang++", "block", marks=pytest.mark.nightly),
        pytest.param("g++", "fiber", marks=pytest.mark.nightly),
    ],
)
def test_each_write_beside_a_declared_array_is_named(
    compiler: str, mode: str, tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"this machine has no {compiler}")
    (tmp_path / "declared.cu").write_text(DECLARED)
    program = tmp_path / "declared"
    environment = {**os.environ, "CXX": compiler, "CXXFLAGS": "-O0 -g0", MODE: mode}
    build_executable([tmp_path / "declared.cu"], program, environment=environment)
    for workers in ("1", "2"):
        done = subprocess.run(
            [program],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env={**os.environ, "SAPWOOD_CUDA_WORKERS": workers},
        )
        assert done.stdout.replace(f"{tmp_path}/", "").splitlines() == [
            "0 no error",
            *(shared("fixed", byte, 256, "s", 5) for byte in (256, -1, 280)),
            "0 no error",
            *(asked_for(*each) for each in ((256, 256), (-1, 256), (0, 0))),
            "0 no error",
            *(shared("calling", byte, 128, "h", 20) for byte in (128, -1)),
            "0 no error",
            *(shared("rows", byte, 288, "s", 27) for byte in (288, 292)),
            "0 no error",
            declared(40),
            declared(-1),
            "4 1",
        ]


SOURCE = """
__global__ void shift(float *y, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i + 1] = x[i];
}
// @array x[n]
// @array y[n]
extern "C" void shifted(const float *x, int n, float *y) {
    float *dx, *dy;
    cudaMalloc(&dx, n * sizeof(float));
    cudaMalloc(&dy, n * sizeof(float));
    cudaMemcpy(dx, x, n * sizeof(float), cudaMemcpyHostToDevice);
    shift<<<(n + 255) / 256, 256>>>(dy, dx, n < 100 ? n - 1 : n);
    cudaMemcpy(y, dy, n * sizeof(float), cudaMemcpyDeviceToHost);
    cudaFree(dx);
    cudaFree(dy);
}
"""
PROGRAM = """
from sapwood import Program, native


class Shifted(Program):
    sources = ("shifted.cu",)
    inputs = ("x",)
    reduce = {"y": "sum"}
    map = native("shifted")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program whose kernel writes one element too far where there are a hundred or more."""
    monkeypatch.setenv("SAPWOOD_CUDA", "cpu")
    monkeypatch.setenv("CXXFLAGS", "-O0")
    (tmp_path / "shifted.cu").write_text(SOURCE)
    (tmp_path / "shifted.py").write_text(PROGRAM)
    return tmp_path


def test_a_call_fails_although_the_function_asks_for_no_error(folder: Path) -> None:
    program = load_program(folder / "shifted.py")
    opened = open_image(make_image(program, build(program)))
    try:
        with pytest.raises(ExecutionError) as caught:
            opened.call("shifted", [np.ones(200, np.float32)], {})
        assert "wrote to byte 800 of the 800 bytes that cudaMalloc gave" in caught.value.what
        assert "shifted.cu:11; the last kernel was shift" in caught.value.what
        # The error is reported once: the library remains usable.
        found = opened.call("shifted", [np.arange(50, dtype=np.float32)], {})
        np.testing.assert_array_equal(found["y"][1:], np.arange(49))
    finally:
        opened.close()


def test_a_run_fails_and_the_agents_live(folder: Path) -> None:
    with sapwood.local(agents=1) as cluster:
        with pytest.raises(ExecutionError, match="the last kernel was shift"):
            cluster.run(folder / "shifted.py", {"x": np.ones(200, "f4")}).result(timeout=60)
        good = cluster.run(folder / "shifted.py", {"x": np.ones(50, "f4")}).result(timeout=60)
    assert good["y"][1:].sum() == 49
