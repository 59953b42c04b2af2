"""Encoding many values that are alike: the states of a run, wave after wave."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from sapwood.comm import values
from sapwood.comm.plain import MAX_BODY
from sapwood.comm.values import Encoded

Place = tuple[str, np.dtype[Any], tuple[int, ...], msgspec.msgpack.Ext]
"""An array: its name, type and shape, and what the body says of it."""

_PLAIN = frozenset({bool, int, float, type(None), np.ndarray})
_LONGEST_NUMBER = 9
_Ext = msgspec.msgpack.Ext
_pack = msgspec.msgpack.Encoder().encode


class AlikeEncoder:
    """Encodes values as :func:`sapwood.comm.values.encode` does, sooner when they come again.

    In dictionaries of arrays and numbers that have the same names, types and shapes as before,
    only the numbers and the bytes of the arrays differ.

    Example:
        >>> encoder = AlikeEncoder()
        >>> [encoder.encode({"a": np.arange(n, n + 2.0), "n": n}).body[-1] for n in range(3)]
        [0, 1, 2]
    """

    __slots__ = ("_like",)

    def __init__(self) -> None:
        # Names, types and arrays of the last value; offsets and size of its payload. Replaced as
        # a whole: several threads may encode.
        nothing: tuple[Place, ...] = ()
        self._like: tuple[tuple[Any, ...], tuple[type, ...], tuple[Place, ...], list[int], int] = (
            (),
            (),
            nothing,
            [],
            0,
        )

    def encode(self, value: Any) -> Encoded:
        """Turn a value into body and payload.

        Raises:
            DataValueError: As :func:`sapwood.comm.values.encode` does.
        """
        names, kinds, places, offsets, nbytes = self._like
        if (
            type(value) is not dict
            or tuple(map(type, value.values())) != kinds
            or tuple(value) != names
            or not names
        ):
            return self._encode_anew(value)
        plain, arrays = value.copy(), []
        for name, dtype, shape, described in places:
            array = plain[name]
            if array.dtype is not dtype or array.shape != shape:
                return self._encode_anew(value)
            arrays.append(array if array.flags.c_contiguous else np.ascontiguousarray(array))
            plain[name] = described
        try:
            body = _pack(plain)
        except (TypeError, OverflowError, ValueError):
            return self._encode_anew(value)  # which says what is wrong with it
        return Encoded(body, arrays, offsets, nbytes)

    def _encode_anew(self, value: Any) -> Encoded:
        encoded = values.encode(value)
        if type(value) is dict and _PLAIN.issuperset(map(type, value.values())):
            self._learn(value, encoded)
        return encoded

    def _learn(self, value: dict[Any, Any], encoded: Encoded) -> None:
        # numpy has one object for each of these types, so they are told apart by their identity.
        own = [name for name, array in value.items() if type(array) is np.ndarray]
        dtypes = [value[name].dtype for name in own]
        if any(np.dtype(dtype.type) is not dtype for dtype in dtypes):
            return
        if any(type(name) is not str for name in value):
            return
        if len(encoded.body) + _LONGEST_NUMBER * len(value) > MAX_BODY:
            return
        described = values.outline(encoded.body)
        places = tuple(
            (
                name,
                value[name].dtype,
                value[name].shape,
                _Ext(values.EXT_ARRAY, _pack(described[name])),
            )
            for name in own
        )
        kinds = tuple(map(type, value.values()))
        self._like = tuple(value), kinds, places, encoded.offsets, encoded.nbytes
