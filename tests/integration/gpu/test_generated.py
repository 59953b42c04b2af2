"""Random kernels: loops, stacks and a plain emulation give the same results."""

from __future__ import annotations

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
EACH = 40
"""Kernels of one program."""


def emulated(seeds: range, folder: Path) -> list[str]:
    """Return a line for each kernel; C++ leaves nothing open in what it does."""
    source, built = folder / "emulated.cpp", folder / "emulated"
    source.write_text(program(seeds, emulated=True))
    checked = ("-fsanitize=undefined", "-fno-sanitize-recover=undefined")
    command = [
        "g++",
        "-std=c++17",
        "-O0",
        "-w",
        *checked,
        f"-I{HERE}",
        str(source),
        "-o",
        str(built),
    ]
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
def test_loops_and_stacks_are_as_emulated(tmp_path: Path) -> None:
    require("g++", "clang++")
    seeds = range(24)
    right = emulated(seeds, tmp_path)
    assert len(right) == len(seeds)
    loops, count = run_as_cuda(seeds, tmp_path, "clang++", "block", "-O0")
    assert loops == right
    assert count >= len(seeds) // 2
    assert run_as_cuda(seeds, tmp_path, "g++", "fiber", "-O0")[0] == right


@pytest.mark.row("A-GPU-3")
@pytest.mark.timeout(300)
def test_a_kernel_of_which_the_optimiser_made_another_one(tmp_path: Path) -> None:
    require("g++")
    seeds = range(215, 216)  # g++ 12 takes types for different memory, at -O3 only
    right = emulated(seeds, tmp_path)
    assert run_as_cuda(seeds, tmp_path, "g++", "block", "-O3") == (right, 1)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(0, NIGHTLY, EACH))
def test_many_more_are_as_emulated(first: int, tmp_path: Path) -> None:
    require("g++", "clang++")
    seeds = range(first, first + EACH)
    right = emulated(seeds, tmp_path)
    for compiler in ("g++", "clang++"):
        for mode, flags in (("block", "-O0"), ("block", "-O3"), ("fiber", "-O3")):
            assert run_as_cuda(seeds, tmp_path, compiler, mode, flags)[0] == right
