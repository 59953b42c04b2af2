"""Connections that the library uses in the place of their link: with TLS, or Unix sockets."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Protocol, cast

from sapwood.comm.links import LinkConnection
from sapwood.comm.transport.unix import UnixConnection

Functions = tuple[Callable[[int], bytes], Callable[[bytes], int]]
"""Of a connection with TLS: one reads a record, the other sends all of some bytes or nothing."""


class SharedSocket(Protocol):
    """A connection whose socket another reader may use while nothing waits in the connection."""

    @property
    def functions(self) -> Functions | None:
        """Read and write; None where the socket itself does that."""

    @property
    def flushed(self) -> bool:
        """Whether it is open and the kernel has taken all that was written."""

    def fileno(self) -> int:
        """Return the socket's descriptor."""


class Tls(ctypes.Structure):
    """``struct tls``: the functions of a connection, and whether one of them was interrupted."""

    _fields_ = (
        ("read", ctypes.c_uint64),
        ("write", ctypes.c_uint64),
        ("lost", ctypes.c_uint64),
    )

    def use(self, functions: Functions | None) -> None:
        """Use functions from now on, which the caller keeps; None where there is no TLS."""
        self.read, self.write = map(id, functions) if functions is not None else (0, 0)
        self.lost = 0


def socket_of(carrier: LinkConnection) -> SharedSocket | None:
    """Return the socket of a link that is at rest; None of one that the library cannot use."""
    channel, connection = carrier.channel, carrier.connection
    if not channel.ready or channel.queued or not carrier.decoder.empty:
        return None
    if isinstance(connection, UnixConnection):
        usable = channel.link.same_machine
    else:
        usable = hasattr(connection, "functions")
    found = cast("SharedSocket", connection)
    return found if usable and found.flushed else None
