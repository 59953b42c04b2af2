"""What an agent and its runner say to each other, one message a datagram.

The socket is a ``SOCK_SEQPACKET`` pair. What does not fit into a datagram lies in shared
memory and only its reference travels.
"""

from collections.abc import Callable

import msgspec

from sapwood.code.transfers import Transfers
from sapwood.comm.shared_memory import SharedRef
from sapwood.core import typed
from sapwood.core.errors import ErrorRecord

MAX_DATAGRAM = 128 * 1024
"""Bytes of one message; the default buffers of a Unix socket hold it."""

INLINE = 32 * 1024
"""Bytes of body or payload up to which they travel in the datagram."""


class Bulk(msgspec.Struct, frozen=True, array_like=True):
    """Bytes, here or in shared memory."""

    inline: bytes = b""
    shared: SharedRef | None = None


class Call(msgspec.Struct, frozen=True, array_like=True):
    """Run a procedure.

    Attributes:
        number: Counts the calls.
        procedure: Name in the runner's table.
        context: What the call belongs to.
        body: Encoded argument.
        payload: Its arrays.
        free: Inodes of blocks of earlier results that may be used again.
    """

    number: int
    procedure: str
    context: str
    body: Bulk
    payload: Bulk
    free: tuple[int, ...] = ()


class Result(msgspec.Struct, frozen=True, array_like=True):
    """What came of a call.

    Attributes:
        number: Of the call.
        body: Encoded value.
        payload: Its arrays.
        seconds: Time inside the procedure.
        error: What went wrong; then there is no value.
        transfers: What devices did meanwhile; None for nothing.
    """

    number: int
    body: Bulk
    payload: Bulk
    seconds: float
    error: ErrorRecord | None = None
    transfers: Transfers | None = None


encode = msgspec.msgpack.Encoder().encode
decode_call: Callable[[bytes | memoryview], Call] = typed.unpacker(Call)
decode_result: Callable[[bytes], Result] = typed.unpacker(Result)
