"""Patched CUDA kernels against plain single-threaded C++ loops of the same work.

::

    python benchmarks/cuda_on_cpu.py             # clang++ where it is there, 1 and 2 workers
    CXX=g++ python benchmarks/cuda_on_cpu.py

Every result is checked against numpy. A figure is the median over runs, each the least of a few
calls; its floor is the plain loop, built by g++ with -O3 -march=native and without -ffast-math.
The bounds are those that patched code is meant to keep with one worker. With several workers the
floor is the plain loop on as many threads, with the same bound. The figures ``of-one`` have the
time of one worker as their floor: two workers are to take at most 0.62 of it, which is 1.6 times as
fast; ``plain.….of-one`` says what two threads of the plain loop take on this machine at that time,
which has to share its memory, and its processors with other programs.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from report import Figure, Report, read_options
from sapwood.code.languages.base import BuildRequest
from sapwood.code.machine_kind import CUDA_CHOICE
from sapwood.code.target import host_target
from sapwood_cuda_cpu.language import Cuda

SOURCE = Path(__file__).parent / "cuda" / "work.cu"
CALLS = 10

Array = npt.NDArray[np.float32]

OF_ONE = 0.62
"""Part of one worker's time that two workers may take."""

CASES = {
    "map": ("map", 10_000_000, 1.3),
    "stride": ("map", 10_000_000, 1.3),
    "tree": ("sum", 10_000_000, 1.5),
    "shuffle": ("sum", 10_000_000, 7.0),
    "scan": ("scan", 10_000_000, 3.0),
    "stencil": ("stencil", 2_048, 1.3),
    "matmul": ("matmul", 256, 1.0),
    "kmeans": ("kmeans", 65_536, 1.4),
}
"""By kernel: its plain loop, its size, and the ratio to keep."""

ONE_WORKER = {
    "transpose": ("transpose", 2_048),
    "histogram": ("histogram", 10_000_000),
    "bodies": ("bodies", 4_096),
    "particles": ("particles", 10_000_000),
}
"""More kernels, for ``cuda_table.py``: their plain loops and sizes."""

SQUARES = {"matmul", "stencil", "transpose"}
"""Kernels whose arrays have as many rows as columns."""


def load(folder: Path, compiler: str, environment: Mapping[str, str] | None = None) -> ctypes.CDLL:
    """Build the source by a compiler, for the CPU, and load it.

    Args:
        folder: Where it is built.
        compiler: The compiler; empty for the default.
        environment: More variables of the build.
    """
    (folder / "sources").mkdir(parents=True)
    (folder / "out").mkdir()
    shutil.copy(SOURCE, folder / "sources")
    variables = {**os.environ, CUDA_CHOICE: "cpu", "CXX": compiler, **(environment or {})}
    request = BuildRequest(
        folder=folder / "sources",
        sources=(SOURCE.name,),
        output=folder / "out",
        target=host_target(),
        environment=variables,
    )
    started = time.perf_counter()
    library = request.output / Cuda().build(request).library
    print(f"built in {time.perf_counter() - started:.2f} s", file=sys.stderr)
    return ctypes.CDLL(str(library))


def data_of(case: str, n: int) -> tuple[Array, Array, Array]:
    """Return two inputs and an output."""
    random = np.random.default_rng(1)
    if case == "kmeans":
        points = random.normal(size=(n, 32)).astype(np.float32)
        return points, points[:16].copy(), np.zeros(16 * 33, np.float32)
    shape = (n, n) if case in SQUARES else (n,)
    a, b = (random.integers(0, 4, size=shape).astype(np.float32) for _ in range(2))
    return a, b, np.zeros(shape, np.float32)


def check(case: str, a: Array, b: Array, out: Array) -> None:
    """Compare a result with numpy's."""
    if case in {"map", "stride"}:
        np.testing.assert_array_equal(out, a + b)
    elif case in {"tree", "shuffle"}:
        np.testing.assert_allclose(out[0], a.sum(dtype=np.float64), rtol=1e-5)
    elif case == "scan":
        whole = a[: len(a) // 32 * 32].reshape(-1, 32)
        np.testing.assert_array_equal(out[: whole.size].reshape(-1, 32), whole.cumsum(axis=1))
    elif case == "stencil":
        middle = a[1:-1, 1:-1]
        sides = a[1:-1, :-2] + a[1:-1, 2:] + a[:-2, 1:-1] + a[2:, 1:-1]
        np.testing.assert_allclose(out[1:-1, 1:-1], (middle + sides) / 5, rtol=1e-6)
    elif case == "matmul":
        np.testing.assert_allclose(out, a @ b, rtol=1e-5)
    elif case == "transpose":
        np.testing.assert_array_equal(out, a.T)
    elif case == "histogram":
        counts = np.bincount((a * 4 + b).astype(np.int64), minlength=64)
        np.testing.assert_array_equal(out[:64].view(np.int32), counts)
    elif case == "bodies":
        dx, dy = a[None] - a[:, None], b[None] - b[:, None]
        pulls = (dx * (dx**2 + dy**2 + np.float32(0.01)) ** np.float32(-1.5)).sum(axis=1)
        np.testing.assert_allclose(out, pulls, rtol=1e-3, atol=1.0)
    elif case == "particles":
        x, y, u, v = a.reshape(-1, 4).T
        moved = x + np.float32(0.1) * u
        wanted = np.stack([moved, y + np.float32(0.1) * v, np.where(moved > 1, -u, u), v], axis=1)
        np.testing.assert_allclose(out.reshape(-1, 4), wanted, rtol=1e-6)
    else:
        distance = ((a[:, None, :] - b[None]) ** 2).sum(axis=2)
        counts = np.bincount(distance.argmin(axis=1), minlength=16)
        np.testing.assert_allclose(out[512:].view(np.int32), counts, atol=2)


def seconds(
    function: Callable[..., Any], arrays: tuple[Array, Array, Array], n: int, workers: int = 1
) -> float:
    """Return the least time of a few calls."""
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
    times = []
    for _ in range(CALLS):
        started = time.perf_counter()
        function(*pointers, ctypes.c_int(n), ctypes.c_int(workers))
        times.append(time.perf_counter() - started)
    return min(times)


def main() -> None:
    """Measure and print."""
    options = read_options(str(__doc__), agents=[1, 2], runs=5)
    title = "Patched CUDA on the CPU; agents are workers"
    with tempfile.TemporaryDirectory() as folder, Report(title, options) as report:
        patched = load(Path(folder) / "patched", os.environ.get("CXX", ""))
        plain = load(Path(folder) / "plain", "g++")
        for workers in options.agents:
            for case, (floor, n, bound) in CASES.items():
                arrays = data_of(case, n // 10 if options.quick and case not in SQUARES else n)
                size = len(arrays[0])
                kind = "plain" if workers == 1 else "threads"
                mine, alone, theirs, one = [], [], [], []
                for _ in range(options.runs):
                    if workers > 1:
                        os.environ["SAPWOOD_CUDA_WORKERS"] = "1"
                        alone.append(seconds(patched[f"{case}_cuda"], arrays, size))
                    os.environ["SAPWOOD_CUDA_WORKERS"] = str(workers)
                    mine.append(seconds(patched[f"{case}_cuda"], arrays, size))
                    check(case, *arrays)
                    theirs.append(seconds(plain[f"{floor}_{kind}"], arrays, size, workers))
                    check(case, *arrays)
                    one.append(seconds(plain[f"{floor}_plain"], arrays, size))
                name = f"cuda.{case}.bound-{bound}"
                report.add(Figure.of(name, workers, mine, theirs, unit="ms"))
                if workers > 1:
                    report.add(Figure.of(f"plain.{case}.of-one", workers, theirs, one, unit="ms"))
                    name = f"cuda.{case}.of-one.bound-{OF_ONE}"
                    report.add(Figure.of(name, workers, mine, alone, unit="ms"))


if __name__ == "__main__":
    main()
