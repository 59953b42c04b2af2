"""Links between places of different machines, but for those to the root: who dials and who listens.

A junction that has places of other machines below it does not listen for them itself: its node
does, on one port for all sessions, and hands each connection over before anything was said on it
(:class:`HandedConnection`, with the descriptor beside it). So the address of a junction is that of
its node, and is the same for the process that replaces it. The junction shakes hands.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import msgspec

from sapwood.comm.loop import Loop
from sapwood.comm.transport.base import ConnectionHandler, Failed
from sapwood.comm.transport.tls import TlsTransport
from sapwood.comm.transport.tls_connection import HANDSHAKE_TIMEOUT
from sapwood.comm.transport.tls_port import TlsPort
from sapwood.core import typed
from sapwood.core.failures import OUT_OF_DESCRIPTORS
from sapwood.core.topology import ROOT
from sapwood.security.credentials import Credentials

ANSWER_TIMEOUT = 3.0
"""Seconds that a junction of another machine has to answer, before the place above it is tried."""

HANDED_SIZE = 64 * 1024
"""Bytes of what comes with a connection, at most."""


class HandedConnection(msgspec.Struct, frozen=True):
    """What a node says of a connection that it hands over.

    Attributes:
        peer: The address of the other side, for messages to users.
        credentials: The node's present credentials.
    """

    peer: str
    credentials: Credentials


_encode = msgspec.msgpack.Encoder().encode
_decode: Callable[[bytes], HandedConnection] = typed.unpacker(HandedConnection)


def protocol_of(tree: str, rank: int) -> str:
    """Return what links to a place between machines are called (ALPN).

    Args:
        tree: The protocol of the whole tree.
        rank: The place.

    Example:
        >>> protocol_of("sapwood-tree/1/x1", 0), protocol_of("sapwood-tree/1/x1", 7)
        ('sapwood-tree/1/x1', 'sapwood-tree/1/x1/7')
    """
    return tree if rank == ROOT else f"{tree}/{rank}"


def hand_over(path: str, sock: socket.socket, peer: str, credentials: Credentials) -> None:
    """Give a connection to the junction that takes them at a path; the socket stays open.

    Raises:
        OSError: No process accepts it.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as way:
        way.settimeout(0)
        way.connect(path)
        socket.send_fds(way, [_encode(HandedConnection(peer, credentials))], [sock.fileno()])


class JunctionPort:
    """Where a junction takes the connections that its node hands over.

    Args:
        path: Its path; only the user may enter the folder.
        protocol: The protocol that is spoken.
        handler: Hears of the connections.
        loop: The loop.
        credentials: What the junction shows, until others come with a connection.
        refused: Told of peers that were not let in.

    Raises:
        OSError: It cannot be there.
    """

    def __init__(
        self,
        path: str,
        protocol: str,
        handler: ConnectionHandler,
        loop: Loop,
        credentials: Credentials,
        refused: Callable[[str, str], None],
    ) -> None:
        self._shown = credentials
        self._refused = refused
        self._port = TlsPort(None, loop, credentials, refused=refused)
        self._port.serve(protocol, handler)
        Path(path).unlink(missing_ok=True)  # the socket of the former process
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(0)
        self._socket.bind(path)
        loop.add_reader(self._socket.fileno(), self._readable)
        self._loop = loop

    def close(self) -> None:
        """Take no more connections."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
        self._port.close()

    def _readable(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._socket, HANDED_SIZE, 1)
        except OSError as error:
            if error.errno in OUT_OF_DESCRIPTORS:
                self._refused("", "this process has no descriptors left")
            return
        for descriptor in descriptors:
            sock = socket.socket(fileno=descriptor)
            try:
                handed = _decode(data)
            except (msgspec.MsgspecError, ValueError):
                sock.close()
                continue
            if handed.credentials != self._shown:
                self._shown = handed.credentials
                self._port.renew(handed.credentials)
            self._port.take(sock, handed.peer)


class MachineLinks:
    """Connects a place to places of other machines.

    Args:
        credentials: What its machine shows.
        tree: The protocol of the tree.
        loop: The loop.
    """

    def __init__(self, credentials: Credentials, tree: str, loop: Loop) -> None:
        self._credentials = credentials
        self._tree = tree
        self._loop = loop
        self._transports: dict[int, TlsTransport] = {}

    def connect(self, rank: int, address: str, handler: ConnectionHandler, failed: Failed) -> None:
        """Connect to a place; see :meth:`~sapwood.comm.transport.base.Transport.connect`."""
        transport = self._transports.get(rank)
        if transport is None:
            transport = self._transports[rank] = TlsTransport(
                self._credentials,
                protocol_of(self._tree, rank),
                handshake_timeout=ANSWER_TIMEOUT if rank != ROOT else HANDSHAKE_TIMEOUT,
            )
        transport.connect(address, handler, self._loop, failed)
