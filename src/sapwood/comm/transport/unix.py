"""Unix stream sockets of the same user, on asyncio (uvloop in production)."""

import asyncio
import os
import socket
import struct

from sapwood.comm.transport.base import ConnectionHandler, Listener
from sapwood.comm.transport.stream_socket import StreamSocket
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
                lambda: StreamSocket(handler, initiator=False, accepts=_same_user),
                address,
                backlog=BACKLOG,
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
            await loop.create_unix_connection(
                lambda: StreamSocket(handler, initiator=True), address
            )
        except OSError as error:
            raise CommunicationError(f"cannot connect: {error.strerror}", where=address) from error


def _same_user(transport: asyncio.Transport) -> bool:
    return _peer_user(transport) == os.geteuid()


def _peer_user(transport: asyncio.Transport) -> int:
    """Return the user id of the process at the other end."""
    sock = transport.get_extra_info("socket")
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    _pid, uid, _gid = _PEER_CREDENTIALS.unpack(raw)
    return int(uid)
