"""A stream socket between an asyncio transport and a place; Unix and TCP sockets share it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

from sapwood.comm.transport.base import ConnectionHandler

WRITE_BUFFER = 2**20
"""Bytes that may wait in one connection before it counts as full."""


def anybody(_transport: asyncio.Transport) -> bool:
    """Accept every peer: whoever got here has shown a certificate."""
    return True


class StreamSocket(asyncio.Protocol):
    """One connection.

    Args:
        handler: Hears of it.
        initiator: Whether this side connected.
        accepts: Says whether a peer may stay; asked on the side that listens.
    """

    def __init__(
        self,
        handler: ConnectionHandler,
        *,
        initiator: bool,
        accepts: Callable[[asyncio.Transport], bool] = anybody,
    ) -> None:
        self._handler = handler
        self._initiator = initiator
        self._accepts = accepts
        self._number = -1
        self._transport: asyncio.Transport | None = None

    def connection_made(self, base: asyncio.BaseTransport) -> None:
        """Tell the handler."""
        transport = cast("asyncio.Transport", base)  # uvloop's own class does not inherit from it
        if not self._initiator and not self._accepts(transport):
            transport.abort()
            return
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER)
        self._number = self._handler.connection_opened(self, initiator=self._initiator)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on."""
        self._handler.bytes_received(self._number, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the handler."""
        self._transport = None  # what comes now is too late
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
