"""Values without arrays: the part of the value codec that needs no numpy.

Agents use it: they pass arrays on without looking at them, and without numpy they start in
half the time. What it writes, ``values.decode`` reads, and the other way round as long as no
arrays, tuples, sets or complex numbers are in it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from sapwood.core import typed
from sapwood.core.errors import DataValueError, ProtocolError

MAX_BODY = 7 * 2**20
"""Bytes of a body. It travels in the header of a frame, beside what else the message says."""

EXT_BYTES = 6
EXT_TEXT = 7
"""Extensions of bytes and texts that are too long for a body; their data is in the payload."""

encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
"""Turn None, bools, numbers, strings, bytes, lists and dictionaries into a body."""

_decode = msgspec.msgpack.Decoder().decode

_decode_place = typed.unpacker(tuple[int, str, tuple[int]])


def decode(body: bytes | memoryview, payload: memoryview | None = None) -> Any:
    """Turn a body back into the value.

    Args:
        body: The body.
        payload: The payload, in which long bytes and texts lie; without one they stay extensions.

    Raises:
        ProtocolError: It is malformed, or points outside the payload.

    Example:
        >>> decode(encode({"a": [1, 2.5, None]}))
        {'a': [1, 2.5, None]}
    """
    try:
        if payload is None:
            return _decode(body)
        return msgspec.msgpack.Decoder(ext_hook=partial(_long, payload)).decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError(f"a value from a peer is malformed: {error}") from error


def _long(payload: memoryview, code: int, data: memoryview) -> Any:
    """Return long bytes or a long text; other extensions stay what they are."""
    if code not in {EXT_BYTES, EXT_TEXT}:
        return msgspec.msgpack.Ext(code, bytes(data))
    offset, _dtype, (nbytes,) = _decode_place(data)
    if offset < 0 or nbytes < 0 or offset + nbytes > len(payload):
        raise ProtocolError("a peer sent bytes that end outside their payload")
    found = bytes(payload[offset : offset + nbytes])
    return found if code == EXT_BYTES else found.decode()


def check_body(body: bytes) -> bytes:
    """Return a body that fits into a message.

    Raises:
        DataValueError: It is too large.
    """
    if len(body) > MAX_BODY:
        raise too_large(len(body))
    return body


def too_large(size: int) -> DataValueError:
    """Return the error that a value has a body of so many bytes."""
    return DataValueError(
        f"a value cannot travel between processes: without its arrays it takes {size} bytes, "
        f"more than {MAX_BODY}",
        hint="put bulk data into numpy arrays: they travel beside the message",
    )
