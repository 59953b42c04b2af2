"""Random kernels: loops, stacks and a plain emulation give the same results."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.integration.gpu.generator import program

from sapwood.gpu.cuda.executable import build_executable
from sapwood.gpu.cuda.language import MODE
from sapwood.gpu.cuda.patch import Mode

HERE = Path(__file__).parent
NIGHTLY = 10_000
"""Kernels of a night, each built by each compiler, with and without its optimiser."""
EACH = 25
"""Kernels of one program; larger ones take longer for each kernel."""
EVERY_TIME = range(0, 100, EACH)
"""Where the programs begin that are built in every run of the tests."""
RENAMED = """
#include <cstdio>
#include <cuda_runtime.h>
struct Pair { unsigned a, b; };
__global__ void renamed(unsigned *x, const Pair *pairs) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  x[2 * i] = i + 7;
  x[2 * i + 1] = pairs[i].a + 1;
}
int main() {
  unsigned *x, wrong = 0;
  cudaMallocManaged(&x, 1024 * sizeof(unsigned));
  renamed<<<4, 128>>>(x, (const Pair *)x);
  cudaDeviceSynchronize();
  for (unsigned i = 0; i < 512; i++) wrong += x[2 * i + 1] != i + 8;
  printf("%u", wrong);
}
"""
"""A kernel with two names for a place: under ``assume_safety`` and ``ivdep``, compilers may change
the order of its accesses."""


def emulated(seeds: range, folder: Path) -> list[str]:
    """Return a line for each kernel; C++ leaves nothing open in what it does."""
    source, built = folder / "emulated.cpp", folder / "emulated"
    source.write_text(program(seeds, emulated=True))
    checked = ("-fsanitize=undefined", "-fno-sanitize-recover=undefined")
    command = ["g++", "-std=c++17", "-O0", "-w", *checked, f"-I{HERE}"]
    command += [str(source), "-o", str(built)]
    subprocess.run(command, check=True)
    done = subprocess.run([built], check=True, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return done.stdout.splitlines()


def run_as_cuda(
    seeds: range, folder: Path, compiler: str, mode: str, flags: str
) -> tuple[list[str], int]:
    """Return a line for each kernel, and how many of them are loops."""
    source, built = folder / f"{compiler}-{mode}.cu", folder / f"{compiler}-{mode}"
    source.write_text(program(seeds, emulated=False))
    given = {"CXX": compiler, MODE: mode, "CXXFLAGS": f"{flags} -g0"}
    kernels = build_executable([source], built, environment={**os.environ, **given})
    done = subprocess.run([built], check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.splitlines(), sum(each.mode is Mode.BLOCK for each in kernels)


def require(*compilers: str) -> None:
    for each in compilers:
        if shutil.which(each) is None:
            pytest.skip(f"this machine has no {each}")


@pytest.mark.row("A-GPU-3")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", EVERY_TIME)
def test_loops_and_stacks_are_as_emulated(first: int, tmp_path: Path) -> None:
    require("g++", "clang++")
    seeds = range(first, first + EACH)
    right = emulated(seeds, tmp_path)
    assert len(right) == len(seeds)
    loops, count = run_as_cuda(seeds, tmp_path, "clang++", "block", "-O0")
    assert loops == right
    assert count >= len(seeds) // 3
    assert run_as_cuda(seeds, tmp_path, "g++", "fiber", "-O0")[0] == right


@pytest.mark.row("A-GPU-3")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_two_names_of_a_place_keep_the_order_of_a_thread(compiler: str, tmp_path: Path) -> None:
    require(compiler)
    source, built = tmp_path / "renamed.cu", tmp_path / "renamed"
    source.write_text(RENAMED)
    (kernel,) = build_executable([source], built, environment={**os.environ, "CXX": compiler})
    assert kernel.mode is Mode.BLOCK
    assert subprocess.run([built], check=True, capture_output=True, text=True).stdout == "0"


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(0, NIGHTLY, EACH))
def test_many_more_are_as_emulated(first: int, tmp_path: Path) -> None:
    require("g++", "clang++")
    seeds = range(first, first + EACH)
    right = emulated(seeds, tmp_path)
    for compiler in ("g++", "clang++"):
        for mode, flags in itertools.product(("block", "fiber"), ("-O0", "-O3")):
            assert run_as_cuda(seeds, tmp_path, compiler, mode, flags)[0] == right
    undefined = "-O0 -fsanitize=undefined -fno-sanitize-recover=undefined"
    assert run_as_cuda(seeds, tmp_path, "g++", "block", undefined)[0] == right
