"""Where clients on other machines reach a head: its port, on the loop that serves clients."""

from __future__ import annotations

import socket
from collections.abc import Callable

from sapwood.comm.transport.base import ConnectionHandler
from sapwood.comm.transport.tls_port import TlsPort
from sapwood.core.errors import ClosedError
from sapwood.head.protocol.greeting import SERVICE_PROTOCOL
from sapwood.nodes.control import ControlTree
from sapwood.nodes.refusals import log_refusals
from sapwood.session.loop_thread import LoopThread


class ServiceTlsPort:
    """Serves clients that come over TLS; ALPN tells them from nodes.

    Args:
        control: The control tree, whose port the head shares.
        thread: Its loop serves clients.
    """

    def __init__(self, control: ControlTree, thread: LoopThread) -> None:
        self._control = control
        self._thread = thread
        self._port: TlsPort | None = None
        self._shown = control.credentials
        self._end: Callable[[], None] | None = None

    def open(self, handler: ConnectionHandler) -> None:
        """Take connections from now on; the thread and the control tree run.

        Raises:
            ClosedError: They do not.
        """

        def begin() -> TlsPort:
            self._shown = self._control.credentials
            made = TlsPort(None, self._thread.loop, self._shown, refused=log_refusals)
            made.serve(SERVICE_PROTOCOL, handler, certificate=False)
            return made

        self._port = self._thread.call(begin)
        self._end = self._control.hand_over(SERVICE_PROTOCOL, self._take)

    def close(self) -> None:
        """Take no more."""
        if self._end is not None:
            self._end()
        if self._port is not None:
            self._thread.call(self._port.close)

    def _take(self, sock: socket.socket, peer: str) -> None:
        """Have a connection served; on the thread of the head's port."""
        try:
            self._thread.post(self._serve, sock, peer)
        except ClosedError:
            sock.close()

    def _serve(self, sock: socket.socket, peer: str) -> None:
        if self._port is None:
            sock.close()
            return
        current = self._control.credentials
        if current is not self._shown:  # it is renewed from time to time
            self._shown = current
            self._port.renew(current)
        self._port.take(sock, peer)
