"""The protocols that a TLS client offers, read from its first message before the answer.

So one listening port can give each connection to the process, or the event loop, that serves its
protocol, and only that one speaks TLS with it. The names of protocols are sent in clear text in any
case (ALPN, RFC 7301, in the ClientHello of RFC 8446, section 4.1.2).
"""

from __future__ import annotations

LONGEST_HELLO = 16 * 1024
"""Bytes of a first message at most: one TLS record."""

WITHOUT_ALPN = ""
"""Stands for the protocol of a client that names none; the name of a protocol is never empty."""

_HANDSHAKE = 22
_CLIENT_HELLO = 1
_ALPN = 16
_RECORD_HEADER = 5


def offered_protocols(data: bytes) -> tuple[str, ...] | None:
    """Return the protocols that a client offers.

    Args:
        data: The beginning of what it sent.

    Returns:
        Their names, or :data:`WITHOUT_ALPN` alone if it names none. Nothing if it does not speak
        TLS. None if there must be more bytes to tell.

    Example:
        >>> offered_protocols(b"GET / HTTP/1.1")
        ()
        >>> offered_protocols(bytes([22, 3, 1, 2])) is None
        True
    """
    if data[:1] and data[0] != _HANDSHAKE:
        return ()
    if len(data) < _RECORD_HEADER:
        return None
    size = int.from_bytes(data[3:5], "big")
    if size > LONGEST_HELLO:
        return ()
    if len(data) < _RECORD_HEADER + size:
        return None
    try:
        return _protocols(_Bytes(data[_RECORD_HEADER : _RECORD_HEADER + size]))
    except (EOFError, UnicodeDecodeError):
        return ()


def _protocols(record: _Bytes) -> tuple[str, ...]:
    if record.number(1) != _CLIENT_HELLO:
        return ()
    hello = record.vector(3)
    hello.skip(2 + 32)  # version, random
    hello.vector(1)  # session
    hello.vector(2)  # cipher suites
    hello.vector(1)  # compression
    extensions = hello.vector(2)
    while extensions.left:
        kind, content = extensions.number(2), extensions.vector(2)
        if kind == _ALPN:
            names = content.vector(2)
            found: list[str] = []
            while names.left:
                found.append(names.vector(1).rest().decode("ascii"))
            return tuple(found)
    return (WITHOUT_ALPN,)


class _Bytes:
    """Reads bytes from the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def rest(self) -> bytes:
        return self._take(self.left)

    def number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def vector(self, size: int) -> _Bytes:
        """A field with its length in front, in so many bytes."""
        return _Bytes(self._take(self.number(size)))

    def skip(self, size: int) -> None:
        self._take(size)

    def _take(self, size: int) -> bytes:
        if size > self.left:
            raise EOFError
        self._at += size
        return self._data[self._at - size : self._at]
