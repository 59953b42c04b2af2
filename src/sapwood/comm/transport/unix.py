"""Unix stream sockets of the same user, on asyncio (uvloop in production)."""

import asyncio
import os
import socket
import struct
from collections.abc import Sequence
from typing import cast

from sapwood.comm.transport.base import ConnectionHandler, Listener
from sapwood.core.errors import CommunicationError

BACKLOG = 1024
"""Connections that may wait to be accepted."""

MAX_PATH = 107
"""Bytes of a Unix socket's path (``sun_path`` without its end)."""

_PEER_CREDENTIALS = struct.Struct("iII")


class UnixTransport:
    """Connects processes of one user on one machine; the address is a path."""

    async def listen(self, address: str, handler: ConnectionHandler) -> Listener:
        """Accept connections at a path that does not exist yet.

        Raises:
            CommunicationError: The path is too long or cannot be used.
        """
        if len(os.fsencode(address)) > MAX_PATH:
            raise CommunicationError(
                f"the path of a socket is longer than {MAX_PATH} bytes",
                where=address,
                hint="set TMPDIR or XDG_RUNTIME_DIR to a shorter folder",
            )
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_unix_server(
                lambda: _Socket(handler, initiator=False), address, backlog=BACKLOG
            )
        except OSError as error:
            raise CommunicationError(f"cannot listen: {error.strerror}", where=address) from error
        os.chmod(address, 0o600)  # noqa: PTH101 - one system call, at start-up
        return server

    async def connect(self, address: str, handler: ConnectionHandler) -> None:
        """Connect to a path.

        Raises:
            CommunicationError: Nobody listens there.
        """
        loop = asyncio.get_running_loop()
        try:
            await loop.create_unix_connection(lambda: _Socket(handler, initiator=True), address)
        except OSError as error:
            raise CommunicationError(f"cannot connect: {error.strerror}", where=address) from error


class _Socket(asyncio.Protocol):
    """Glue between an asyncio transport and a place."""

    def __init__(self, handler: ConnectionHandler, *, initiator: bool) -> None:
        self._handler = handler
        self._initiator = initiator
        self._number = -1
        self._transport: asyncio.Transport | None = None

    def connection_made(self, base: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", base)  # uvloop's own class does not inherit from it
        if not self._initiator and _peer_user(transport) != os.geteuid():
            transport.abort()
            return
        self._transport = transport
        transport.set_write_buffer_limits(high=2**20)
        self._number = self._handler.connection_opened(self, initiator=self._initiator)

    def data_received(self, data: bytes) -> None:
        self._handler.bytes_received(self._number, data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._number >= 0:
            reason = str(exc) if exc is not None else "the connection was closed"
            self._handler.connection_closed(self._number, reason)

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Queue buffers for sending, in order."""
        if self._transport is None:
            return
        for buffer in buffers:
            self._transport.write(buffer)

    def close(self) -> None:
        """Send what is queued, then close."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()


def _peer_user(transport: asyncio.Transport) -> int:
    """Return the user id of the process at the other end."""
    sock = transport.get_extra_info("socket")
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    _pid, uid, _gid = _PEER_CREDENTIALS.unpack(raw)
    return int(uid)
