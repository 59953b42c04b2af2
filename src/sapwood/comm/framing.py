"""The one framing of Sapwood's connections: how frames are cut out of a stream of bytes.

::

    0      2         3      4             8                16
    +------+---------+------+-------------+----------------+---------+---------+
    | "SW" | version | kind | header size |  payload size  | header  | payload |
    +------+---------+------+-------------+----------------+---------+---------+

Sizes are little-endian. The header is one message in msgpack. What a kind means, and the bounds of
both sizes, are the protocol's: the tree (:mod:`sapwood.comm.frames`), the calls of a head, a
session server and its clients, and machines that join. No size is believed beyond its bound, and
no memory is allocated for bytes that have not arrived.
"""

from __future__ import annotations

import struct
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from sapwood.core import typed
from sapwood.core.errors import ProtocolError
from sapwood.core.shown import shown

MAGIC: Final = b"SW"
FRAME_VERSION: Final = 1
"""Version of the layout above; each protocol also has its own version."""

PREFIX: Final = struct.Struct("<2sBBIQ")
PREFIX_SIZE: Final = PREFIX.size

SMALL_PAYLOAD: Final = 16 * 1024
"""Bytes up to which one copy is cheaper than a second buffer in the system call."""

PIECE: Final = 64 * 1024
"""Bytes that are read from a blocking socket at a time."""

Buffers = list[bytes | memoryview]
"""An encoded frame."""

T = TypeVar("T")
M = TypeVar("M", bound=msgspec.Struct)

_LAYOUT = (MAGIC, FRAME_VERSION)
_pack = PREFIX.pack
_unpack = PREFIX.unpack_from


def framed(kind: int, header: bytes, payload: bytes | memoryview = b"") -> Buffers:
    r"""Return a frame as buffers to be written one after the other.

    Example:
        >>> framed(7, b"header", b"payload")
        [b'SW\x01\x07\x06\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00headerpayload']
    """
    if not payload:
        return [_pack(MAGIC, FRAME_VERSION, kind, len(header), 0) + header]
    prefix = _pack(MAGIC, FRAME_VERSION, kind, len(header), len(payload))
    if len(payload) <= SMALL_PAYLOAD:
        return [b"".join((prefix, header, payload))]
    return [prefix + header, payload]


class FrameReader(Generic[T]):
    """Cuts frames out of bytes that arrive in pieces of any size.

    A protocol says what it makes of a frame in :meth:`read`, and which kinds it has in
    :meth:`limits`.

    Args:
        max_header: Bytes of a header at most.
        max_payload: Bytes of a payload at most.

    Attributes:
        max_header: Likewise; it may change between two calls of :meth:`feed`.
        max_payload: Likewise.
    """

    __slots__ = (
        "_buffer",
        "_header_size",
        "_kind",
        "_need",
        "_payload_size",
        "max_header",
        "max_payload",
    )

    def __init__(self, max_header: int, max_payload: int = 0) -> None:
        self.max_header = max_header
        self.max_payload = max_payload
        self._buffer = bytearray()
        self._header_size = -1
        self._payload_size = 0
        self._kind = 0
        self._need = PREFIX_SIZE

    @abstractmethod
    def read(self, kind: int, header: memoryview, payload: memoryview) -> T:
        """Return what a frame is; its views stay valid, and keep alive what came with it.

        Raises:
            ProtocolError: It is malformed.
        """
        raise NotImplementedError

    def limits(self, kind: int) -> tuple[int, int]:
        """Return how many bytes header and payload of a frame may have.

        Raises:
            ProtocolError: There is no such kind.
        """
        del kind
        return self.max_header, self.max_payload

    @property
    def empty(self) -> bool:
        """Whether no part of a frame waits for the rest."""
        return not self._buffer

    def feed(self, data: bytes | memoryview) -> list[T]:
        """Return the frames that are complete now.

        Raises:
            ProtocolError: The bytes are not this protocol, or a size is over its bound.
        """
        frames: list[T] = []
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
            self._buffer += view[position:]
        return frames

    def _take(self, view: memoryview, frames: list[T]) -> int:
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
            frames.append(self.read(self._kind, view[start:end], view[end:position]))
            self._header_size = -1

    def _read_prefix(self, view: memoryview, position: int) -> None:
        magic, version, kind, header_size, payload_size = _unpack(view, position)
        if (magic, version) != _LAYOUT:
            raise ProtocolError(
                "the peer does not speak this protocol",
                where=f"first bytes {shown(bytes(view[position : position + 4]))}",
                hint="use the same version of Sapwood on both sides",
            )
        max_header, max_payload = self.limits(kind)
        if header_size > max_header or payload_size > max_payload:
            raise ProtocolError(
                f"a frame announces {header_size} + {payload_size} bytes, over the limit of "
                f"{max_header} + {max_payload}"
            )
        self._header_size, self._payload_size, self._kind = header_size, payload_size, kind


class MessageReader(FrameReader[M]):
    """Reads frames whose kind says which message the header is.

    Args:
        kinds: The messages that the peer may send, by kind.
        max_header: Bytes of a message at most.
        max_payload: Bytes of a payload at most.

    Example:
        >>> class Greeting(msgspec.Struct):
        ...     name: str
        >>> reader = MessageReader({1: Greeting}, 100)
        >>> data = b"".join(packed({Greeting: 1}, Greeting("Ann"), 100))
        >>> reader.feed(data[:20]), reader.feed(data[20:])
        ([], [Greeting(name='Ann')])
    """

    __slots__ = ("_decoders", "_kinds")

    def __init__(self, kinds: Mapping[int, type[M]], max_header: int, max_payload: int = 0) -> None:
        super().__init__(max_header, max_payload)
        self._kinds = kinds
        self._decoders: dict[int, Callable[[memoryview], M]] = {}

    def limits(self, kind: int) -> tuple[int, int]:
        """Return how many bytes header and payload of a frame may have."""
        if kind not in self._kinds:
            raise ProtocolError(f"a message of the unknown kind {kind}")
        return self.max_header, self.max_payload

    def decoder(self, message: type[M]) -> Callable[[memoryview], M]:
        """Return what reads a message."""
        return typed.unpacker(message)

    def read(self, kind: int, header: memoryview, payload: memoryview) -> M:
        """Return the message of a frame."""
        del payload
        decode = self._decoders.get(kind)
        if decode is None:
            decode = self._decoders[kind] = self.decoder(self._kinds[kind])
        try:
            return decode(header)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
            raise ProtocolError(f"a malformed message of kind {kind}: {error}") from error


_encode = msgspec.msgpack.Encoder().encode


def packed(
    codes: Mapping[type[Any], int],
    message: msgspec.Struct,
    max_header: int,
    payload: bytes | memoryview = b"",
    encode: Callable[[Any], bytes] = _encode,
) -> Buffers:
    """Return the frame of a message.

    Args:
        codes: The kind of each message.
        message: The message.
        max_header: Bytes of it at most.
        payload: What travels behind it.
        encode: Encodes it.

    Raises:
        ProtocolError: It cannot be written, or is too long.
    """
    return framed(codes[type(message)], encoded(message, max_header, encode), payload)


def encoded(value: Any, max_header: int, encode: Callable[[Any], bytes] = _encode) -> bytes:
    """Return a value in msgpack.

    Raises:
        ProtocolError: It cannot be written, or is too long.
    """
    try:
        header = encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ProtocolError(f"a message cannot be written: {error}") from error
    if len(header) > max_header:
        raise ProtocolError(f"a message has more than {max_header} bytes")
    return header


class BlockingSocket(Protocol):
    """What :class:`SocketFrames` needs of a socket, plain or with TLS."""

    def settimeout(self, value: float | None, /) -> None:
        """Set the time after which a call fails."""

    def recv(self, size: int, /) -> bytes:
        """Return some bytes; none at the end."""

    def sendall(self, data: bytes, /) -> None:
        """Send all bytes."""


class SocketFrames(Generic[T]):
    """Frames over a blocking socket.

    Args:
        sock: The socket.
        reader: Reads what comes.
    """

    def __init__(self, sock: BlockingSocket, reader: FrameReader[T]) -> None:
        self._sock = sock
        self._reader = reader
        self._found: list[T] = []

    def send(self, buffers: Buffers) -> None:
        """Send a frame."""
        self._sock.sendall(b"".join(buffers))

    def receive(self, end: float) -> T:
        """Return the next frame.

        Args:
            end: Until when to wait, on the monotonic clock.

        Raises:
            TimeoutError: The peer is too slow.
            ConnectionResetError: It closed the connection before a frame was complete.
            ProtocolError: It broke the protocol.
        """
        while not self._found:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError("the peer is too slow")
            self._sock.settimeout(left)
            data = self._sock.recv(PIECE)
            if not data:
                where = "" if self._reader.empty else " in the middle of a message"
                raise ConnectionResetError(f"the peer closed the connection{where}")
            self._found += self._reader.feed(data)
        return self._found.pop(0)
