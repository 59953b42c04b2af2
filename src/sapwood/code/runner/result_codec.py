"""Encoding results with the layout of the one before: unchanged parts are not made again.

Between two calls of a runner others have used the caches of its core, so every object that
Python looks at comes from memory; here it looks at few.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sapwood.code.runner import calls
from sapwood.code.runner.arena import Arena
from sapwood.comm import values
from sapwood.comm.cached_codec import NO_LAYOUT, ValueLayout, array_layout
from sapwood.comm.shared_memory import ALIGNMENT

Array = np.ndarray[Any, Any]

Parts = tuple[calls.Bulk, calls.Bulk]
"""Body and arrays of an encoded result."""


class ResultCodec:
    """Encodes results whose layout, their keys, types and shapes, equals the last one's layout.

    Their arrays travel in the datagram, or are in an arena, one behind the other as they were
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

    __slots__ = ("_body", "_end", "_gaps", "_layout")

    def __init__(self) -> None:
        self._layout = NO_LAYOUT
        self._body = calls.Bulk()
        self._gaps: tuple[bytes, ...] = ()
        self._end = 0

    def learn(self, result: Any, encoded: values.Encoded) -> None:
        """Record the layout of a result whose arrays travel in the datagram."""
        self._layout = array_layout(result)
        self._body = calls.Bulk(encoded.body)
        # Behind each array as many bytes as the next one needs to begin where it should.
        gaps = tuple(bytes(-array.nbytes % ALIGNMENT) for array in encoded.arrays)
        self._gaps = gaps if len(gaps) > 1 else (b"",)
        self._end = 0

    def learn_placed(self, result: Any, made: list[Array], body: calls.Bulk, end: int) -> None:
        """Record the layout of a result in an arena.

        Args:
            result: The result.
            made: The arrays that were made in the arena for it, in order.
            body: What its body became.
            end: Where in the arena it ends.
        """
        self._layout = array_layout(result)
        if not has_places(result, self._layout, made):
            self._layout = NO_LAYOUT
        self._body = body
        self._end = end

    def encode(self, result: Any) -> Parts | None:
        """Return body and arrays of a result, inline; None if it is not like the last one."""
        if self._end or not self._layout.fits(result):
            return None
        parts: list[bytes] = []
        for array, gap in zip(result.values(), self._gaps, strict=True):
            parts += (array.tobytes(), gap)
        return self._body, calls.Bulk(b"".join(parts))

    def encode_placed(self, result: Any, made: list[Array], arena: Arena) -> Parts | None:
        """Return body and arrays of a result in an arena; None if it is not like the last one."""
        if not self._end or not has_places(result, self._layout, made):
            return None
        return self._body, calls.Bulk(shared=arena.ref(self._end))


def has_places(result: Any, layout: ValueLayout, made: list[Array]) -> bool:
    """Whether the arrays of a result with this layout are those made for it, in order.

    Arrays at the same place count: all of an array, of whatever shape.
    """
    if len(made) != len(layout.arrays) or not layout.fits(result):
        return False
    return all(
        array is whole or (array.base is whole and array.nbytes == whole.nbytes)
        for array, whole in zip(result.values(), made, strict=True)
    )
