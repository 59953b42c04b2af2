"""Kernels whose loops do not compile: each of them gets a stack per thread, and no other one.

A kernel that can be cut may still hold what a loop over the threads cannot, such as a variable
of a type without default constructor that lives across a cut. Only the compiler knows. The
places that it names say which kernels it means.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from sapwood.errors import BuildError
from sapwood_cuda_cpu.parse import CudaSource
from sapwood_cuda_cpu.patch import KernelMode, Mode, Patched, patch_sources
from sapwood_cuda_cpu.semantics import Place
from sapwood_cuda_cpu.units import INSTALL, Reading

REASON: Final = "its loops do not compile"
"""How the reason of such a kernel begins."""

_PLACE: Final = re.compile(
    r"^(?:In file included from |\s+from )?([^\s:][^:\n]*):(\d+)", re.MULTILINE
)
_ERROR: Final = re.compile(
    r"^([^\s:][^:\n]*):(\d+):(?:\d+:)? (?:fatal )?error: ([^\n]*)", re.MULTILINE
)
_MOST_ROUNDS: Final = 4
"""Builds that separate kernels with errors; compilers stop after some errors."""

Built = TypeVar("Built")


def compile_kernels(
    sources: Mapping[str, CudaSource],
    compile_patched: Callable[[dict[str, Patched]], Built],
    *,
    fiber_only: str = "",
    reading: Reading | None = None,
) -> tuple[Built, dict[str, Patched]]:
    """Patch sources and compile them, with stacks for the kernels whose loops do not compile.

    Args:
        sources: The patched sources, by name; the compiler names the same files.
        compile_patched: Compiles the patched sources, from the beginning each time.
        fiber_only: Why every kernel's threads get separate stacks; empty if they need not.
        reading: How files are read that the sources include.

    Returns:
        What the compiler made, and of which sources.

    Raises:
        BuildError: They do not compile with a stack per thread either.
    """
    stacks: dict[Place, str] = {}
    for round_number in range(_MOST_ROUNDS + 1):
        patched = patch_sources(sources, fiber_only=fiber_only, stacks=stacks, reading=reading)
        try:
            return compile_patched(patched), patched
        except BuildError as error:
            kernels = [kernel for each in patched.values() for kernel in each.kernels]
            loops = [each for each in kernels if each.mode is Mode.BLOCK]
            text = error.details.get("compiler output", error.what)
            errors = [(file, int(line), message) for file, line, message in _ERROR.findall(text)]
            places = _Places(sources)
            same = [each for each in kernels if (each.file, each.line) in stacks]
            if not loops or any(places.kernels_at(same, *each[:2]) for each in errors):
                raise error from None  # the source itself is wrong
            known = round_number < _MOST_ROUNDS - 1
            blamed = _blamed(places, loops, errors, text) if known else {}
            stacks |= blamed or {(each.file, each.line): _reason(text) for each in loops}
    raise AssertionError  # the last round has no loops


def told(kernels: Mapping[str, Patched]) -> list[str]:
    """Return a line for each kernel whose loops did not compile: where it is, its name, and why.

    Where libclang is missing, a line for all kernels says so.

    Example:
        >>> told({})
        []
    """
    listed = [each for patched in kernels.values() for each in patched.kernels]
    lines = [
        f"{each.file}:{each.line}: {each.name} runs with a stack per thread: {each.reason}"
        for each in listed
        if each.reason.startswith(REASON)
    ]
    if any(each.reason == INSTALL for each in listed):
        lines.append(f"all kernels run with a stack per thread: {INSTALL}")
    return lines


class _Places:
    """Where the kernels of some sources are."""

    def __init__(self, sources: Mapping[str, CudaSource]) -> None:
        self._ends = {
            (name, kernel.line): int(kernel.node.end_point[0]) + 1
            for name, source in sources.items()
            for kernel in source.kernels
        }

    def kernels_at(self, kernels: list[KernelMode], file: str, line: int) -> list[Place]:
        """Return those of some kernels that hold a line."""
        return [
            (each.file, each.line)
            for each in kernels
            if os.path.normpath(each.file) == os.path.normpath(file)
            and each.line <= line <= self._ends.get((each.file, each.line), each.line)
        ]


def _blamed(
    places: _Places, loops: list[KernelMode], errors: list[tuple[str, int, str]], text: str
) -> dict[Place, str]:
    """Return the kernels that a compiler's text means, with the reason of each.

    Its errors count first. Where they are in headers, the places through which it came there do.
    """
    found: dict[Place, str] = {}
    for file, line, message in errors:
        for place in places.kernels_at(loops, file, line):
            found.setdefault(place, f"{REASON}: line {line}: {message.strip()}")
    for file, number in _PLACE.findall(text) if not found else ():
        for place in places.kernels_at(loops, file, int(number)):
            found.setdefault(place, _reason(text))
    return found


def _reason(text: str) -> str:
    first = _ERROR.search(text)
    return f"{REASON}: {first[1]}:{first[2]}: {first[3].strip()}" if first else REASON
