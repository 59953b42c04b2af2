"""Every message of the protocol: frozen, tagged, versioned.

Rules of evolution: a tag is never reused; a field is only added at the end and has a default;
what changes a meaning raises :data:`PROTOCOL_VERSION`. On the wire a message is a msgpack
array ``[tag, field, …]``; ``docs/reference/protocol.md`` gives the bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from sapwood.core.errors import ErrorRecord, ProtocolError
from sapwood.core.rankset import Ranges

PROTOCOL_VERSION = 1

WHOLE_STREAM = -1
"""Target of a message that goes to all members of its stream."""


class StreamSpec(msgspec.Struct, frozen=True, array_like=True):
    """What a stream is.

    Attributes:
        stream: Identifier, unique in its cluster and never reused.
        handler: What the agents do with a wave, for example ``map`` or ``echo``.
        members: Agents that take part.
        reduce: Reduction of each field of a contribution; empty for no reduction.
        context: What the handler belongs to, for example a run.
    """

    stream: int
    handler: str
    members: Ranges
    reduce: dict[str, str] = {}
    context: str = ""


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all messages."""


class Hello(Message, tag=1, frozen=True):
    """First message of the side that connects: who it is and what it speaks."""

    version: int
    cluster: str
    rank: int
    incarnation: int
    pid: int
    machine: str
    credential: bytes = b""


class Welcome(Message, tag=2, frozen=True):
    """Answer to an accepted :class:`Hello`."""

    version: int
    rank: int
    pid: int
    machine: str


class Refused(Message, tag=3, frozen=True):
    """Answer to a :class:`Hello` that is not accepted; the link closes."""

    reason: str


class Heartbeat(Message, tag=4, frozen=True):
    """Says that the sender lives; sent only when nothing else was."""


class Goodbye(Message, tag=5, frozen=True):
    """The sender closes the link on purpose."""

    reason: str = ""


class Open(Message, tag=10, frozen=True):
    """Opens a stream, downwards."""

    spec: StreamSpec
    target: int = WHOLE_STREAM


class Close(Message, tag=11, frozen=True):
    """Closes a stream, downwards; work that is under way for it is cancelled."""

    stream: int


class Down(Message, tag=12, frozen=True):
    """A wave on its way to the agents; the value is in body and payload."""

    stream: int
    wave: int
    attempt: int
    body: bytes
    confirmed: int = 0
    target: int = WHOLE_STREAM


class Up(Message, tag=13, frozen=True):
    """A contribution to a wave, of one agent or of all agents of a subtree."""

    stream: int
    wave: int
    attempt: int
    ranks: Ranges
    weight: float
    body: bytes


class Failed(Message, tag=14, frozen=True):
    """An agent could not contribute to a wave."""

    stream: int
    wave: int
    attempt: int
    rank: int
    error: ErrorRecord


class Lost(Message, tag=15, frozen=True):
    """Places below the sender are gone."""

    ranks: Ranges
    reason: str


class Joined(Message, tag=16, frozen=True):
    """A place below the sender is back (or new)."""

    rank: int
    incarnation: int
    pid: int


class Request(Message, tag=20, frozen=True):
    """An active message: calls a handler by name at a place and wants an answer."""

    source: int
    destination: int
    handler: str
    number: int
    body: bytes


class Reply(Message, tag=21, frozen=True):
    """The answer to a :class:`Request`: a value, or an error."""

    source: int
    destination: int
    number: int
    body: bytes
    error: ErrorRecord | None = None


AnyMessage = (
    Hello
    | Welcome
    | Refused
    | Heartbeat
    | Goodbye
    | Open
    | Close
    | Down
    | Up
    | Failed
    | Lost
    | Joined
    | Request
    | Reply
)

encode = msgspec.msgpack.Encoder().encode
_decode: Callable[[bytes | memoryview], AnyMessage] = msgspec.msgpack.Decoder(AnyMessage).decode


def decode(data: bytes | memoryview) -> AnyMessage:
    """Return the message that the bytes hold.

    Raises:
        ProtocolError: The bytes are no message of this protocol.

    Example:
        >>> decode(encode(Close(7)))
        Close(stream=7)
    """
    try:
        return _decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ProtocolError(f"malformed message: {error}") from error
