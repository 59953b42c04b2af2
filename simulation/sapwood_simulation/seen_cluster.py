"""A simulated head behind the real pages of the dashboard: any number of nodes, that change."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import msgspec
import uvicorn
from starlette.requests import Request

from sapwood.core.errors import ConfigurationError
from sapwood.core.topology import plan
from sapwood.environment.component import ComponentView
from sapwood.environment.log_ring import LogPage
from sapwood.head import calls, session_records
from sapwood.head.ledger import EventQuery, LedgerEvent, LedgerState
from sapwood.head.parts.cluster import HeadFacts, WholeCluster
from sapwood.head.parts.components import Components
from sapwood.head.parts.events import EventPage, Events
from sapwood.head.parts.nodes import Nodes
from sapwood.head.parts.runs import Runs
from sapwood.head.parts.sessions import Sessions
from sapwood.head.protocol.call import HeadCall
from sapwood.head.tree_registry import TreeRegistry
from sapwood.nodes import messages
from sapwood.server.application import WebApplication
from sapwood.server.browser_sessions import SessionCookie
from sapwood.server.head_connections import ConnectionPool, HeadConnection
from sapwood.session.session_life import SessionState

CORES = 16


class SimulatedHead:
    """Answers the calls that pages make, from facts that a test changes.

    Args:
        nodes: How many there are.

    Attributes:
        lost: Names of nodes that are lost.
        events: The events of the cluster.
        runs: The detached runs.
        connected: The programs that use nodes without a named session.
        trees: What roots of sessions have told since the last look.
        expired: Whether credentials have ended.
    """

    def __init__(self, nodes: int) -> None:
        self.count = nodes
        self.lost: set[str] = set()
        self.events: list[LedgerEvent] = []
        self.runs: list[calls.RunRecord] = []
        self.sessions: list[session_records.SessionRecord] = []
        self.connected: list[calls.ConnectedUser] = []
        self.trees: list[session_records.SessionTree] = []
        self.registry = TreeRegistry()
        self.expired = False
        self._looks = 0

    def note(self, kind: str, text: str, node: str = "") -> None:
        """Note an event."""
        number = len(self.events) + 1
        self.events.append(
            LedgerEvent(number=number, time=time.time(), kind=kind, text=text, node=node)
        )

    def session(self, name: str, agents: int, fanout: int = 0) -> None:
        """Have one more session, with an agent on each node in turn."""
        self.tree(f"{len(self.sessions):08x}", agents, fanout)
        report = session_records.SessionReport(id=name, state="ready", agents=agents, streams=1)
        self.sessions.append(
            session_records.SessionRecord(
                id=f"{len(self.sessions):08x}",
                name=name,
                state=SessionState.READY.value,
                on="head",
                created=time.time() - 300,
                report=report,
            )
        )

    def tree(self, session: str, agents: int, fanout: int, lost: Sequence[int] = ()) -> None:
        """Have the root of a session tell its tree."""
        made = plan(agents, fanout)
        places = [
            session_records.SessionPlace(
                rank=rank,
                parent=made.parents[rank],
                kind="agent" if made.is_agent(rank) else "junction" if rank else "root",
                state="lost" if rank in lost else "ready",
                node=f"n{rank % self.count + 1}" if rank else "",
                pid=6000 + rank,
            )
            for rank in range(made.size)
        ]
        self.trees.append(session_records.SessionTree(id=session, places=places))

    def snapshot(self) -> calls.ClusterSnapshot:
        """Return how the nodes are in short; the loads of some are other ones each time."""
        self._looks += 1
        return calls.ClusterSnapshot(
            time=time.time(),
            nodes=[self._node(host) for host in range(1, self.count + 1)],
            connected=self.connected,
        )

    def _node(self, host: int) -> calls.NodeSnapshot:
        name = f"n{host}"
        if name in self.lost:
            return calls.NodeSnapshot(
                host=host, name=name, state="lost", reason="nothing heard for 4.2 s", cores=CORES
            )
        wave = (host * 7919 + (self._looks + host) // 20 * 104729) % 1000 / 1000
        return calls.NodeSnapshot(
            host=host,
            name=name,
            state="ready",
            cores=CORES,
            link="up",
            round_trip=0.0012,
            load=round(wave**2 * CORES, 2),
            free_memory=48 * 2**30,
            sessions=["day"],
            processes=2,
        )

    def status(self, hosts: list[int]) -> calls.TreeStatus:
        """Return what exactly runs on some nodes."""
        now = time.time()
        nodes: list[calls.NodeStatus] = []
        for host in hosts:
            record = calls.NodeRecord(
                host=host, name=f"n{host}", node=f"node-{host}", state="ready"
            )
            process = messages.ProcessActivity(pid=4000 + host, since=now - 60, memory=2**26)
            place = messages.ProcessActivity(pid=5000 + host, since=now, memory=2**25, rank=host)
            session = messages.SessionActivity(session="day", zygote=process, processes=[place])
            activity = messages.NodeActivity(
                clock=now, daemon=process, sessions=[session], commands=[]
            )
            parts = messages.NodeComponents(
                components=[ComponentView(name="link", state="ready", since=now - 60)]
            )
            nodes.append(calls.NodeStatus(record=record, activity=activity, components=parts))
        return calls.TreeStatus(time=now, nodes=nodes, refusals=[])

    async def ask(self, call: HeadCall[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Answer a call."""
        answers: dict[HeadCall[..., Any], Callable[..., Any]] = {
            WholeCluster.facts: self._facts,
            Nodes.snapshot: self.snapshot,
            Nodes.status: self.status,
            Nodes.every: list,
            Runs.every: lambda: self.runs,
            Runs.find: self._run,
            Sessions.every: lambda: self.sessions,
            Sessions.find: lambda session: next(one for one in self.sessions if one.id == session),
            Sessions.changed_trees: self._trees,
            Components.logs: self._logs,
            Events.find: self._events,
        }
        return answers[call](*args, **kwargs)

    def _facts(self) -> HeadFacts:
        return HeadFacts(
            name="lab",
            cluster="lab",
            version="0.1.0",
            pid=1,
            started=time.time() - 3600,
            addresses=[],
            clients=1,
        )

    def _run(self, run: str) -> calls.RunRecord:
        for one in self.runs:
            if one.id == run:
                return one
        raise ConfigurationError(f"no run begins with {run!r}")

    def _trees(self, known: session_records.KnownTrees) -> session_records.SessionTrees:
        for tree in self.trees:
            self.registry.note(tree)
        self.trees.clear()
        return self.registry.changed(known, self.sessions)

    def _logs(self, _host: int, _read: messages.ReadLogs) -> LogPage:
        line = {
            "timestamp": "2026-11-24T18:00:00.123+00:00",
            "level": "info",
            "component": "nodes",
            "event": "node admitted",
            "host": "n1",
        }
        return LogPage(ring="a", lines=[msgspec.json.encode(line)], next=1)

    def _events(self, query: EventQuery) -> EventPage:
        found = [one for one in self.events if one.number > query.after]
        if query.nodes:
            found = [one for one in found if one.node in query.nodes]
        return EventPage(events=found, state=LedgerState())


class SimulatedConnection(HeadConnection):
    """The server's own connection, to a simulated head."""

    def __init__(self, head: SimulatedHead) -> None:
        self.rights = None
        self.users = 0
        self.used = 0.0
        self._listeners = []
        self._head = head

    @property
    def is_over(self) -> bool:
        """Say that it has not ended."""
        return False

    async def call(self, call: HeadCall[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the simulated head."""
        return await self._head.ask(call, *args, **kwargs)


class _Application(WebApplication):
    """The real application; whether who comes without a credential may is the test's to say."""

    def __init__(self, head: SimulatedHead) -> None:
        self._head = head
        pool = ConnectionPool("lab", SimulatedConnection(head))
        super().__init__(pool, SessionCookie("lab"), no_token=True)

    def _tell_of_refused(self, address: str, reason: str, left_out: int) -> None:
        """Do nothing, because this head has no ledger."""

    @contextlib.asynccontextmanager
    async def _connection(self, request: Request, credential: str) -> AsyncIterator[Any]:
        self._no_token = not self._head.expired
        async with super()._connection(request, credential) as connection:
            yield connection


class Served:
    """A server that can be stopped and started again at the same port."""

    def __init__(self, head: SimulatedHead) -> None:
        self.head = head
        self.port = 0
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._application: _Application

    @property
    def followed(self) -> int:
        """How many things the server looks at for viewers."""
        return self._application.live.followed

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Begin to serve."""
        sock = socket.create_server(("127.0.0.1", self.port))
        self.port = sock.getsockname()[1]
        self._application = _Application(self.head)
        config = uvicorn.Config(
            self._application, log_config=None, timeout_graceful_shutdown=0, lifespan="off"
        )
        self._server = server = uvicorn.Server(config)

        def work() -> None:
            with contextlib.suppress(asyncio.CancelledError):
                server.run(sockets=[sock])
            sock.close()

        self._thread = threading.Thread(target=work, name="simulated-cluster")
        self._thread.start()

    def stop(self) -> None:
        """Serve no more."""
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
