"""What a transport is: the one place where a protocol meets sockets."""

from collections.abc import Sequence
from typing import Protocol


class Connection(Protocol):
    """One open connection, as the transport gives it to a place."""

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Queue buffers for sending, in order; they must not change afterwards."""

    def close(self) -> None:
        """Send what is queued, then close."""

    def abort(self) -> None:
        """Close at once."""


class ConnectionHandler(Protocol):
    """What a place does with its connections."""

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Take a new connection in and return a number for it."""

    def bytes_received(self, number: int, data: bytes) -> None:
        """Take bytes in."""

    def connection_closed(self, number: int, reason: str) -> None:
        """Note that a connection ended."""


class Listener(Protocol):
    """Something that accepts connections until it is closed."""

    def close(self) -> None:
        """Accept no more."""


class Transport(Protocol):
    """Makes connections; the handler hears of each."""

    async def listen(self, address: str, handler: ConnectionHandler) -> Listener:
        """Accept connections at an address."""

    async def connect(self, address: str, handler: ConnectionHandler) -> None:
        """Connect to an address."""
