"""An HTTP server with bounds: late, slow or many connections do not harm others.

uvicorn speaks HTTP/1.1 and calls the application (ASGI). It has no time limits for headers, bodies
and readers, and none on idle connections besides one for keep-alive; those are here. Connections
come from listeners of this process, or were accepted by another one that hands them over.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import logging
import select
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from sapwood.environment.logs import logger
from sapwood.server.bounds import Application, BoundedApplication
from sapwood.server.limits import HttpLimits
from sapwood.server.request_checks import OwnHost

SWEEP: Final = 0.5
"""Seconds between two looks at the connections."""

BACKLOG: Final = 512
"""Connections that may wait to be accepted."""

LAST_ANSWERS: Final = 1.0
"""Seconds that the requests under way have when the server is closed."""

UNHEARD_TIMEOUT: Final = 20_000
"""Milliseconds after which a connection is broken whose peer's machine confirms nothing."""

_LATE: Final = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"

_log = logger("http")

Refused = Callable[[str, str], None]
"""``refused(address, reason)`` receives refused clients and bad requests."""


class HttpServer:
    """Serves an application on connections of one event loop, within bounds.

    Args:
        application: What answers requests (ASGI 3).
        is_own_host: Whether the server has a name, which requests put into their Host header.
        limits: The bounds.
        refused: Told of clients that were turned away; it must not block.
    """

    def __init__(
        self,
        application: Application,
        is_own_host: OwnHost,
        limits: HttpLimits | None = None,
        refused: Refused | None = None,
    ) -> None:
        self.limits: HttpLimits = limits or HttpLimits()
        self.refused: Refused = refused or _ignore
        bounded = BoundedApplication(application, self.limits, self.refused, is_own_host)
        self._config = uvicorn.Config(
            bounded,
            http="h11",
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(self.limits.idle_seconds),
            h11_max_incomplete_event_size=self.limits.header_bytes,
        )
        self._config.load()
        # What it says of each client that speaks no HTTP would fill the log; see `refused`.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._state = ServerState()
        self._connections: dict[_HttpConnection, None] = {}  # in the order in which they came
        self._handshakes: dict[asyncio.Task[None], socket.socket] = {}
        self._listeners: list[asyncio.Server] = []
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_soon(self._sweep)
        self._closed = False

    @property
    def connections(self) -> int:
        """How many clients are there."""
        return len(self._connections)

    async def listen(self, host: str, port: int) -> list[tuple[str, int]]:
        """Accept connections at a port, without TLS; return where, as the kernel says.

        Raises:
            OSError: It is taken, or no address of this machine.
        """
        made = await self._loop.create_server(self._protocol, host, port, backlog=BACKLOG)
        self._listeners.append(made)
        return [one.getsockname()[:2] for one in made.sockets]

    async def listen_unix(self, path: Path) -> None:
        """Accept connections at a Unix socket."""
        made = await self._loop.create_unix_server(self._protocol, str(path), backlog=BACKLOG)
        self._listeners.append(made)

    def take(self, sock: socket.socket, context: ssl.SSLContext | None, peer: str) -> None:
        """Serve a connection that was accepted elsewhere.

        Args:
            sock: On which nothing was read yet.
            context: Its side of TLS; None for none.
            peer: Where it comes from.
        """
        if self._closed:
            sock.close()
            return
        while len(self._handshakes) >= self.limits.handshakes:
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.cancel()
        task = self._loop.create_task(self._shake_hands(sock, context, peer))
        self._handshakes[task] = sock
        task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def close(self) -> None:
        """Accept no more, answer what was asked, and end all connections.

        Answers that are not sent in ``LAST_ANSWERS`` are cut off.
        """
        self._closed = True
        for listener in self._listeners:
            listener.close()
        if self._state.tasks:
            await asyncio.wait(set(self._state.tasks), timeout=LAST_ANSWERS)
        self._timer.cancel()
        for task in list(self._handshakes):
            task.cancel()
        for connection in list(self._connections):
            connection.abort()
        tasks = set(self._state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._handshakes, return_exceptions=True)
        for listener in self._listeners:
            await listener.wait_closed()

    # --- connections -----------------------------------------------------------------------------

    def came(self, connection: _HttpConnection) -> None:
        """A connection is there; for one too many, an idle one goes, or else this one.

        Those go first that have never asked for anything. Where many come at once, what a client
        asks may have come already and not be read yet: such a client is not idle.
        """
        self._connections[connection] = None
        if len(self._connections) <= self.limits.connections:
            return
        reason = f"{self.limits.connections} clients are there"
        idle = next(
            (one for one in self._connections if one.idle and not one.served),
            next((one for one in self._connections if one.idle), connection),
        )
        self.refused(idle.peer, reason)
        idle.abort()
        self._connections.pop(idle, None)

    def gone(self, connection: _HttpConnection) -> None:
        """A connection has ended."""
        self._connections.pop(connection, None)

    def touched(self, connection: _HttpConnection) -> None:
        """A connection had a request: others are idle longer."""
        if connection in self._connections:
            del self._connections[connection]
            self._connections[connection] = None

    def _protocol(self) -> _HttpConnection:
        return _HttpConnection(self, self._config, self._state)

    async def _shake_hands(
        self, sock: socket.socket, context: ssl.SSLContext | None, peer: str
    ) -> None:
        timeouts: dict[str, Any] = {}
        if context is not None:
            timeouts = {
                "ssl_handshake_timeout": self.limits.handshake_seconds,
                "ssl_shutdown_timeout": self.limits.linger_seconds,
            }
        try:
            sock.setblocking(False)  # noqa: FBT003 - the name of the call says it
            await self._loop.connect_accepted_socket(self._protocol, sock, ssl=context, **timeouts)
        except (OSError, asyncio.CancelledError) as error:  # ssl.SSLError is an OSError
            sock.close()
            if _client_ended(error):
                _log.debug("a client ended its handshake", peer=peer, reason=str(error))
                return
            reason = "others wait" if isinstance(error, asyncio.CancelledError) else str(error)
            self.refused(peer, f"its handshake failed: {reason}")

    def _sweep(self) -> None:
        now = self._loop.time()
        self._timer = self._loop.call_later(SWEEP, self._sweep)
        self._state.default_headers = [
            (b"date", email.utils.formatdate(usegmt=True).encode("ascii"))
        ]
        for connection in list(self._connections):
            connection.look(now)


class _HttpConnection(H11Protocol):
    """A connection, with time limits for all that a client does."""

    def __init__(self, server: HttpServer, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config, state, {})
        self._server = server
        self._limits = server.limits
        self._since = self.loop.time()  # when it came, or its last answer was complete
        self._began: float | None = None  # when the first byte of this request came
        self._paused: float | None = None  # since when it does not read
        self._leaving: float | None = None  # since when it is closed
        self.served = False  # whether it has had an answer
        self.peer = "here"

    @property
    def waits(self) -> bool:
        """Whether no request of this client is worked at."""
        return self._request is None or bool(self._request.response_complete)

    @property
    def idle(self) -> bool:
        """Whether no request of this client is worked at, or has come and waits to be read."""
        if not self.waits:
            return False
        poll = select.poll()
        with contextlib.suppress(OSError, ValueError):  # it is closed
            poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
            return not poll.poll(0)
        return True

    @property
    def _request(self) -> RequestResponseCycle | None:
        return self.cycle  # None before the first request, which its type does not say

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own does so
        """A client is there."""
        super().connection_made(transport)
        if self.client is not None:
            self.peer = f"{self.client[0]}:{self.client[1]}"
        sock = transport.get_extra_info("socket")
        with contextlib.suppress(OSError, AttributeError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNHEARD_TIMEOUT)
        self._server.came(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._server.gone(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes in."""
        if self._began is None:
            self._began = self.loop.time()
            self._server.touched(self)
        try:
            super().data_received(data)
        except Exception as error:  # noqa: BLE001 - a client must not harm the others
            self._server.refused(self.peer, f"its request cannot be read: {error}")
            self.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, or has headers that are too long."""
        self._server.refused(self.peer, "its request is no HTTP, or its headers are too long")
        super().send_400_response(msg)

    def on_response_complete(self) -> None:
        """An answer is complete: another request may come, or be there already."""
        self._since, self._began, self.served = self.loop.time(), None, True
        super().on_response_complete()
        if not self.waits:
            self._began = self._since

    def pause_writing(self) -> None:
        """It does not read."""
        self._paused = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """It reads again."""
        self._paused = None
        super().resume_writing()

    def abort(self) -> None:
        """End it at once."""
        self.transport.abort()

    def look(self, now: float) -> None:
        """End it if it is late."""
        if self.transport.is_closing():
            self._leaving = self._leaving or now
            if now - self._leaving > self._limits.write_seconds:
                self.abort()
            return
        late = self._lateness(now)
        if not late:
            return
        self._server.refused(self.peer, late)
        if self.waits and self.conn.our_state is h11.IDLE and self._began is not None:
            self.transport.write(_LATE)
            self.transport.close()
        else:
            self.abort()

    def _lateness(self, now: float) -> str:
        """Return what it takes too long for; empty for nothing, or if it is only idle."""
        limits = self._limits
        if self._paused is not None and now - self._paused > limits.write_seconds:
            return "it does not read what it asked for"
        if not self.waits:
            began = self._since if self._began is None else self._began
            allowed = limits.header_seconds + limits.body_seconds
            if self.cycle.more_body and now - began > allowed:
                return "the body of its request does not come"
        elif self._request is not None and self.conn.their_state is h11.SEND_BODY:
            if now - self._since > limits.linger_seconds:
                return "it continues with a body that was refused"
        elif self._began is not None:
            if now - self._began > limits.header_seconds:
                return "the headers of its request do not come"
        elif now - self._since > limits.idle_seconds:
            self.transport.close()
        return ""


def _client_ended(error: BaseException) -> bool:
    """Return whether a client ended its handshake: that is not a refusal by this server.

    A browser does so with an alert for a certificate that its user has not accepted yet, and
    without one for a connection that it does not need after all.
    """
    if isinstance(error, ssl.SSLError):
        return isinstance(error, ssl.SSLEOFError) or "_ALERT_" in (error.reason or "")
    return isinstance(error, ConnectionError)


def _ignore(_address: str, _reason: str) -> None:
    pass
