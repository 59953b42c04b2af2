"""Values without arrays: the part of the value codec that needs no numpy.

Agents use it: they pass arrays on without looking at them, and without numpy they start in
half the time. What it writes, ``values.decode`` reads, and the other way round as long as no
arrays, tuples, sets or complex numbers are in it.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from sapwood.core.errors import ProtocolError

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
