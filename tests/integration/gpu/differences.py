"""Differences between generated kernels and their emulation: found, and reduced to a few lines.

As a program, it runs many kernels in batches, and continues where an earlier run was stopped::

    python -m tests.integration.gpu.differences --kernels 10000 --log generated.log
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.integration.gpu.generator import Kernel, program

from sapwood.core.errors import BuildError
from sapwood_cuda_cpu.executable import build_executable
from sapwood_cuda_cpu.language import MODE
from sapwood_cuda_cpu.patch import Mode

HERE: Final = Path(__file__).parent
CHECKED: Final = "-fsanitize=undefined -fno-sanitize-recover=undefined"
LIMIT: Final = 120
"""Seconds that the kernels of one program may run."""

MOST_REDUCED: Final = 5
"""Differences of a batch that are reduced: most have the same cause."""


class Way(NamedTuple):
    """A way to build kernels."""

    compiler: str
    mode: str
    flags: str

    def __str__(self) -> str:
        return f"{self.mode} by {self.compiler} {self.flags}"


LOOPS: Final = Way("clang++", "block", "-O0")
STACKS: Final = Way("g++", "fiber", "-O0")
EVERY_WAY: Final = (
    *itertools.starmap(
        Way, itertools.product(("clang++", "g++"), ("block", "fiber"), ("-O0", "-O3"))
    ),
    Way("g++", "block", f"-O0 {CHECKED}"),
)


class Difference(NamedTuple):
    """A kernel that does not give what its emulation gives, one way."""

    kernel: Kernel
    way: Way
    what: str

    def __str__(self) -> str:
        return f"{self.kernel.name}, {self.way}: {self.what}\n{self.kernel.text}"


class Batch(NamedTuple):
    """The outcome of some kernels: their differences, and how many of them are loops."""

    differences: list[Difference]
    loops: int


def compare(kernels: Sequence[Kernel], ways: Sequence[Way], folder: Path) -> Batch:
    """Run kernels by an emulation and in some ways.

    Args:
        kernels: The kernels.
        ways: How they are built.
        folder: Where programs are written.
    """
    right = _emulated(kernels, folder)
    found, loops = [], 0
    for way in ways:
        for part, (lines, many) in _built(kernels, way, folder):
            if way.mode == "block":
                loops = max(loops, many)
            for kernel in part:
                got, wanted = lines.get(kernel.name, "no result"), right[kernel.name]
                if got != wanted:
                    found.append(Difference(kernel, way, f"{got}; emulated: {wanted}"))
    return Batch(found, loops)


def reduced(difference: Difference, folder: Path) -> Difference:
    """Return the difference with the fewest lines of its kernel that still shows it.

    Each line of a generated kernel is right without any other that declares nothing for it.
    """
    again = compare([difference.kernel], [difference.way], folder).differences
    if not again:
        return difference._replace(what=difference.what + " (only beside others)")
    best, position, size = again[0], 0, len(again[0].kernel.lines) // 2
    while size:
        lines = best.kernel.lines
        if position >= len(lines):
            position, size = 0, size // 2
            continue
        kernel = best.kernel.with_lines([*lines[:position], *lines[position + size :]])
        try:
            found = compare([kernel], [difference.way], folder).differences
        except subprocess.CalledProcessError:
            found = []  # what it declares is used
        if found and ("no build" in found[0].what) == ("no build" in best.what):
            best = found[0]
        else:
            position += size
    return best


def _emulated(kernels: Sequence[Kernel], folder: Path) -> dict[str, str]:
    """Return what each kernel gives; C++ leaves nothing open in what it does."""
    source, built = folder / "emulated.cpp", folder / "emulated"
    source.write_text(program(kernels, emulated=True))
    command = ["g++", "-std=c++17", "-O0", "-w", *CHECKED.split(), f"-I{HERE}"]
    subprocess.run([*command, str(source), "-o", str(built)], check=True, capture_output=True)
    done = subprocess.run([built], check=True, capture_output=True, text=True, timeout=LIMIT)
    assert done.stderr == ""
    return _by_name(done.stdout)


def _built(
    kernels: Sequence[Kernel], way: Way, folder: Path
) -> Iterator[tuple[Sequence[Kernel], tuple[Mapping[str, str], int]]]:
    """Yield kernels and what they give; those that do not build are separated from others."""
    source, built = folder / "kernels.cu", folder / "kernels"
    source.write_text(program(kernels, emulated=False))
    given = {"CXX": way.compiler, MODE: way.mode, "CXXFLAGS": f"{way.flags} -g0"}
    try:
        modes = build_executable([source], built, environment={**os.environ, **given})
    except BuildError as error:
        if len(kernels) == 1:
            yield kernels, ({kernels[0].name: f"no build: {error.what}"}, 0)
            return
        half = len(kernels) // 2
        yield from _built(kernels[:half], way, folder)
        yield from _built(kernels[half:], way, folder)
        return
    done = subprocess.run([built], check=False, capture_output=True, text=True, timeout=LIMIT)
    lines = _by_name(done.stdout)
    if done.returncode != 0 and len(lines) < len(kernels):
        lost = kernels[len(lines)]
        lines[lost.name] = f"status {done.returncode}: {done.stderr.strip()[-200:]}"
        rest = kernels[len(lines) :]
        kernels = kernels[: len(lines)]
        if rest:
            yield from _built(rest, way, folder)
    yield kernels, (lines, sum(each.mode is Mode.BLOCK for each in modes))


def _by_name(text: str) -> dict[str, str]:
    lines = (line.partition(" ") for line in text.splitlines())
    return {name: rest for name, _, rest in lines}


def main() -> int:
    """Run kernels in batches; log how each batch ended."""
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--first", type=int, default=0, help="seed of the first kernel")
    parser.add_argument("--kernels", type=int, default=10_000, help="how many")
    parser.add_argument("--each", type=int, default=50, help="kernels of one program")
    most = len(EVERY_WAY) - 1
    parser.add_argument("--ways", type=int, default=most, help="ways beside loops, in turn")
    parser.add_argument("--until", type=float, default=0, help="seconds after which it stops")
    parser.add_argument("--log", type=Path, required=True, help="a line for each batch")
    given = parser.parse_args()
    started, differences = time.monotonic(), 0
    done = set(given.log.read_text().splitlines()) if given.log.exists() else set()
    done = {line.partition(":")[0] for line in done}
    for number, first in enumerate(range(given.first, given.first + given.kernels, given.each)):
        if given.until and time.monotonic() - started > given.until:
            break
        seeds = f"{first} to {first + given.each - 1}"
        if seeds in done:
            continue
        others = [way for way in EVERY_WAY if way != LOOPS]
        turns = (given.ways * number + each for each in range(given.ways))
        ways = (LOOPS, *(others[turn % len(others)] for turn in turns))
        kernels = [Kernel(seed) for seed in range(first, first + given.each)]
        with tempfile.TemporaryDirectory() as scratch:
            batch = compare(kernels, ways, Path(scratch))
            small = [reduced(each, Path(scratch)) for each in batch.differences[:MOST_REDUCED]]
            small += batch.differences[MOST_REDUCED:]
        differences += len(small)
        outcome = (
            f"{seeds}: {len({each.kernel.name for each in small})} differ, {batch.loops} loops, "
        )
        outcome += ", ".join(map(str, ways))
        with given.log.open("a") as log:
            for text in (*map(str, small), outcome):
                log.write(f"{text}\n")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
