"""A result of a program as plain data, short enough to print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

MAX_ELEMENTS = 64
"""Arrays and lists of at most this many elements are shown with their elements."""

MAX_TEXT = 200


def summarise(value: Any) -> Any:
    """Return a value as numbers, text, lists and dicts; large arrays as type and shape.

    Example:
        >>> summarise({"pi": np.float64(3.14), "picture": np.zeros((480, 640, 3), np.uint8)})
        {'pi': 3.14, 'picture': 'uint8 480 x 640 x 3'}
    """
    if isinstance(value, np.generic):  # before float: np.float64 is one
        return summarise(value.item())
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, np.ndarray):
        return value.tolist() if value.size <= MAX_ELEMENTS else _shape(value)
    if isinstance(value, Mapping):
        return {str(name): summarise(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        shown = [summarise(item) for item in value[:MAX_ELEMENTS]]
        left_out = len(value) - len(shown)
        return [*shown, f"… {left_out} more"] if left_out else shown
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def _shape(array: np.ndarray[Any, Any]) -> str:
    return f"{array.dtype} {' x '.join(map(str, array.shape))}"
