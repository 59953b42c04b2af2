"""A result of a program as plain data, short enough to print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

MAX_ELEMENTS = 64
"""Arrays and lists of at most this many elements are shown with their elements."""

MAX_TEXT = 200

MAX_LEVELS = 16
"""Lists and dictionaries in one another that are shown; what is deeper is left out."""


def summarise(value: Any, levels: int = MAX_LEVELS) -> Any:
    """Return a value as numbers, text, lists and dicts; large arrays as type and shape.

    Example:
        >>> summarise({"pi": np.float64(3.14), "picture": np.zeros((480, 640, 3), np.uint8)})
        {'pi': 3.14, 'picture': 'uint8 480 x 640 x 3'}
    """
    if isinstance(value, np.generic):  # before float: np.float64 is one
        return summarise(value.item(), levels) if value.dtype.kind != "V" else str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, np.ndarray):
        if value.size > MAX_ELEMENTS:
            return _shape(value)
        plain = value.tolist()
        return plain if value.dtype.kind not in "OVc" else summarise(plain, levels)
    if isinstance(value, Mapping | list | tuple) and not levels:
        return "…"
    if isinstance(value, Mapping):
        return {str(name): summarise(item, levels - 1) for name, item in value.items()}
    if isinstance(value, list | tuple):
        shown = [summarise(item, levels - 1) for item in value[:MAX_ELEMENTS]]
        left_out = len(value) - len(shown)
        return [*shown, f"… {left_out} more"] if left_out else shown
    text = value if isinstance(value, str) else _repr(value)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - code of a user
        return f"a value of type {type(value).__qualname__}"


def _shape(array: np.ndarray[Any, Any]) -> str:
    return f"{array.dtype} {' x '.join(map(str, array.shape))}"
