from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Sapwood = Callable[..., subprocess.CompletedProcess[str]]

GOOD = """#include "size.cuh"
__global__ void fill(float *x) { x[threadIdx.x] = SIZE; }
__global__ void first(float *x) { x[0] = __shfl_sync(~0u, x[threadIdx.x], 0); }
void run(float *x) { fill<<<1, 32>>>(x); }
"""


def test_the_patched_source_and_the_modes_are_shown(sapwood: Sapwood, tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text(GOOD)
    (tmp_path / "size.cuh").write_text("#define SIZE 3\n")
    shown = sapwood("patch", "a.cu")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith('#line 1 "a.cu"\n')
    assert '::sapwood_cuda::launch("fill"' in shown.stdout
    assert shown.stderr.splitlines() == [
        "kernel fill, line 2 of a.cu: mode block",
        "kernel first, line 3 of a.cu: mode fiber (__shfl_sync brings threads together)",
    ]


def test_check_shows_traps_and_no_source(sapwood: Sapwood, tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text(GOOD)
    shown = sapwood("patch", "--check", "a.cu")
    assert shown.returncode == 0, shown.stderr
    assert "a.cu:4: may go wrong on a GPU: no code checks whether the launch failed" in shown.stdout
    assert "sapwood_cuda" not in shown.stdout


def test_check_says_that_all_is_well(sapwood: Sapwood, tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text("__global__ void fill(float* a) { a[threadIdx.x] = 1; }\n")
    shown = sapwood("patch", "--check", "a.cu")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.splitlines()[0] == "a.cu: no mistakes found"
    assert shown.stdout.splitlines()[1].startswith("kernel fill, line 1 of a.cu: mode ")


def test_json(sapwood: Sapwood, tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text(GOOD)
    shown = json.loads(sapwood("patch", "a.cu", "--json").stdout)
    assert [(each["name"], each["mode"]) for each in shown["kernels"]] == [
        ("fill", "block"),
        ("first", "fiber"),
    ]
    assert shown["source"].startswith("#line 1")


def test_what_is_not_supported_is_an_error(sapwood: Sapwood, tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text("\ncudaGraph_t graph;\n")
    shown = sapwood("patch", "a.cu")
    assert shown.returncode == 3
    assert "a.cu:2: not supported on a CPU node: CUDA graphs: cudaGraph_t graph;" in shown.stdout


def test_a_missing_file_is_named(sapwood: Sapwood) -> None:
    shown = sapwood("patch", "none.cu")
    assert "no such file: none.cu" in shown.stderr


PROGRAM = """#include <cstdio>
#include <greeting.h>
#ifndef TIMES
#error say -D TIMES
#endif
int number();
__global__ void greet() { printf(GREETING "\\n"); }
int main() { greet<<<TIMES, 1>>>(); return cudaDeviceSynchronize() + number(); }
"""


@pytest.fixture
def environment(environment: dict[str, str]) -> dict[str, str]:
    """Variables with the build cache of all tests: headers take long to precompile."""
    return {**environment, "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"], "CXXFLAGS": "-O0"}


def test_sources_with_a_main_become_a_program_or_the_line_of_a_mistake_is_told(
    sapwood: Sapwood, tmp_path: Path
) -> None:
    (tmp_path / "a.cu").write_text(PROGRAM)
    (tmp_path / "b.cpp").write_text("#include <cuda_runtime.h>\nint number() { return 0; }\n")
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "greeting.h").write_text('#define GREETING "hello"\n')
    words = ("a.cu", "b.cpp", "--build", "hello", "-I", "inc", "-D", "TIMES=2")
    made = sapwood("patch", *words)
    assert made.returncode == 0, made.stderr
    assert made.stdout == "kernel greet, line 7 of a.cu: mode block\n"
    done = subprocess.run([tmp_path / "hello"], capture_output=True, text=True, check=True)
    assert done.stdout == "hello\nhello\n"
    (tmp_path / "a.cu").write_text("int main() {\n  return nothing;\n}\n")
    made = sapwood("patch", *words)
    assert made.returncode == 3
    assert "a.cu:2" in made.stderr
