"""Kernels built once for each compiler and mode."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sapwood.code.bundle import digest
from sapwood.code.cache import BuildCache, CacheEntry
from sapwood.code.languages.base import BuildRequest
from sapwood.code.languages.compiled import LIBRARY
from sapwood.code.machine_kind import CUDA_CHOICE
from sapwood.code.target import host_target
from sapwood_cuda_cpu.language import MODE, Cuda

KERNELS = Path(__file__).parent / "kernels"
COMPILERS = ("g++", "clang++")
MODES = ("block", "fiber")
WORKERS = (1, 2, 4)
EVERY_TIME = {("clang++", "block", 4), ("g++", "fiber", 2)}
"""Of all combinations those that are built and called in every run of the tests."""
BOTH = ("test_kernels.py", "test_collection.py")
"""Files of which both are; of the others clang++ comes at night, as it takes a minute a file."""
ONCE = ("g++", "fiber", 2)
"""The one for functions of a single thread, which both modes call alike."""
QUICK = "-O0 -g0"
"""Flags of builds whose results only have to be right."""
OPTIMISED = {("clang++", "block"): "-g0", ("g++", "fiber"): "-O1 -g0"}
"""Flags of the others: what users get where there is clang++, with all optimisations; and so that
each compiler and each mode has an optimiser once, in every run of the tests."""

Build = Callable[..., Path]
Load = Callable[..., ctypes.CDLL]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave clang++ to the night where the same kernels are built by g++."""
    for item in items:
        here = item.path.parent == KERNELS.parent and item.path.name not in BOTH
        if here and "clang++-block-4" in item.nodeid:
            item.add_marker(pytest.mark.nightly)


@pytest.fixture(scope="session")
def build_kernels(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return a function that builds CUDA sources, each combination once for all workers."""
    base = tmp_path_factory.getbasetemp()
    folder_of_all = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    cache = BuildCache(folder_of_all / "kernels")
    kept: list[CacheEntry] = []

    def build(compiler: str, mode: str, *sources: str) -> Path:
        if shutil.which(compiler) is None:
            pytest.skip(f"this machine has no {compiler}")

        def fill(output: Path, scratch: Path) -> dict[str, str]:
            copied = [*KERNELS.glob("*.cuh"), *(KERNELS / source for source in sources)]
            (scratch / "sources").mkdir()
            for path in copied:  # every source beside them would be patched, too
                shutil.copy(path, scratch / "sources")
            request = BuildRequest(
                folder=scratch / "sources",
                sources=sources,
                output=output,
                target=host_target(),
                environment={
                    **os.environ,
                    CUDA_CHOICE: "cpu",
                    MODE: mode,
                    "CXX": compiler,
                    "CXXFLAGS": OPTIMISED.get((compiler, mode), QUICK),
                    "XDG_CACHE_HOME": str(folder_of_all),
                },
            )
            return {"library": Cuda().build(request).library}

        words = "\0".join((compiler, mode, *sources, str(KERNELS)))
        kept.append(cache.get_or_build(digest([("kernels", words.encode())]), fill))
        return kept[-1].path(LIBRARY)

    return build


@pytest.fixture(
    params=[
        pytest.param(each, marks=() if each in EVERY_TIME else pytest.mark.nightly)
        for each in itertools.product(COMPILERS, MODES, WORKERS)
    ],
    ids=lambda each: "-".join(map(str, each)),
)
def load_kernels(
    request: pytest.FixtureRequest, build_kernels: Build, monkeypatch: pytest.MonkeyPatch
) -> Load:
    """Return a function that loads sources, built by a compiler in a mode, for some workers."""
    return loading(request, build_kernels, monkeypatch)


@pytest.fixture(
    params=[
        pytest.param(each, marks=() if each == ONCE else pytest.mark.nightly)
        for each in itertools.product(COMPILERS, MODES, WORKERS)
    ],
    ids=lambda each: "-".join(map(str, each)),
)
def load_functions(
    request: pytest.FixtureRequest, build_kernels: Build, monkeypatch: pytest.MonkeyPatch
) -> Load:
    """Return a function like ``load_kernels``, for functions that do the same in every mode."""
    return loading(request, build_kernels, monkeypatch)


def loading(
    request: pytest.FixtureRequest, build_kernels: Build, monkeypatch: pytest.MonkeyPatch
) -> Load:
    compiler, mode, workers = request.param

    def load(*sources: str) -> ctypes.CDLL:
        path = build_kernels(compiler, mode, *sources)
        monkeypatch.setenv("SAPWOOD_CUDA_WORKERS", str(workers))
        return ctypes.CDLL(str(path))

    return load


@pytest.fixture
def kernels(load_kernels: Load) -> ctypes.CDLL:
    """The kernels of the tests, loaded."""
    return load_kernels("blocks.cu", "warps.cu")
