"""The floating-point environment of a thread: rounding, traps, treatment of subnormal numbers.

Native code can change it for whatever the thread computes later: a library that was linked with
``-ffast-math`` makes subnormal numbers zero as soon as it is loaded, and a function may set another
rounding mode and return. By the convention of C (C11, 7.6) a function leaves the modes of its
caller as they are: so they are restored after each native call, and after a library is loaded.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

_SIZE: Final = 64
"""Bytes for a ``fenv_t``; the largest, of x86_64, has 32."""

Environment = ctypes.c_uint64 * (_SIZE // 8)
"""Memory for an environment."""


def _functions() -> tuple[Callable[[Any], object], Callable[[Any], object]]:
    """Return what saves and what restores an environment; nothing happens where C has neither."""
    for name in (None, "libm.so.6"):
        try:
            library = ctypes.CDLL(name)
            found = library.fegetenv, library.fesetenv
        except (OSError, AttributeError):
            continue
        for each in found:
            each.restype = None
        return found
    return _nothing, _nothing


def _nothing(environment: object) -> None:
    del environment


save, restore = _functions()
"""Save the environment of this thread into an :data:`Environment`, and restore it from one."""


@contextmanager
def preserved() -> Iterator[None]:
    """Restore at the end what the environment was before.

    Example:
        >>> with preserved():
        ...     pass
    """
    environment = Environment()
    save(environment)
    try:
        yield
    finally:
        restore(environment)
