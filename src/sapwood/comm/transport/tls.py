"""TCP with mutual TLS 1.3, on any loop that watches descriptors: for processes on many machines.

TCP is never used without TLS, and a peer is served only with a certificate of the same
authority, unless a protocol says so.

``tls_identity.py``
    Addresses of nodes, and the TLS contexts of their credentials.
``tls_port.py``
    A listening port, which several protocols share.
``tls_dial.py``
    The search for an address where a node answers.
``tls_connection.py``
    One connection: handshake, bytes, end.

Import these modules only where a link leaves the machine: ``ssl`` costs each process some MiB.
"""

from __future__ import annotations

import ssl

from sapwood.comm.loop import Loop
from sapwood.comm.transport.base import ConnectionHandler, Failed, Listener
from sapwood.comm.transport.tls_connection import HANDSHAKE_TIMEOUT, TlsConnection
from sapwood.comm.transport.tls_dial import Dial
from sapwood.comm.transport.tls_identity import connecting_context, parse_address
from sapwood.comm.transport.tls_port import Refused, TlsPort
from sapwood.core.errors import CommunicationError
from sapwood.security.credentials import Credentials


class TlsTransport:
    """Connects nodes for one protocol.

    Addresses are ``tls://NODEID@host:port`` (IPv6 in brackets). Several endpoints of one node,
    ``NODEID@host:port,host:port``, are tried side by side; the first whose handshake ends well is
    taken, and is the first to be tried the next time. To listen, ``host:port`` is enough.

    Args:
        credentials: What this node shows, and whom it believes.
        protocol: The protocol (ALPN); the other side must serve just this.
        refused: Told of peers that were not let in.
        handshake_timeout: Seconds that a peer has to connect, and as many for its handshake.

    Raises:
        ConfigurationError: The credentials cannot be used.
    """

    def __init__(
        self,
        credentials: Credentials,
        protocol: str,
        *,
        refused: Refused | None = None,
        handshake_timeout: float = HANDSHAKE_TIMEOUT,
    ) -> None:
        self._protocol = protocol
        self._refused = refused
        self._handshake_timeout = handshake_timeout
        self._answered: dict[str, tuple[str, int]] = {}
        self.renew(credentials)

    def renew(self, credentials: Credentials) -> None:
        """Use other credentials for the connections that are made from now on.

        Raises:
            ConfigurationError: The credentials cannot be used.
        """
        context = connecting_context(credentials)
        context.set_alpn_protocols([self._protocol])
        self._context = context
        self._credentials = credentials

    def listen(self, address: str, handler: ConnectionHandler, loop: Loop) -> Listener:
        """Accept connections at a separate port; port 0 takes a free one.

        Raises:
            CommunicationError: The address is malformed or cannot be used.
        """
        port = TlsPort(
            address,
            loop,
            self._credentials,
            refused=self._refused,
            handshake_timeout=self._handshake_timeout,
        )
        port.serve(self._protocol, handler)
        return port

    def connect(self, address: str, handler: ConnectionHandler, loop: Loop, failed: Failed) -> None:
        """Connect to a node; see :meth:`~sapwood.comm.transport.base.Transport.connect`."""
        try:
            node, endpoints = parse_address(address)
        except CommunicationError as error:
            loop.call_soon(failed, error)
            return
        known = self._answered.get(address)
        if known is not None:
            endpoints.sort(key=lambda endpoint: endpoint != known)

        def opened(sock: ssl.SSLSocket, endpoint: tuple[str, int]) -> None:
            self._answered[address] = endpoint
            TlsConnection(sock, handler, loop, node, initiator=True)

        dial = Dial(address, node, self._protocol, self._context, loop, opened, failed)
        dial.begin(endpoints, self._handshake_timeout)


def connect_unnamed(
    address: str,
    protocol: str,
    authority: bytes,
    handler: ConnectionHandler,
    loop: Loop,
    failed: Failed,
) -> None:
    """Connect to a node without a certificate of one's own, for a protocol that needs none.

    Args:
        address: ``NODEID@host:port,host:port``; the node must show a certificate of that name.
        protocol: The protocol (ALPN).
        authority: Certificate of the authority that is believed, PEM.
        handler: Hears of the connection.
        loop: Watches it.
        failed: Told why there is none.
    """
    try:
        node, endpoints = parse_address(address)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.hostname_checks_common_name = False
        context.load_verify_locations(cadata=authority.decode("ascii"))
        context.set_alpn_protocols([protocol])
    except (CommunicationError, OSError, ValueError) as error:
        loop.call_soon(failed, CommunicationError(f"cannot connect: {error}", where=address))
        return

    def opened(sock: ssl.SSLSocket, endpoint: tuple[str, int]) -> None:
        del endpoint
        TlsConnection(sock, handler, loop, node, initiator=True)

    dial = Dial(address, node, protocol, context, loop, opened, failed)
    dial.begin(endpoints, HANDSHAKE_TIMEOUT)
