"""Copies and launches that a CUDA program makes, for the statistics of runs.

Patched for the CPU, the shim counts them; compiled by nvcc, a small library that the linker puts
between the program and the runtime. Both keep the same structure, which is stored in the library.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, Final

from sapwood.plugins.languages import DeviceTransfers, LoadedCode, SharedLibrary, transfers

SOURCE: Final = Path(__file__).with_name("counted.cpp")
"""Counts for what nvcc compiles."""

_WRAPPED: Final = (
    "cudaMemcpy",
    "cudaMemcpyAsync",
    "cudaMemcpy2D",
    "cudaMemcpyToSymbol",
    "cudaMemcpyFromSymbol",
    "cudaLaunchKernel",
)
LINK_FLAGS: Final = tuple(flag for name in _WRAPPED for flag in ("-Xlinker", f"--wrap={name}"))
"""Have nvcc's linker call ours first."""

_FUNCTION: Final = "sapwood_cuda_counts"


class _Counts(ctypes.Structure):
    _fields_ = [
        ("copies_in", ctypes.c_uint64),
        ("bytes_in", ctypes.c_uint64),
        ("copies_out", ctypes.c_uint64),
        ("bytes_out", ctypes.c_uint64),
        ("launches", ctypes.c_uint64),
        ("seconds_in", ctypes.c_double),
        ("seconds_out", ctypes.c_double),
        ("launch_seconds", ctypes.c_double),
    ]


class LibraryCounts:
    """What a loaded library has copied and launched so far.

    Args:
        function: Returns where its counts are.
    """

    reused = 0

    def __init__(self, function: Any) -> None:
        function.restype = ctypes.POINTER(_Counts)
        self._counts = function().contents

    def __getattr__(self, name: str) -> Any:
        if name not in DeviceTransfers.__struct_fields__:
            raise AttributeError(name)
        return getattr(self._counts, name)


_watched: dict[int, LibraryCounts] = {}  # by the loaded library


def watch(library: LoadedCode) -> None:
    """Have the copies and launches of a loaded CUDA library counted, if it counts them."""
    function = library.symbol(_FUNCTION) if isinstance(library, SharedLibrary) else None
    if function is not None:
        counts = _watched[id(library)] = LibraryCounts(function)
        transfers.watch(counts)


def forget(library: LoadedCode) -> None:
    """Look at a library for the last time: it is about to be unloaded."""
    counts = _watched.pop(id(library), None)
    if counts is not None:
        transfers.forget(counts)
