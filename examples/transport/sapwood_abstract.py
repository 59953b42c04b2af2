"""Abstract Unix sockets (Linux): addresses without files, ``abstract:name``.

A transport is one class with ``listen`` and ``connect``; each connection is told to a handler and
written to. ``sapwood.comm.transport.base`` has the protocols, ``sapwood.testing.transports`` the
checks that any transport must pass.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Sequence
from typing import cast

from sapwood.comm.transport.base import ConnectionHandler, Listener
from sapwood.core.errors import CommunicationError

_CREDENTIALS = struct.Struct("iII")


class AbstractTransport:
    """Connects processes of one user and one network namespace; the address is any name."""

    async def listen(self, address: str, handler: ConnectionHandler) -> Listener:
        """Accept connections at a name.

        Raises:
            CommunicationError: Somebody else listens there.
        """
        loop = asyncio.get_running_loop()
        try:
            return await loop.create_unix_server(
                lambda: _Connection(handler, initiator=False), f"\0{address}"
            )
        except OSError as error:
            raise CommunicationError(f"cannot listen: {error.strerror}", where=address) from error

    async def connect(self, address: str, handler: ConnectionHandler) -> None:
        """Connect to a name.

        Raises:
            CommunicationError: Nobody listens there.
        """
        loop = asyncio.get_running_loop()
        try:
            await loop.create_unix_connection(
                lambda: _Connection(handler, initiator=True), f"\0{address}"
            )
        except OSError as error:
            raise CommunicationError(f"cannot connect: {error.strerror}", where=address) from error


class _Connection(asyncio.Protocol):
    """One connection: what asyncio calls on one side, what Sapwood calls on the other."""

    def __init__(self, handler: ConnectionHandler, *, initiator: bool) -> None:
        self._handler = handler
        self._initiator = initiator
        self._transport: asyncio.Transport | None = None
        self._number = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Tell the handler, unless the peer is of another user: names have no permissions."""
        made = cast("asyncio.Transport", transport)
        if not self._initiator and _user_of(made) != os.geteuid():
            made.abort()
            return
        self._transport = made
        self._number = self._handler.connection_opened(self, initiator=self._initiator)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on."""
        self._handler.bytes_received(self._number, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the handler, once."""
        self._transport = None
        if self._number >= 0:
            self._handler.connection_closed(self._number, str(exc or "the connection was closed"))

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Queue buffers for sending, in order."""
        if self._transport is not None:
            self._transport.writelines(buffers)

    def close(self) -> None:
        """Send what is queued, then close."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()


def _user_of(transport: asyncio.Transport) -> int:
    sock = transport.get_extra_info("socket")
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])
