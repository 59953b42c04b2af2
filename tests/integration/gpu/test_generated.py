"""Random kernels: loops, stacks and a plain emulation give the same results."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.integration.gpu.differences import (
    EVERY_WAY,
    LOOPS,
    STACKS,
    Way,
    compare,
    reduced,
)
from tests.integration.gpu.generator import Kernel

from sapwood_cuda_cpu.executable import build_executable
from sapwood_cuda_cpu.patch import Mode

NIGHTLY = 10_000
"""Kernels of a night, each built by each compiler, with and without its optimiser."""
EACH = 50
"""Kernels of one program."""
EVERY_TIME = range(0, EACH, EACH)
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


def require(*compilers: str) -> None:
    for each in compilers:
        if shutil.which(each) is None:
            pytest.skip(f"this machine has no {each}")


def require_same(first: int, ways: Sequence[Way], folder: Path) -> int:
    """Compare kernels with their emulation; return how many of them are loops."""
    require("g++", "clang++")
    batch = compare([Kernel(seed) for seed in range(first, first + EACH)], ways, folder)
    if batch.differences:
        listed = [each.kernel.name for each in batch.differences]
        pytest.fail(f"{', '.join(listed)}: {reduced(batch.differences[0], folder)}")
    return batch.loops


@pytest.mark.row("A-GPU-3")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", EVERY_TIME)
def test_loops_and_stacks_are_as_emulated(first: int, tmp_path: Path) -> None:
    ways = (LOOPS, STACKS) if first == EVERY_TIME[0] else (LOOPS,)
    assert require_same(first, ways, tmp_path) >= EACH // 4


@pytest.mark.nightly  # each step of reducing compiles a program
def test_a_difference_names_its_kernel_and_is_reduced(tmp_path: Path) -> None:
    require("g++")
    kernels = [Kernel(seed) for seed in range(3)]
    wrong = "out[at] += 1;"
    only_here = f"\n#ifndef threadIdx  // in the emulation it is a macro\n  {wrong}\n#endif"
    kernels[1] = kernels[1].with_lines([*kernels[1].lines, only_here])
    (found,) = compare(kernels, [STACKS], tmp_path).differences
    assert found.kernel.name == "k1"
    small = reduced(found, tmp_path)
    assert wrong in str(small)
    assert len(small.kernel.lines) < len(kernels[1].lines) // 2
    assert str(small).startswith("k1, fiber by g++ -O0: ")


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
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(0, NIGHTLY, EACH))
def test_many_more_are_as_emulated(first: int, tmp_path: Path) -> None:
    require_same(first, EVERY_WAY, tmp_path)
