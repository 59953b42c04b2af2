"""The health of a cluster: its figures, and what is wrong, in one sentence each."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from sapwood.activity.progress import RunInfo
from sapwood.environment.units import describe_size
from sapwood.head import calls, session_records
from sapwood.head.parts.cluster import HeadFacts
from sapwood.session.session_life import SessionState
from sapwood.views.words import RECENT, moment_shown, of_node, of_refusal

MAX_SKEW: Final = 1.0
"""Difference between clocks that causes an alert, seconds."""

CERTIFICATE_LEFT: Final = 600.0
"""Seconds before its end at which an unrenewed certificate causes an alert."""

OVERLOAD: Final = 4.0
"""Runnable processes for each core that cause an alert."""

FREE_MEMORY: Final = 256 * 2**20
"""Free bytes of a node below which an alert is caused."""

UNREACHED: Final = frozenset({"starting", "lost", "disconnected"})
"""States of nodes whose cores cannot be used now; their last report is old."""

MAX_ALERTS: Final = 50
"""Sentences that are shown; of more, a last one says how many there are."""


class Level(enum.StrEnum):
    """How bad something is."""

    BAD = "bad"
    POOR = "poor"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Something is wrong.

    Attributes:
        level: ``bad`` where something does not work, ``poor`` where it may soon be so.
        text: What, in one sentence.
        page: The page of the dashboard that has more, such as ``runs/3f2a91c0``.
    """

    level: Level
    text: str
    page: str = ""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """How a cluster is, as one page or a few lines.

    Attributes:
        time: When, seconds since 1970.
        name: What the user calls the cluster.
        version: Of Sapwood.
        started: When the head began, seconds since 1970.
        health: ``good``, or the level of the worst alert.
        sentence: The same in words.
        alerts: Problems, the worst first.
        nodes: How many there are in each state.
        cores: Of all nodes that can be reached, together.
        load: Processes that run or want to, on all these nodes together.
        free_memory: Bytes that processes can still take, on all these nodes together.
        sessions: How many there are in each state, those that are over left out.
        agents: Of all these sessions and of connected users together.
        runs: How many there are in each state, among the runs that the head keeps and the runs of
            connected programs.
        items_per_second: Sum over all active runs.
        connected: The programs that use nodes without a named session, the newest first.
    """

    time: float
    name: str
    version: str
    started: float
    health: str
    sentence: str
    alerts: list[Alert]
    nodes: dict[str, int]
    cores: int
    load: float
    free_memory: int
    sessions: dict[str, int]
    agents: int
    runs: dict[str, int]
    items_per_second: float
    connected: list[calls.ConnectedUser] = []


class RunAndProgress(msgspec.Struct, frozen=True):
    """A run, how far it has come, and why it failed; None and empty where that is not known."""

    record: calls.RunRecord
    progress: RunInfo | None = None
    error: str = ""


def overview(
    head: HeadFacts,
    snapshot: calls.ClusterSnapshot,
    sessions: Sequence[session_records.SessionRecord],
    runs: Sequence[RunAndProgress],
) -> Overview:
    """Return how a cluster is."""
    alerts = sorted(_alerts(snapshot, sessions, runs), key=lambda one: one.level != Level.BAD)
    if len(alerts) > MAX_ALERTS:
        more = Alert(level=Level.POOR, text=f"{len(alerts) - MAX_ALERTS} more things are wrong")
        alerts = [*alerts[:MAX_ALERTS], more]
    live = [one for one in sessions if not SessionState(one.state).is_over]
    others = ["running" for one in snapshot.connected for _ in one.runs]
    reached = [one for one in snapshot.nodes if one.state not in UNREACHED]
    going = [one.progress for one in runs if one.record.state == "running" and one.progress]
    return Overview(
        time=snapshot.time,
        name=head.name,
        version=head.version,
        started=head.started,
        health=str(alerts[0].level) if alerts else "good",
        sentence=_sentence(alerts, snapshot),
        alerts=alerts,
        nodes=dict(Counter(one.state for one in snapshot.nodes)),
        cores=sum(one.cores for one in reached),
        load=round(math.fsum(one.load or 0.0 for one in reached), 2),
        free_memory=sum(one.free_memory for one in reached),
        sessions=dict(Counter(one.state for one in live)),
        agents=sum(one.report.agents for one in live if one.report)
        + sum(one.agents or 0 for one in snapshot.connected),
        runs=dict(Counter([*(one.record.state for one in runs), *others])),
        items_per_second=math.fsum(one.items_per_second for one in going),
        connected=snapshot.connected,
    )


def _sentence(alerts: Sequence[Alert], snapshot: calls.ClusterSnapshot) -> str:
    if alerts:
        bad = sum(one.level == Level.BAD for one in alerts)
        if not bad:
            return "Everything works, but something may go wrong."
        return "One thing is wrong." if bad == 1 else f"{bad} things are wrong."
    count = len(snapshot.nodes)
    if not count:
        return "The head works. No nodes have joined yet."
    return f"Everything works: {count} node{'s are' if count > 1 else ' is'} ready."


def _alerts(
    snapshot: calls.ClusterSnapshot,
    sessions: Sequence[session_records.SessionRecord],
    runs: Sequence[RunAndProgress],
) -> Iterable[Alert]:
    yield from (Alert(level=Level.BAD, text=f"head: {one}") for one in snapshot.trouble)
    yield from _of_nodes(snapshot.nodes, snapshot.time)
    for session in sessions:
        report = session.report
        failed = session.state == SessionState.FAILED.value
        if failed and report and report.since > snapshot.time - RECENT:
            text = f"the session {session.name} has failed"
            why = f": {session.reason}" if session.reason else ""
            yield Alert(level=Level.BAD, text=text + why, page=f"sessions/{session.id}")
        if report is not None and report.dropped:
            text = f"output of the session {session.name} was left out: "
            yield Alert(
                level=Level.POOR,
                text=text + f"{describe_size(report.dropped)} because it was not collected",
                page=f"sessions/{session.id}",
            )
    for run in runs:
        record = run.record
        if record.state == "failed" and record.ended > snapshot.time - RECENT:
            at = moment_shown(record.ended, snapshot.time)
            text = f"the run {record.id} of {record.program} failed at {at}"
            why = f": {run.error}" if run.error else ""
            yield Alert(level=Level.BAD, text=text + why, page=f"runs/{record.id}")
    for refusal in snapshot.refusals:
        if snapshot.time - refusal.time < RECENT:
            text = of_refusal(refusal, snapshot.time)
            yield Alert(level=Level.POOR, text=text, page="events")


def _of_nodes(nodes: Sequence[calls.NodeSnapshot], now: float) -> Iterable[Alert]:
    """Return what is wrong with nodes; those with the same cause share a sentence."""
    found: dict[tuple[Level, str, str], list[calls.NodeSnapshot]] = {}
    for node in nodes:
        for level, state, reason in _of_node(node, now):
            found.setdefault((level, state, reason), []).append(node)
    for (level, state, reason), some in found.items():
        names = [one.name for one in some]
        since = some[0].since if len(some) == 1 and state == some[0].state else 0.0
        page = f"nodes/{names[0]}" if len(names) == 1 else "nodes"
        yield Alert(level=level, text=of_node(names, state, since, reason, now), page=page)


def _of_node(node: calls.NodeSnapshot, now: float) -> Iterable[tuple[Level, str, str]]:
    if node.state in {"lost", "disconnected"}:
        yield Level.BAD, node.state, node.reason
        return  # the rest follows from that, or is old
    if node.state == "closed":
        yield Level.POOR, node.state, node.reason
    for one in node.trouble:
        yield Level.BAD, "not whole", one
    if abs(node.skew) > MAX_SKEW:
        way = "ahead of" if node.skew > 0 else "behind"
        yield Level.POOR, "off", f"the clock is {abs(node.skew):.1f} s {way} the head's"
    if 0 < node.certificate_end < now + CERTIFICATE_LEFT:
        at = moment_shown(node.certificate_end, now)
        yield Level.BAD, "about to be cut off", f"the certificate ends at {at} and was not renewed"
    if node.load is not None and node.cores and node.load > OVERLOAD * node.cores:
        yield Level.POOR, "overloaded", f"the load is {node.load:.0f} on {node.cores} cores"
    if node.load is not None and 0 < node.free_memory < FREE_MEMORY:
        yield Level.POOR, "short of memory", f"{describe_size(node.free_memory)} are free"
