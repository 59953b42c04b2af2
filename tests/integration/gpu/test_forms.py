"""Kernels of unusual forms: loops, stacks and a plain emulation give the same results."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.integration.gpu.differences import EVERY_WAY, LOOPS, Way
from tests.integration.gpu.test_generated import require

from sapwood_cuda_cpu.executable import build_executable
from sapwood_cuda_cpu.language import MODE
from sapwood_cuda_cpu.patch import Mode

FOLDER = Path(__file__).parent / "kernels"
TEXT = (FOLDER / "forms.cuh").read_text()
NAMES = re.findall(r"__global__ void (?:__launch_bounds__\(\d+\) )?(k_\w+)\(", TEXT)
CALLS = {name: name for name in NAMES} | dict(re.findall(r"// call (\w+): (.*)", TEXT))
EMULATED = '#include "forms_emulated.h"\n'
CUDA = "#include <cuda_runtime.h>\n#include <cooperative_groups.h>\n#include <cstdio>\n"
MAIN = """
unsigned memory[192 + 64 + 64], *out = memory, *in = out + 192, *total = in + 64, n = 9, bad;
template <class Run> void run(const char *name, Run run) {
  for (unsigned i = 0; i < sizeof memory / 4; i++) memory[i] = i * 2654435761u >> 7;
  run();
  unsigned long long sum = 1469598103934665603ull;
  for (unsigned each : memory) sum = (sum ^ each) * 1099511628211ull;
  printf("%s %llx %u\\n", name, sum, bad);
  fflush(stdout);
}
int main() {
"""
LAUNCH = "<<<3, 64>>>(out, in, total, n); bad = cudaDeviceSynchronize() != cudaSuccess;"


def program(head: str, launch: str) -> str:
    runs = (f'  run("{n}", [] {{ {launch.replace("K", CALLS[n], 1)} }});\n' for n in NAMES)
    return f"{head}{TEXT}{MAIN}{''.join(runs)}}}\n"


def results(program: Path) -> dict[str, str]:
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def require_as_emulated(ways: Sequence[Way], folder: Path) -> None:
    require("g++", "clang++")
    source, built = folder / "emulated.cpp", folder / "emulated"
    source.write_text(program(EMULATED, "emulate(3, 64, [] { K(out, in, total, n); });"))
    command = ["g++", "-std=c++17", "-O0", "-w", "-fsanitize=undefined", f"-I{FOLDER}"]
    subprocess.run([*command, str(source), "-o", str(built)], check=True)
    wanted = results(built)
    assert wanted.keys() == set(NAMES)
    source, built = folder / "forms.cu", folder / "forms"
    source.write_text(program(CUDA, f"K{LAUNCH}"))
    for way in ways:
        given = {"CXX": way.compiler, MODE: way.mode, "CXXFLAGS": f"{way.flags} -g0"}
        kernels = build_executable([source], built, environment={**os.environ, **given})
        found = results(built)
        assert {name for name in NAMES if found.get(name) != wanted[name]} == set(), str(way)
        loops = sum(kernel.mode is Mode.BLOCK for kernel in kernels)
        assert (loops >= len(NAMES) // 2) is (way.mode == "block")


@pytest.mark.row("A-GPU-3")
@pytest.mark.timeout(300)
def test_loops_are_as_emulated(tmp_path: Path) -> None:
    require_as_emulated([LOOPS], tmp_path)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", [way for way in EVERY_WAY if way != LOOPS], ids=str)
def test_every_way_is_as_emulated(way: Way, tmp_path: Path) -> None:
    require_as_emulated([way], tmp_path)
