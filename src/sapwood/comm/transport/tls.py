"""TCP with mutual TLS 1.3, on any loop that watches descriptors: for processes on many machines.

TCP is never used without TLS, and a peer is served only with a certificate of the same
authority, unless a protocol says so. Certificates name nodes, not machines: whoever connects says
which node is meant, and the address only says where it may be found.

Import this module only where a link leaves the machine: ``ssl`` costs each process some MiB.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

from sapwood.comm.loop import Loop, Timer
from sapwood.comm.shared_memory import OUT_OF_DESCRIPTORS
from sapwood.comm.transport.base import (
    ConnectionFacts,
    ConnectionHandler,
    Failed,
    Listener,
)
from sapwood.comm.transport.client_hello import LONGEST_HELLO, offered_protocols
from sapwood.core.errors import CommunicationError, ConfigurationError
from sapwood.core.failures import start_thread
from sapwood.core.shown import shown
from sapwood.security.credentials import Credentials

BACKLOG = 1024
"""Connections that may wait to be accepted."""

HANDSHAKE_TIMEOUT = 10.0
"""Seconds that a peer has to connect, and as many for its TLS handshake."""

MAX_HANDSHAKES = 256
"""Peers of one port that may be in their handshake at a time; the others wait."""

HANDSHAKE_TURN = 1.0
"""Seconds after which a handshake is given up if others wait for its place."""

ACCEPT_TURN = 16
"""Connections that are accepted before others have their turn."""

ACCEPT_PAUSE = 0.1
"""Seconds until a process that had no descriptors left looks for connections again."""

UNHEARD_TIMEOUT = 10.0
"""Seconds after which a connection is broken whose peer's machine confirms nothing that was sent.

The kernel of a stopped process confirms; the kernel of a machine that is cut off does not, and
would be asked again for a quarter of an hour.
"""

STAGGER = 0.05
"""Seconds between the tries of a node's addresses, while none has answered."""

CLOSE_TIMEOUT = 10.0
"""Seconds that a connection that is being closed may take without any progress."""

RECORD = 16 * 1024
"""Bytes of a TLS record at most; one call reads no more."""

READ_SIZE = 256 * 1024
"""Bytes that are read before others have their turn."""

JOIN_SIZE = 64 * 1024
"""Bytes up to which small buffers are joined before they are encrypted."""

CHUNK = 256 * 1024
"""Bytes of a large buffer that one call encrypts."""

WRITE_SIZE = 1024 * 1024
"""Bytes that are written before others have their turn."""

MAX_NODE = 253
"""Characters of a node id: it is a DNS name in certificates."""

_TOTAL_RETRANS = slice(100, 104)
"""Where ``struct tcp_info`` of Linux has ``tcpi_total_retrans``."""

_OTHER_NAME = 62
"""What OpenSSL says of a certificate that is good, for another name: ``HOSTNAME_MISMATCH``."""

_NODE = re.compile(r"(?=.*[a-z])[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")

Refused = Callable[[str, str], None]
"""``refused(address, reason)`` receives each refused peer."""

TakeSocket = Callable[[socket.socket, str], None]
"""``take(socket, address)`` receives a connection without any bytes so far."""


def accepting_context(credentials: Credentials) -> ssl.SSLContext:
    """Return a new context for the side that listens.

    Raises:
        ConfigurationError: Certificate, key and authority are not what they should be.
    """
    context = _context(credentials, ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0  # links are long: no session is resumed, and nothing is left unread
    return context


def connecting_context(credentials: Credentials) -> ssl.SSLContext:
    """Return a new context for the side that connects; it checks the name of the other.

    Raises:
        ConfigurationError: Certificate, key and authority are not what they should be.
    """
    return _context(credentials, ssl.PROTOCOL_TLS_CLIENT)


def _context(credentials: Credentials, protocol: int) -> ssl.SSLContext:
    if not is_node(credentials.node):
        raise ConfigurationError(
            f"{shown(credentials.node)} is not a node id",
            where="TLS credentials",
            hint="a node id is a DNS name with a letter, such as n1.cluster.sapwood",
        )
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.hostname_checks_common_name = False
    try:
        with memory_file(credentials.certificate + b"\n" + credentials.key) as path:
            context.load_cert_chain(path, password=_refuse_password)
        context.load_verify_locations(cadata=credentials.authority.decode("ascii"))
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigurationError(
            f"cannot use certificate, key and authority: {_reason(error)}",
            where=f"TLS credentials of {credentials.node}",
            hint="they are PEM, the key is not encrypted and belongs to the certificate",
        ) from error
    return context


def is_unserved(error: CommunicationError) -> bool:
    """Whether a dialled node answers, but does not serve the protocol."""
    return isinstance(error.__cause__, _NotServedError)


def is_another(error: CommunicationError) -> bool:
    """Whether a node that was dialled is not there, but another one of the same authority."""
    cause = error.__cause__
    return isinstance(cause, ssl.SSLCertVerificationError) and cause.verify_code == _OTHER_NAME


def is_node(text: str) -> bool:
    """Return whether a text can be a node id.

    Example:
        >>> is_node("n1.grove.sapwood"), is_node("10.0.0.1"), is_node("*.sapwood")
        (True, False, False)
    """
    return len(text) <= MAX_NODE and _NODE.fullmatch(text) is not None


def parse_address(address: str) -> tuple[str, list[tuple[str, int]]]:
    """Return node id and places, host and port each, of ``tls://NODEID@host:port,host:port``.

    A place that begins with a slash is a Unix socket, whose other end leads to the node; it has
    port 0 (:func:`socket_place`).

    Raises:
        CommunicationError: It is not written so.

    Example:
        >>> parse_address("n1.grove.sapwood@[::1]:7000,localhost:7001")
        ('n1.grove.sapwood', [('::1', 7000), ('localhost', 7001)])
    """
    node, separator, places = address.removeprefix("tls://").rpartition("@")
    if not separator or not is_node(node.lower()):
        raise CommunicationError(
            "no address of a node", where=address, hint="write tls://NODEID@host:port"
        )
    return node.lower(), [_parse_place(place, address) for place in places.split(",")]


def socket_place(path: str) -> str:
    """Return how a Unix socket is written as a place of an address.

    Example:
        >>> place = socket_place("/run/a,b@c/head.sock")
        >>> place, parse_address(f"n1.grove.sapwood@{place}")[1]
        ('/run/a%2Cb%40c/head.sock', [('/run/a,b@c/head.sock', 0)])
    """
    return quote(path)


def _parse_place(place: str, address: str) -> tuple[str, int]:
    if place.startswith("/"):
        return unquote(place), 0
    host, separator, port = place.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    number = int(port) if port.isascii() and port.isdecimal() and len(port) < 6 else -1
    if bracketed:
        host = host[1:-1]
    if not separator or not host or bracketed != (":" in host) or not 0 <= number < 65536:
        raise CommunicationError(
            f"not HOST:PORT: {shown(place)}",
            where=address,
            hint="write host:port, an IPv6 host in brackets",
        )
    return host, number


class TlsTransport:
    """Connects nodes for one protocol.

    Addresses are ``tls://NODEID@host:port`` (IPv6 in brackets). Several places of one node,
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
        self._refused = refused or _ignore
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
            node, places = parse_address(address)
        except CommunicationError as error:
            loop.call_soon(failed, error)
            return
        known = self._answered.get(address)
        if known is not None:
            places.sort(key=lambda place: place != known)

        def opened(sock: ssl.SSLSocket, place: tuple[str, int]) -> None:
            self._answered[address] = place
            TlsConnection(sock, handler, loop, node, initiator=True)

        dial = _Dial(address, node, self._protocol, self._context, loop, opened, failed)
        dial.begin(places, self._handshake_timeout)


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
        node, places = parse_address(address)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.hostname_checks_common_name = False
        context.load_verify_locations(cadata=authority.decode("ascii"))
        context.set_alpn_protocols([protocol])
    except (CommunicationError, OSError, ValueError) as error:
        loop.call_soon(failed, CommunicationError(f"cannot connect: {error}", where=address))
        return

    def opened(sock: ssl.SSLSocket, place: tuple[str, int]) -> None:
        del place
        TlsConnection(sock, handler, loop, node, initiator=True)

    dial = _Dial(address, node, protocol, context, loop, opened, failed)
    dial.begin(places, HANDSHAKE_TIMEOUT)


class TlsPort:
    """One listening port, which several protocols share: ALPN tells them apart.

    Some of them may be served elsewhere, on another event loop or in another process
    (:meth:`delegate`): there a port that listens nowhere takes the connections (:meth:`take`).

    Args:
        address: ``host:port``, or the address of this node; port 0 takes a free one. None: it
            listens nowhere.
        loop: Watches the sockets.
        credentials: What this node shows, and whom it believes.
        refused: Told of each peer that was not let in: its address and why.
        handshake_timeout: Seconds that a handshake may take.
        max_handshakes: Peers that may be in their handshake at a time.

    Attributes:
        address: Where it can be reached: ``NODEID@host:port``; ``NODEID@`` if it listens nowhere.

    Raises:
        CommunicationError: The address is malformed or cannot be used.
        ConfigurationError: The credentials cannot be used.
    """

    def __init__(
        self,
        address: str | None,
        loop: Loop,
        credentials: Credentials,
        *,
        refused: Refused | None = None,
        handshake_timeout: float = HANDSHAKE_TIMEOUT,
        max_handshakes: int = MAX_HANDSHAKES,
    ) -> None:
        self._loop = loop
        self._refused = refused or _ignore
        self._handshake_timeout = handshake_timeout
        self._max_handshakes = max_handshakes
        self._served: dict[str, _Served] = {}
        self._elsewhere: dict[str, TakeSocket] = {}
        self._expected: Callable[[str], bool] | None = None
        self._patience = 0.0
        self._handshakes: dict[_Handshake | _Hello | _Held, float] = {}
        self._farewells: set[_Farewell] = set()
        self._timer: Timer | None = None
        self._closed = False
        self.renew(credentials)
        self._socket = socket.socket() if address is None else _listen_at(address)
        self.address = f"{credentials.node}@"
        if address is None:
            self._socket.close()
        else:
            self.address += _shown(self._socket.getsockname())
            loop.add_reader(self._socket.fileno(), self._readable)

    def serve(
        self, protocol: str, handler: ConnectionHandler, *, certificate: bool = True
    ) -> Listener:
        """Serve peers that speak a protocol, until what is returned is closed.

        Args:
            protocol: Its name: what peers offer by ALPN.
            handler: Hears of their connections.
            certificate: Whether a peer must show a certificate. Without it, the protocol itself
                must find out who the peer is. One that is shown is checked in any case.

        Raises:
            CommunicationError: The protocol is served already.
        """
        if protocol in self._served:
            raise CommunicationError(f"{protocol} is served already", where=self.address)
        served = _Served(self, protocol, handler, certificate=certificate)
        self._served[protocol] = served
        self._tell_context()
        return served

    def delegate(self, protocol: str, take: TakeSocket) -> Callable[[], None]:
        """Have the connections of a protocol served elsewhere; from any thread.

        Args:
            protocol: Its name: what peers offer by ALPN.
            take: Given each connection, on the thread of this port's loop, before anything was
                said on it. It owns the socket.

        Returns:
            A function that ends that.

        Raises:
            CommunicationError: The protocol is served already.
        """
        if protocol in self._served or protocol in self._elsewhere:
            raise CommunicationError(f"{protocol} is served already", where=self.address)
        self._elsewhere[protocol] = take

        def end() -> None:
            if self._elsewhere.get(protocol) is take:
                del self._elsewhere[protocol]

        return end

    def hold(self, expected: Callable[[str], bool], seconds: float) -> None:
        """Make peers wait for a protocol that will be served elsewhere soon.

        They count as peers in their handshake: where there are too many, the oldest makes room.

        Args:
            expected: Whether an unserved protocol will be served elsewhere soon.
            seconds: For which a peer waits. After that it is answered here.
        """
        self._expected, self._patience = expected, seconds

    def serve_held(self) -> None:
        """Hand over those that waited for what is served elsewhere now."""
        for held in [one for one in self._handshakes if isinstance(one, _Held)]:
            take = self._taker(held.protocols)
            if take is not None:
                self._left(held)
                take(held.end(), held.peer)

    @property
    def held(self) -> int:
        """Peers that wait for a protocol."""
        return sum(isinstance(one, _Held) for one in self._handshakes)

    def take(self, sock: socket.socket, peer: str) -> None:
        """Serve a connection that another port has accepted.

        Args:
            sock: On which nothing was read yet.
            peer: Its address as text.
        """
        if self._closed:
            sock.close()
        elif self._turn_left() > 0:
            sock.close()
            self._refused(peer, "too many peers shake hands at once")
        else:
            self._shake_hands(sock, peer)

    def renew(self, credentials: Credentials) -> None:
        """Use other credentials of this node for the connections that are made from now on.

        Raises:
            ConfigurationError: The credentials cannot be used.
        """
        self._context = accepting_context(credentials)
        self._tell_context()

    def close(self) -> None:
        """Accept no more, and end handshakes; accepted connections continue."""
        self._closed = True
        self._served.clear()
        self._elsewhere.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
        for handshake in list(self._handshakes):
            handshake.end().close()
        self._handshakes.clear()
        for farewell in list(self._farewells):
            farewell.end()

    def forget(self, served: _Served) -> None:
        """Serve a protocol no more."""
        if self._served.get(served.protocol) is served:
            del self._served[served.protocol]
            self._tell_context()

    def _tell_context(self) -> None:
        """Tell TLS which protocols there are, and whether one takes peers without certificate."""
        self._context.set_alpn_protocols([*self._served])
        everybody = all(served.certificate for served in self._served.values())
        self._context.verify_mode = ssl.CERT_REQUIRED if everybody else ssl.CERT_OPTIONAL

    # --- accepting -------------------------------------------------------------------------------

    def _pause(self, seconds: float) -> None:
        """Leave further peers waiting: no slot is free, and they cannot be refused."""
        if self._timer is None:
            self._loop.remove_reader(self._socket.fileno())
            self._timer = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._loop.add_reader(self._socket.fileno(), self._readable)

    def _readable(self) -> None:
        for _ in range(ACCEPT_TURN):
            if self._socket.fileno() < 0 or not self._has_room():
                return
            try:
                sock, name = self._socket.accept()
            except OSError as error:
                if error.errno in OUT_OF_DESCRIPTORS:
                    self._pause(ACCEPT_PAUSE)
                return  # else there are no more of them
            self._greet(sock, _shown(name))

    def _has_room(self) -> bool:
        """Whether one more handshake may begin; else look again when it may."""
        left = self._turn_left()
        if left > 0:
            self._pause(left)
        return left <= 0

    def _turn_left(self) -> float:
        """Return after how many seconds one more handshake may begin; the oldest makes room."""
        if len(self._handshakes) < self._max_handshakes:
            return 0.0
        oldest, begun = next(iter(self._handshakes.items()))
        left = HANDSHAKE_TURN - (self._loop.time() - begun)
        if left <= 0:
            oldest.fail(TimeoutError("others wait, and it has not finished its handshake"))
        return left

    def _greet(self, raw: socket.socket, peer: str) -> None:
        """Read which protocol a peer wants, if it may be served elsewhere."""
        if not self._elsewhere and self._expected is None:
            self._shake_hands(raw, peer)
            return
        raw.settimeout(0)
        hello = _Hello(raw, self._loop, self._handshake_timeout)
        self._handshakes[hello] = self._loop.time()
        hello.begin(partial(self._heard, hello, peer), partial(self._unheard, hello, peer))

    def _heard(self, hello: _Hello, peer: str, protocols: tuple[str, ...]) -> None:
        self._left(hello)
        take = self._taker(protocols)
        if take is not None:
            take(hello.sock, peer)
        elif self._expected is not None and any(map(self._expected, protocols)):
            held = _Held(hello.sock, peer, protocols)
            self._handshakes[held] = self._loop.time()
            held.begin(
                self._loop.call_later(self._patience, self._unserved, held),
                partial(self._unheard, held, peer),
            )
        else:
            self._shake_hands(hello.sock, peer)

    def _taker(self, protocols: tuple[str, ...]) -> TakeSocket | None:
        """Return who serves one of some protocols elsewhere."""
        found = (self._elsewhere.get(protocol) for protocol in protocols)
        return next((take for take in found if take is not None), None)

    def _unserved(self, held: _Held) -> None:
        """Refuse a peer whose awaited protocol is not served."""
        self._left(held)
        self._shake_hands(held.end(), held.peer)

    def _unheard(self, waiting: _Hello | _Held, peer: str, error: OSError) -> None:
        self._left(waiting)
        waiting.sock.close()
        self._refused(peer, _reason(error))

    def _shake_hands(self, raw: socket.socket, peer: str) -> None:
        try:
            _prepare(raw)
            sock = self._context.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
        except (OSError, ValueError) as error:  # it is gone already
            raw.close()
            self._refused(peer, _reason(error))
            return
        handshake = _Handshake(sock, self._loop, self._handshake_timeout)
        self._handshakes[handshake] = self._loop.time()
        handshake.begin(
            partial(self._finished, handshake, peer), partial(self._failed, handshake, peer)
        )

    def _left(self, handshake: _Handshake | _Hello | _Held) -> None:
        """A handshake is over: there is room again."""
        full = len(self._handshakes) >= self._max_handshakes
        self._handshakes.pop(handshake, None)
        if full:
            self._go_on()

    def _failed(self, handshake: _Handshake, peer: str, error: OSError) -> None:
        self._left(handshake)
        self._refuse(handshake.sock, peer, _reason(error))

    def _finished(self, handshake: _Handshake, peer: str) -> None:
        self._left(handshake)
        sock = handshake.sock
        protocol, node = sock.selected_alpn_protocol(), node_of(sock)
        served = self._served.get(protocol or "")
        if served is None:
            self._refuse(sock, peer, "it speaks none of the protocols that are served here")
        elif node is None:
            self._refuse(sock, peer, "its certificate does not name one node")
        elif served.certificate and not node:
            self._refuse(sock, peer, "it shows no certificate")
        else:
            TlsConnection(sock, served.handler, self._loop, node, initiator=False)

    def _refuse(self, sock: ssl.SSLSocket, peer: str, reason: str) -> None:
        """Turn a peer away; what TLS tells it should arrive."""
        if len(self._farewells) < self._max_handshakes:
            farewell = _Farewell(sock, self._loop, HANDSHAKE_TURN)
            self._farewells.add(farewell)
            farewell.begin(partial(self._farewells.discard, farewell))
        else:
            sock.close()
        self._refused(peer, reason)


class _Served:
    """A protocol that a port serves: a listener."""

    def __init__(
        self, port: TlsPort, protocol: str, handler: ConnectionHandler, *, certificate: bool
    ) -> None:
        self.address = port.address
        self.protocol = protocol
        self.handler = handler
        self.certificate = certificate
        self._port = port

    def close(self) -> None:
        """Serve it no more; connections and the port continue."""
        self._port.forget(self)


# --- before there is a connection -----------------------------------------------------------------


class _Hello:
    """Waits until a peer has said what it wants; what it said stays unread.

    Args:
        sock: The connected socket.
        loop: Watches it.
        timeout: Seconds that it may take.
    """

    def __init__(self, sock: socket.socket, loop: Loop, timeout: float) -> None:
        self.sock = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._timeout = timeout
        self._seen = -1
        self._timer: Timer | None = None
        self._done: Callable[[tuple[str, ...]], None] = _ignore_protocols
        self._failed: Callable[[OSError], None] = _ignore_one

    def begin(
        self, done: Callable[[tuple[str, ...]], None], failed: Callable[[OSError], None]
    ) -> None:
        """Begin; one of the two is called when it is over: ``done`` with the protocols."""
        self._done, self._failed = done, failed
        late = TimeoutError(f"it said nothing within {self._timeout:g} s")
        self._timer = self._loop.call_later(self._timeout, self.fail, late)
        self._loop.add_reader(self._fd, self._readable)

    def end(self) -> socket.socket:
        """Stop silently; return the socket."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._loop.remove_reader(self._fd)
        return self.sock

    def fail(self, error: OSError) -> None:
        """End it without success."""
        self.end()
        self._failed(error)

    def _readable(self) -> None:
        try:
            data = self.sock.recv(LONGEST_HELLO + 64, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError as error:
            self.fail(error)
            return
        protocols = offered_protocols(data)
        if protocols is None and len(data) > self._seen and data:
            self._seen = len(data)  # the kernel tells again when there is more, or at the end
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(data) + 1)
            return
        if protocols is None:
            self.fail(ConnectionResetError("it ended the connection"))
            return
        self.end()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        self._done(protocols)


class _Held:
    """A peer that waits until its protocol is served; its bytes stay unread.

    Args:
        sock: The connected socket.
        peer: Its address as text.
        protocols: What it offers.
    """

    def __init__(self, sock: socket.socket, peer: str, protocols: tuple[str, ...]) -> None:
        self.sock = sock
        self.peer = peer
        self.protocols = protocols
        self._timer: Timer | None = None
        self._failed: Callable[[OSError], None] = _ignore_one

    def begin(self, timer: Timer, failed: Callable[[OSError], None]) -> None:
        """Begin; ``failed`` is called if it has to make room."""
        self._timer, self._failed = timer, failed

    def end(self) -> socket.socket:
        """Stop silently; return the socket."""
        if self._timer is not None:
            self._timer.cancel()
        return self.sock

    def fail(self, error: OSError) -> None:
        """End it without success."""
        self.end()
        self._failed(error)


class _Handshake:
    """A handshake under way.

    Args:
        sock: The connected socket.
        loop: Watches it.
        timeout: Seconds that it may take.
    """

    def __init__(self, sock: ssl.SSLSocket, loop: Loop, timeout: float) -> None:
        self.sock = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._timeout = timeout
        self._timer: Timer | None = None
        self._reading = self._writing = False
        self._done: Callable[[], None] = _nothing
        self._failed: Callable[[OSError], None] = _ignore_one

    def begin(self, done: Callable[[], None], failed: Callable[[OSError], None]) -> None:
        """Begin; one of the two is called when it is over, perhaps at once."""
        self._done, self._failed = done, failed
        late = TimeoutError(f"its handshake took longer than {self._timeout:g} s")
        self._timer = self._loop.call_later(self._timeout, self.fail, late)
        self._step()

    def end(self) -> ssl.SSLSocket:
        """Stop silently; return the socket."""
        if self._timer is not None:
            self._timer.cancel()
        self._watch(reading=False, writing=False)
        return self.sock

    def fail(self, error: OSError) -> None:
        """End it without success."""
        self.end()
        self._failed(error)

    def _step(self) -> None:
        try:
            self.sock.do_handshake()
        except ssl.SSLWantReadError:
            self._watch(reading=True, writing=False)
        except ssl.SSLWantWriteError:
            self._watch(reading=False, writing=True)
        except OSError as error:  # ssl.SSLError and its kinds are OSErrors
            self.fail(error)
        else:
            self.end()
            self._done()

    def _watch(self, *, reading: bool, writing: bool) -> None:
        if reading != self._reading:
            self._reading = reading
            if reading:
                self._loop.add_reader(self._fd, self._step)
            else:
                self._loop.remove_reader(self._fd)
        if writing != self._writing:
            self._writing = writing
            if writing:
                self._loop.add_writer(self._fd, self._step)
            else:
                self._loop.remove_writer(self._fd)


class _Farewell:
    """The end of a socket: sent bytes should arrive, so received bytes are read and dropped.

    A socket that is closed while bytes wait in it resets its connection, and the other side may
    lose what it has not read yet.

    Args:
        sock: The socket; nothing more is written to it.
        loop: Watches it.
        timeout: Seconds that the other side has to end.
    """

    def __init__(self, sock: ssl.SSLSocket, loop: Loop, timeout: float) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._over: Callable[[], None] = _nothing
        self._timer = loop.call_later(timeout, self.end)

    def begin(self, over: Callable[[], None]) -> None:
        """Say that nothing more comes, and wait for the same."""
        self._over = over
        self._loop.add_reader(self._fd, self._readable)
        with contextlib.suppress(OSError):  # it is gone: reading says so
            self._socket.shutdown(socket.SHUT_WR)  # from now on bytes are as they come

    def end(self) -> None:
        """Close the socket."""
        if self._socket.fileno() >= 0:
            self._timer.cancel()
            self._loop.remove_reader(self._fd)
            self._socket.close()
            self._over()

    def _readable(self) -> None:
        try:
            data = self._socket.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.end()


class _NotServedError(ConnectionRefusedError):
    """The node answers that the protocol is not served."""


class _Dial:
    """The search for a place where a node answers.

    Args:
        address: The address, for messages.
        node: The node that is meant.
        protocol: What it must speak.
        context: For the handshakes.
        loop: Watches the sockets.
        opened: Given the socket of the first place that answers, and the place.
        failed: Told when no place does.
    """

    def __init__(
        self,
        address: str,
        node: str,
        protocol: str,
        context: ssl.SSLContext,
        loop: Loop,
        opened: Callable[[ssl.SSLSocket, tuple[str, int]], None],
        failed: Failed,
    ) -> None:
        self._address = address
        self._node = node
        self._protocol = protocol
        self._context = context
        self._loop = loop
        self._opened = opened
        self._failed = failed
        self._timeout = HANDSHAKE_TIMEOUT
        self._waiting: deque[tuple[tuple[str, int], Any]] = deque()
        self._tries: dict[object, Callable[[], None]] = {}
        self._refusals: dict[str, OSError] = {}
        self._timer: Timer | None = None
        self._over = False

    def begin(self, places: Sequence[tuple[str, int]], timeout: float) -> None:
        """Begin soon.

        Args:
            places: Host and port of each.
            timeout: Seconds that each has to connect, and as many for its handshake.
        """
        self._timeout = timeout
        self._waiting.extend((place, None) for place in places)
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        """Begin with one more place, or give up if there is none and none is being tried."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._over:
            return
        if self._waiting:
            place, found = self._waiting.popleft()
            if self._waiting:
                self._timer = self._loop.call_later(STAGGER, self._next)
            if found is None:
                self._find(place)
            else:
                self._connect(place, *found)
        elif not self._tries:
            self._give_up()

    def _find(self, place: tuple[str, int]) -> None:
        """Find the addresses of a host; one that is written as a number has itself."""
        if place[0].startswith("/"):
            self._connect(place, socket.AF_UNIX, place[0])
            return
        numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        try:
            found = socket.getaddrinfo(*place, type=socket.SOCK_STREAM, flags=numeric)
        except OSError:
            self._tries[place] = _nothing
            _look_up(place, self._loop, partial(self._looked_up, place))
        else:
            self._connect(place, found[0][0], found[0][4])

    def _looked_up(self, place: tuple[str, int], found: list[Any] | OSError) -> None:
        self._tries.pop(place, None)
        if isinstance(found, OSError):
            self._refusals[_shown(place)] = found
        else:
            self._waiting.extendleft((place, (one[0], one[4])) for one in reversed(found))
        self._next()

    def _connect(self, place: tuple[str, int], family: int, name: Any) -> None:
        """Begin a connection."""
        shown = _shown(name)
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self._refused(None, shown, error)
            return
        fd = sock.fileno()

        def stop() -> None:
            timer.cancel()
            self._loop.remove_writer(fd)

        def give_up() -> None:
            stop()
            sock.close()

        def late() -> None:
            give_up()
            self._refused(sock, shown, TimeoutError("no answer"))

        def writable() -> None:
            stop()
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                sock.close()
                self._refused(sock, shown, OSError(code, os.strerror(code)))
            else:
                del self._tries[sock]
                self._shake_hands(place, sock, shown)

        self._tries[sock] = give_up
        timer = self._loop.call_later(self._timeout, late)
        self._loop.add_writer(fd, writable)
        try:
            _prepare(sock)
            sock.connect(name)
        except BlockingIOError:
            pass
        except OSError as error:
            give_up()
            self._refused(sock, shown, error)

    def _shake_hands(self, place: tuple[str, int], raw: socket.socket, shown: str) -> None:
        try:
            sock = self._context.wrap_socket(
                raw, server_hostname=self._node, do_handshake_on_connect=False
            )
        except OSError as error:
            raw.close()
            self._refused(None, shown, error)
            return
        handshake = _Handshake(sock, self._loop, self._timeout)
        self._tries[handshake] = lambda: handshake.end().close()

        def failed(error: OSError) -> None:
            sock.close()
            self._refused(handshake, shown, error)

        def done() -> None:
            if sock.selected_alpn_protocol() != self._protocol:
                failed(_NotServedError(f"{self._protocol} is not served there"))
            elif node_of(sock) != self._node:
                failed(ConnectionError("its certificate does not name one node"))
            else:
                del self._tries[handshake]
                self._end()
                self._opened(sock, place)

        handshake.begin(done, failed)

    def _refused(self, attempt: object, shown: str, error: OSError) -> None:
        """A place is none: take the next."""
        self._tries.pop(attempt, None)
        self._refusals[shown] = error
        self._next()

    def _end(self) -> None:
        """Try no more."""
        self._over = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for stop in self._tries.values():
            stop()
        self._tries.clear()

    def _give_up(self) -> None:
        self._end()
        reasons = [f"{place}: {_reason(error)}" for place, error in self._refusals.items()]
        failure = CommunicationError(f"cannot connect: {'; '.join(reasons)}", where=self._address)
        errors = [*self._refusals.values()]
        # What the node itself says counts more than what other machines say at its addresses.
        unserved = [error for error in errors if isinstance(error, _NotServedError)]
        refused = [error for error in errors if isinstance(error, ConnectionRefusedError)]
        others = [error for error in errors if not isinstance(error, ConnectionRefusedError)]
        failure.__cause__ = (unserved or others or refused)[0]
        self._failed(failure)


def _look_up(
    place: tuple[str, int], loop: Loop, found: Callable[[list[Any] | OSError], None]
) -> None:
    """Ask for the addresses of a name, on a separate thread, because the system call blocks."""
    try:
        bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    except OSError as error:
        loop.call_soon(found, error)
        return
    results: list[list[Any] | OSError] = []

    def ask() -> None:
        try:
            results.append(socket.getaddrinfo(*place, type=socket.SOCK_STREAM))
        except Exception as error:  # noqa: BLE001 - the loop waits for a result
            results.append(error if isinstance(error, OSError) else OSError(str(error)))
        os.eventfd_write(bell, 1)

    def heard() -> None:
        loop.remove_reader(bell)
        os.close(bell)
        found(results[0])

    loop.add_reader(bell, heard)
    start_thread(f"look up {place[0]}", ask)


# --- connections ----------------------------------------------------------------------------------


class TlsConnection:
    """One connection, after its handshake.

    OpenSSL wants a write that could not end be repeated with the same bytes, so what is being
    sent (``_chunk``) stays as it is until all of it is taken. Each read takes one record, and
    nothing of it stays behind, so the readiness of the socket equals the connection's.

    Args:
        sock: The socket; the connection owns it.
        handler: Hears of it.
        loop: Watches it.
        peer: Node id in the certificate that the peer has shown; empty without one.
        initiator: Whether this side connected.
    """

    __slots__ = (
        "_chunk",
        "_closing",
        "_farewell",
        "_fd",
        "_handler",
        "_loop",
        "_number",
        "_open",
        "_progress",
        "_reads_first",
        "_socket",
        "_timer",
        "_unsent",
        "_writing",
        "peer",
    )

    def __init__(
        self,
        sock: ssl.SSLSocket,
        handler: ConnectionHandler,
        loop: Loop,
        peer: str,
        *,
        initiator: bool,
    ) -> None:
        self.peer = peer
        self._socket = sock
        self._fd = sock.fileno()
        self._handler = handler
        self._loop = loop
        self._unsent: deque[memoryview] = deque()
        self._chunk: bytes | memoryview = b""
        self._open = True
        self._closing = False
        self._writing = False
        self._reads_first = False
        self._progress = 0
        self._timer: Timer | None = None
        self._farewell: _Farewell | None = None
        self._number = -1
        loop.add_reader(self._fd, self._readable)
        self._number = handler.connection_opened(self, initiator=initiator)
        loop.call_soon(self._readable)  # something may have come with the end of the handshake

    def facts(self) -> ConnectionFacts:
        """Return what it is made of."""
        unsent = self.unsent
        try:
            address, local = self._socket.getpeername(), self._socket.getsockname()
        except OSError:  # it is gone, which is reported later
            return ConnectionFacts(unsent=unsent)
        return ConnectionFacts(
            address=_shown(address),
            local_address=_shown(local),
            protocol=self._socket.version() or "",
            certificate_end=_end_of(self._socket.getpeercert()),
            unsent=unsent,
            resent=_resent_by(self._socket),
        )

    @property
    def unsent(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return len(self._chunk) + sum(buffer.nbytes for buffer in self._unsent)

    # --- sending ---------------------------------------------------------------------------------

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Queue buffers for sending, in order."""
        if not self._open or self._closing:
            return
        waits = bool(self._unsent or self._chunk)
        if not waits and sum(map(len, buffers)) <= JOIN_SIZE:
            self._chunk = b"".join(buffers)
        else:
            several = (memoryview(buffer) for buffer in buffers)
            self._unsent.extend(buffer.cast("B") for buffer in several if buffer.nbytes)
        if not waits:
            self._send()

    def close(self) -> None:
        """Send what is queued, then close."""
        if not self._open or self._closing:
            return
        self._closing = True
        if self._unsent or self._chunk:
            self._timer = self._loop.call_later(CLOSE_TIMEOUT, self._look, self._progress)
        else:
            self._shut()

    def abort(self) -> None:
        """Close at once."""
        self._end("the connection was closed")

    def _send(self) -> None:
        """Send until nothing is left, the kernel takes no more, or others have their turn."""
        left, write = WRITE_SIZE, self._socket.write
        try:
            while left > 0:
                chunk = self._chunk or self._next_chunk()
                if not chunk:
                    break
                self._chunk = chunk
                sent = write(chunk)
                self._chunk = b"" if sent == len(chunk) else memoryview(chunk)[sent:]
                left -= sent
                self._progress += 1
        except ssl.SSLWantWriteError:
            pass
        except ssl.SSLWantReadError:  # TLS itself must hear something first
            self._reads_first = True
            self._watch_writer(on=False)
            return
        except OSError:  # the other side is gone; reading says so
            self._unsent.clear()
            self._chunk = b""
        waits = bool(self._unsent or self._chunk)
        self._watch_writer(on=waits)
        if self._closing and not waits:
            self._shut()

    def _next_chunk(self) -> bytes | memoryview:
        """Take what is to be encrypted at once: a part of a large buffer, or small ones joined."""
        unsent = self._unsent
        if not unsent:
            return b""
        first = unsent[0]
        if first.nbytes >= JOIN_SIZE or len(unsent) == 1:
            return self._take(CHUNK)
        room, parts = JOIN_SIZE, []
        while unsent and room:
            parts.append(self._take(room))
            room -= parts[-1].nbytes
        return b"".join(parts)

    def _take(self, size: int) -> memoryview:
        """Take so many bytes at most out of the first buffer."""
        first = self._unsent[0]
        if first.nbytes <= size:
            return self._unsent.popleft()
        self._unsent[0] = first[size:]
        return first[:size]

    def _watch_writer(self, *, on: bool) -> None:
        if on != self._writing:
            self._writing = on
            if on:
                self._loop.add_writer(self._fd, self._writable)
            else:
                self._loop.remove_writer(self._fd)

    def _writable(self) -> None:
        if self._unsent or self._chunk:
            self._send()
        else:  # reading wanted to write
            self._watch_writer(on=False)
            self._readable()

    # --- receiving -------------------------------------------------------------------------------

    def _readable(self) -> None:
        if not self._open or self._farewell is not None:
            return
        read, left = self._socket.read, READ_SIZE
        received: list[bytes] = []
        end = ""
        try:
            while left > 0:
                data = read(RECORD)
                if not data:
                    end = "the connection was closed"
                    break
                received.append(data)
                left -= len(data)
                if len(data) < RECORD:
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            self._watch_writer(on=True)
        except OSError as error:
            end = _reason(error)
        if received:
            data = received[0] if len(received) == 1 else b"".join(received)
            self._handler.bytes_received(self._number, data)
        if end:
            self._end(end)
        elif self._reads_first:
            self._reads_first = False
            self._send()

    # --- the end ---------------------------------------------------------------------------------

    def _look(self, progress: int) -> None:
        """Give up closing if the other side takes nothing."""
        if progress == self._progress:
            self.abort()
        else:
            self._timer = self._loop.call_later(CLOSE_TIMEOUT, self._look, self._progress)

    def _shut(self) -> None:
        """All is sent: say so, and wait until the other side has ended, too."""
        self._watch_writer(on=False)
        self._loop.remove_reader(self._fd)
        with contextlib.suppress(OSError, ValueError):  # without an answer
            self._socket.unwrap()
        self._farewell = _Farewell(self._socket, self._loop, CLOSE_TIMEOUT)
        self._farewell.begin(self.abort)

    def _end(self, reason: str) -> None:
        if not self._open:
            return
        self._open = False
        if self._timer is not None:
            self._timer.cancel()
        self._unsent.clear()
        self._chunk = b""
        self._reads_first = False
        if self._farewell is None:
            self._watch_writer(on=False)
            self._loop.remove_reader(self._fd)
            self._socket.close()
        else:
            self._farewell.end()
        self._loop.call_soon(self._handler.connection_closed, self._number, reason)


# --- sockets and names ----------------------------------------------------------------------------


def _listen_at(address: str) -> socket.socket:
    """Return a socket that listens.

    Raises:
        CommunicationError: The address is malformed or cannot be used.
    """
    places = address.removeprefix("tls://").rpartition("@")[2]
    host, port = _parse_place(places, address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, name = found[0][0], found[0][4]
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(0)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6 and host == "::":
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind(name)
            sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
    except OSError as error:
        raise CommunicationError(f"cannot listen: {_reason(error)}", where=address) from error
    return sock


def _prepare(sock: socket.socket) -> None:
    """Set what all sockets of links have.

    They never block, small messages do not wait, and a machine that is gone is noticed.
    """
    sock.settimeout(0)
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    milliseconds = round(1000 * UNHEARD_TIMEOUT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    # The kernel sends keep-alive probes, because a client may be silent for hours.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, round(UNHEARD_TIMEOUT))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)


def _shown(name: str | Sequence[Any]) -> str:
    """Return host and port as they are written; of a Unix socket its path."""
    host = name if isinstance(name, str) else str(name[0])
    if isinstance(name, str) or host.startswith("/"):
        return host
    return f"[{host}]:{name[1]}" if ":" in host else f"{host}:{name[1]}"


def _resent_by(sock: socket.socket) -> int | None:
    """Return how many segments the kernel has sent again; None of a Unix socket."""
    try:
        told = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TOTAL_RETRANS.stop)
    except OSError:
        return None
    return int.from_bytes(told[_TOTAL_RETRANS], sys.byteorder)


def node_of(sock: ssl.SSLSocket) -> str | None:
    """Return the node in a peer's certificate; empty without one, None if it names not just one."""
    certificate = sock.getpeercert()
    if not certificate:
        return ""
    alternatives: Any = certificate.get("subjectAltName", ())
    names = [str(name).lower() for kind, name in alternatives if kind == "DNS"]
    return names[0] if len(names) == 1 and is_node(names[0]) else None


def _end_of(certificate: Any) -> float:
    """Return when a certificate ends, seconds since 1970; 0 without one."""
    return float(ssl.cert_time_to_seconds(certificate["notAfter"])) if certificate else 0.0


def _reason(error: Exception) -> str:
    """Return what went wrong, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "").replace("_", " ").lower()
        told = reason.partition(" alert ")[2]
        if told:
            return f"it refuses this side: {told}"
        if isinstance(error, ssl.SSLEOFError) or not reason:
            return "it ended the connection"
        return f"no TLS 1.3 with it: {reason}"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error)


@contextmanager
def memory_file(content: bytes) -> Iterator[str]:
    """Put content where only this process finds it, as long as the block runs: ssl wants a path."""
    fd = os.memfd_create("sapwood-credentials", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


def _refuse_password() -> str:
    raise ValueError("the key is encrypted")


def _nothing() -> None:
    pass


def _ignore(_address: str, _reason: str) -> None:
    pass


def _ignore_one(_error: OSError) -> None:
    pass


def _ignore_protocols(_protocols: tuple[str, ...]) -> None:
    pass
