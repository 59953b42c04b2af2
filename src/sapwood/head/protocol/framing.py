"""Messages between a head and its callers: calls with answers, and notices, over one connection.

A message is a frame (:mod:`sapwood.comm.framing`) without a payload. At a Unix socket of the same
user, as the kernel says, a caller may do all that the head's user may. Over TLS it shows a
credential first, and may do what that allows; until then the head reads little, and waits not long.

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

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from sapwood.comm import framing
from sapwood.comm.framing import Buffers, MessageReader
from sapwood.core.errors import ErrorRecord

MAX_MESSAGE: Final = 64 * 2**20
"""Bytes of one message."""

NOTHING: Final = msgspec.Raw(msgspec.msgpack.encode(None))


class ServiceCall(msgspec.Struct, frozen=True):
    """A client wants something."""

    number: int
    name: str
    value: msgspec.Raw = NOTHING


class Reply(msgspec.Struct, frozen=True):
    """The outcome of a call."""

    number: int
    value: msgspec.Raw = NOTHING
    error: ErrorRecord | None = None


class Notice(msgspec.Struct, frozen=True):
    """What a client should know."""

    name: str
    value: Any = None


FROM_CALLER: Mapping[int, type[ServiceCall]] = {16: ServiceCall}
"""What a caller says, by the kind of its frame."""

FROM_HEAD: Mapping[int, type[Reply | Notice]] = {17: Reply, 18: Notice}
"""What a head says."""

_CODES: Mapping[type[msgspec.Struct], int] = {
    **{kind: code for code, kind in FROM_CALLER.items()},
    **{kind: code for code, kind in FROM_HEAD.items()},
}


def raw(value: Any) -> msgspec.Raw:
    """Return a value as a message carries it.

    Raises:
        ProtocolError: It cannot be written, or is too long.
    """
    return msgspec.Raw(framing.encoded(value, MAX_MESSAGE))


def packed(message: msgspec.Struct) -> Buffers:
    """Return the frame of a message.

    Raises:
        ProtocolError: It cannot be written, or is too long.
    """
    return framing.packed(_CODES, message, MAX_MESSAGE)


def reader_of_calls(limit: int = MAX_MESSAGE) -> MessageReader[ServiceCall]:
    """Return what reads the messages of a caller, each of some bytes at most."""
    return MessageReader(FROM_CALLER, limit)


def reader_of_answers() -> MessageReader[Reply | Notice]:
    """Return what reads the messages of a head."""
    return MessageReader(FROM_HEAD, MAX_MESSAGE)
