"""Texts of structures in the tree: the numbers in them travel as arrays, not as digits.

A text is taken apart as far as it is JSON in base64, and put together again at the other end.
Anything else travels as it is.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

import numpy as np

from sapwood_lizard.structures import b64_json_dec, b64_json_enc

SMALLEST_ARRAY: Final = 8
"""Numbers from which on a list travels as an array."""

SURE_LENGTH: Final = 256
"""Length from which a text that reads as JSON in base64 is not so by accident."""

_ARRAY, _TEXT, _LARGE = "array", "text", "int"
_INT64: Final = range(-(2**63), 2**63)
_FLOAT32: Final = np.dtype(np.float32)


def pack_text(text: str) -> Any:
    """Return a text as a value that travels in few bytes.

    Example:
        >>> packed = pack_text(b64_json_enc({"sums": [0.5] * 8}))
        >>> unpack_text(packed) == b64_json_enc({"sums": [0.5] * 8})
        True
    """
    opened = _opened(text)
    return text if opened is _NOTHING else (_TEXT, _shrink(opened))


def unpack_text(packed: Any) -> str:
    """Return the text of a value that :func:`pack_text` made."""
    return packed if isinstance(packed, str) else b64_json_enc(_grow(packed[1]))


def open_text(text: str) -> Any:
    """Return what a text says, with all texts in it opened too, as far as they are JSON.

    Example:
        >>> open_text(b64_json_enc({"n": 2, "dynamic": b64_json_enc([0.5])}))
        {'n': 2, 'dynamic': [0.5]}
    """
    opened = _opened(text)
    return text if opened is _NOTHING else _open_inner(opened)


def _open_inner(value: Any) -> Any:
    if isinstance(value, str):
        return open_text(value)
    if isinstance(value, list):
        return [_open_inner(item) for item in value]
    if isinstance(value, dict):
        return {key: _open_inner(item) for key, item in value.items()}
    return value


def pack_value(value: Any) -> Any:
    """Return a JSON value as a value that travels in few bytes."""
    return _shrink(value)


def unpack_value(packed: Any) -> Any:
    """Return the JSON value of a value that :func:`pack_value` made."""
    return _grow(packed)


_NOTHING: Final = object()


def _opened(text: str) -> Any:
    try:
        value = b64_json_dec(text)
    except (ValueError, TypeError, RecursionError):
        return _NOTHING
    # Raw bytes in base64 may read as a long number, but hardly as a list.
    sure = len(text) >= SURE_LENGTH and isinstance(value, (list, dict))
    if not sure and b64_json_enc(value) != text:
        return _NOTHING
    return value


def _shrink(value: Any) -> Any:
    if isinstance(value, list):
        array = _as_array(value)
        return [_shrink(item) for item in value] if array is None else (_ARRAY, array)
    if isinstance(value, dict):
        return {key: _shrink(item) for key, item in value.items()}
    if isinstance(value, str):
        return pack_text(value)
    if type(value) is int and value not in _INT64:
        return (_LARGE, str(value))
    return value


def _grow(value: Any) -> Any:
    if isinstance(value, tuple):
        kind, content = value
        if kind == _ARRAY:
            return content.tolist()
        return int(content) if kind == _LARGE else b64_json_enc(_grow(content))
    if isinstance(value, list):
        return [_grow(item) for item in value]
    if isinstance(value, dict):
        return {key: _grow(item) for key, item in value.items()}
    return value


def _as_array(items: list[Any]) -> np.ndarray[Any, Any] | None:
    """Return a list of numbers, or of equally long such lists, as an array; None for others."""
    flat = items
    if items and type(items[0]) is list:
        length = len(items[0])
        if any(type(row) is not list or len(row) != length for row in items):
            return None
        flat = list(chain.from_iterable(items))
    kinds = set(map(type, flat))
    if len(flat) < SMALLEST_ARRAY or len(kinds) != 1:
        return None
    shape = (len(items), -1) if flat is not items else (-1,)
    if kinds == {float}:
        return _narrow(np.array(flat, np.float64).reshape(shape))
    if kinds == {int} and min(flat) in _INT64 and max(flat) in _INT64:
        array = np.array(flat, np.int64)
        kind = np.promote_types(np.min_scalar_type(array.min()), np.min_scalar_type(array.max()))
        return (array.astype(kind) if kind.kind in "iu" else array).reshape(shape)
    return None


def _narrow(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return numbers in single precision if that loses nothing: most come from C floats."""
    with np.errstate(over="ignore", invalid="ignore"):
        single = array.astype(_FLOAT32)
    return single if np.array_equal(single, array, equal_nan=True) else array
