"""How values travel: plain Python values and numpy arrays as msgpack plus raw buffers.

A value becomes a small *body* (msgpack) and a *payload*: the bytes of its arrays and of its long
texts, one after the other, each at a multiple of 64 bytes. In the body an array is an extension
that holds offset, dtype (byte order explicit) and shape. Nothing is pickled here: what would not
arrive as the same value of the same type is an error that names the type. What others have pickled
travels as :class:`Pickled`, which nothing here opens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from sapwood.comm import plain
from sapwood.comm.array_types import dtype_from, dtype_text
from sapwood.comm.plain import EXT_BYTES, EXT_TEXT
from sapwood.comm.shared_memory import ALIGNMENT
from sapwood.core import typed
from sapwood.core.errors import DataValueError, ProtocolError

EXT_ARRAY = 1
EXT_TUPLE = 2
EXT_SET = 3
EXT_COMPLEX = 4
EXT_SCALAR = 5
EXT_PICKLED = 8

LONG = 64 * 1024
"""Length from which bytes and texts are stored in the payload, as arrays are."""

MAX_DEPTH = 64
"""Nesting of lists, tuples and dictionaries in a value."""

_MALFORMED = (
    msgspec.DecodeError,
    ValueError,
    TypeError,
    OverflowError,
    SyntaxError,
    RecursionError,
    MemoryError,
)
"""What reading hostile bytes may raise; MemoryError is what a parser says of deep nesting."""

_Ext = msgspec.msgpack.Ext
_pack = msgspec.msgpack.Encoder().encode


Locate = Callable[[np.ndarray[Any, Any]], int]
"""Returns the offset of a C-contiguous array in a payload, bytes."""


class ArrayMeta(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Inside extension 1: where an array's bytes are in the payload, its type and its shape."""

    offset: int
    dtype: str
    shape: tuple[int, ...]


_meta_decode = typed.unpacker(ArrayMeta)


class Pickled:
    """A pickle on its way from a client to a runner, or back; ``code/pickling.py`` opens it.

    Attributes:
        data: The pickle.
        buffers: Its large buffers, arrays of bytes that travel beside it.
    """

    __slots__ = ("buffers", "data")

    def __init__(self, data: bytes, buffers: Sequence[np.ndarray[Any, Any]] = ()) -> None:
        self.data = data
        self.buffers = tuple(buffers)


class Encoded:
    """A value ready to travel.

    Attributes:
        body: msgpack of the value, arrays replaced by extensions.
        arrays: The arrays (C-contiguous) in payload order.
        offsets: Where each starts in the payload, bytes.
        nbytes: Size of the payload, bytes.
    """

    __slots__ = ("arrays", "body", "nbytes", "offsets")

    def __init__(
        self, body: bytes, arrays: list[np.ndarray[Any, Any]], offsets: list[int], nbytes: int
    ) -> None:
        self.body = body
        self.arrays = arrays
        self.offsets = offsets
        self.nbytes = nbytes

    def owned(self) -> Encoded:
        """Return the same value with copies of its arrays, so that the caller may change them.

        Bytes and texts cannot change, and are not copied.
        """
        arrays = [one if _is_constant(one) else one.copy() for one in self.arrays]
        return Encoded(self.body, arrays, self.offsets, self.nbytes)

    def write_into(self, target: memoryview) -> None:
        """Copy the payload into a buffer of at least ``nbytes`` bytes."""
        for array, offset in zip(self.arrays, self.offsets, strict=True):
            if array.nbytes:
                view = np.frombuffer(target, array.dtype, array.size, offset)
                view.reshape(array.shape)[...] = array

    def parts(self) -> list[tuple[int, memoryview]]:
        """Return where in the payload each array lies, and its bytes."""
        return [
            (offset, array.reshape(-1).view(np.uint8).data)
            for array, offset in zip(self.arrays, self.offsets, strict=True)
            if array.nbytes
        ]

    def message_payload(self) -> bytes:
        """Return a copy of the payload as bytes."""
        return self.arrays[0].tobytes() if len(self.arrays) == 1 else bytes(self.payload())

    def payload(self) -> bytes | bytearray | memoryview:
        """Return the payload as one buffer; a single array is not copied."""
        if not self.nbytes:
            return b""
        if len(self.arrays) == 1:
            return self.arrays[0].reshape(-1).view(np.uint8).data
        buffer = bytearray(self.nbytes)
        self.write_into(memoryview(buffer))
        return buffer


def _is_constant(array: np.ndarray[Any, Any]) -> bool:
    return isinstance(array.base, bytes)


def encode(value: Any, locate: Locate | None = None) -> Encoded:
    """Turn a value into body and payload.

    Args:
        value: None, bool, int, float, complex, str, bytes, numpy scalars and arrays, and
            lists, tuples, sets and dictionaries of them. Subclasses of these are other types.
        locate: Returns the offset of an array in the payload, where the caller lays
            the payload out; by default one array follows the other.

    Raises:
        DataValueError: A part of the value is of another type, an array holds objects, or what
            is not in arrays, bytes and texts takes more than :data:`plain.MAX_BODY` bytes.

    Example:
        >>> encoded = encode({"a": np.arange(3.0), "n": (1, 2)})
        >>> decode(encoded.body, encoded.payload())
        {'a': array([0., 1., 2.]), 'n': (1, 2)}
    """
    layout = _Layout(locate)
    try:
        body = _pack(layout.convert(value, 0))
    except (TypeError, OverflowError, ValueError) as error:
        raise DataValueError(f"a value cannot travel between processes: {error}") from error
    if len(body) > plain.MAX_BODY:
        raise plain.too_large(len(body))
    return Encoded(body, layout.arrays, layout.offsets, layout.nbytes)


def decode(body: bytes | memoryview, payload: bytes | bytearray | memoryview) -> Any:
    """Turn body and payload back into the value; arrays are views into ``payload``.

    Raises:
        ProtocolError: The body is malformed or points outside the payload.
    """
    try:
        if not len(payload):
            return decode_plain(body)
        return msgspec.msgpack.Decoder(ext_hook=partial(_read, memoryview(payload))).decode(body)
    except _MALFORMED as error:
        raise ProtocolError(f"a value from a peer is malformed: {error}") from error


def outline(body: bytes | memoryview) -> Any:
    """Return the value of a body with an :class:`ArrayMeta` in the place of each array.

    :func:`encode` takes such a value back: the result has arrays at the same offsets.

    Raises:
        ProtocolError: The body is malformed.

    Example:
        >>> outline(encode({"a": np.arange(3.0), "n": 1}).body)
        {'a': ArrayMeta(offset=0, dtype='<f8', shape=(3,)), 'n': 1}
    """
    try:
        return msgspec.msgpack.Decoder(ext_hook=_described).decode(body)
    except _MALFORMED as error:
        raise ProtocolError(f"a value from a peer is malformed: {error}") from error


def _described(code: int, data: memoryview) -> Any:
    if code == EXT_ARRAY:
        return _meta_decode(data)
    return _Ext(code, bytes(data)) if code in {EXT_BYTES, EXT_TEXT} else _no_arrays(code, data)


class _Layout:
    """Places arrays in the payload while a value is walked."""

    __slots__ = ("_locate", "arrays", "nbytes", "offsets")

    def __init__(self, locate: Locate | None = None) -> None:
        self._locate = locate
        self.arrays: list[np.ndarray[Any, Any]] = []
        self.offsets: list[int] = []
        self.nbytes = 0

    def convert(self, value: Any, depth: int) -> Any:
        convert = _CONVERTERS.get(type(value))
        if convert is not None:
            return value if convert is _as_is else convert(self, value, depth)
        if isinstance(value, np.generic):
            return _scalar(self, value, depth)
        raise _unknown(value)

    def add(self, array: np.ndarray[Any, Any], kind: int = EXT_ARRAY) -> msgspec.msgpack.Ext:
        if array.dtype.hasobject:
            raise DataValueError(
                "an array of Python objects cannot travel between processes",
                hint="convert it to numbers or fixed-length strings",
            )
        if array.size and not array.dtype.itemsize:
            raise DataValueError("an array of elements without a size cannot travel")
        # ascontiguousarray makes 0-d arrays 1-d, so the shape is taken from the original.
        flat = np.ascontiguousarray(array)
        if self._locate is not None:
            offset = self._locate(flat)
        else:
            offset = self.nbytes
            self.arrays.append(flat)
            self.offsets.append(offset)
            self.nbytes = offset + -(-flat.nbytes // ALIGNMENT) * ALIGNMENT
        meta = ArrayMeta(offset, dtype_text(array.dtype), array.shape)
        return _Ext(kind, _pack(meta))


def _as_is(_layout: _Layout, value: Any, _depth: int) -> Any:
    return value


def _unknown(value: Any, role: str = "value") -> DataValueError:
    kind = type(value)
    name = (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    return DataValueError(
        f"a {role} of type {name} cannot travel between processes",
        hint=_INSTEAD.get(kind)
        or (_EXPORTED if hasattr(kind, "__dlpack__") else "")
        or "use numbers, strings, bytes, numpy arrays, and lists, tuples, sets and "
        "dictionaries of them",
    )


def _deeper(depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise DataValueError(f"a value is nested more than {MAX_DEPTH} deep")
    return depth + 1


def _dictionary(layout: _Layout, value: dict[Any, Any], depth: int) -> Any:
    inner = _deeper(depth)
    if not _KEYS.issuperset(map(type, value)):
        for key in value:
            _check_key(key)
    return {key: layout.convert(item, inner) for key, item in value.items()}


def _check_key(key: Any) -> None:
    """Raise DataValueError unless a key arrives as it is."""
    if type(key) is tuple:
        for part in key:
            _check_key(part)
    elif type(key) not in _KEYS:
        raise _unknown(key, "key of a dictionary")


def _list(layout: _Layout, value: Sequence[Any], depth: int) -> Any:
    inner = _deeper(depth)
    return [layout.convert(item, inner) for item in value]


def _tuple(layout: _Layout, value: Sequence[Any], depth: int) -> Any:
    return _Ext(EXT_TUPLE, _pack(_list(layout, value, depth)))


def _set(layout: _Layout, value: set[Any], depth: int) -> Any:
    return _Ext(EXT_SET, _pack(_list(layout, list(value), depth)))


def _complex(_layout: _Layout, value: complex, _depth: int) -> Any:
    return _Ext(EXT_COMPLEX, _pack((value.real, value.imag)))


def _array(layout: _Layout, value: np.ndarray[Any, Any], _depth: int) -> Any:
    return layout.add(value)


def _memory_map(layout: _Layout, value: np.ndarray[Any, Any], _depth: int) -> Any:
    """Place a file that is mapped as the array that its bytes are."""
    return layout.add(value)


def _bytes(layout: _Layout, value: bytes, _depth: int) -> Any:
    if len(value) < LONG:
        return value
    return layout.add(np.frombuffer(value, np.uint8), EXT_BYTES)


def _pickled(layout: _Layout, value: Pickled, depth: int) -> Any:
    return _Ext(EXT_PICKLED, _pack(_list(layout, [value.data, *value.buffers], depth)))


def _text(layout: _Layout, value: str, _depth: int) -> Any:
    if len(value) < LONG:
        return value
    return layout.add(np.frombuffer(value.encode(), np.uint8), EXT_TEXT)


def _as_described(_layout: _Layout, value: ArrayMeta, _depth: int) -> Any:
    return _Ext(EXT_ARRAY, _pack(value))


def _scalar(layout: _Layout, value: np.generic, _depth: int) -> Any:
    array = np.asarray(value)
    if array.dtype.hasobject:
        return layout.add(array)
    if type(value) is not array.dtype.type or type(value) is np.record:
        raise _unknown(value)  # of a derived class
    return _Ext(EXT_SCALAR, _pack((dtype_text(array.dtype), array.tobytes())))


_Converter = Callable[[_Layout, Any, int], Any]

_CONVERTERS: dict[type, _Converter] = {
    type(None): _as_is,
    bool: _as_is,
    int: _as_is,
    float: _as_is,
    str: _text,
    bytes: _bytes,
    dict: _dictionary,
    list: _list,
    tuple: _tuple,
    set: _set,
    complex: _complex,
    np.ndarray: _array,
    np.memmap: _memory_map,
    Pickled: _pickled,
    ArrayMeta: _as_described,
}

_KEYS = frozenset({str, int, float, bool, bytes, type(None)})
"""Types of keys that arrive unchanged, also as parts of a key that is a tuple."""

_INSTEAD = {
    frozenset: "send a set",
    bytearray: "send bytes(…)",
    memoryview: "send bytes(…)",
    np.recarray: "send .view(numpy.ndarray): structured arrays travel",
    np.matrix: "send numpy.asarray(…)",
    np.ma.MaskedArray: "send .filled(…), or .data and .mask",
}
"""What to send in place of values that would arrive as something else."""


_EXPORTED = "send numpy.from_dlpack(…), which copies nothing that is in the memory of the processor"
"""The same for arrays of other packages, such as tensors."""


def _as_pickled(items: list[Any]) -> Pickled:
    data, *buffers = items or [None]
    if type(data) is not bytes or any(
        type(each) is not np.ndarray or each.dtype != np.uint8 or each.ndim != 1 for each in buffers
    ):
        raise ProtocolError("a peer sent a pickle that is none")
    return Pickled(data, buffers)


_COLLECTIONS: dict[int, Callable[[list[Any]], Any]] = {
    EXT_TUPLE: tuple,
    EXT_SET: set,
    EXT_PICKLED: _as_pickled,
}
"""What extensions become whose content is a list."""


def _read(payload: memoryview, code: int, data: memoryview) -> Any:
    """Read an extension; no object refers to itself here, so payloads are free at once."""
    if code == EXT_ARRAY:
        meta = _meta_decode(data)
        dtype = dtype_from(meta.dtype)
        count = 1
        for extent in meta.shape:
            if extent < 0:
                raise ProtocolError("a peer sent an array with a negative extent")
            count *= extent
        if meta.offset < 0 or meta.offset + count * dtype.itemsize > len(payload):
            raise ProtocolError("a peer sent an array that ends outside its payload")
        if count and not dtype.itemsize:
            raise ProtocolError("a peer sent an array of elements without a size")
        if not count:
            return np.zeros(meta.shape, dtype)
        flat = np.frombuffer(payload, dtype, count, meta.offset)
        return flat if len(meta.shape) == 1 else flat.reshape(meta.shape)
    if code in {EXT_BYTES, EXT_TEXT}:
        raw = bytes(_read(payload, EXT_ARRAY, data))
        return raw if code == EXT_BYTES else raw.decode()
    if code == EXT_SCALAR:
        text, item = msgspec.msgpack.decode(data, type=tuple[str, bytes])
        dtype = dtype_from(text)
        return np.frombuffer(item, dtype, 1)[0] if dtype.itemsize else np.zeros((), dtype)[()]
    if code == EXT_COMPLEX:
        return complex(*msgspec.msgpack.decode(data, type=tuple[float, float]))
    make = _COLLECTIONS.get(code)
    if make is not None:
        read = partial(_read, payload)
        return make(msgspec.msgpack.Decoder(list[Any], ext_hook=read).decode(data))
    raise ProtocolError(f"a peer sent an extension of unknown kind {code}")


_no_arrays = partial(_read, memoryview(b""))
decode_plain: Callable[[bytes | memoryview], Any] = msgspec.msgpack.Decoder(
    ext_hook=_no_arrays
).decode
"""As :func:`decode` without a payload, of a body that this program itself made: an error
with it is an error of msgspec."""
