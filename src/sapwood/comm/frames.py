"""Frames of the tree: messages and their payloads, in the framing of :mod:`sapwood.comm.framing`.

The header is one message; the kind has flags. With :data:`FLAG_SHARED` the payload is a reference
to shared memory in its place.
"""

from __future__ import annotations

from typing import Self

import msgspec

from sapwood.comm import messages
from sapwood.comm.framing import (
    FRAME_VERSION,
    MAGIC,
    PREFIX,
    PREFIX_SIZE,
    Buffers,
    FrameReader,
    framed,
)
from sapwood.comm.messages import AnyMessage
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import SharedRef
from sapwood.core import typed
from sapwood.core.errors import ProtocolError

FLAG_SHARED = 0x01

MAX_HEADER = 8 * 2**20
"""Bytes of one header: a message without its arrays."""

MAX_PAYLOAD = 64 * 2**30
"""Bytes of one payload that travels inline."""

MAX_GREETING = 64 * 1024
"""Bytes of a header from a peer that has not shown yet who it is; it may send no payload."""

MAX_REFERENCE = 256
"""Bytes of a reference to shared memory."""

_PLAIN = (MAGIC, FRAME_VERSION, 0)
_unpack_prefix = PREFIX.unpack_from
_ref_encode = msgspec.msgpack.Encoder().encode
_ref_decode = typed.unpacker(SharedRef)


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A decoded frame: a message, where its payload is, and its size on the wire, bytes."""

    message: AnyMessage
    payload: memoryview | None
    shared: SharedRef | None
    nbytes: int


def encode(message: AnyMessage, payload: Payload | None, *, share: bool) -> Buffers:
    """Return a frame as buffers to be written one after the other.

    Args:
        message: The header.
        payload: Bytes that belong to it.
        share: Whether the receiver can map this machine's shared memory.

    Raises:
        ProtocolError: The message is larger than :data:`MAX_HEADER`.
    """
    header = messages.encode(message)
    if len(header) > MAX_HEADER:
        raise ProtocolError(
            f"a message of {len(header)} bytes is over the limit of {MAX_HEADER}",
            hint="put bulk data into numpy arrays: they travel beside the message",
        )
    if payload is None or not payload.nbytes:
        return framed(0, header)
    if share and payload.ref is not None:
        return framed(FLAG_SHARED, header, _ref_encode(payload.ref))
    return framed(0, header, payload.view)


class FrameDecoder(FrameReader[Frame]):
    """Cuts frames out of bytes that arrive in pieces of any size.

    Args:
        max_payload: Largest inline payload that is accepted, bytes.
        max_header: Largest header that is accepted, bytes.

    Example:
        >>> decoder = FrameDecoder()
        >>> data = b"".join(encode(messages.Close(7), None, share=False))
        >>> decoder.feed(data[:5]), [frame.message for frame in decoder.feed(data[5:])]
        ([], [Close(stream=7)])
    """

    __slots__ = ()

    def __init__(self, max_payload: int = MAX_PAYLOAD, max_header: int = MAX_HEADER) -> None:
        super().__init__(max_header, max_payload)

    @classmethod
    def of_stranger(cls) -> Self:
        """Return a decoder that takes no more than a greeting until :meth:`trust`."""
        return cls(0, MAX_GREETING)

    def trust(self, max_payload: int = MAX_PAYLOAD) -> None:
        """Accept frames of full size: the peer has shown who it is."""
        self.max_payload = max_payload
        self.max_header = MAX_HEADER

    def feed(self, data: bytes | memoryview) -> list[Frame]:
        """Return the frames that are complete now."""
        size = len(data)
        if not self._buffer and size >= PREFIX_SIZE:
            # Nearly always a system call has read exactly one frame; the rest is done above.
            magic, version, flags, header_size, payload_size = _unpack_prefix(data)
            if (
                PREFIX_SIZE + header_size + payload_size == size
                and (magic, version, flags) == _PLAIN
                and header_size <= self.max_header
                and payload_size <= self.max_payload
            ):
                view = memoryview(data)
                end = PREFIX_SIZE + header_size
                payload = view[end:] if payload_size else None
                return [Frame(messages.decode(view[PREFIX_SIZE:end]), payload, None, size)]
        return super().feed(data)

    def limits(self, kind: int) -> tuple[int, int]:
        """Return how many bytes header and payload of a frame may have."""
        if kind & ~FLAG_SHARED:
            raise ProtocolError(f"a frame has unknown flags {kind:#x}")
        limit = min(MAX_REFERENCE, self.max_payload) if kind & FLAG_SHARED else self.max_payload
        return self.max_header, limit

    def read(self, kind: int, header: memoryview, payload: memoryview) -> Frame:
        """Return a message, and where its payload is."""
        message = messages.decode(header)
        total = PREFIX_SIZE + len(header) + len(payload)
        if not payload:
            return Frame(message, None, None, total)
        if kind & FLAG_SHARED:
            try:
                return Frame(message, None, _ref_decode(payload), total)
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
                raise ProtocolError(f"malformed shared-memory reference: {error}") from error
        return Frame(message, payload, None, total)
