"""Encoding results that have the layout of the one before: what does not change is not made again.

Between two calls of a runner others have used the caches of its core, so every object that
Python looks at comes from memory; here it looks at few.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sapwood.code.runner import calls
from sapwood.code.runner.arena import Arena
from sapwood.comm import values
from sapwood.comm.shared_memory import ALIGNMENT

Array = np.ndarray[Any, Any]

Field = tuple[str, np.dtype[Any], tuple[int, ...]]
"""Key, type and shape of an array in a dictionary."""

Parts = tuple[calls.Bulk, calls.Bulk]
"""Body and arrays of an encoded result."""


def fields_of(result: Any) -> tuple[Field, ...]:
    """Return the fields of a dictionary of contiguous arrays; nothing of anything else."""
    if type(result) is not dict:
        return ()
    for key, array in result.items():
        if type(key) is not str or type(array) is not np.ndarray or not array.size:
            return ()
        if not array.flags.c_contiguous:
            return ()
    return tuple((key, array.dtype, array.shape) for key, array in result.items())


def has_fields(result: Any, fields: tuple[Field, ...]) -> bool:
    """Whether a result is a dictionary of contiguous arrays with just these fields, in order.

    Example:
        >>> fields = fields_of({"a": np.zeros(3)})
        >>> has_fields({"a": np.ones(3)}, fields), has_fields({"a": np.ones(4)}, fields)
        (True, False)
    """
    if type(result) is not dict or len(result) != len(fields) or not fields:
        return False
    for (key, dtype, shape), (name, array) in zip(fields, result.items(), strict=True):
        if (
            name != key
            or type(array) is not np.ndarray
            or array.dtype is not dtype
            or array.shape != shape
            or not array.flags.c_contiguous
        ):
            return False
    return True


class ResultCodec:
    """Encodes results again whose layout, their keys, types and shapes, is that of the last one.

    Their arrays travel in the datagram, or lie in an arena, one behind the other as they were
    made; where in it follows from the layout.

    Example:
        >>> codec = ResultCodec()
        >>> first = {"a": np.arange(2.0), "b": np.arange(3)}
        >>> codec.learn(first, values.encode(first))
        >>> body, payload = codec.encode({"a": np.ones(2), "b": np.ones(3, int)})
        >>> values.decode(body.inline, payload.inline)
        {'a': array([1., 1.]), 'b': array([1, 1, 1])}
        >>> codec.encode({"a": 1}) is None
        True
    """

    __slots__ = ("_body", "_end", "_fields", "_gaps")

    def __init__(self) -> None:
        self._fields: tuple[Field, ...] = ()
        self._body = calls.Bulk()
        self._gaps: tuple[bytes, ...] = ()
        self._end = 0

    def learn(self, result: Any, encoded: values.Encoded) -> None:
        """Note what a result looks like whose arrays travel in the datagram."""
        self._fields = fields_of(result)
        self._body = calls.Bulk(encoded.body)
        # Behind each array as many bytes as the next one needs to begin where it should.
        gaps = tuple(bytes(-array.nbytes % ALIGNMENT) for array in encoded.arrays)
        self._gaps = gaps if len(gaps) > 1 else (b"",)
        self._end = 0

    def learn_placed(self, result: Any, made: list[Array], body: calls.Bulk, end: int) -> None:
        """Note what a result looks like that lies in an arena.

        Args:
            result: The result.
            made: The arrays that were made in the arena for it, in order.
            body: What its body became.
            end: Where in the arena it ends.
        """
        self._fields = fields_of(result)
        if not has_places(result, self._fields, made):
            self._fields = ()
        self._body = body
        self._end = end

    def encode(self, result: Any) -> Parts | None:
        """Return body and arrays of a result, inline; None if it is not like the last one."""
        if self._end or not has_fields(result, self._fields):
            return None
        parts: list[bytes] = []
        for array, gap in zip(result.values(), self._gaps, strict=True):
            parts += (array.tobytes(), gap)
        return self._body, calls.Bulk(b"".join(parts))

    def encode_placed(self, result: Any, made: list[Array], arena: Arena) -> Parts | None:
        """Return body and arrays of a result in an arena; None if it is not like the last one."""
        if not self._end or not has_places(result, self._fields, made):
            return None
        return self._body, calls.Bulk(shared=arena.ref(self._end))


def has_places(result: Any, fields: tuple[Field, ...], made: list[Array]) -> bool:
    """Whether the arrays of a result with just these fields are those made for it, in order.

    Those that lie in the same place: all of an array, of whatever shape.
    """
    if len(made) != len(fields) or not has_fields(result, fields):
        return False
    return all(
        array is whole or (array.base is whole and array.nbytes == whole.nbytes)
        for array, whole in zip(result.values(), made, strict=True)
    )
