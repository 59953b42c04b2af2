"""A head that is simulated, behind the real pages of the dashboard: any number of nodes, that change."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from sapwood.core.errors import ConfigurationError, SapwoodError
from sapwood.head import calls
from sapwood.head.ledger import LedgerEvent, LedgerState
from sapwood.nodes import messages
from sapwood.server.pictures import Pictures
from sapwood.session.session_life import SessionState
from sapwood.views.page import STATIC

CORES = 16


class SimulatedHead:
    """Answers the calls that pages make, from facts that a test changes.

    Args:
        nodes: How many there are.

    Attributes:
        lost: Names of nodes that are lost.
        events: What has happened.
        runs: The detached runs.
        expired: Whether credentials have ended.
    """

    def __init__(self, nodes: int) -> None:
        self.count = nodes
        self.lost: set[str] = set()
        self.events: list[LedgerEvent] = []
        self.runs: list[calls.RunRecord] = []
        self.sessions: list[calls.SessionRecord] = []
        self.expired = False
        self._looks = 0

    def note(self, kind: str, text: str, node: str = "") -> None:
        number = len(self.events) + 1
        self.events.append(
            LedgerEvent(number=number, time=time.time(), kind=kind, text=text, node=node)
        )

    def session(self, name: str, agents: int) -> None:
        report = calls.SessionReport(id=name, state="ready", agents=agents, streams=1)
        self.sessions.append(
            calls.SessionRecord(
                id=f"{len(self.sessions):08x}",
                name=name,
                state=SessionState.READY.value,
                on="head",
                created=time.time() - 300,
                report=report,
            )
        )

    def glance(self) -> calls.ClusterGlance:
        self._looks += 1
        return calls.ClusterGlance(
            time=time.time(), nodes=[self._node(host) for host in range(1, self.count + 1)]
        )

    def _node(self, host: int) -> calls.NodeGlance:
        name = f"n{host}"
        if name in self.lost:
            return calls.NodeGlance(
                host=host, name=name, state="lost", reason="nothing heard for 4.2 s", cores=CORES
            )
        wave = (host * 7919 + (self._looks + host) // 20 * 104729) % 1000 / 1000
        return calls.NodeGlance(
            host=host,
            name=name,
            state="ready",
            cores=CORES,
            link="up",
            round_trip=0.0012,
            load=round(wave**2 * CORES, 2),
            free_memory=48 * 2**30,
            sessions=["sapwood-day"],
            processes=2,
        )

    async def ask(self, name: str, value: Any) -> Any:
        match name:
            case calls.HELLO:
                return msgspec.to_builtins(
                    calls.HeadFacts(
                        name="lab",
                        cluster="lab",
                        version="0.1.0",
                        pid=1,
                        started=time.time() - 3600,
                        places=[],
                        front_ends=1,
                    )
                )
            case calls.GLANCE:
                return messages.to_value(self.glance())
            case calls.LIST_RUNS:
                return msgspec.to_builtins(self.runs)
            case calls.FIND_RUN:
                for one in self.runs:
                    if one.id == value:
                        return msgspec.to_builtins(one)
                raise ConfigurationError(f"no run begins with {value!r}")
            case calls.LIST_SESSIONS:
                return msgspec.to_builtins(self.sessions)
            case calls.EVENTS:
                found = [one for one in self.events if one.number > value["after"]]
                if value["nodes"]:
                    found = [one for one in found if one.node in value["nodes"]]
                state = LedgerState()
                page = calls.EventPage(events=found, state=state)
                return msgspec.to_builtins(page)
        raise AssertionError(name)


def application(head: SimulatedHead) -> Starlette:
    """Return the pages over a simulated head, with the headers that the real server sends."""

    async def allow(request: Request) -> None:
        del request
        if head.expired:
            raise PermissionError

    async def whoami(request: Request) -> Response:
        await allow(request)
        return JSONResponse({})

    async def logs(request: Request) -> Response:
        del request
        line = {
            "timestamp": "2026-11-24T18:00:00+00:00",
            "node": "n1",
            "level": "info",
            "component": "nodes",
            "event": "node admitted",
            "host": "n1",
        }
        return JSONResponse({"lines": [line], "ring": "a", "next": 1, "more": False})

    async def refused(request: Request, error: Exception) -> Response:
        del request, error
        return JSONResponse({"detail": "the credential has ended"}, status_code=401)

    async def failed(request: Request, error: Exception) -> Response:
        del request
        assert isinstance(error, SapwoodError)
        return JSONResponse({"detail": error.what}, status_code=404)

    async def policy(request: Request, following: RequestResponseEndpoint) -> Response:
        answer = await following(request)
        answer.headers["content-security-policy"] = "default-src 'self'"
        return answer

    pictures = Pictures(head.ask, "0.1.0", allow)
    api = [*pictures.routes(), Route("/whoami", whoami), Route("/logs", logs)]
    return Starlette(
        routes=[
            Mount("/api/v1", routes=api),
            Mount("/static", StaticFiles(directory=STATIC)),
            Mount("/", StaticFiles(directory=STATIC, html=True)),
        ],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=policy)],
        exception_handlers={PermissionError: refused, SapwoodError: failed},
    )


class Served:
    """A server that can be stopped and started again at the same port."""

    def __init__(self, head: SimulatedHead) -> None:
        self.head = head
        self.port = 0
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        sock = socket.create_server(("127.0.0.1", self.port))
        self.port = sock.getsockname()[1]
        config = uvicorn.Config(
            application(self.head), log_config=None, timeout_graceful_shutdown=0, lifespan="off"
        )
        self._server = server = uvicorn.Server(config)

        def work() -> None:
            with contextlib.suppress(asyncio.CancelledError):
                server.run(sockets=[sock])
            sock.close()

        self._thread = threading.Thread(target=work, name="simulated-cluster")
        self._thread.start()

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join()


@contextlib.contextmanager
def served(head: SimulatedHead) -> Iterator[Served]:
    """Serve a simulated cluster during the block."""
    made = Served(head)
    made.start()
    try:
        yield made
    finally:
        made.stop()
