"""The ways to a head: its thread, its server, and where clients reach it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from sapwood.head.authorizer import Authorizer
from sapwood.head.components import ServiceSocket
from sapwood.head.folder import remove_info
from sapwood.head.service import ServiceServer
from sapwood.head.service_port import ServiceTlsPort
from sapwood.head.web import HttpListen, HttpService
from sapwood.nodes.control import ControlTree
from sapwood.session.loop_thread import LoopThread

SLOW_CALLS: Final = 16
"""Slow calls that are answered at a time; more wait for them."""


class HeadFront:
    """The ways to a head: a Unix socket, TLS at the head's port, and HTTP.

    Args:
        name: What the user calls the cluster.
        folder: Folder of the head.
        control: The tree of nodes, whose port the head shares.
        authorizer: The authorizer of calls.
        serves: Returns whether calls are answered.
        http: Where the HTTP server listens besides the head's port.

    Attributes:
        thread: Its loop serves clients.
        pool: Runs slow calls, and what takes long.
        server: It answers calls.
        socket: The component of the Unix socket.
        http: The component of the HTTP server.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        control: ControlTree,
        authorizer: Authorizer,
        serves: Callable[[], bool],
        http: HttpListen,
    ) -> None:
        self._folder = folder
        self.thread = LoopThread("sapwood-service")
        self.pool = ThreadPoolExecutor(SLOW_CALLS, "sapwood-slow")
        self.server = ServiceServer(self.thread, authorizer, serves, self.pool)
        self.socket = ServiceSocket(folder, control.authority.cluster, self.server, self.thread)
        self.http = HttpService(name, folder, control, self.thread, http)
        self._tls = ServiceTlsPort(control, self.thread)

    def open(self) -> None:
        """Serve clients over TLS from now on; at the socket they come once that listens."""
        self.thread.start()
        self._tls.open(self.server)

    def hide(self) -> None:
        """Let no client on this machine find the head from now on."""
        remove_info(self._folder)

    def close(self, ended: Callable[[], None]) -> None:
        """Take no more clients, and let those go that are there.

        Args:
            ended: Called on the loop before the last answers are sent.
        """
        self._tls.close()
        self.thread.call(self._stop_listening, ended)

    def _stop_listening(self, ended: Callable[[], None]) -> None:
        self.socket.stop()
        ended()
        self.thread.post(self.server.close)  # after these answers

    def stop(self) -> None:
        """End the pool and the thread."""
        self.pool.shutdown(cancel_futures=True)
        self.thread.stop()
