"""Dialling a node: its addresses are tried side by side, the first good handshake is taken."""

from __future__ import annotations

import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sapwood.comm.loop import Loop, Timer
from sapwood.comm.transport.base import Failed
from sapwood.comm.transport.tls_connection import (
    HANDSHAKE_TIMEOUT,
    Handshake,
    prepare,
    reason_of,
    shown_address,
)
from sapwood.comm.transport.tls_identity import node_of
from sapwood.core.errors import CommunicationError
from sapwood.core.failures import start_thread

STAGGER = 0.05
"""Seconds between the tries of a node's addresses, while none has answered."""

_OTHER_NAME = 62
"""What OpenSSL says of a certificate that is good, for another name: ``HOSTNAME_MISMATCH``."""


def is_unserved(error: CommunicationError) -> bool:
    """Whether a dialled node answers, but does not serve the protocol."""
    return isinstance(error.__cause__, NotServedError)


def is_another(error: CommunicationError) -> bool:
    """Whether a node that was dialled is not there, but another one of the same authority."""
    cause = error.__cause__
    return isinstance(cause, ssl.SSLCertVerificationError) and cause.verify_code == _OTHER_NAME


class NotServedError(ConnectionRefusedError):
    """The node answers that the protocol is not served."""


class Dial:
    """The search for an endpoint where a node answers.

    Args:
        address: The address, for messages.
        node: The node that is meant.
        protocol: What it must speak.
        context: For the handshakes.
        loop: Watches the sockets.
        opened: Given the socket of the first endpoint that answers, and the endpoint.
        failed: Told when no endpoint does.
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

    def begin(self, endpoints: Sequence[tuple[str, int]], timeout: float) -> None:
        """Begin soon.

        Args:
            endpoints: Host and port of each.
            timeout: Seconds that each has to connect, and as many for its handshake.
        """
        self._timeout = timeout
        self._waiting.extend((endpoint, None) for endpoint in endpoints)
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        """Begin with one more endpoint, or give up if there is none and none is being tried."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._over:
            return
        if self._waiting:
            endpoint, found = self._waiting.popleft()
            if self._waiting:
                self._timer = self._loop.call_later(STAGGER, self._next)
            if found is None:
                self._find(endpoint)
            else:
                self._connect(endpoint, *found)
        elif not self._tries:
            self._give_up()

    def _find(self, endpoint: tuple[str, int]) -> None:
        """Find the addresses of a host; one that is written as a number has itself."""
        if endpoint[0].startswith("/"):
            self._connect(endpoint, socket.AF_UNIX, endpoint[0])
            return
        numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        try:
            found = socket.getaddrinfo(*endpoint, type=socket.SOCK_STREAM, flags=numeric)
        except OSError:
            self._tries[endpoint] = _nothing
            _look_up(endpoint, self._loop, partial(self._looked_up, endpoint))
        else:
            self._connect(endpoint, found[0][0], found[0][4])

    def _looked_up(self, endpoint: tuple[str, int], found: list[Any] | OSError) -> None:
        self._tries.pop(endpoint, None)
        if isinstance(found, OSError):
            self._refusals[shown_address(endpoint)] = found
        else:
            self._waiting.extendleft((endpoint, (one[0], one[4])) for one in reversed(found))
        self._next()

    def _connect(self, endpoint: tuple[str, int], family: int, name: Any) -> None:
        """Begin a connection."""
        shown = shown_address(name)
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
                self._shake_hands(endpoint, sock, shown)

        self._tries[sock] = give_up
        timer = self._loop.call_later(self._timeout, late)
        self._loop.add_writer(fd, writable)
        try:
            prepare(sock)
            sock.connect(name)
        except BlockingIOError:
            pass
        except OSError as error:
            give_up()
            self._refused(sock, shown, error)

    def _shake_hands(self, endpoint: tuple[str, int], raw: socket.socket, shown: str) -> None:
        try:
            sock = self._context.wrap_socket(
                raw, server_hostname=self._node, do_handshake_on_connect=False
            )
        except OSError as error:
            raw.close()
            self._refused(None, shown, error)
            return
        handshake = Handshake(sock, self._loop, self._timeout)
        self._tries[handshake] = lambda: handshake.end().close()

        def failed(error: OSError) -> None:
            sock.close()
            self._refused(handshake, shown, error)

        def done() -> None:
            if sock.selected_alpn_protocol() != self._protocol:
                failed(NotServedError(f"{self._protocol} is not served there"))
            elif node_of(sock) != self._node:
                failed(ConnectionError("its certificate does not name one node"))
            else:
                del self._tries[handshake]
                self._end()
                self._opened(sock, endpoint)

        handshake.begin(done, failed)

    def _refused(self, attempt: object, shown: str, error: OSError) -> None:
        """An endpoint does not lead to the node: take the next."""
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
        reasons = [f"{endpoint}: {reason_of(error)}" for endpoint, error in self._refusals.items()]
        failure = CommunicationError(f"cannot connect: {'; '.join(reasons)}", where=self._address)
        errors = [*self._refusals.values()]
        # What the node itself says counts more than what other machines say at its addresses.
        unserved = [error for error in errors if isinstance(error, NotServedError)]
        refused = [error for error in errors if isinstance(error, ConnectionRefusedError)]
        others = [error for error in errors if not isinstance(error, ConnectionRefusedError)]
        failure.__cause__ = (unserved or others or refused)[0]
        self._failed(failure)


def _look_up(
    endpoint: tuple[str, int], loop: Loop, found: Callable[[list[Any] | OSError], None]
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
            results.append(socket.getaddrinfo(*endpoint, type=socket.SOCK_STREAM))
        except Exception as error:  # noqa: BLE001 - the loop waits for a result
            results.append(error if isinstance(error, OSError) else OSError(str(error)))
        os.eventfd_write(bell, 1)

    def heard() -> None:
        loop.remove_reader(bell)
        os.close(bell)
        found(results[0])

    loop.add_reader(bell, heard)
    start_thread(f"look up {endpoint[0]}", ask)


def _nothing() -> None:
    pass
