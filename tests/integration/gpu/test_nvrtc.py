"""Kernels built for a GPU by NVRTC, without a toolkit and without a GPU."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from sapwood.cli.main import app
from sapwood.code import load_program
from sapwood.code.build import Built, build
from sapwood.code.cache import BuildCache
from sapwood.code.image import make_image, open_image
from sapwood.code.interface import Role
from sapwood.code.nvcc import find_nvrtc
from sapwood.code.program import Program
from sapwood.code.target import parse_target
from sapwood.core.errors import BuildError, CompilerMissingError, ResourceError
from sapwood.gpu.devices.cuda import CudaBackend

pytestmark = [
    pytest.mark.row("A-GPU-3"),
    pytest.mark.skipif(find_nvrtc() is None, reason="NVRTC is not installed: sapwood[nvrtc]"),
]
NO_NVCC = {"NVCC": "none"}
SM_90 = parse_target("native,cuda=sm_90")
SOURCE = """#include <cstdint>
#include "limits.h"

template <typename T> __device__ T clipped(T x) { return x < LIMIT ? x : LIMIT; }

// Not launched by name.
__global__ void other(int *x) { *x = 1; }

extern "C" {
/** Adds up what is clipped.
 *  @array x[n], total[1] */
__global__ void __launch_bounds__(256) add(const double *__restrict__ x, int64_t n,
                                           double *total) {
    for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(total, clipped(x[i]));
}
}
"""
MakeProgram = Callable[..., Program]


@pytest.fixture
def program(tmp_path: Path) -> MakeProgram:
    """Return a function that makes a program of one CUDA source."""

    def make(text: str = SOURCE) -> Program:
        (tmp_path / "limits.h").write_text("#pragma once\n#define LIMIT 4.0\n")
        (tmp_path / "k.cu").write_text(text)
        (tmp_path / "p.py").write_text(
            "from sapwood import Program, native\n\n\nclass Adds(Program):\n"
            '    sources = ("k.cu",)\n    reduce = {"total": "sum"}\n    map = native("add")\n'
        )
        return load_program(tmp_path / "p.py")

    return make


def built(program: Program, folder: Path) -> Built:
    return build(
        program, cache=BuildCache(folder), environment={**os.environ, **NO_NVCC}, target=SM_90
    )


def test_kernels_are_built_and_become_functions(program: MakeProgram, tmp_path: Path) -> None:
    found = built(program(), tmp_path / "cache")
    code = Path(found.libraries[0].image.path).read_bytes()
    assert code.startswith(b"\x7fELF")
    assert b"add" in code
    assert list(found.interface.names()) == ["add"]
    add = found.interface.function("add")
    assert add is not None
    assert [(p.name, p.role, p.shape) for p in add.parameters] == [
        ("x", Role.INPUT, ("n",)),
        ("n", Role.SCALAR, None),
        ("total", Role.OUTPUT, ("1",)),
    ]
    assert add.where == "k.cu:12"
    assert add.doc.startswith("Adds up")
    assert built(program(), tmp_path / "cache").cached


def test_a_mistake_is_told_with_its_line(program: MakeProgram, tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        built(program(SOURCE.replace("clipped(x[i])", "clipped(y[i])")), tmp_path / "cache")
    assert caught.value.where == "k.cu:15"
    assert '"y" is undefined' in caught.value.details["compiler output"]


def test_code_of_the_host_is_refused_with_its_line(program: MakeProgram, tmp_path: Path) -> None:
    host = '\nextern "C" int run(double *x, int n) { other<<<1, 1>>>(0); return n; }\n'
    with pytest.raises(BuildError, match="code of the host needs nvcc") as caught:
        built(program(SOURCE + host), tmp_path / "cache")
    assert caught.value.where == f"k.cu:{SOURCE.count(chr(10)) + 2}"


def test_kernels_need_a_gpu_to_be_loaded(program: MakeProgram, tmp_path: Path) -> None:
    if CudaBackend().discover():
        pytest.skip("there is a GPU here")
    image = make_image(program(), built(program(), tmp_path / "cache"))
    with pytest.raises(ResourceError, match="there is no CUDA device"):
        open_image(image)


def test_the_command_line_builds_for_a_gpu(program: MakeProgram, tmp_path: Path) -> None:
    program()
    command = ["build", str(tmp_path / "p.py"), "--target", "native,cuda=sm_80", "--json"]
    command += ["--set", f"cache.folder={tmp_path / 'cache'}"]
    done = CliRunner().invoke(app, command, env=NO_NVCC)
    assert done.exit_code == 0, done.output
    (one,) = json.loads(done.stdout)["builds"]
    assert one["target"].endswith("cuda sm_80")
    assert one["libraries"][0]["path"].endswith("kernels.cubin")


def test_an_unknown_gpu_is_told(program: MakeProgram, tmp_path: Path) -> None:
    target = msgspec.structs.replace(SM_90, gpu_architecture="sm_7")
    with pytest.raises(BuildError, match="NVRTC does not know the GPU sm_7"):
        build(
            program(),
            cache=BuildCache(tmp_path / "cache"),
            environment={**os.environ, **NO_NVCC},
            target=target,
        )


def test_without_nvcc_and_nvrtc_it_is_said_how_to_get_them(
    program: MakeProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapwood_cuda_cpu.language.find_nvrtc", lambda: None)
    with pytest.raises(CompilerMissingError, match=r"sapwood\[nvrtc\]"):
        built(program(), tmp_path / "cache")
