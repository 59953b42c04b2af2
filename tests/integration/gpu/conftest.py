"""Kernels built once for each compiler and mode."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sapwood.code.bundle import digest
from sapwood.code.cache import BuildCache, CacheEntry
from sapwood.code.languages.base import BuildRequest
from sapwood.code.languages.compiled import LIBRARY
from sapwood.code.target import host_target
from sapwood.gpu.cuda.language import CHOICE, MODE, Cuda

KERNELS = Path(__file__).parent / "kernels"
COMPILERS = ("g++", "clang++")
QUICK = "-O0 -g0"
"""Flags of builds whose results only have to be right."""
OPTIMISED = {("clang++", "block"): "-g0", ("g++", "fiber"): "-O1 -g0"}
"""Flags of the others: what users get where there is clang++, with all optimisations; and so that
each compiler and each mode has an optimiser once."""

Build = Callable[..., Path]


@pytest.fixture(scope="session")
def build_kernels(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return a function that builds CUDA sources, each combination once for all workers."""
    base = tmp_path_factory.getbasetemp()
    folder_of_all = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    cache = BuildCache(folder_of_all / "kernels")
    kept: list[CacheEntry] = []

    def build(compiler: str, mode: str, *sources: str, folder: Path = KERNELS) -> Path:
        if shutil.which(compiler) is None:
            pytest.skip(f"this machine has no {compiler}")

        def fill(output: Path, scratch: Path) -> dict[str, str]:
            shutil.copytree(folder, scratch / "sources")
            request = BuildRequest(
                folder=scratch / "sources",
                sources=sources,
                output=output,
                target=host_target(),
                environment={
                    **os.environ,
                    CHOICE: "cpu",
                    MODE: mode,
                    "CXX": compiler,
                    "CXXFLAGS": OPTIMISED.get((compiler, mode), QUICK),
                    "XDG_CACHE_HOME": str(folder_of_all),
                },
            )
            return {"library": Cuda().build(request).library}

        words = "\0".join((compiler, mode, *sources, str(folder)))
        kept.append(cache.get_or_build(digest([("kernels", words.encode())]), fill))
        return kept[-1].path(LIBRARY)

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
