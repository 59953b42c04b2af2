"""Macros that declare kernels, device functions or shared memory, or launch kernels.

``#define KERNEL extern "C" __global__`` and ``DEFINE_KERNEL(add, +)`` are usual. A kernel that
is not recognised would run as a function of the host, so such macros are expanded before anything
else looks at a source. So are those that put a launch together from pieces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from sapwood_cuda_cpu.architecture import Trouble
from sapwood_cuda_cpu.conditions import Conditions
from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.macros import Macro, defined_macros, expand

_DECLARES: Final = re.compile(r"\b__(?:global|shared)__\b")
_DECLARES_IN_CUDA: Final = re.compile(r"\b__(?:global|shared|device|constant|managed)__\b")
"""In headers without that suffix a macro may be nothing for what is no CUDA source."""
_WHOLE_LAUNCH: Final = re.compile(r"<<<[^#]*>>>\s*\(")
"""A launch that needs no expansion: where it stands in a macro, it is patched there."""
_MOST_ROUNDS: Final = 8


def expand_declaring(
    files: Mapping[str, bytes], known: Mapping[str, Conditions]
) -> tuple[dict[str, bytes], dict[str, tuple[Trouble, ...]]]:
    r"""Return sources without macros that declare or launch kernels, and what is unclear.

    Args:
        files: Sources and headers by name.
        known: The macros that each file knows.

    Example:
        >>> code = b"#define KERNEL __global__\nKERNEL void k() {}"
        >>> made, _ = expand_declaring({"a.cu": code}, {"a.cu": Conditions({}, ())})
        >>> made["a.cu"].splitlines()[1]
        b'__global__ void k() {}'
    """
    macros: dict[str, list[Macro]] = {}
    for name, data in files.items():
        for word, macro in defined_macros(known[name].leave_out(data)):
            macros.setdefault(word, []).append(macro)
    some, more = _holding(macros, _DECLARES), _holding(macros, _DECLARES_IN_CUDA)
    found, troubles = dict(files), dict[str, tuple[Trouble, ...]]()
    for name, data in files.items() if more else ():
        wanted = more if name.endswith((".cu", ".cuh")) else some
        if any(word.encode() in data for word in wanted):
            one = _File(data, known[name], {word: macros[word] for word in wanted})
            found[name] = one.expanded()
            troubles[name] = one.troubles(some)
    return found, troubles


def _holding(macros: Mapping[str, list[Macro]], pattern: re.Pattern[str]) -> set[str]:
    """Return the macros whose text matches, through other macros too."""
    found: set[str] = set()
    while more := {
        name
        for name, each in macros.items()
        if name not in found and any(_holds(macro, pattern, found) for macro in each)
    }:
        found |= more
    return found


def _holds(macro: Macro, pattern: re.Pattern[str], names: set[str]) -> bool:
    """Whether a macro's text matches, speaks of some names or holds pieces of a launch."""
    pieces = "<<<" in macro.text and ("##" in macro.text or not _WHOLE_LAUNCH.search(macro.text))
    words = set(re.findall(r"\w+", macro.text))
    return pieces or pattern.search(macro.text) is not None or not names.isdisjoint(words)


class _File:
    """One source and the macros that are expanded in it."""

    def __init__(self, data: bytes, known: Conditions, macros: Mapping[str, list[Macro]]) -> None:
        self._data = data
        self._known = known
        self._elsewhere = macros
        self._unclear: dict[str, int] = {}

    def expanded(self) -> bytes:
        """Return the text without those macros."""
        for _ in range(_MOST_ROUNDS):
            self._own: dict[str, list[Macro]] = {}
            for name, macro in defined_macros(self._known.leave_out(self._data)):
                self._own.setdefault(name, []).append(macro)
            edits = Edits(self._data)
            if not expand(self._data, 0, len(self._data), self._macro_at, edits):
                break
            self._data = edits.apply()
        return self._data

    def troubles(self, names: set[str]) -> tuple[Trouble, ...]:
        """Return where macros stand that are defined in several ways."""
        lines = self._data.splitlines()
        return tuple(
            Trouble(
                line=(line := self._data.count(b"\n", 0, at)) + 1,
                text=lines[line].decode("utf-8", "replace").strip(),
                what=f"{name}, a macro for declarations that is defined in several ways",
                advice="give one of them another name, or define the macro on the command line",
            )
            for name, at in self._unclear.items()
            if name in names
        )

    def _macro_at(self, name: str, at: int) -> Macro | None:
        """Return what a name stands for: what the file said last, or else all others say."""
        if name not in self._elsewhere:
            return None
        before = [macro for macro in self._own.get(name, ()) if macro.start < at]
        if before:
            return before[-1]
        said = {(macro.arguments, macro.text): macro for macro in self._elsewhere[name]}
        if len(said) == 1:
            return next(iter(said.values()))
        self._unclear.setdefault(name, at)
        return None
