"""Values without arrays: the part of the value codec that needs no numpy.

Agents use it: they pass arrays on without looking at them, and without numpy they start in
half the time. What it writes, ``values.decode`` reads, and the other way round as long as no
arrays, tuples, sets or complex numbers are in it.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from sapwood.core.errors import DataValueError, ProtocolError

MAX_BODY = 7 * 2**20
"""Bytes of a body. It travels in the header of a frame, beside what else the message says."""

encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
"""Turn None, bools, numbers, strings, bytes, lists and dictionaries into a body."""

_decode = msgspec.msgpack.Decoder().decode


def decode(body: bytes | memoryview) -> Any:
    """Turn a body back into the value.

    Raises:
        ProtocolError: It is malformed.

    Example:
        >>> decode(encode({"a": [1, 2.5, None]}))
        {'a': [1, 2.5, None]}
    """
    try:
        return _decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError(f"a value from a peer is malformed: {error}") from error


def too_large(size: int) -> DataValueError:
    """Return the error that a value has a body of so many bytes."""
    return DataValueError(
        f"a value cannot travel between processes: without its arrays it takes {size} bytes, "
        f"more than {MAX_BODY}",
        hint="put bulk data into numpy arrays: they travel beside the message",
    )
