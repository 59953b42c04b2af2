"""Abstract Unix sockets (Linux): addresses without files, ``abstract:name``.

A transport is one class with ``listen`` and ``connect``; each connection is passed to a handler and
written to. ``sapwood.plugins.transports`` has the protocols, ``sapwood.testing.transports`` the
checks that any transport must pass. Listener and connections are those of Unix sockets here, which
do with any stream socket; a transport of another kind brings its own.
"""

from __future__ import annotations

import socket

from sapwood.errors import CommunicationError
from sapwood.plugins.transports import (
    BACKLOG,
    ConnectionHandler,
    Failed,
    Listener,
    Loop,
    UnixConnection,
    UnixListener,
)


class AbstractTransport:
    """Connects processes of one user and one network namespace; the address is any name."""

    def listen(self, address: str, handler: ConnectionHandler, loop: Loop) -> Listener:
        """Accept connections at a name.

        Raises:
            CommunicationError: Another process listens there.
        """
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.bind(f"\0{address}")
            sock.listen(BACKLOG)
        except OSError as error:
            sock.close()
            raise CommunicationError(f"cannot listen: {error.strerror}", where=address) from error
        # Names have no permissions, but this listener refuses connections of other users.
        return UnixListener(sock, address, handler, loop)

    def connect(self, address: str, handler: ConnectionHandler, loop: Loop, failed: Failed) -> None:
        """Connect to a name: the handler gets the connection, or ``failed`` the failure, soon."""

        def begin() -> None:
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.connect(f"\0{address}")
            except OSError as error:
                sock.close()
                failure = CommunicationError(f"cannot connect: {error.strerror}", where=address)
                failure.__cause__ = error  # by a refusal Sapwood knows that the address is unused
                failed(failure)
            else:
                UnixConnection(sock, handler, loop, initiator=True)

        loop.call_soon(begin)
