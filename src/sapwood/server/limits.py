"""What one client, and all of them together, can take from an HTTP server."""

from __future__ import annotations

import msgspec


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of an HTTP server.

    Attributes:
        connections: Clients that may be there; for one more, the one that is idle longest goes.
        handshakes: Clients that may shake hands (TLS) at a time.
        handshake_seconds: Seconds that a handshake may take.
        header_bytes: Bytes of a request line and its headers.
        header_seconds: Seconds that they may take to come.
        idle_seconds: Seconds that a connection may be without a request.
        body_bytes: Bytes of the body of a request.
        body_seconds: Seconds that it may take to come, behind its headers.
        linger_seconds: Seconds for which the rest of a body is thrown away that was refused, so
            that its sender reads why.
        write_seconds: Seconds in which a client must read what waits for it: 48 KiB.
        requests: Requests that are worked at, streams among them.
    """

    connections: int = 400
    handshakes: int = 64
    handshake_seconds: float = 10.0
    header_bytes: int = 64 * 1024
    header_seconds: float = 10.0
    idle_seconds: float = 30.0
    body_bytes: int = 1024 * 1024
    body_seconds: float = 10.0
    linger_seconds: float = 2.0
    write_seconds: float = 20.0
    requests: int = 256
