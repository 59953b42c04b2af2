"""Messages between a head and its callers: calls with answers, and notices, over one connection.

A message is its size (4 bytes, little-endian) and msgpack. At a Unix socket of the same user, as
the kernel says, a caller may do all that the head's user may. Over TLS it shows a credential
first, and may do what that allows; until then the head reads little, and waits not long.

::

    caller                         head
      ---- ServiceCall(1, "greet") -------->      over TLS, or to have less than all rights
      <--- Reply(1, challenge) ------
      ---- ServiceCall(2, "present") ------>
      <--- Reply(2, rights) ---------
      ---- ServiceCall(3, "nodes") -------->
      <--- Reply(3, [...]) ---------
      <--- Notice("places", ...) ---      what it did not ask for
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import msgspec

from sapwood.core import typed
from sapwood.core.errors import ErrorRecord, ProtocolError

MAX_MESSAGE: Final = 64 * 2**20
"""Bytes of one message."""

_SIZE = struct.Struct("<I")

NOTHING: Final = msgspec.Raw(msgspec.msgpack.encode(None))


class ServiceCall(msgspec.Struct, frozen=True, tag="call"):
    """A front end wants something."""

    number: int
    name: str
    value: msgspec.Raw = NOTHING


class Reply(msgspec.Struct, frozen=True, tag="reply"):
    """The outcome of a call."""

    number: int
    value: msgspec.Raw = NOTHING
    error: ErrorRecord | None = None


class Notice(msgspec.Struct, frozen=True, tag="notice"):
    """What a front end should know."""

    name: str
    value: Any = None


_encode = msgspec.msgpack.Encoder().encode
read_call: Callable[[bytes], ServiceCall] = typed.unpacker(ServiceCall)
read_answer: Callable[[bytes], Reply | Notice] = typed.unpacker(Reply | Notice)


def raw(value: Any) -> msgspec.Raw:
    """Return a value as a message carries it.

    Raises:
        ProtocolError: It cannot be written, or is too long.
    """
    try:
        body = _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ProtocolError(f"a message to or from the head cannot be written: {error}") from error
    if len(body) > MAX_MESSAGE:
        raise ProtocolError(f"a message to or from the head has more than {MAX_MESSAGE} bytes")
    return msgspec.Raw(body)


def packed(message: msgspec.Struct) -> bytes:
    """Return the bytes of a message.

    Raises:
        ProtocolError: It cannot be written, or is too long.
    """
    body = memoryview(raw(message))
    return _SIZE.pack(len(body)) + body


class Frames:
    """Divides a connection's bytes into messages.

    Attributes:
        limit: Bytes of a message at most.
    """

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self.limit = limit
        self._buffer = bytearray()

    def add(self, data: bytes) -> list[bytes]:
        """Take bytes in; return the messages that are whole now.

        Raises:
            ProtocolError: A message is too long.
        """
        self._buffer += data
        found: list[bytes] = []
        start = 0
        while len(self._buffer) - start >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._buffer, start)
            if size > self.limit:
                raise ProtocolError(f"a message has more than {self.limit} bytes")
            end = start + _SIZE.size + size
            if len(self._buffer) < end:
                break
            found.append(bytes(self._buffer[start + _SIZE.size : end]))
            start = end
        del self._buffer[:start]
        return found
