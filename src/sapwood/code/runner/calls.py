"""What an agent and its runner say to each other, one message a datagram.

The socket is a ``SOCK_SEQPACKET`` pair. Data that does not fit into a datagram is in shared
memory and only its reference travels.
"""

from collections.abc import Callable

import msgspec

from sapwood.code.transfers import DeviceTransfers
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import Content, SharedBlock, SharedRef, private_view
from sapwood.core import typed
from sapwood.core.errors import ErrorRecord

MAX_DATAGRAM = 128 * 1024
"""Bytes of one message; the default buffers of a Unix socket hold it."""

INLINE = 32 * 1024
"""Bytes of body or payload up to which they travel in the datagram."""


class Bulk(msgspec.Struct, frozen=True, array_like=True):
    """Bytes, here or in shared memory.

    Data in shared memory must be kept there until the other side has it: ``hold`` gets
    the block.

    Example:
        >>> held = []
        >>> small, large = Bulk.pack(b"few", held.append), Bulk.pack(bytes(INLINE + 1), held.append)
        >>> bytes(small.unpack()), len(large.unpack()), len(held)
        (b'few', 32769, 1)
        >>> held.pop().close()
    """

    inline: bytes = b""
    shared: SharedRef | None = None

    @classmethod
    def pack(cls, data: bytes | memoryview, hold: Callable[[SharedBlock], object]) -> "Bulk":
        """Return bytes: inline, or spilled into shared memory where they are too many."""
        if len(data) <= INLINE:
            return cls(bytes(data))
        return cls.spill(len(data), [(0, data)], hold)

    @classmethod
    def spill(cls, nbytes: int, content: Content, hold: Callable[[SharedBlock], object]) -> "Bulk":
        """Return parts, each with its offset, in shared memory."""
        block = SharedBlock(nbytes, content)
        hold(block)
        return cls(shared=block.ref(0, nbytes))

    @classmethod
    def pack_payload(cls, payload: Payload | None, hold: Callable[[SharedBlock], object]) -> "Bulk":
        """Return a payload: by reference where it is in shared memory, else its bytes."""
        if payload is None:
            return cls()
        if payload.ref is not None:
            return cls(shared=payload.ref)
        return cls.pack(payload.view, hold)

    def unpack(self) -> memoryview:
        """Return the bytes, to which only the caller may write."""
        if self.shared is None:
            return memoryview(bytearray(self.inline))
        return private_view(self.shared)


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
    """The outcome of a call.

    Attributes:
        number: Of the call.
        body: Encoded value.
        payload: Its arrays.
        seconds: Time inside the procedure.
        error: The error of a failed call, which has no value.
        transfers: The activity of devices meanwhile; None for none.
    """

    number: int
    body: Bulk
    payload: Bulk
    seconds: float
    error: ErrorRecord | None = None
    transfers: DeviceTransfers | None = None


encode = msgspec.msgpack.Encoder().encode
decode_call: Callable[[bytes | memoryview], Call] = typed.unpacker(Call)
decode_result: Callable[[bytes], Result] = typed.unpacker(Result)
