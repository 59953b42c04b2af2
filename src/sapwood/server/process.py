"""The process of a head's HTTP server: what the head begins, and what ends with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import ssl
import struct
import sys
import time
from pathlib import Path
from typing import Any, Final

from sapwood.comm.transport.tls_identity import memory_file
from sapwood.core import typed
from sapwood.core.errors import SapwoodError
from sapwood.environment.configuration import load_configuration
from sapwood.environment.core_dumps import leave_no_core_dump
from sapwood.environment.logs import configure_logging, logger
from sapwood.environment.tracing import metric_exporter
from sapwood.head.parts.cluster import HeadFacts, WholeCluster
from sapwood.head.parts.web import WebServer
from sapwood.head.web import HTTP, MAX_WAITING, HttpPlan
from sapwood.security.authority import make_request, valid_until
from sapwood.server.application import WebApplication, close
from sapwood.server.browser_sessions import SessionCookie
from sapwood.server.connections import HttpServer
from sapwood.server.exports import export
from sapwood.server.head_connections import ConnectionPool, HeadConnection, open_connection
from sapwood.session.folder import make_folder

RENEW_AFTER: Final = 0.6
"""Part of a certificate's life after which it is renewed."""

LOCAL: Final = ("localhost", "127.0.0.1", "::1")
"""Names of this machine for itself."""

_PEER = struct.Struct("3i")

_log = logger("http")


class HttpProcess:
    """An HTTP server, and what belongs to its process.

    Args:
        plan: What the head wants.
    """

    def __init__(self, plan: HttpPlan) -> None:
        self._plan = plan
        self._over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._folder = make_folder()
        self._context: ssl.SSLContext | None = None
        self._server: HttpServer | None = None
        self._listening = socket.socket(socket.AF_UNIX)
        self._facts: HeadFacts | None = None
        self._listens: list[str] = []
        self._early: list[tuple[socket.socket, str]] = []  # before there is a certificate

    async def run(self) -> None:
        """Serve until the head is gone, or a signal comes.

        Raises:
            SapwoodError: The head does not want it.
            OSError: It cannot listen.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self._over.set)
        own = await asyncio.to_thread(
            open_connection, self._plan.cluster, self._loop, None, self._ended
        )
        pool = ConnectionPool(self._plan.cluster, own)
        renewal: asyncio.Task[None] | None = None
        exports: asyncio.Task[None] | None = None
        try:
            self._facts = await own.call(WholeCluster.facts)
            application = WebApplication(
                pool,
                SessionCookie(self._facts.cluster),
                no_token=self._plan.listen.no_token,
            )
            self._server = HttpServer(application, self._has_name, refused=application.refused)
            application.connections = lambda: (
                0 if self._server is None else self._server.connections
            )
            await self._listen(self._server)
            left = await self._serve(own)
            renewal = asyncio.create_task(self._renew(own, left))
            sink = metric_exporter()
            if sink is not None:
                exports = asyncio.create_task(export(sink, own, application.metrics))
            _log.info("http server ready", listens=self._listens)
            await self._over.wait()
            application.live.close()
        finally:
            for task in (renewal, exports):
                if task is not None:
                    task.cancel()
            self._loop.remove_reader(self._listening.fileno())
            self._listening.close()
            for sock, _ in self._early:
                sock.close()
            if self._server is not None:
                await close(application, pool)
                await self._server.close()
            await asyncio.to_thread(own.client.close)
            shutil.rmtree(self._folder, ignore_errors=True)

    def _ended(self, reason: str) -> None:
        """The head is gone; on another thread."""
        _log.info("http server ends", reason=reason)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._over.set)

    def _has_name(self, name: str) -> bool:
        """Return whether this server is reached under a name."""
        addresses = [] if self._facts is None else self._facts.addresses
        hosts = (address.rpartition(":")[0].strip("[]") for address in addresses)
        return name in {one.lower() for one in (*LOCAL, socket.gethostname(), *hosts)}

    async def _listen(self, server: HttpServer) -> None:
        """Listen where the user wants it, and where the head hands connections over."""
        address = self._plan.listen.address
        if address.startswith("/"):
            await server.listen_unix(Path(address))
            self._listens = [address]
        elif address:
            host, _, port = address.rpartition(":")
            found = await server.listen(host.strip("[]"), int(port))
            self._listens = [f"[{one}]:{at}" if ":" in one else f"{one}:{at}" for one, at in found]
        self._listening.setblocking(False)  # noqa: FBT003 - the name of the call says it
        self._listening.bind(str(self._path))
        self._listening.listen(1024)
        self._loop.add_reader(self._listening.fileno(), self._handed_over)

    @property
    def _path(self) -> Path:
        return self._folder / "http.sock"

    # --- TLS -------------------------------------------------------------------------------------

    async def _serve(self, own: HeadConnection) -> float:
        """Have the head hand connections over; return for how long the certificate is good."""
        key, request = make_request()
        made = await own.call(WebServer.serve, str(self._path), request, tuple(self._listens))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.set_alpn_protocols([HTTP])
        with memory_file(made.certificate + b"\n" + key) as path:
            context.load_cert_chain(path)
        self._context = context
        early, self._early = self._early, []
        for sock, peer in early:
            self._take(sock, peer)
        return max(valid_until(made.certificate) - time.time(), 0.0)

    async def _renew(self, own: HeadConnection, left: float) -> None:
        while True:
            await asyncio.sleep(max(left * RENEW_AFTER, 1.0))
            try:
                left = await self._serve(own)
            except SapwoodError as error:
                _log.warning("certificate not renewed", reason=error.what)
                left = 60.0

    def _handed_over(self) -> None:
        """Take connections that the head has accepted."""
        try:
            way, _ = self._listening.accept()
        except OSError:
            return
        way.setblocking(False)  # noqa: FBT003 - the name of the call says it
        raw = way.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        if _PEER.unpack(raw)[1] != os.geteuid():
            way.close()
            return
        timer = self._loop.call_later(1.0, self._give_up, way)
        self._loop.add_reader(way.fileno(), self._readable, way, timer)

    def _give_up(self, way: socket.socket) -> None:
        if way.fileno() >= 0:
            self._loop.remove_reader(way.fileno())
            way.close()

    def _readable(self, way: socket.socket, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        self._loop.remove_reader(way.fileno())
        with way:
            try:
                peer, descriptors, _, _ = socket.recv_fds(way, 1024, 4)
            except OSError:
                return
        for descriptor in descriptors:
            self._take(socket.socket(fileno=descriptor), peer.decode("ascii", "replace"))

    def _take(self, sock: socket.socket, peer: str) -> None:
        if self._server is None or len(self._early) > MAX_WAITING:
            sock.close()
        elif self._context is None:
            self._early.append((sock, peer))
        else:
            self._server.take(sock, self._context, peer)


def _quiet(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log unhandled errors on one line, because clients cause many of them."""
    _log.debug("connection failed", reason=str(context.get("exception") or context["message"]))


async def _run(plan: HttpPlan) -> None:
    asyncio.get_running_loop().set_exception_handler(_quiet)
    await HttpProcess(plan).run()


def main() -> None:
    """Serve what standard input asks for."""
    os.umask(0o077)
    leave_no_core_dump()
    plan = typed.json_reader(HttpPlan)(sys.stdin.buffer.read())
    configure_logging(load_configuration({}).settings.log)
    try:
        asyncio.run(_run(plan))
    except (SapwoodError, OSError) as error:
        _log.warning("http server failed", reason=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
