"""The HTTP API, version 1: one table of endpoints, from which routes and reference are made."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.responses import Response

from sapwood.activity.progress import RunInfo
from sapwood.activity.run_record import WorkStatistics
from sapwood.core.errors import ConfigurationError
from sapwood.core.shown import shown
from sapwood.head import calls
from sapwood.head.ledger import EventQuery, LedgerEvent, LedgerState
from sapwood.head.parts.cluster import HeadFacts, WholeCluster
from sapwood.head.parts.components import Components
from sapwood.head.parts.events import Events
from sapwood.head.parts.nodes import Nodes
from sapwood.head.parts.runs import Runs
from sapwood.head.parts.sessions import Sessions
from sapwood.head.protocol import greeting
from sapwood.head.role_table import CALLS
from sapwood.head.runs import ANSWER, OUTPUT, RUNNING
from sapwood.nodes.messages import ReadLogs
from sapwood.server.declared import declared_endpoint
from sapwood.server.endpoints import ApiRequest, Endpoint, Routes
from sapwood.server.head_connections import HeadConnection
from sapwood.server.live import endpoints as live_endpoints
from sapwood.server.metrics import (
    MEDIA_TYPE as METRICS,
)
from sapwood.server.metrics import (
    ClusterMetrics,
    MetricList,
    ServerMetrics,
    as_list,
    as_text,
    series,
)
from sapwood.server.problems import HttpError
from sapwood.views.live import Live
from sapwood.views.run_page import progress_of, work_of

PREFIX: Final = "/api/v1"
"""How the paths of this version begin."""

MAX_ANSWER: Final = 4 * 2**20
"""Bytes of the answer of a run that is shown."""

MAX_OUTPUT: Final = 256 * 1024
"""Bytes of output that are given out at once."""

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
"""Levels of log lines, the least important first; ten apart, as Python counts them."""

_RUN = re.compile(r"[0-9a-f]{1,32}")
_RUN_PART = {"run": "The id of a run, or the start of it."}
_NODE_PART = {"node": "The name of a node."}

routes = Routes()
"""The endpoints that need nothing but the connection to the head."""


class Counts(msgspec.Struct, frozen=True):
    """How many of something there are.

    Attributes:
        total: All of them.
        states: How many are in which state.
    """

    total: int
    states: dict[str, int]

    @classmethod
    def of(cls, states: Iterable[str]) -> Counts:
        """Count states."""
        found = Counter(states)
        return cls(sum(found.values()), dict(sorted(found.items())))


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster at a glance.

    Attributes:
        head: Its head.
        rights: What the client may do here; None for all.
        nodes: Its nodes.
        sessions: Its sessions, those that have ended lately, too.
        runs: Its detached runs, those that are over, too; None without the right ``observe``.
    """

    head: HeadFacts
    rights: greeting.RightsFacts | None
    nodes: Counts
    sessions: Counts
    runs: Counts | None


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A detached run.

    Attributes:
        record: What the head knows.
        progress: How far it has come; None before it has said so.
        answer: Its result or error; None while it runs, or if that is too large.
    """

    record: calls.RunRecord
    progress: RunInfo | None = None
    answer: Any = None


class RunList(msgspec.Struct, frozen=True):
    """Detached runs.

    Attributes:
        runs: Each of them.
    """

    runs: list[RunView]


class ProgramView(msgspec.Struct, frozen=True, kw_only=True):
    """A program that detached runs are of.

    Attributes:
        name: What it is called.
        path: Its path on the head's machine.
        runs: Its runs.
        last: The id of the run that began last.
    """

    name: str
    path: str
    runs: Counts
    last: str


class ProgramList(msgspec.Struct, frozen=True):
    """Programs.

    Attributes:
        programs: Each of them.
    """

    programs: list[ProgramView]


class OutputPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of what a run has printed.

    Attributes:
        text: The piece; bytes that are no UTF-8 are replaced.
        next: What to ask for next.
        more: Whether there is more already.
        over: Whether the run is over, so that no more will come behind that.
    """

    text: str
    next: int
    more: bool
    over: bool


class LogView(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of the log of a daemon, or of the head.

    Attributes:
        ring: Name of the numbered lines: another process has another one.
        lines: Each line, with its fields.
        next: What to ask for next.
        dropped: Lines after the requested position that were overwritten.
        more: Whether there are more.
    """

    ring: str
    lines: list[msgspec.Raw]
    next: int
    dropped: int
    more: bool


class EventList(msgspec.Struct, frozen=True):
    """What happened.

    Attributes:
        events: The events, the oldest first.
        ledger: How the ledger is.
    """

    events: list[LedgerEvent]
    ledger: LedgerState


class RunQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs?

    Attributes:
        over: Also those that are over.
    """

    over: bool = True


class OutputQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which piece?

    Attributes:
        after: From which byte on; less than 0: so many bytes before the end.
    """

    after: int = 0


class LogQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which lines?

    Attributes:
        after: Those behind this number.
        level: Those of this level, or more important: debug, info, warning, error or critical.
    """

    after: int = 0
    level: str = "debug"


class EventFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events?

    Attributes:
        since: Those from this time on, seconds since 1970.
        after: Those behind this number.
        node: Those about these nodes; none: about any, or no node.
        session: Those about this session; empty: about any, or no session.
        kind: Those of these kinds, or of all kinds that begin so; none: of any.
        limit: The last ones, at most so many.
    """

    since: float = 0.0
    after: int = 0
    node: list[str] = []
    session: str = ""
    kind: list[str] = []
    limit: int = 1000

    @property
    def query(self) -> EventQuery:
        """The same for the head."""
        return EventQuery(
            since=self.since,
            after=self.after,
            nodes=self.node,
            session=self.session,
            kinds=self.kind,
            limit=self.limit,
        )


# --- the cluster and its nodes ------------------------------------------------------------------


@routes("GET", "/cluster")
async def cluster(asked: ApiRequest) -> ClusterView:
    """The cluster at a glance: its head, and how many nodes, sessions and runs there are."""
    connection = asked.connection
    head = await connection.call(WholeCluster.facts)
    runs: Counts | None = None
    if may_observe(connection):
        runs = Counts.of(one.state for one in await _runs(connection))
    return ClusterView(
        head=head,
        rights=connection.rights,
        nodes=Counts.of(one.state for one in await connection.call(Nodes.every)),
        sessions=Counts.of(one.state for one in await connection.call(Sessions.every)),
        runs=runs,
    )


def may_observe(connection: HeadConnection) -> bool:
    """Say whether a client can expect to see what needs the right ``observe``; the head decides."""
    return connection.rights is None or bool({"observe", "admin"} & set(connection.rights.names))


async def _node(asked: ApiRequest) -> calls.NodeRecord:
    name = asked.path["node"]
    found = [one for one in await asked.connection.call(Nodes.every) if one.name == name]
    if not found:
        raise HttpError(404, "there is no such node", where=name, hint=f"see {PREFIX}/nodes")
    return found[-1]  # one that is leaving may have the same name


@routes("GET", "/nodes/{node}", parts=_NODE_PART)
async def node(asked: ApiRequest) -> calls.NodeRecord:
    """One node."""
    return await _node(asked)


@routes("GET", "/nodes/{node}/logs", right="observe", query=LogQuery, parts=_NODE_PART)
async def node_logs(asked: ApiRequest) -> LogView:
    """What the daemon of a node has logged."""
    return await _logs(asked, (await _node(asked)).host)


@routes("GET", "/logs", right="observe", query=LogQuery)
async def head_logs(asked: ApiRequest) -> LogView:
    """What the head has logged."""
    return await _logs(asked, 0)


async def _logs(asked: ApiRequest, host: int) -> LogView:
    wanted: LogQuery = asked.query
    if wanted.level not in LEVELS:
        raise HttpError(
            400, f"unknown level {shown(wanted.level)}", hint=f"levels are {', '.join(LEVELS)}"
        )
    level = 10 * (LEVELS.index(wanted.level) + 1)
    page = await asked.connection.call(Components.logs, host, ReadLogs(wanted.after, level))
    return LogView(
        ring=page.ring,
        lines=[msgspec.Raw(one) for one in page.lines],
        next=page.next,
        dropped=page.dropped,
        more=page.more,
    )


# --- runs and programs ---------------------------------------------------------------------------


async def _runs(connection: HeadConnection) -> list[calls.RunRecord]:
    return await connection.call(Runs.every)


@routes("GET", "/runs", right="observe", query=RunQuery)
async def runs(asked: ApiRequest) -> RunList:
    """The detached runs, with their progress."""
    wanted: RunQuery = asked.query
    found = [one for one in await _runs(asked.connection) if wanted.over or one.state == RUNNING]
    return RunList(await asyncio.to_thread(lambda: [_seen(one) for one in found]))


async def _run(asked: ApiRequest) -> calls.RunRecord:
    name = asked.path["run"]
    if _RUN.fullmatch(name) is None:
        raise HttpError(404, "there is no such run", where=name[:100], hint=f"see {PREFIX}/runs")
    try:
        return await asked.connection.call(Runs.find, name)
    except ConfigurationError as error:
        raise HttpError(404, error.what, where=name[:100], hint=error.hint) from error


@routes("GET", "/runs/{run}", right="observe", parts=_RUN_PART)
async def run(asked: ApiRequest) -> RunView:
    """One detached run, with its progress and its answer."""
    record = await _run(asked)
    return await asyncio.to_thread(_seen, record, whole=True)


@routes("GET", "/runs/{run}/work", right="observe", parts=_RUN_PART)
async def run_work(asked: ApiRequest) -> WorkStatistics:
    """Which agent did which work in a detached run, and why its slices moved."""
    record = await _run(asked)
    found = await asyncio.to_thread(work_of, record)
    if found is None:
        raise HttpError(404, "this run has recorded nothing yet", where=record.id, hint="try again")
    return found


@routes("POST", "/runs/{run}/cancel", right="admin", parts=_RUN_PART)
async def cancel_run(asked: ApiRequest) -> RunView:
    """Cancel a detached run."""
    record = await _run(asked)
    cancelled = await asked.connection.call_within(60.0, Runs.cancel, record.id)
    return await asyncio.to_thread(_seen, cancelled)


@routes("GET", "/runs/{run}/output", right="observe", query=OutputQuery, parts=_RUN_PART)
async def run_output(asked: ApiRequest) -> OutputPiece:
    """What the agents of a detached run have printed, piece by piece."""
    record = await _run(asked)
    return await asyncio.to_thread(_piece, record, asked.query.after)


@routes("GET", "/programs", right="observe")
async def programs(asked: ApiRequest) -> ProgramList:
    """The programs that detached runs are of."""
    found: dict[tuple[str, str], list[calls.RunRecord]] = {}
    for one in await _runs(asked.connection):
        path = str(one.wanted.spec.program)
        found.setdefault((one.program, path), []).append(one)
    return ProgramList(
        [
            ProgramView(
                name=name,
                path=path,
                runs=Counts.of(one.state for one in records),
                last=records[-1].id,
            )
            for (name, path), records in sorted(found.items())
        ]
    )


def _seen(record: calls.RunRecord, *, whole: bool = False) -> RunView:
    """Return a run with the files that it has written on this machine."""
    answer: Any = None
    if whole and record.state != RUNNING:
        answer = _answer(Path(record.folder))
    return RunView(record=record, progress=progress_of(record), answer=answer)


def _answer(folder: Path) -> Any:
    try:
        with (folder / ANSWER).open("rb") as file:
            data = file.read(MAX_ANSWER + 1)
        return None if len(data) > MAX_ANSWER else msgspec.json.decode(data)
    except (OSError, msgspec.DecodeError):
        return None


def _piece(record: calls.RunRecord, after: int) -> OutputPiece:
    over = record.state != RUNNING
    try:
        with (Path(record.folder) / OUTPUT).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = min(after, size) if after >= 0 else max(size + after, 0)
            file.seek(start)
            data = file.read(MAX_OUTPUT)
    except OSError:
        return OutputPiece(text="", next=0, more=False, over=over)
    end = start + len(data)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=over and end >= size)
    begun = len(decoder.getstate()[0])  # of a character, whose rest is in the next piece
    return OutputPiece(text=text, next=end - begun, more=end < size, over=over)


# --- events --------------------------------------------------------------------------------------


@routes("GET", "/events", right="observe", query=EventFilter)
async def events(asked: ApiRequest) -> EventList:
    """What happened, out of the ledger."""
    wanted: EventFilter = asked.query
    page = await asked.connection.call(Events.find, wanted.query)
    return EventList(page.events, page.state)


# --- metrics -------------------------------------------------------------------------------------


async def collect_metrics(connection: HeadConnection, server: ServerMetrics) -> ClusterMetrics:
    """Return all that metrics are made of; this asks a bounded number of nodes."""
    head, snapshot, sessions, runs, events = await asyncio.gather(
        connection.call(WholeCluster.facts),
        connection.call(Nodes.snapshot),
        connection.call(Sessions.every),
        connection.call(Runs.every),
        connection.call(Events.find, EventQuery(limit=1)),
    )
    return ClusterMetrics(
        head=head,
        snapshot=snapshot,
        sessions=sessions,
        runs=runs,
        events=max((one.number for one in events.events), default=0),
        lost=events.state.lost,
        server=server,
    )


@routes("GET", "/whoami")
async def whoami(asked: ApiRequest) -> greeting.RightsFacts:
    """What the credential of this request allows."""
    rights = asked.connection.rights
    if rights is not None:
        return rights
    return greeting.RightsFacts(
        names=["all"], session="", nodes="", not_after=0.0, subject="the head's user", id=""
    )


def endpoints(live: Live | None, server: Callable[[], ServerMetrics]) -> list[Endpoint]:
    """Return the endpoints of the API.

    Args:
        live: What clients can follow; None for the reference.
        server: Returns how the HTTP server is.
    """

    async def metrics(asked: ApiRequest) -> MetricList:
        """Metrics as JSON."""
        return as_list(series(await collect_metrics(asked.connection, server())))

    async def prometheus(asked: ApiRequest) -> Any:
        """Metrics as Prometheus reads them."""
        found = as_text(series(await collect_metrics(asked.connection, server())))
        return Response(found, media_type=METRICS)

    return [
        *routes.endpoints(PREFIX),
        *(declared_endpoint(PREFIX, one, one.http) for one in CALLS.values() if one.http),
        *live_endpoints(live, PREFIX),
        Endpoint(
            method="GET",
            path=f"{PREFIX}/metrics",
            handler=metrics,
            about="Metrics of the cluster, its nodes and this server, as JSON.",
            answer=MetricList,
            right="observe",
        ),
        Endpoint(
            method="GET",
            path="/metrics",
            handler=prometheus,
            about="The same as Prometheus reads it.",
            answer=str,
            right="observe",
            media=METRICS,
        ),
    ]
