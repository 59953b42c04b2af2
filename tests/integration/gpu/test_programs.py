"""Whole CUDA programs, in the style of public collections, as executables for the processor."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sapwood_cuda_cpu.executable import build_executable

PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.cu"))


PLAIN = {
    *("histogram_scan", "hotspot", "images", "lu", "matrix_mul", "nw_pathfinder", "spmv"),
    "vector_add",
}
"""Programs whose kernels are of the kinds that test_kernels.py and test_collection.py have."""
BY_GCC = {"architecture", "atomics_streams", "endings", "polybench", "scopes", "warps"}
"""Of the others those that g++ builds in every run of the tests; clang++, which takes half the
time, builds the rest."""
# That a program is right needs no optimiser, and no third number of workers: in every run the
# kernels of other tests have them; these have them nightly.
MATRIX = [
    pytest.param(name, compiler, "-O0", (1, 4), id=f"{name}-{compiler}")
    if name not in PLAIN and (name in BY_GCC) == (compiler == "g++")
    else pytest.param(
        *(name, compiler, "-O1", (1, 2, 4)),
        id=f"{name}-{compiler}-optimised",
        marks=pytest.mark.nightly,
    )
    for name in NAMES
    for compiler in ("clang++", "g++")
]


@pytest.mark.row("A-GPU-3")
@pytest.mark.parametrize(("name", "compiler", "optimised", "workers"), MATRIX)
def test_it_builds_and_its_own_check_passes(
    name: str, compiler: str, optimised: str, workers: tuple[int, ...], tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"this machine has no {compiler}")
    program = tmp_path / name
    environment = {**os.environ, "CXX": compiler, "CXXFLAGS": f"{optimised} -g0"}
    kernels = build_executable([PROGRAMS / f"{name}.cu"], program, environment=environment)
    assert not [kernel for kernel in kernels if "not compile" in kernel.reason]
    for count in workers:
        variables = {**os.environ, "SAPWOOD_CUDA_WORKERS": str(count)}
        done = subprocess.run(
            [program], capture_output=True, text=True, env=variables, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.endswith("PASSED\n")


def test_a_header_that_another_one_includes_by_an_include_folder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    one = "#pragma once\ntemplate <class T> __device__ T one(T v) { return v + blockDim.x / 32; }\n"
    (tmp_path / "sub" / "a.cuh").write_text(one)
    both = "__device__ int both(int v) { return one(v) + v; }\n"
    (tmp_path / "sub" / "b.cuh").write_text(f'#pragma once\n#include "sub/a.cuh"\n{both}')
    (tmp_path / "main.cu").write_text(
        '#include <cuda_runtime.h>\n#include "sub/a.cuh"\n#include "sub/b.cuh"\n'
        "__global__ void k(int *o) { o[threadIdx.x] = both(threadIdx.x); }\n"
        "int main() { int *o; cudaMallocManaged(&o, 128); k<<<1, 32>>>(o); "
        "cudaDeviceSynchronize(); return o[5] != 11; }\n"
    )
    environment = {**os.environ, "CXXFLAGS": "-O0 -g0"}
    (kernel,) = build_executable(
        [tmp_path / "main.cu"], tmp_path / "main", folders=[tmp_path], environment=environment
    )
    assert kernel.reason == ""
    subprocess.run([tmp_path / "main"], check=True, timeout=60)


def test_sources_have_their_own_variables_of_the_device(tmp_path: Path) -> None:
    header = "__constant__ short steps[] = {1, 2};\n__device__ int count;\n__constant__ float c;\n"
    (tmp_path / "own.cuh").write_text(header)
    source = (
        '#include <cuda_runtime.h>\n#include "own.cuh"\n'
        "static __global__ void add(int *o) { count += steps[1]; *o = count + int(c); }\n"
        "int run_NAME(float to) { int *o; cudaMallocManaged(&o, 4); "
        "cudaMemcpyToSymbol(c, &to, 4); add<<<1, 1>>>(o); cudaDeviceSynchronize(); return *o; }\n"
    )
    (tmp_path / "a.cu").write_text(source.replace("NAME", "a"))
    other = source.replace("NAME", "b")
    other += "int run_a(float to);\n"
    other += "int main() { return run_a(10) != 12 || run_b(20) != 22 || run_a(30) != 34; }\n"
    (tmp_path / "b.cu").write_text(other)
    environment = {**os.environ, "CXXFLAGS": "-O0 -g0"}
    files = [tmp_path / "a.cu", tmp_path / "b.cu"]
    build_executable(files, tmp_path / "main", environment=environment)
    subprocess.run([tmp_path / "main"], check=True, timeout=60)
