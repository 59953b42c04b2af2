"""Decoding many values that are alike: the contributions of all agents, wave after wave."""

from __future__ import annotations

from typing import Any

import numpy as np

from sapwood.comm import values

Field = tuple[str, np.dtype[Any], int, int, tuple[int, ...] | None]
"""Name, type, number of items, offset in the payload, and shape unless it has one axis."""


class Alike:
    """Decodes values as :func:`sapwood.comm.values.decode` does, sooner when they come again.

    In dictionaries of arrays that have the same body only the bytes of the arrays differ, so the
    body is read once.

    Example:
        >>> alike, one = Alike(), values.encode({"a": np.arange(3.0)})
        >>> [alike.decode(one.body, one.payload()) for _ in range(3)][-1]
        {'a': array([0., 1., 2.])}
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        # Body, its arrays if they were looked at, and the bytes that they need.
        self._known: tuple[bytes, tuple[Field, ...] | None, int] = (b"", None, 0)

    def decode(self, body: bytes | memoryview, payload: bytes | memoryview) -> Any:
        """Turn body and payload back into the value; arrays are views into ``payload``.

        A body that is a view is not remembered: its memory may be used again.

        Raises:
            ProtocolError: The body is malformed or points outside the payload.
        """
        if type(body) is not bytes:
            return values.decode(body, payload)
        known, fields, size = self._known
        if body != known:
            self._known = body, None, 0
            return values.decode(body, payload)
        if fields is None:
            value = values.decode(body, payload)
            fields = fields_of(value, payload)
            ends = (offset + count * dtype.itemsize for _, dtype, count, offset, _ in fields)
            self._known = body, fields, max(ends, default=0)
            return value
        if not fields or len(payload) < size:
            return values.decode(body, payload)
        return arrays_at(fields, payload)


def arrays_at(fields: tuple[Field, ...], payload: bytes | memoryview) -> dict[str, Any]:
    """Return the arrays that lie in a payload, as views of it."""
    found = {}
    for name, dtype, count, offset, shape in fields:
        array = np.frombuffer(payload, dtype, count, offset)
        found[name] = array if shape is None else array.reshape(shape)
    return found


def fields_of(value: Any, payload: bytes | memoryview) -> tuple[Field, ...]:
    """Return where the arrays of a dictionary are; nothing if it holds anything else."""
    if type(value) is not dict or not value:
        return ()
    if not all(isinstance(array, np.ndarray) and array.size for array in value.values()):
        return ()
    begin = np.frombuffer(payload, np.uint8).ctypes.data
    return tuple(
        (
            name,
            array.dtype,
            array.size,
            array.ctypes.data - begin,
            None if array.ndim == 1 else array.shape,
        )
        for name, array in value.items()
    )
