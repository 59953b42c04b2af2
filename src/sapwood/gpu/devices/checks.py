"""Checks that all back-ends make before they hand pointers to a driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sapwood.core.errors import FunctionMissingError, InputError
from sapwood.core.suggest import suggest
from sapwood.gpu.devices.base import Array, Buffer


def require_fit(buffer: Buffer, array: Array) -> None:
    """Refuse a copy that would go over the end of a buffer, or of an array with gaps.

    Raises:
        InputError: It would.
    """
    if buffer.handle is None:
        raise InputError("memory of a device is used after it was freed", where="device")
    if not array.flags.c_contiguous:
        raise InputError("the array is not contiguous in memory", hint="numpy.ascontiguousarray")
    if array.nbytes > buffer.nbytes:
        raise InputError(
            f"{array.nbytes} bytes do not fit into a buffer of {buffer.nbytes}", where="device"
        )


def require_kernel(name: str, known: Sequence[str]) -> None:
    """Refuse the name of a kernel that is not there.

    Raises:
        FunctionMissingError: It is not there.
    """
    if name not in known:
        raise FunctionMissingError(f"unknown kernel {name}", hint=suggest(name, known))


def require_size(size: Sequence[int], block: Sequence[int]) -> None:
    """Refuse sizes of a launch that do not fit together.

    Raises:
        InputError: They do not.
    """
    if not 1 <= len(size) <= 3 or any(extent < 1 for extent in size):
        raise InputError(f"a launch has one to three axes of at least 1, not {tuple(size)}")
    if block and len(block) != len(size):
        raise InputError(f"{len(block)} axes of a block for {len(size)} axes of a launch")
    if any(extent % part for extent, part in zip(size, block, strict=False)):
        raise InputError(f"{tuple(size)} threads are not a multiple of blocks of {tuple(block)}")


def c_value(number: Any) -> Any:
    """Return a numpy number as the ctypes value of the same type."""
    dtype: Any = number.dtype
    return np.ctypeslib.as_ctypes_type(dtype)(number.item())
