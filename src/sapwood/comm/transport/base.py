"""What a transport is: the one place where a protocol meets sockets.

A transport works on any :class:`~sapwood.comm.loop.Loop`; all calls, in both directions, happen on
the thread of that loop. It uses no coroutines: results come as calls.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from sapwood.comm.loop import Loop
from sapwood.core.errors import CommunicationError

Failed = Callable[[CommunicationError], None]
"""Told why a connection could not be made.

The cause of the error (``__cause__``) is a ``ConnectionRefusedError`` or a ``FileNotFoundError`` if
no process listens there any more, so that retries may end.
"""


class Connection(Protocol):
    """One open connection, as the transport gives it to a place."""

    @property
    def peer(self) -> str:
        """Node id in the certificate that the peer has shown; empty if it has shown none."""

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Queue buffers for sending, in order; they must not change afterwards."""

    def close(self) -> None:
        """Send what is queued, then close."""

    def abort(self) -> None:
        """Close at once."""


class ConnectionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a connection is made of.

    Attributes:
        address: The peer's address as text; empty if it has none.
        local_address: Where this side is.
        protocol: What protects it, for example ``TLSv1.3``; empty for nothing.
        certificate_end: When the certificate ends that the peer has shown, seconds since 1970; 0 if
            it has shown none.
        unsent: Bytes that were written and that the kernel has not taken.
        resent: TCP segments that the kernel has sent again, because they were not confirmed; None
        where
            there is no TCP.
    """

    address: str = ""
    local_address: str = ""
    protocol: str = ""
    certificate_end: float = 0.0
    unsent: int = 0
    resent: int | None = None


@runtime_checkable
class DescribedConnection(Protocol):
    """A connection that says what it is made of; a transport may do without."""

    def facts(self) -> ConnectionFacts:
        """Return what it is made of."""


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

    @property
    def address(self) -> str:
        """Where it can be reached: what :meth:`Transport.connect` takes."""

    def close(self) -> None:
        """Accept no more; accepted connections continue."""


class Transport(Protocol):
    """Makes connections; the handler hears of each."""

    def listen(self, address: str, handler: ConnectionHandler, loop: Loop) -> Listener:
        """Accept connections at an address.

        Raises:
            CommunicationError: The address is malformed or cannot be used.
        """

    def connect(self, address: str, handler: ConnectionHandler, loop: Loop, failed: Failed) -> None:
        """Connect to an address.

        Either ``handler.connection_opened`` or ``failed`` is called, exactly once, and never
        before this method has returned. A malformed address is a failure like any other.
        """
