"""A header with functions for host and device, shared by a CUDA source and a C++ source."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sapwood_cuda_cpu.executable import build_executable

HEADER = """
#ifdef __CUDACC__
#define BOTH __host__ __device__
#else
#define BOTH
#endif
BOTH inline int where() {
#ifdef __CUDA_ARCH__
    return 1;
#else
    return 2;
#endif
}
"""
CUDA = """
#include "where.h"
int on_host();
__global__ void ask(int *out) { *out = where(); }
int main() {
    int *out;
    cudaMallocManaged(&out, sizeof(int));
    ask<<<1, 1>>>(out);
    cudaDeviceSynchronize();
    return *out * 100 + where() * 10 + on_host();
}
"""
CPP = '#include "where.h"\nint on_host() { return where(); }\n'


@pytest.mark.row("A-GPU-3")
@pytest.mark.parametrize("compiler", ["clang++", "g++"])
def test_a_shared_header_is_right_everywhere(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"this machine has no {compiler}")
    for name, text in {"where.h": HEADER, "a.cu": CUDA, "b.cpp": CPP}.items():
        (tmp_path / name).write_text(text)
    program = tmp_path / "program"
    environment = {**os.environ, "CXX": compiler, "CXXFLAGS": "-O0 -g0"}
    build_executable([tmp_path / "a.cu", tmp_path / "b.cpp"], program, environment=environment)
    assert subprocess.run([program], check=False, timeout=60).returncode == 122
