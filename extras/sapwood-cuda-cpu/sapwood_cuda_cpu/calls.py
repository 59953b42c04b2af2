"""Who calls whom in device code, and what follows from it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from sapwood_cuda_cpu.dynamic import is_extern
from sapwood_cuda_cpu.parse import INDICES, CudaSource, Function, declared_names, walk

GRID_SYNC: Final = "__sapwood_grid_sync"
"""What patched kernels call where all blocks of the grid meet."""

BARRIERS: Final = frozenset({"__syncthreads", GRID_SYNC})
VOTING_BARRIERS: Final = frozenset({"__syncthreads_count", "__syncthreads_or", "__syncthreads_and"})
IN_STEP: Final = "__sapwood_in_step"
"""What patched sources call where lanes of a warp have to run in step."""

FOLD: Final = "__sapwood_fold_sync"
"""A reduction of a tile by any operation, on the way to an exchange."""

CLEAR: Final = "::sapwood_cuda::clear_exchange"
"""What a cut kernel does once for the block before threads vote."""
EXCHANGE_XOR: Final = "::sapwood_cuda::exchange_xor"
"""How a thread of a cut kernel reads what ``__shfl_xor_sync`` gives it."""

_WARP = re.compile(
    r"__sapwood_in_step$|__sapwood_fold_sync$|__(?:shfl|shfl_up|shfl_down|shfl_xor|ballot|any|all|match_any|match_all|"
    r"reduce_\w+)_sync$|__syncwarp$|__activemask$"
)
_GROUPS = frozenset(
    {
        *("cooperative_groups", "cg", "this_thread_block", "this_grid", "tiled_partition"),
        "coalesced_threads",
    }
)
_ATOMIC = re.compile(r"atomic\w+$|__threadfence\w*$|__nanosleep$")
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")


def is_warp_operation(word: str) -> bool:
    """Whether a word brings the lanes of a warp together."""
    return _WARP.match(word) is not None


def is_atomic(word: str) -> bool:
    """Whether a word is an atomic operation or a fence."""
    return _ATOMIC.match(word) is not None


class CallGraph:
    """What device functions and macros do, by name, with all that they call.

    Names are taken as they are: of two functions of one name each counts for both.

    Attributes:
        functions: Functions by name.
        macros: Macros by name.
        macro_words: What macros speak of, apart from their arguments.
        meeting: Names that, when called, wait for other threads, with the word that says so.
        device_variables: Names of variables on the device.
        declared: Names of functions that are declared apart from their definition.
        array_members: Names of members of classes that are arrays.
        elsewhere: Names of variables of the device that some source declares as ``extern``.
        placed: Names that need to know which thread they run in.
        atomic: Names that hold atomic operations or their own arrays.
    """

    def __init__(self, sources: Iterable[CudaSource]) -> None:
        self.functions: dict[str, list[Function]] = {}
        self.macros: dict[str, str] = {}
        self.macro_words: frozenset[str] = frozenset()
        self.device_variables: frozenset[str] = frozenset()
        self.declared: frozenset[str] = frozenset()
        self.array_members: frozenset[str] = frozenset()
        self.elsewhere: set[str] = set()
        words: dict[str, set[str]] = {}
        arrays: set[str] = set()
        for source in sources:
            self.macros |= source.macros
            self.macro_words |= source.macro_words
            self.device_variables |= source.device_variables
            self.declared |= source.declared
            self.array_members |= source.array_members
            for node in source.device_declarations:
                if is_extern(node):
                    self.elsewhere |= set(declared_names(node))
            for function in source.functions:
                self.functions.setdefault(function.name, []).append(function)
                words.setdefault(function.name, set()).update(function.words)
                if any(node.type == "array_declarator" for node in walk(function.body)):
                    arrays.add(function.name)
        for name, text in self.macros.items():
            words.setdefault(name, set()).update(_WORD.findall(text))
        self.meeting = _reach(words, _meets)
        self.placed = set(_reach(words, lambda word: word in INDICES))
        self.atomic = (
            set(_reach(words, is_atomic)) | set(_reach(words, lambda word: word in arrays)) | arrays
        )

    def meets(self, words: set[str]) -> str:
        """Return one of some words that brings threads together, or nothing."""
        return next((word for word in sorted(words) if _meets(word)), "")


def _meets(word: str) -> bool:
    return word in BARRIERS or word in VOTING_BARRIERS or word in _GROUPS or is_warp_operation(word)


def _reach(words: dict[str, set[str]], wanted: object) -> dict[str, str]:
    """Return the names from which a wanted word can be reached, with that word."""
    assert callable(wanted)  # noqa: S101 - narrows the type
    found = {
        name: next(word for word in sorted(own) if wanted(word))
        for name, own in words.items()
        if any(wanted(word) for word in own)
    }
    while True:
        more = {
            name: next(found[word] for word in sorted(own) if word in found)
            for name, own in words.items()
            if name not in found and own & found.keys()
        }
        if not more:
            return found
        found |= more
