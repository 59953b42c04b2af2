"""Whole CUDA programs, in the style of public collections, as executables for the processor."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sapwood.gpu.cuda.executable import build_executable

PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.cu"))


COMPILERS = ("clang++", "g++")
MATRIX = [
    # Each program is built by one of them, in turn, in every run of the tests. That it is right
    # needs no optimiser: in every run it has the kernels of other tests; these it has nightly.
    pytest.param(name, compiler, "-O0")
    if (number + turn) % 2 == 0
    else pytest.param(name, compiler, "-O1", marks=pytest.mark.nightly)
    for number, name in enumerate(NAMES)
    for turn, compiler in enumerate(COMPILERS)
]


@pytest.mark.row("A-GPU-3")
@pytest.mark.parametrize(("name", "compiler", "optimised"), MATRIX)
def test_it_builds_and_its_own_check_passes(
    name: str, compiler: str, optimised: str, tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"this machine has no {compiler}")
    program = tmp_path / name
    environment = {**os.environ, "CXX": compiler, "CXXFLAGS": f"{optimised} -g0"}
    kernels = build_executable([PROGRAMS / f"{name}.cu"], program, environment=environment)
    assert not [kernel for kernel in kernels if "not compile" in kernel.reason]
    for workers in ("1", "2", "4"):
        variables = {**os.environ, "SAPWOOD_CUDA_WORKERS": workers}
        done = subprocess.run(
            [program], capture_output=True, text=True, env=variables, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.endswith("PASSED\n")
