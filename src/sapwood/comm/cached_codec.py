"""Encoding and decoding values that are alike, with a cache keyed by their layout.

The states of a run and the contributions of its agents have the same names, types and shapes wave
after wave. Their :class:`ValueLayout` is computed once. The encoded bytes are
the same as those of :mod:`sapwood.comm.values` for the same value.

Whether a value is like the one before is decided here for all who ask: the encoder and the decoder
below, the results of a runner (``code/runner/result_codec.py``) and the arguments of a call that is
made again (``code/repeated_map.py``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np

from sapwood.comm import values
from sapwood.comm.plain import MAX_BODY
from sapwood.comm.values import Encoded

_PLAIN = frozenset({bool, int, float, type(None), np.ndarray})
_NAMES = frozenset({str})
_LONGEST_NUMBER = 9
_Ext = msgspec.msgpack.Ext
_pack = msgspec.msgpack.Encoder().encode


class ArrayField(NamedTuple):
    """An array of a dictionary: its name, type, shape and number of items, and where it lies."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    size: int
    offset: int

    def fits(self, array: Any) -> bool:
        """Whether a value is a contiguous array of this type and shape."""
        return (
            type(array) is np.ndarray
            and array.dtype is self.dtype  # numpy has one object for each of the usual types
            and array.shape == self.shape
            and array.flags.c_contiguous
        )


class ValueLayout(NamedTuple):
    """What dictionaries of arrays and numbers that are alike have in common.

    Attributes:
        names: Keys, in order.
        kinds: Types of the values, in the same order.
        arrays: Those that are arrays, in the same order.
        nbytes: Bytes of the payload that they take.
    """

    names: tuple[str, ...]
    kinds: tuple[type, ...]
    arrays: tuple[ArrayField, ...]
    nbytes: int

    def fits(self, value: Any) -> bool:
        """Whether a value is a dictionary of just these arrays, contiguous and in order.

        Example:
            >>> layout = array_layout({"a": np.zeros(3)})
            >>> layout.fits({"a": np.ones(3)}), layout.fits({"a": np.ones(4)})
            (True, False)
        """
        if type(value) is not dict or tuple(value) != self.names or not self.names:
            return False
        if len(self.arrays) != len(self.names):
            return False
        return all(map(ArrayField.fits, self.arrays, value.values()))


NO_LAYOUT = ValueLayout((), (), (), 0)
"""The layout of values that are not dictionaries of arrays and numbers."""


def layout_of(value: Any, offsets: list[int], nbytes: int) -> ValueLayout:
    """Return the layout of a value; :data:`NO_LAYOUT` if it has none that can be kept.

    Args:
        value: The value.
        offsets: Where each of its arrays starts in the payload, in order.
        nbytes: Size of the payload.

    Example:
        >>> layout_of({"a": np.zeros(3), "n": 1}, [0], 24).arrays[0].shape
        (3,)
    """
    if type(value) is not dict or not _PLAIN.issuperset(map(type, value.values())):
        return NO_LAYOUT
    if not _NAMES.issuperset(map(type, value)):
        return NO_LAYOUT
    own = [(name, array) for name, array in value.items() if type(array) is np.ndarray]
    arrays = tuple(
        ArrayField(name, array.dtype, array.shape, array.size, offset)
        for (name, array), offset in zip(own, offsets, strict=True)
    )
    return ValueLayout(tuple(value), tuple(map(type, value.values())), arrays, nbytes)


def array_layout(value: Any) -> ValueLayout:
    """Return the layout of a dictionary of contiguous arrays with items, wherever they lie.

    That of anything else is :data:`NO_LAYOUT`.
    """
    if type(value) is not dict:
        return NO_LAYOUT
    for array in value.values():
        if type(array) is not np.ndarray or not array.size or not array.flags.c_contiguous:
            return NO_LAYOUT
    return layout_of(value, [0] * len(value), 0)


class CachedDecoder:
    """Decodes values as :func:`sapwood.comm.values.decode` does, sooner when they come again.

    In dictionaries of arrays that have the same body only the bytes of the arrays differ, so the
    body is read once.

    Example:
        >>> decoder, one = CachedDecoder(), values.encode({"a": np.arange(3.0)})
        >>> [decoder.decode(one.body, one.payload()) for _ in range(3)][-1]
        {'a': array([0., 1., 2.])}
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        # The last body, and its layout if that was looked at. Replaced as a whole.
        self._known: tuple[bytes, ValueLayout | None] = (b"", None)

    def decode(self, body: bytes | memoryview, payload: bytes | memoryview) -> Any:
        """Turn body and payload back into the value; arrays are views into ``payload``.

        A body that is a view is not remembered: its memory may be used again.

        Raises:
            ProtocolError: The body is malformed or points outside the payload.
        """
        if type(body) is not bytes:
            return values.decode(body, payload)
        known, layout = self._known
        if body != known:
            self._known = body, None
            return values.decode(body, payload)
        if layout is None:
            value = values.decode(body, payload)
            self._known = body, _decoded_layout(value, payload)
            return value
        if not layout.arrays or len(payload) < layout.nbytes:
            return values.decode(body, payload)
        found = {}
        for name, dtype, shape, size, offset in layout.arrays:
            array = np.frombuffer(payload, dtype, size, offset)
            found[name] = array if len(shape) == 1 else array.reshape(shape)
        return found


def _decoded_layout(value: Any, payload: bytes | memoryview) -> ValueLayout:
    """Return the layout of a value that was decoded; nothing but arrays with items count."""
    if type(value) is not dict or not value:
        return NO_LAYOUT
    arrays = list(value.values())
    if not all(type(array) is np.ndarray and array.size for array in arrays):
        return NO_LAYOUT
    begin = np.frombuffer(payload, np.uint8).ctypes.data
    offsets = [array.ctypes.data - begin for array in arrays]
    ends = (offset + array.nbytes for offset, array in zip(offsets, arrays, strict=True))
    return layout_of(value, offsets, max(ends))


class CachedEncoder:
    """Encodes values as :func:`sapwood.comm.values.encode` does, sooner when they come again.

    In dictionaries of arrays and numbers that have the same layout as before, only the numbers and
    the bytes of the arrays differ.

    Example:
        >>> encoder = CachedEncoder()
        >>> [encoder.encode({"a": np.arange(n, n + 2.0), "n": n}).body[-1] for n in range(3)]
        [0, 1, 2]
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        # Layout of the last value, what its body says of each array, and where they lie. Replaced
        # as a whole: several threads may encode.
        self._known: tuple[ValueLayout, tuple[msgspec.msgpack.Ext, ...], list[int]]
        self._known = NO_LAYOUT, (), []

    def encode(self, value: Any) -> Encoded:
        """Turn a value into body and payload.

        Raises:
            DataValueError: As :func:`sapwood.comm.values.encode` does.
        """
        (names, kinds, fields, nbytes), described, offsets = self._known
        if (
            type(value) is not dict
            or tuple(map(type, value.values())) != kinds
            or tuple(value) != names
            or not names
            or not _NAMES.issuperset(map(type, value))  # a subclass may equal a name
        ):
            return self._encode_anew(value)
        plain, arrays = value.copy(), []
        for (name, dtype, shape, _, _), description in zip(fields, described, strict=True):
            array = plain[name]
            if array.dtype is not dtype or array.shape != shape:
                return self._encode_anew(value)
            arrays.append(array if array.flags.c_contiguous else np.ascontiguousarray(array))
            plain[name] = description
        try:
            body = _pack(plain)
        except (TypeError, OverflowError, ValueError):
            return self._encode_anew(value)  # which says what is wrong with it
        return Encoded(body, arrays, offsets, nbytes)

    def _encode_anew(self, value: Any) -> Encoded:
        encoded = values.encode(value)
        layout = layout_of(value, encoded.offsets, encoded.nbytes)
        # numpy has one object for each of these types, so identity distinguishes them.
        fits = all(np.dtype(dtype.type) is dtype for _, dtype, *_ in layout.arrays)
        if fits and layout.names and len(encoded.body) + _LONGEST_NUMBER * len(value) <= MAX_BODY:
            outline = values.outline(encoded.body)
            described = tuple(
                _Ext(values.EXT_ARRAY, _pack(outline[field.name])) for field in layout.arrays
            )
            self._known = layout, described, encoded.offsets
        return encoded
