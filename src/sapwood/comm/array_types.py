"""Types of arrays as text: their byte order and fields, and nothing that runs code."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np

from sapwood.core.errors import DataValueError, ProtocolError
from sapwood.core.shown import shown

MAX_DTYPE_TEXT = 16 * 1024
"""Characters that describe the type of a structured array."""

REMEMBERED_TYPES = 256
"""Types of arrays that are not read from their text again."""

_PLAIN_DTYPE = re.compile(r"[<>|][biufcmMSUV]\d+(\[\w+\])?|[<>][mM]8")


def dtype_text(dtype: np.dtype[Any]) -> str:
    """Return a type as text that :func:`dtype_from` reads, byte order and fields included.

    Raises:
        DataValueError: Its fields overlap.

    Example:
        >>> dtype_text(np.dtype([("id", "i4"), ("energy", "f8")]))
        "[('id', '<i4'), ('energy', '<f8')]"
    """
    if dtype.names is None:
        return dtype.str
    try:
        return repr(dtype.descr)
    except ValueError as error:
        raise DataValueError(
            f"an array whose fields overlap cannot travel between processes: {error}",
            hint="copy its fields into a separate array",
        ) from error


@functools.lru_cache(maxsize=REMEMBERED_TYPES)
def dtype_from(text: str) -> np.dtype[Any]:
    """Return the type that a text names.

    Raises:
        ProtocolError: It names none, or one of Python objects.
    """
    if text.startswith("["):
        dtype = _structured(text)
    elif _PLAIN_DTYPE.fullmatch(text):
        dtype = np.dtype(text)
    else:
        raise ProtocolError(f"a peer sent an array of unknown type {shown(text)}")
    if dtype.hasobject:
        raise ProtocolError("a peer sent an array of Python objects")
    return dtype


def _structured(text: str) -> np.dtype[Any]:
    import ast  # noqa: PLC0415 - only structured arrays need it, and agents start faster without

    if len(text) > MAX_DTYPE_TEXT:
        raise ProtocolError(f"a peer sent an array type of {len(text)} characters")
    described: np.dtype[Any] = np.lib.format.descr_to_dtype(ast.literal_eval(text))
    return described
