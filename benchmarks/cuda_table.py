"""A table of patched CUDA kernels: both compilers, with and without strict aliasing, and stacks.

::

    python benchmarks/cuda_table.py            # prints it
    python benchmarks/cuda_table.py --write    # and writes docs/_static/cuda.md

Every result is checked against numpy. A figure is the least processor time of ten calls, in
milliseconds, with one worker; beside it is the ratio to a plain loop of the same work by g++ with
-O3 -march=native. ``stacks`` has a stack for each CUDA thread: there a call does a tenth of the
work (matrices and bodies: all of it), and its time is multiplied.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

from cuda_on_cpu import CALLS, CASES, ONE_WORKER, SQUARES, check, data_of, load
from sapwood_cuda_cpu.language import MODE

TABLE = Path(__file__).parents[1] / "docs" / "_static" / "cuda.md"
STRICT = {"CXXFLAGS": "-fstrict-aliasing"}
BUILDS = {
    "clang++": ("clang++", {}),
    "clang++, strict aliasing": ("clang++", STRICT),
    "g++": ("g++", {}),
    "g++, strict aliasing": ("g++", STRICT),
    "stacks": ("clang++", {MODE: "fiber"}),
}
"""By column: the compiler, and more variables of the build."""

LARGE = 10
"""Numbers from here on have no decimals."""

WHOLE = SQUARES | {"bodies"}
"""Kernels whose work is not in proportion to their size."""

NAMES = {
    "map": "vector sum",
    "stride": "vector sum, grid-stride loop",
    "tree": "sum, tree in shared memory",
    "shuffle": "sum, shuffles",
    "scan": "scan of warps",
    "stencil": "five-point stencil",
    "matmul": "tiled matrix product",
    "kmeans": "step of k-means",
    "transpose": "transposition, tiles",
    "histogram": "histogram, shared atomics",
    "bodies": "forces between bodies, tiles",
    "particles": "array of structures",
}


def milliseconds(library: ctypes.CDLL, function: str, case: str, n: int, calls: int) -> float:
    """Return the least processor time of some calls whose result is right."""
    arrays = data_of(case, n)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
    times = []
    for _ in range(calls):
        begin = time.process_time()
        library[function](*pointers, ctypes.c_int(len(arrays[0])), ctypes.c_int(1))
        times.append(time.process_time() - begin)
    check(case, *arrays)
    return min(times) * 1e3


def table(*, quick: bool) -> str:
    """Measure, and return the table in Markdown."""
    os.environ["SAPWOOD_CUDA_WORKERS"] = "1"
    sizes = {case: (floor, n) for case, (floor, n, _) in CASES.items()} | ONE_WORKER
    lines = ["| kernel | size | plain loop | " + " | ".join(BUILDS) + " |"]
    lines.append("|---|---|---|" + "---|" * len(BUILDS))
    with tempfile.TemporaryDirectory() as folder:
        plain = load(Path(folder) / "plain", "g++")
        built: dict[str, Any] = {
            name: load(Path(folder) / str(number), compiler, more)
            for number, (name, (compiler, more)) in enumerate(BUILDS.items())
        }
        for case, (floor, full) in sizes.items():
            n = full // 10 if quick and case not in WHOLE else full
            loop = milliseconds(plain, f"{floor}_plain", case, n, CALLS)
            cells = []
            for name, library in built.items():
                stacks = name == "stacks"
                part = 10 if stacks and case not in WHOLE else 1
                calls = 1 if stacks else CALLS
                took = part * milliseconds(library, f"{case}_cuda", case, n // part, calls)
                cells.append(f"{_short(took)} ({_short(took / loop)})")
            lines.append(f"| {NAMES[case]} | {n:,} | {_short(loop)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= LARGE else f"{number:.2g}"


def main() -> None:
    """Measure, print, and write the table if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test, not a measurement")
    parser.add_argument("--write", action="store_true", help="write docs/_static/cuda.md")
    given = parser.parse_args()
    text = table(quick=given.quick)
    print(f"{platform.machine()}, {platform.python_version()}\n\n{text}")
    if given.write:
        TABLE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
