"""Programs with CUDA sources, built as users' programs are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sapwood
from sapwood.code import load_program
from sapwood.code.build import build
from sapwood.code.cache import BuildCache
from sapwood.code.image import make_image, open_image
from sapwood.core.errors import BuildError, CompilerMissingError, ConfigurationError

SOURCE = """
#include <cuda_runtime.h>
#include "square.cuh"

__global__ void sum_squares(const double *x, double *total, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(total, square(x[i]));
}

// Sums the squares of some numbers.
// @array x[n], total[1]
extern "C" int squares(const double *x, long n, double *total) {
    double *dx, *dt;
    cudaMalloc(&dx, n * sizeof(double));
    cudaMalloc(&dt, sizeof(double));
    cudaMemcpy(dx, x, n * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemset(dt, 0, sizeof(double));
    sum_squares<<<(n + 255) / 256, 256>>>(dx, dt, (int)n);
    cudaMemcpy(total, dt, sizeof(double), cudaMemcpyDeviceToHost);
    cudaFree(dx);
    cudaFree(dt);
    return cudaGetLastError();
}
"""
HEADER = "__device__ double square(double x) { return x * x; }\n"
PROGRAM = """
from sapwood import Program, native


class Squares(Program):
    sources = ("squares.cu",)
    inputs = ("x",)
    reduce = {"total": "sum"}
    map = native("squares")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program with a CUDA source, for the CPU."""
    monkeypatch.setenv("SAPWOOD_CUDA", "cpu")
    monkeypatch.setenv("CXXFLAGS", "-O0")  # optimised they are in other tests
    (tmp_path / "squares.cu").write_text(SOURCE)
    (tmp_path / "square.cuh").write_text(HEADER)
    (tmp_path / "squares.py").write_text(PROGRAM)
    return tmp_path


def test_functions_are_discovered_and_called(folder: Path) -> None:
    program = load_program(folder / "squares.py")
    built = build(program)
    (function,) = built.interface.functions
    assert (function.name, function.file, function.doc) == (
        "squares",
        "squares.cu",
        "Sums the squares of some numbers.",
    )
    opened = open_image(make_image(program, built))
    try:
        assert opened.call("squares", [np.arange(1000.0)], {})["total"] == pytest.approx(332833500)
    finally:
        opened.close()
    assert build(program).cached


def test_a_run_on_agents(folder: Path) -> None:
    x = np.arange(5000.0)
    with sapwood.local(agents=2) as cluster:
        result = cluster.run(folder / "squares.py", {"x": x}).result(timeout=60)
    assert result["total"] == pytest.approx((x**2).sum())


def test_a_mistake_is_named_with_its_line(folder: Path) -> None:
    (folder / "squares.cu").write_text(SOURCE.replace("square(x[i])", "square(y[i])"))
    with pytest.raises(BuildError) as caught:
        build(load_program(folder / "squares.py"))
    line = SOURCE[: SOURCE.index("square(x[i])")].count("\n") + 1
    assert caught.value.where == f"squares.cu:{line}"


def test_what_a_cpu_cannot_do_is_refused_before_compiling(folder: Path) -> None:
    (folder / "squares.cu").write_text(SOURCE + "\ncudaGraph_t graph;\n")
    with pytest.raises(BuildError) as caught:
        build(load_program(folder / "squares.py"), environment={"PATH": "/usr/bin:/bin"})
    assert caught.value.what == "not supported on a CPU node: CUDA graphs: cudaGraph_t graph;"
    assert caught.value.where == f"squares.cu:{SOURCE.count(chr(10)) + 2}"


def test_only_kernels_whose_loops_do_not_compile_get_stacks(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # A type without default constructor cannot be the element of an array over the threads.
    kernel = """
    struct Pair { double a; explicit Pair(double x) : a(x) {} };
    __global__ void strange(double *y) {
        Pair p(y[threadIdx.x]);
        Pair q = Pair(p.a);
        __syncthreads();
        y[threadIdx.x] = q.a + 1;
    }
    // @inout y[n]
    extern "C" void plus_one(double *y, long n) { strange<<<1, 4>>>(y); }
    """
    (folder / "squares.cu").write_text(SOURCE + kernel)
    program = load_program(folder / "squares.py")
    built = build(program, cache=BuildCache(folder / "cache"))
    (note,) = (folder / "cache").rglob("patch-note.txt")
    (line,) = note.read_text().splitlines()
    at = SOURCE.count("\n") + 3
    assert line.startswith(
        f"squares.cu:{at}: strange runs with a stack per thread: its loops do not compile: line "
    )
    assert [record.message for record in caplog.records] == [line]
    opened = open_image(make_image(program, built))
    y = np.arange(4.0)
    try:
        assert list(opened.call("plus_one", [y], {})["y"]) == [1, 2, 3, 4]
    finally:
        opened.close()


def test_a_wrong_choice_of_target_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAPWOOD_CUDA", "tpu")
    with pytest.raises(ConfigurationError, match="SAPWOOD_CUDA is tpu"):
        build(load_program(folder / "squares.py"))


def test_a_gpu_build_needs_nvcc(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAPWOOD_CUDA", "gpu")
    monkeypatch.setenv("NVCC", "no-such-nvcc")
    monkeypatch.setattr("sapwood_cuda_cpu.language.find_nvrtc", lambda: None)
    with pytest.raises(CompilerMissingError, match="no nvcc"):
        build(load_program(folder / "squares.py"))


def test_a_library_can_be_unloaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAPWOOD_CUDA_WORKERS", "2")
    program = load_program(folder / "squares.py")
    built = build(program)
    (library,) = built.libraries
    opened = open_image(make_image(program, built))
    opened.call("squares", [np.arange(1000.0)], {})
    assert library.image.path in Path("/proc/self/maps").read_text()
    opened.close()
    assert library.image.path not in Path("/proc/self/maps").read_text()
