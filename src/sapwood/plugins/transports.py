"""Transports of links: what a package registers as ``sapwood.transports``.

``sapwood.testing.transports`` has the checks that a transport must pass.
"""

from sapwood.comm.loop import Loop
from sapwood.comm.reactor import Reactor
from sapwood.comm.transport.base import (
    Connection,
    ConnectionFacts,
    ConnectionHandler,
    DescribedConnection,
    Failed,
    Listener,
    Transport,
)
from sapwood.comm.transport.unix import BACKLOG, UnixConnection, UnixListener

__all__ = [
    "BACKLOG",
    "Connection",
    "ConnectionFacts",
    "ConnectionHandler",
    "DescribedConnection",
    "Failed",
    "Listener",
    "Loop",
    "Reactor",
    "Transport",
    "UnixConnection",
    "UnixListener",
]
