"""Kernels built once for each compiler and mode."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sapwood.code.languages.base import BuildRequest
from sapwood.code.target import host_target
from sapwood.gpu.cuda.language import CHOICE, MODE, Cuda

KERNELS = Path(__file__).parent / "kernels"
COMPILERS = ("g++", "clang++")

Build = Callable[..., Path]


@pytest.fixture(scope="session")
def build_kernels(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return a function that builds CUDA sources, each combination once."""
    done: dict[tuple[Any, ...], Path] = {}
    base = tmp_path_factory.getbasetemp()
    cache = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"

    def build(compiler: str, mode: str, *sources: str, folder: Path = KERNELS) -> Path:
        if shutil.which(compiler) is None:
            pytest.skip(f"this machine has no {compiler}")
        key = (compiler, mode, sources, folder)
        if key not in done:
            place = tmp_path_factory.mktemp("kernels")
            (place / "out").mkdir()
            shutil.copytree(folder, place / "sources")
            request = BuildRequest(
                folder=place / "sources",
                sources=sources,
                output=place / "out",
                target=host_target(),
                environment={
                    **os.environ,
                    CHOICE: "cpu",
                    MODE: mode,
                    "CXX": compiler,
                    "CXXFLAGS": "-O1" if mode == "fiber" else "",
                    "XDG_CACHE_HOME": str(cache),
                },
            )
            done[key] = request.output / Cuda().build(request).library
        return done[key]

    return build


@pytest.fixture(params=COMPILERS)
def compiler(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["block", "fiber"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[1, 2, 4], ids=["1worker", "2workers", "4workers"])
def kernels(
    request: pytest.FixtureRequest,
    build_kernels: Build,
    compiler: str,
    mode: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[ctypes.CDLL]:
    """The kernels of the tests, loaded, with a number of workers."""
    path = build_kernels(compiler, mode, "blocks.cu", "warps.cu")
    monkeypatch.setenv("SAPWOOD_CUDA_WORKERS", str(request.param))
    return ctypes.CDLL(str(path))
