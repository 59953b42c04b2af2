"""Ports: where nodes reach the head and the roots of sessions, and where they reach each other."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from sapwood.comm.transport.base import ConnectionHandler, Listener
from sapwood.comm.transport.tls_port import Refused, TakeSocket, TlsPort
from sapwood.core.errors import ClosedError
from sapwood.core.extras import LazyModule
from sapwood.nodes.joining import JOIN_PROTOCOL, JoinServer
from sapwood.nodes.refusals import log_refusals
from sapwood.security.credentials import Credentials
from sapwood.session.between_machines import hand_over, protocol_of
from sapwood.session.member import tree_protocol
from sapwood.session.shared_reactor import SharedReactor

if TYPE_CHECKING:
    import psutil
else:
    psutil = LazyModule("psutil", "cluster")

ANY = ("0.0.0.0", "::")  # noqa: S104 - what listens there asks for certificates
"""Addresses that stand for all of a machine."""


ROOT_PATIENCE = 8.0
"""Seconds for which a client waits at the head's port for the root of a session that begins.

That is less than it gives the handshake, so it hears why there is none.
"""

_SESSION = "sapwood-session/2/"


def session_protocol(session: str) -> str:
    """Return what clients of a session speak with its root between machines (ALPN).

    Example:
        >>> session_protocol("5b9a9171")
        'sapwood-session/2/5b9a9171'
    """
    return _SESSION + session


class HeadPort:
    """A listening port with TLS.

    Args:
        listen: ``host:port``; port 0 takes a free one.
        loop: The loop.
        credentials: What the head shows.
        refused: Told of peers that were not let in; by default the log.

    Raises:
        CommunicationError: The port is taken, or the address is none of this machine.
    """

    def __init__(
        self,
        listen: str,
        loop: SharedReactor,
        credentials: Credentials,
        refused: Refused | None = None,
    ) -> None:
        listen = listen_address(listen)
        self._port = TlsPort(listen, loop, credentials, refused=refused or log_refusals)
        self._loop = loop
        self._node = credentials.node
        self._joining: JoinServer | None = None
        self._served: Listener | None = None
        self.addresses = _addresses_of(listen, self._port)

    @property
    def address(self) -> str:
        """Where nodes connect to."""
        return f"tls://{self._node}@{','.join(self.addresses)}"

    def serve(self, tree: str, handler: ConnectionHandler) -> None:
        """Give the links of a tree to whoever has its root."""
        self._served = self._port.serve(tree_protocol(tree), handler)

    def serve_joining(self, server: JoinServer) -> None:
        """Let machines join here."""
        self._joining = server
        self._port.serve(JOIN_PROTOCOL, server, certificate=False)

    def delegate(self, tree: str, take: TakeSocket, *, session: bool = False) -> Callable[[], None]:
        """Have the links of a tree served elsewhere; from any thread.

        Args:
            tree: The tree.
            take: Given each connection, on the thread of this port's loop.
            session: Whether it is the id of a session, whose clients are meant.

        Returns:
            A function that ends that.
        """
        protocol = session_protocol(tree) if session else tree_protocol(tree)
        end = self._port.delegate(protocol, take)
        if session:
            self._loop.call_soon_threadsafe(self._port.serve_held)
        return end

    def hold_clients(self, begins: Callable[[str], bool]) -> None:
        """Make clients of sessions wait whose roots have not connected yet.

        Args:
            begins: Whether the root of a session will be here soon; given its id.
        """

        def expected(protocol: str) -> bool:
            return protocol.startswith(_SESSION) and begins(protocol.removeprefix(_SESSION))

        self._port.hold(expected, ROOT_PATIENCE)

    @property
    def held(self) -> int:
        """Clients that wait for the root of a session."""
        return self._port.held

    def hand_over(self, protocol: str, take: TakeSocket) -> Callable[[], None]:
        """Serve connections of a protocol that is not a tree's elsewhere.

        See :meth:`~sapwood.comm.transport.tls_port.TlsPort.delegate`.
        """
        return self._port.delegate(protocol, take)

    def renew(self, credentials: Credentials) -> None:
        """Show other credentials from now on."""
        self._port.renew(credentials)

    def close(self) -> None:
        """Listen no more."""
        if self._joining is not None:
            self._joining.close()
        self._port.close()


class SessionRootPort:
    """Where nodes reach the root of a session: the head's port, but on the session's own loop.

    Args:
        addresses: Where the head listens, ``host:port`` each.
        delegate: Has the links of a tree given away by the head's port:
            :meth:`HeadPort.delegate`.
        loop: The session's loop.
        credentials: Returns what the root shows: that is renewed from time to time.
    """

    def __init__(
        self,
        addresses: tuple[str, ...],
        delegate: Callable[[str, TakeSocket], Callable[[], None]],
        loop: SharedReactor,
        credentials: Callable[[], Credentials],
    ) -> None:
        self._credentials = credentials
        self._shown = shown = credentials()
        self._port = TlsPort(None, loop, shown, refused=log_refusals)
        self._loop = loop
        self._delegate = delegate
        self._end: Callable[[], None] | None = None
        self.address = f"tls://{shown.node}@{','.join(addresses)}"

    def serve(self, tree: str, handler: ConnectionHandler) -> None:
        """Give the links of a tree to whoever has its root."""
        self._port.serve(tree_protocol(tree), handler)
        self._end = self._delegate(tree, self._take)

    def _take(self, sock: socket.socket, peer: str) -> None:
        """Have a connection served on the session's loop; on any thread."""
        try:
            self._loop.call_soon_threadsafe(self._serve, sock, peer)
        except ClosedError:
            sock.close()

    def _serve(self, sock: socket.socket, peer: str) -> None:
        current = self._credentials()  # it waits for nothing
        if current is not self._shown:
            self._shown = current
            self._port.renew(current)
        self._port.take(sock, peer)

    def close(self) -> None:
        """Take no more connections."""
        if self._end is not None:
            self._end()
        self._port.close()


class NodePort:
    """Where a node is reached by other nodes: their connections are for junctions of sessions.

    Args:
        listen: ``host:port``; port 0 takes a free one.
        loop: The loop of the daemon.
        credentials: What the node shows to those that are for no junction.

    Raises:
        CommunicationError: The port is taken, or the address is none of this machine.
    """

    def __init__(self, listen: str, loop: SharedReactor, credentials: Credentials) -> None:
        listen = listen_address(listen)
        self._port = TlsPort(listen, loop, credentials, refused=log_refusals)
        found = _addresses_of(listen, self._port)
        self.addresses = tuple(one for one in found if interface_of(one) != "lo") or found

    def delegate(
        self, tree: str, rank: int, path: str, credentials: Callable[[], Credentials]
    ) -> Callable[[], None]:
        """Have a junction get the connections that are for it.

        Args:
            tree: Its tree.
            rank: The junction.
            path: Where it takes them.
            credentials: Returns what it is to show.

        Returns:
            A function that ends that.
        """

        def take(sock: socket.socket, peer: str) -> None:
            try:
                hand_over(path, sock, peer, credentials())
            except OSError:  # it has not started, or has ended: clients get an error at once
                self._port.take(sock, peer)
            else:
                sock.close()

        return self._port.delegate(protocol_of(tree_protocol(tree), rank), take)

    def hand_over(self, protocol: str, take: TakeSocket) -> Callable[[], None]:
        """Serve connections of a protocol that is not a tree's elsewhere.

        See :meth:`~sapwood.comm.transport.tls_port.TlsPort.delegate`.
        """
        return self._port.delegate(protocol, take)

    def renew(self, credentials: Credentials) -> None:
        """Show other credentials from now on."""
        self._port.renew(credentials)

    def close(self) -> None:
        """Listen no more."""
        self._port.close()


def listen_address(listen: str) -> str:
    """Return where to listen on this machine, which may have no IPv4 addresses.

    The defaults name IPv4: all of its addresses, or the loopback address.

    Args:
        listen: ``host:port`` as the settings have it.

    Returns:
        The same, or with the IPv6 counterpart of an IPv4 address that this machine lacks.
    """
    host, _, port = listen.rpartition(":")
    own = own_addresses()
    of_four = [one for one in own if ":" not in one]
    of_six = [one for one in own if ":" in one]
    others = any(not one.startswith("127.") for one in of_four)
    if host == "0.0.0.0" and not others and set(of_six) - {"::1"}:  # noqa: S104 - see ANY
        return f"[::]:{port}"
    if host == "127.0.0.1" and not of_four and "::1" in of_six:
        return f"[::1]:{port}"
    return listen


def _addresses_of(listen: str, port: TlsPort) -> tuple[str, ...]:
    return addresses_of_port(listen, int(port.address.rpartition(":")[2]))


def addresses_of_port(listen: str, number: int) -> tuple[str, ...]:
    """Return where a port can be reached, ``host:port`` each.

    Args:
        listen: Where it listens, ``host:port``.
        number: The port that was taken.
    """
    host = listen.rpartition(":")[0].strip("[]")
    found = own_addresses() if host in ANY else [host]
    if host == "0.0.0.0":  # noqa: S104 - see ANY
        found = [one for one in found if ":" not in one]
    return tuple(f"[{one}]:{number}" if ":" in one else f"{one}:{number}" for one in found)


def own_addresses() -> list[str]:
    """Return the addresses of this machine's interfaces, those that others can reach first."""
    found: list[tuple[int, str]] = []
    up = {name for name, one in psutil.net_if_stats().items() if one.isup}
    for name, addresses in psutil.net_if_addrs().items():
        for one in addresses:
            if name not in up or one.family not in {socket.AF_INET, socket.AF_INET6}:
                continue
            address = one.address.partition("%")[0]
            if address.startswith("fe80:"):
                continue  # means something on its own link only
            loopback = address.startswith("127.") or address == "::1"
            found.append((2 if loopback else int(one.family == socket.AF_INET6), address))
    return [address for _, address in sorted(found, key=lambda one: one[0])]


def interface_of(address: str) -> str:
    """Return the network interface of this machine that has an address; empty for none.

    Args:
        address: ``host:port`` as text.

    Example:
        >>> interface_of("127.0.0.1:7700"), interface_of("[::ffff:127.0.0.1]:80")
        ('lo', 'lo')
        >>> interface_of("192.0.2.1:7700")
        ''
    """
    host = address.rpartition(":")[0].strip("[]").partition("%")[0].removeprefix("::ffff:")
    for name, addresses in psutil.net_if_addrs().items():
        if any(one.address.partition("%")[0] == host for one in addresses):
            return str(name)
    return ""
