"""Frames: how messages and payloads are cut out of a stream of bytes.

::

    0      2         3       4             8                16
    +------+---------+-------+-------------+----------------+---------+---------+
    | "SW" | version | flags | header size |  payload size  | header  | payload |
    +------+---------+-------+-------------+----------------+---------+---------+

Sizes are little-endian. The header is one message. With :data:`FLAG_SHARED` the payload is a
reference to shared memory in its place. The decoder never believes a size beyond its bounds.
"""

from __future__ import annotations

import struct
from typing import Self

import msgspec

from sapwood.comm import messages
from sapwood.comm.messages import AnyMessage
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import SharedRef
from sapwood.core import typed
from sapwood.core.errors import ProtocolError
from sapwood.core.shown import shown

MAGIC = b"SW"
FRAME_VERSION = 1
FLAG_SHARED = 0x01

PREFIX = struct.Struct("<2sBBIQ")
PREFIX_SIZE = PREFIX.size

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


Buffers = list[bytes | memoryview]
"""An encoded frame."""


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
        return [PREFIX.pack(MAGIC, FRAME_VERSION, 0, len(header), 0) + header]
    if share and payload.ref is not None:
        ref = _ref_encode(payload.ref)
        prefix = PREFIX.pack(MAGIC, FRAME_VERSION, FLAG_SHARED, len(header), len(ref))
        return [prefix + header + ref]
    prefix = PREFIX.pack(MAGIC, FRAME_VERSION, 0, len(header), payload.nbytes)
    if payload.nbytes <= SMALL_PAYLOAD:
        return [b"".join((prefix, header, payload.view))]
    return [prefix + header, payload.view]


SMALL_PAYLOAD = 16 * 1024
"""Bytes up to which one copy is cheaper than a second buffer in the system call."""


class FrameDecoder:
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

    __slots__ = (
        "_buffer",
        "_flags",
        "_header_size",
        "_max_header",
        "_max_payload",
        "_need",
        "_payload_size",
    )

    def __init__(self, max_payload: int = MAX_PAYLOAD, max_header: int = MAX_HEADER) -> None:
        self._buffer = bytearray()
        self._max_payload = max_payload
        self._max_header = max_header
        self._header_size = -1
        self._payload_size = 0
        self._flags = 0
        self._need = PREFIX_SIZE

    @classmethod
    def of_stranger(cls) -> Self:
        """Return a decoder that takes no more than a greeting until :meth:`trust`."""
        return cls(0, MAX_GREETING)

    def trust(self, max_payload: int = MAX_PAYLOAD) -> None:
        """Accept frames of full size: the peer has shown who it is."""
        self._max_payload = max_payload
        self._max_header = MAX_HEADER

    @property
    def empty(self) -> bool:
        """Whether no part of a frame waits for the rest."""
        return not self._buffer

    def feed(self, data: bytes | memoryview) -> list[Frame]:
        """Return the frames that are complete now.

        Raises:
            ProtocolError: The bytes are not this protocol, or a size is over its bound.
        """
        size = len(data)
        if not self._buffer and size >= PREFIX_SIZE:
            # Nearly always a system call has read exactly one frame; other cases follow below.
            magic, version, flags, header_size, payload_size = _unpack_prefix(data)
            if (
                PREFIX_SIZE + header_size + payload_size == size
                and (magic, version, flags) == _PLAIN
                and header_size <= self._max_header
                and payload_size <= self._max_payload
            ):
                view = memoryview(data)
                end = PREFIX_SIZE + header_size
                payload = view[end:] if payload_size else None
                return [Frame(messages.decode(view[PREFIX_SIZE:end]), payload, None, size)]
        frames: list[Frame] = []
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._need:
                return frames
            # Take the buffer over: payloads stay views into it, without a copy.
            view = memoryview(self._buffer)
            self._buffer = bytearray()
        else:
            view = memoryview(data)
        position = self._take(view, frames)
        if position < len(view):
            rest = view[position:]
            self._buffer += rest
        return frames

    def _take(self, view: memoryview, frames: list[Frame]) -> int:
        """Append the complete frames of a buffer to a list; return where the rest begins."""
        position = 0
        size = len(view)
        while True:
            if self._header_size < 0:
                if size - position < PREFIX_SIZE:
                    self._need = PREFIX_SIZE
                    return position
                self._read_prefix(view, position)
            total = PREFIX_SIZE + self._header_size + self._payload_size
            if size - position < total:
                self._need = total
                return position
            start = position + PREFIX_SIZE
            end = start + self._header_size
            position += total
            frames.append(self._frame(view[start:end], view[end:position], total))
            self._header_size = -1

    def _read_prefix(self, view: memoryview, position: int) -> None:
        magic, version, flags, header_size, payload_size = _unpack_prefix(view, position)
        if magic != MAGIC or version != FRAME_VERSION:
            raise ProtocolError(
                "the peer does not speak this protocol",
                where=f"first bytes {shown(bytes(view[position : position + 4]))}",
            )
        if flags & ~FLAG_SHARED:
            raise ProtocolError(f"a frame has unknown flags {flags:#x}")
        limit = min(MAX_REFERENCE, self._max_payload) if flags & FLAG_SHARED else self._max_payload
        if header_size > self._max_header or payload_size > limit:
            raise ProtocolError(
                f"a frame announces {header_size} + {payload_size} bytes, over the limit of "
                f"{self._max_header} + {limit}"
            )
        self._header_size, self._payload_size, self._flags = header_size, payload_size, flags

    def _frame(self, header: memoryview, rest: memoryview, total: int) -> Frame:
        message = messages.decode(header)
        if not self._payload_size:
            return Frame(message, None, None, total)
        if self._flags & FLAG_SHARED:
            try:
                return Frame(message, None, _ref_decode(rest), total)
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
                raise ProtocolError(f"malformed shared-memory reference: {error}") from error
        return Frame(message, rest, None, total)
