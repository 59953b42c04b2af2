"""The library of shortcuts: built when Sapwood is installed, where there is a C compiler."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sapwood.core.errors import ResourceError

LIBRARY = "SAPWOOD_FASTPATH_LIBRARY"
"""Environment variable that names another library, for example one with a sanitizer."""


def library_path() -> Path:
    """Return where the library is, or would be."""
    return Path(os.environ.get(LIBRARY) or Path(__file__).with_name("fastpath.so"))


@functools.lru_cache(1)
def load(path: Path | None = None) -> Any:
    """Return the library.

    Args:
        path: Where it is; by default where the installation has put it.

    Raises:
        ResourceError: There is none for this interpreter.
    """
    where = path or library_path()
    try:
        return ctypes.CDLL(str(where))
    except OSError as error:
        raise ResourceError(f"the fast path cannot be loaded: {error}", where=str(where)) from error


def holding(library: Any, name: str, *arguments: type[Any]) -> Callable[..., int]:
    """Return a function of the library that is called with the interpreter's lock.

    It lets the lock go while it waits. What a function of Python raised in it, it raises.

    Args:
        library: The library.
        name: The function.
        arguments: Types of its arguments.
    """
    found: Callable[..., int] = ctypes.PYFUNCTYPE(ctypes.c_int, *arguments)((name, library))
    return found


def check_layout(library: Any, part: str, version: int, size: int) -> None:
    """Check that a part of the library lays its memory out as Python does.

    Raises:
        ResourceError: It is another version's, or not for this kind of machine.
    """
    try:
        told = getattr(library, f"sapwood_{part}_layout")
    except AttributeError as error:
        raise ResourceError(f"the library of shortcuts has no {part}") from error
    told.restype = ctypes.c_uint64
    if told() != version << 32 | size:
        raise ResourceError(f"the library of shortcuts is another version's: {part}")
