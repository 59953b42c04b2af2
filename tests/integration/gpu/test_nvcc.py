"""The same sources built for GPUs: by nvcc, and kernels alone by NVRTC. Nothing is run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from sapwood.code import load_program
from sapwood.code.build import build
from sapwood.code.nvcc import find_nvcc, find_nvrtc
from sapwood.code.target import host_target
from sapwood.core.errors import BuildError
from sapwood.gpu.devices.cuda_compiler import compile_by_nvrtc, compile_kernels, kernel_names

NVCC = find_nvcc(os.environ)
NVRTC = find_nvrtc()
HERE = Path(__file__).parent
WORK = HERE.parents[2] / "benchmarks" / "cuda" / "work.cu"
PROGRAMS = sorted((HERE / "programs").glob("*.cu"))
KERNELS = sorted((HERE / "kernels").glob("*.cu"))
OLDER = {"cub_device", "thrust_vectors"}
"""Programs that use what CUB and Thrust of CUDA 13 no longer have."""
SOURCES = [
    *(pytest.param(path, id=path.stem) for path in (*KERNELS, WORK)),
    # Every tenth program in every run of the tests.
    *(
        pytest.param(path, id=path.stem, marks=pytest.mark.nightly if number % 10 else ())
        for number, path in enumerate(PROGRAMS)
        if path.stem not in OLDER
    ),
]
ELF = b"\x7fELF"
KERNEL = 'extern "C" __global__ void f(float *x) { x[threadIdx.x] = 1.0f; }\n'

pytestmark = pytest.mark.row("A-GPU-3")
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="this machine has no nvcc")
needs_nvrtc = pytest.mark.skipif(NVRTC is None, reason="NVRTC is not installed")


@needs_nvcc
@pytest.mark.parametrize("source", SOURCES)
def test_what_is_patched_for_the_cpu_compiles_for_a_gpu(source: Path, tmp_path: Path) -> None:
    # nvcc reads all of it and reports mistakes of the host's part, too; only g++ and the
    # optimisers are skipped.
    command = [str(NVCC), "-std=c++17", "-arch=sm_90", "-w", "-cubin", str(source)]
    command += ["-Xcicc", "-O0", "-Xptxas", "-O0"]
    cubin = tmp_path / "out.cubin"
    done = subprocess.run([*command, "-o", str(cubin)], capture_output=True, text=True, check=False)
    if missing := re.search(
        r"fatal error: (cu(?:blas|fft|rand|sparse)\w*\.h): No such", done.stderr
    ):
        pytest.skip(f"this nvcc comes without {missing[1]}")
    assert done.returncode == 0, done.stderr
    assert cubin.read_bytes().startswith(ELF)


@needs_nvcc
@pytest.mark.row("A-GPU-2")
def test_a_program_has_the_same_functions_on_both_and_is_counted(tmp_path: Path) -> None:
    (tmp_path / "sums.cu").write_text(
        "// Sums.\n// @array x[n], total[1]\n"
        'extern "C" int sums(const float *x, int n, float *total) { return n; }\n' + KERNEL
    )
    (tmp_path / "sums.py").write_text(
        "from sapwood import Program, native\n\n\nclass Sums(Program):\n"
        '    sources = ("sums.cu",)\n    reduce = {"total": "sum"}\n    map = native("sums")\n'
    )
    program = load_program(tmp_path / "sums.py")
    gpu = msgspec.structs.replace(host_target(), gpu="cuda", gpu_architecture="sm_90")
    for_gpu = build(program, target=gpu)
    quick = {**os.environ, "SAPWOOD_CUDA": "cpu", "CXXFLAGS": "-O0"}
    for_cpu = build(program, environment=quick)
    assert list(for_gpu.interface.names()) == ["sums"]
    assert for_gpu.interface.function("sums") == for_cpu.interface.function("sums")
    listed = subprocess.run(
        ["nm", for_gpu.libraries[0].image.path], capture_output=True, text=True, check=True
    ).stdout
    for name in ("__wrap_cudaMemcpy", "__wrap_cudaLaunchKernel", "sapwood_cuda_counts"):
        assert f" T {name}\n" in listed


@needs_nvcc
def test_kernels_alone_by_nvcc() -> None:
    assert compile_kernels(KERNEL, "sm_90").startswith(ELF)
    with pytest.raises(BuildError) as caught:
        compile_kernels("\n" + KERNEL.replace("x[", "y["), "sm_90")
    assert caught.value.where == "kernels.cu:2"
    assert '"y" is undefined' in caught.value.details["compiler output"]


@needs_nvrtc
def test_kernels_alone_by_nvrtc() -> None:
    options = ["--gpu-architecture=sm_90"]
    assert compile_by_nvrtc(str(NVRTC), KERNEL, options).startswith(ELF)
    with pytest.raises(BuildError) as caught:
        compile_by_nvrtc(str(NVRTC), "\n" + KERNEL.replace("x[", "y["), options)
    assert caught.value.where == "kernels.cu:2"


@pytest.mark.parametrize("script", [WORK.parents[1] / "gpu" / "kernels.py"])
def test_the_benchmark_says_what_it_could_not_measure(script: Path) -> None:
    if shutil.which("c++") is None:
        pytest.skip("this machine has no c++")
    done = subprocess.run(
        [sys.executable, str(script), "--quick"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "| map | 1000000 |" in done.stdout
    assert "| kmeans | 65536 |" in done.stdout


def test_only_kernels_with_c_names_can_be_launched() -> None:
    text = 'extern "C" {\n__global__ void __launch_bounds__(64) a() {}\n}\n__global__ void b() {}'
    assert kernel_names(text + KERNEL) == ("a", "f")
