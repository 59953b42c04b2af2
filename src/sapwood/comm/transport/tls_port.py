"""A listening port for TLS: it accepts peers, and hands each to the protocol that it wants."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from functools import partial

from sapwood.comm.loop import Loop, Timer
from sapwood.comm.transport.base import ConnectionHandler, Listener
from sapwood.comm.transport.client_hello import LONGEST_HELLO, offered_protocols
from sapwood.comm.transport.tls_connection import (
    HANDSHAKE_TIMEOUT,
    Farewell,
    Handshake,
    TlsConnection,
    ignore_error,
    prepare,
    reason_of,
    shown_address,
)
from sapwood.comm.transport.tls_identity import accepting_context, node_of, parse_endpoint
from sapwood.core.errors import CommunicationError
from sapwood.core.failures import OUT_OF_DESCRIPTORS
from sapwood.security.credentials import Credentials

BACKLOG = 1024
"""Connections that may wait to be accepted."""

MAX_HANDSHAKES = 256
"""Peers of one port that may be in their handshake at a time; the others wait."""

HANDSHAKE_TURN = 1.0
"""Seconds after which a handshake is given up if others wait for its slot."""

ACCEPT_TURN = 16
"""Connections that are accepted before others have their turn."""

ACCEPT_PAUSE = 0.1
"""Seconds until a process that had no descriptors left looks for connections again."""

Refused = Callable[[str, str], None]
"""``refused(address, reason)`` receives each refused peer."""

TakeSocket = Callable[[socket.socket, str], None]
"""``take(socket, address)`` receives a connection without any bytes so far."""


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
        self._handshakes: dict[Handshake | _Hello | _Held, float] = {}
        self._farewells: set[Farewell] = set()
        self._timer: Timer | None = None
        self._closed = False
        self.renew(credentials)
        self._socket = socket.socket() if address is None else _listen_at(address)
        self.address = f"{credentials.node}@"
        if address is None:
            self._socket.close()
        else:
            self.address += shown_address(self._socket.getsockname())
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
            self._greet(sock, shown_address(name))

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
        self._refused(peer, reason_of(error))

    def _shake_hands(self, raw: socket.socket, peer: str) -> None:
        try:
            prepare(raw)
            sock = self._context.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
        except (OSError, ValueError) as error:  # it is gone already
            raw.close()
            self._refused(peer, reason_of(error))
            return
        handshake = Handshake(sock, self._loop, self._handshake_timeout)
        self._handshakes[handshake] = self._loop.time()
        handshake.begin(
            partial(self._finished, handshake, peer), partial(self._failed, handshake, peer)
        )

    def _left(self, handshake: Handshake | _Hello | _Held) -> None:
        """A handshake is over: there is room again."""
        full = len(self._handshakes) >= self._max_handshakes
        self._handshakes.pop(handshake, None)
        if full:
            self._go_on()

    def _failed(self, handshake: Handshake, peer: str, error: OSError) -> None:
        self._left(handshake)
        self._refuse(handshake.sock, peer, reason_of(error))

    def _finished(self, handshake: Handshake, peer: str) -> None:
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
            farewell = Farewell(sock, self._loop, HANDSHAKE_TURN)
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
        self._failed: Callable[[OSError], None] = ignore_error

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
        self._failed: Callable[[OSError], None] = ignore_error

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


def _listen_at(address: str) -> socket.socket:
    """Return a socket that listens.

    Raises:
        CommunicationError: The address is malformed or cannot be used.
    """
    endpoints = address.removeprefix("tls://").rpartition("@")[2]
    host, port = parse_endpoint(endpoints, address)
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
        raise CommunicationError(f"cannot listen: {reason_of(error)}", where=address) from error
    return sock


def _ignore(_address: str, _reason: str) -> None:
    pass


def _ignore_protocols(_protocols: tuple[str, ...]) -> None:
    pass
