"""Metrics of a cluster, as Prometheus reads them and as JSON.

They are made of what the head knows in any case: heartbeats, links, and what nodes said last. So a
scrape asks a bounded number of nodes, however many there are. What agents of sessions do is added
up in the trees of these sessions, and a head gets one message of it from each root periodically.
Names follow Prometheus' rules: one prefix, base units, `_total` for what only grows. Labels are
nodes and states, never runs or users.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from sapwood.activity.agent_metrics import BOUNDS, BUCKETS
from sapwood.head import calls, session_records
from sapwood.head.parts.cluster import HeadFacts

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of the text."""

MAX_NODES: Final = 2000
"""Most nodes with separate series; a larger cluster has sums only."""

NODE_STATES: Final = (
    "ready", "starting", "draining", "closed", "disconnected", "lost", "removed",
)  # fmt: skip
"""States of nodes that always have a series, so that an alert sees a zero."""

SESSION_STATES: Final = ("ready", "ended", "failed")
"""The same of sessions."""

RUN_STATES: Final = ("running", "done", "failed", "cancelled")
"""The same of detached runs."""

Labels = tuple[tuple[str, str], ...]


class MetricSample(msgspec.Struct, frozen=True):
    """A value.

    Attributes:
        labels: What it is about.
        value: It.
    """

    labels: dict[str, str]
    value: float


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A metric with its values.

    Attributes:
        name: What it is called.
        kind: ``gauge``, ``counter`` or ``histogram``.
        about: What it means.
        samples: Its values. Of a histogram they say how many there are up to ``le``, and, without
            a label, the sum of all.
    """

    name: str
    kind: str
    about: str
    samples: list[MetricSample]


class MetricList(msgspec.Struct, frozen=True):
    """Metrics.

    Attributes:
        metrics: Each of them.
    """

    metrics: list[Metric]


class ServerMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """How the HTTP server is.

    Attributes:
        requests: Answers so far, by status.
        connections: Clients that are there.
        streams: Open streams of events.
    """

    requests: Mapping[int, int] = {}
    connections: int = 0
    streams: int = 0


class ClusterMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """All that metrics are made of.

    Attributes:
        head: The head.
        snapshot: Its nodes.
        sessions: Its sessions.
        runs: Its detached runs.
        events: Events that the ledger has numbered.
        lost: Events that it has lost since the head began.
        server: How the HTTP server is.
    """

    head: HeadFacts
    snapshot: calls.ClusterSnapshot
    sessions: Sequence[session_records.SessionRecord] = ()
    runs: Sequence[calls.RunRecord] = ()
    events: int = 0
    lost: int = 0
    server: ServerMetrics = ServerMetrics()


Series = tuple[str, str, str, list[tuple[Labels, float]]]
"""Name, kind, meaning and values of a metric."""

_OF_NODE: Final[Sequence[tuple[str, str, str, Callable[[calls.NodeSnapshot], float | None]]]] = (
    ("up", "gauge", "Whether processes can begin on the node.", lambda one: one.state == "ready"),
    ("cores", "gauge", "Processes that may run at once on the node.", lambda one: one.cores),
    ("load1", "gauge", "Processes that run or want to, over a minute.", lambda one: one.load),
    (
        "free_memory_bytes", "gauge", "Memory that processes of the node can still take.",
        lambda one: None if one.load is None else one.free_memory,
    ),
    (
        "round_trip_seconds", "gauge", "Time that a message takes to the node and back.",
        lambda one: one.round_trip,
    ),
    (
        "clock_skew_seconds", "gauge", "Time by which the node's clock is ahead of the head's.",
        lambda one: one.skew,
    ),
    (
        "certificate_expiry_timestamp_seconds", "gauge", "When the certificate of the node ends.",
        lambda one: one.certificate_end or None,
    ),
    (
        "sent_bytes_total", "counter", "Bytes that the head has sent on its link to the node.",
        lambda one: one.sent if one.link else None,
    ),
    (
        "received_bytes_total", "counter", "Bytes that came to the head on its link to the node.",
        lambda one: one.received if one.link else None,
    ),
    (
        "queued_bytes", "gauge", "Bytes that wait at the head to be sent to the node.",
        lambda one: one.queued if one.link else None,
    ),
)  # fmt: skip


def series(metrics: ClusterMetrics) -> list[Series]:
    """Return the metrics of a cluster."""
    head, nodes = metrics.head, metrics.snapshot.nodes
    info = (("cluster", head.cluster), ("name", head.name), ("version", head.version))
    found: list[Series] = [
        _one("build_info", "gauge", "The cluster and the version of its head.", 1, info),
        _one("head_start_time_seconds", "gauge", "When the head began.", head.started),
        _one("clients", "gauge", "Clients that are connected with the head.", head.clients),
        _one(
            "head_components_in_trouble",
            "gauge",
            "Components of the head that do not do what they are for.",
            len(metrics.snapshot.trouble),
        ),
        _counted("nodes", "Nodes by state.", (one.state for one in nodes), NODE_STATES),
        _one(
            "nodes_in_trouble",
            "gauge",
            "Nodes with a component that does not do what it is for.",
            sum(bool(one.trouble) for one in nodes),
        ),
        _one("processes", "gauge", "Places of sessions.", sum(one.processes for one in nodes)),
        _one("commands", "gauge", "Commands that run.", sum(one.commands for one in nodes)),
        _counted(
            "sessions",
            "Sessions by state; those that ended lately, too.",
            (one.state for one in metrics.sessions),
            SESSION_STATES,
        ),
        _one(
            "agents",
            "gauge",
            "Agents of sessions.",
            sum(one.report.agents for one in metrics.sessions if one.report is not None),
        ),
        _counted(
            "runs",
            "Detached runs by state; the last of those that are over, too.",
            (one.state for one in metrics.runs),
            RUN_STATES,
        ),
        *_of_agents(metrics.snapshot.work),
        _one("ledger_events_total", "counter", "Events of the ledger.", metrics.events),
        _one(
            "ledger_lost_events_total",
            "counter",
            "Events that the ledger has lost since the head began.",
            metrics.lost,
        ),
        (
            "sapwood_http_responses_total",
            "counter",
            "Answers of the HTTP server by status.",
            [((("status", str(one)),), n) for one, n in sorted(metrics.server.requests.items())],
        ),
        _one(
            "http_connections", "gauge", "Clients of the HTTP server.", metrics.server.connections
        ),
        _one("http_streams", "gauge", "Open streams of events.", metrics.server.streams),
    ]
    if len(nodes) <= MAX_NODES:
        labels: list[Labels] = [(("node", one.name),) for one in nodes]
        for name, kind, about, value_of in _OF_NODE:
            values = [
                (label, value)
                for label, one in zip(labels, nodes, strict=True)
                if (value := value_of(one)) is not None
            ]
            found.append((f"sapwood_node_{name}", kind, about, values))
    return found


def as_text(found: Iterable[Series]) -> bytes:
    r"""Return metrics as Prometheus reads them.

    Example:
        >>> as_text([("sapwood_nodes", "gauge", "Nodes.", [((("state", "ready"),), 2)])])
        b'# HELP sapwood_nodes Nodes.\n# TYPE sapwood_nodes gauge\nsapwood_nodes{state="ready"} 2\n'
    """
    lines: list[str] = []
    shown: dict[Labels, str] = {(): ""}
    for name, kind, about, values in found:
        if not values:
            continue
        lines += (f"# HELP {name} {about}", f"# TYPE {name} {kind}")
        if kind == "histogram":
            lines += _histogram(name, values)
            continue
        for labels, value in values:
            text = shown.get(labels)
            if text is None:
                inner = ",".join(f'{key}="{_escaped(one)}"' for key, one in labels)
                text = shown[labels] = f"{{{inner}}}"
            lines.append(f"{name}{text} {_number(value)}")
    return ("\n".join(lines) + "\n").encode()


def _histogram(name: str, values: Sequence[tuple[Labels, float]]) -> Iterable[str]:
    """Return the lines of a histogram: its buckets, the last one with all, and its sum."""
    *buckets, (_, total) = values
    for labels, count in buckets:
        yield f'{name}_bucket{{le="{labels[0][1]}"}} {_number(count)}'
    yield f"{name}_sum {_number(total)}"
    yield f"{name}_count {_number(buckets[-1][1])}"


def as_list(found: Iterable[Series]) -> MetricList:
    """Return metrics as structures."""
    return MetricList(
        [
            Metric(
                name=name,
                kind=kind,
                about=about,
                samples=[MetricSample(dict(labels), float(value)) for labels, value in values],
            )
            for name, kind, about, values in found
        ]
    )


def _of_agents(work: session_records.WorkMetrics) -> list[Series]:
    """Return what agents of sessions do: sums that the trees of the sessions have made."""
    results = [(("result", "ok"),), (("result", "error"),)]
    ways = [(("direction", "in"),), (("direction", "out"),)]
    buckets = work.buckets or [0] * len(BUCKETS)
    bounds = [*map(str, BOUNDS), "+Inf"]
    counts = zip(bounds, itertools.accumulate(buckets), strict=True)
    return [
        _one("agents_busy", "gauge", "Agents of sessions that make a call.", work.busy),
        _one(
            "agents_memory_bytes",
            "gauge",
            "Memory of the agents of sessions and of their runners, all together.",
            work.memory,
        ),
        (
            "sapwood_calls_total",
            "counter",
            "Maps of runs, and tasks, that agents of sessions have called.",
            [*zip(results, (work.calls - work.errors, work.errors), strict=True)],
        ),
        (
            "sapwood_call_bytes_total",
            "counter",
            "Bytes of what they were called with, and of what they returned.",
            [*zip(ways, (work.bytes_in, work.bytes_out), strict=True)],
        ),
        (
            "sapwood_call_seconds",
            "histogram",
            "Time that calls took that did not fail.",
            [*(((("le", le),), count) for le, count in counts), ((), work.seconds)],
        ),
    ]


def _one(name: str, kind: str, about: str, value: float, labels: Labels = ()) -> Series:
    return f"sapwood_{name}", kind, about, [(labels, value)]


def _counted(name: str, about: str, states: Iterable[str], always: Sequence[str]) -> Series:
    found = Counter(dict.fromkeys(always, 0))
    found.update(states)
    values: list[tuple[Labels, float]] = [((("state", one),), n) for one, n in found.items()]
    return f"sapwood_{name}", "gauge", about, values


def _number(value: float) -> str:
    return str(int(value)) if isinstance(value, int) else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
