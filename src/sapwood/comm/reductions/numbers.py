"""Checks of values that are reduced element by element, and of pairs of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from sapwood.core.errors import ExecutionError

NUMBERS = "biufcmM"
"""Kinds of numpy types that can be reduced: numbers, dates and durations."""


def number(value: Any) -> Any:
    """Return a number or array in native byte order; raise ExecutionError for anything else."""
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind not in NUMBERS:
        raise ExecutionError(
            f"{described(value)} is neither a number nor an array of numbers",
            hint="'gather' and 'concat' keep values of any type",
        )
    if isinstance(value, np.ndarray):
        return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))
    if isinstance(value, (np.generic, int, float, complex)):
        return value
    raise ExecutionError(f"{type(value).__name__} is neither a number nor an array")


def counted(value: Any) -> Any:
    """Return booleans as integers, as ``numpy.sum`` takes them."""
    if isinstance(value, np.ndarray):
        return value.astype(np.int64) if value.dtype.kind == "b" else value
    return int(value) if isinstance(value, (bool, np.bool_)) else value


def real(value: Any) -> Any:
    """Return whole numbers as floating-point ones: differences and means of them are such."""
    if isinstance(value, np.ndarray):
        return value.astype(np.float64) if value.dtype.kind in "biu" else value
    return float(value) if isinstance(value, (int, np.integer, np.bool_)) else value


def is_nan(value: Any) -> bool:
    """Whether a number is not a number."""
    return bool(value != value)  # noqa: PLR0124 - only NaN differs from itself


def check_alike(left: Any, right: Any) -> None:
    """Raise ExecutionError unless two arrays are of one shape and type."""
    if not (
        isinstance(left, np.ndarray)
        and isinstance(right, np.ndarray)
        and left.shape == right.shape
        and left.dtype == right.dtype
    ):
        raise ExecutionError(f"{described(left)} does not fit {described(right)}")


def described(value: Any) -> str:
    """Return type and shape, for messages."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}"
    return type(value).__name__
