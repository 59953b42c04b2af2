"""``sapwood top``: a cluster at a glance; ``top_display.py`` draws it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sapwood.cli import present
from sapwood.cli.failures import of_cluster, reporting
from sapwood.cli.head_access import connected
from sapwood.cli.interrupts import noted_interrupts
from sapwood.cli.options import Cluster, Debug, Json
from sapwood.cli.present import output_console, print_json, table
from sapwood.core.errors import CommunicationError
from sapwood.core.hostset import fold_hosts
from sapwood.environment.units import describe_size
from sapwood.head import calls, session_records
from sapwood.head.parts.cluster import WholeCluster
from sapwood.head.parts.nodes import Nodes
from sapwood.head.parts.runs import Runs
from sapwood.head.parts.sessions import Sessions
from sapwood.head_client.access import HeadAccess
from sapwood.head_client.connection import CALL_TIMEOUT
from sapwood.views.live import with_progress
from sapwood.views.overview import Overview, RunAndProgress, overview
from sapwood.views.words import moment_shown

STYLES = {"good": "green", "poor": "yellow", "bad": "bold red"}

BAR = 12
"""Columns of a bar of load."""

ROWS_ONCE = 64
"""Rows of each table without a terminal."""

FIRST_PAUSE = 0.3
"""Seconds that nodes get to say how they are, where there is only one look."""

HEAD_LINES = 4
"""Lines above the tables, besides what is wrong."""

ALERT_LINES = 6


@reporting
def top(
    *,
    name: Cluster = "default",
    once: Annotated[
        bool, typer.Option("--once", help="Print it once; the default without a terminal.")
    ] = False,
    seconds: Annotated[
        float,
        typer.Option("--seconds", "-s", metavar="S", min=0.2, help="Seconds between two updates."),
    ] = 1.0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the health, nodes, load, sessions and runs of a cluster, until Ctrl-C.

    First comes what is wrong, then the busiest nodes and the newest sessions and runs, as many as
    the terminal has room for.
    """
    console = output_console()
    with connected(name) as head:
        if once or as_json or not console.is_terminal:
            snapshot = settled(head)
            if as_json:
                print_json(snapshot)
            else:
                console.print(drawn(snapshot, ROWS_ONCE))
            return
        _follow(head, console, seconds)


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything ``sapwood top --json`` prints; fields are only ever added."""

    overview: Overview
    nodes: list[calls.NodeSnapshot]
    sessions: list[session_records.SessionRecord]
    runs: list[RunAndProgress]


def settled(head: HeadAccess) -> Snapshot:
    """Look once, and a moment later again where nodes had not said yet how they are."""
    snapshot = look(head)
    if any(one.load is None and one.state == "ready" for one in snapshot.nodes):
        time.sleep(FIRST_PAUSE)
        snapshot = look(head)
    return snapshot


def look(head: HeadAccess) -> Snapshot:
    """Return a snapshot of a cluster."""
    client = head.client
    facts = client.call_within(CALL_TIMEOUT, WholeCluster.facts)
    seen = client.call_within(CALL_TIMEOUT, Nodes.snapshot)
    sessions = client.call_within(CALL_TIMEOUT, Sessions.every)
    runs = with_progress(client.call_within(CALL_TIMEOUT, Runs.every))
    return Snapshot(
        overview=overview(facts, seen, sessions, runs),
        nodes=seen.nodes,
        sessions=sorted(sessions, key=lambda one: -one.created),
        runs=sorted(runs, key=lambda one: -one.record.created),
    )


def _follow(head: HeadAccess, console: Console, pause: float) -> None:
    waited = threading.Event()
    console.width = console.size.width
    with (
        noted_interrupts() as interrupted,
        Live(console=console, auto_refresh=False, screen=True) as live,
    ):
        while not interrupted():
            room = console.size.height - HEAD_LINES
            try:
                shown: RenderableType = drawn(look(head), room)
            except CommunicationError as error:
                shown = Text(f"The head does not answer: {error.what}", style=STYLES["bad"])
            live.update(shown, refresh=True)
            end = time.monotonic() + pause
            while time.monotonic() < end and not interrupted():
                waited.wait(0.1)


def drawn(snapshot: Snapshot, room: int) -> RenderableType:
    """Return a snapshot as lines and tables.

    Args:
        snapshot: The cluster.
        room: Lines that there are below the first ones.
    """
    found = snapshot.overview
    parts: list[RenderableType] = [_headline(found)]
    parts += [
        Text(f"  {one.text}", style=STYLES[one.level], no_wrap=True, overflow="ellipsis")
        for one in found.alerts[:ALERT_LINES]
    ]
    if len(found.alerts) > ALERT_LINES:
        parts.append(Text(f"  … {len(found.alerts) - ALERT_LINES} more", style="dim"))
    parts.append(Text(_figures(found), no_wrap=True, overflow="ellipsis"))
    live = [one for one in snapshot.sessions if one.state not in {"ended", "failed"}]
    going = [one for one in snapshot.runs if one.record.state == "running"]
    runs = going or snapshot.runs[:3]
    left = room - len(parts) - 6
    few = max(1, left // 4)
    if runs:
        title = "Runs" if going else "Last runs"
        parts += ["", _runs(title, runs[:few], found.time)]
        left -= min(few, len(runs)) + 3
    if live:
        parts += ["", _sessions("Sessions", live[:few], found.time)]
        left -= min(few, len(live)) + 3
    if found.connected:
        parts += ["", _connected("Connected programs", found.connected[:few], found.time)]
        left -= min(few, len(found.connected)) + 3
    parts += ["", *_nodes(snapshot.nodes, max(1, left - 2))]
    return Group(*parts)


def _headline(found: Overview) -> Text:
    up = present.seconds(max(0.0, found.time - found.started))
    made = Text(f"{found.name}: ", style="bold", no_wrap=True, overflow="ellipsis")
    made.append(found.sentence, style=STYLES[found.health])
    made.append(f"  (up {up}, Sapwood {found.version})", style="dim")
    return made


def _figures(found: Overview) -> str:
    nodes = ", ".join(f"{count} {state}" for state, count in found.nodes.items()) or "none"
    parts = [f"nodes {nodes}", f"load {found.load:.2f} on {found.cores} cores"]
    if found.free_memory:
        parts.append(f"{describe_size(found.free_memory)} free")
    parts.append(f"agents {found.agents}")
    if found.items_per_second:
        parts.append(f"{present.count(found.items_per_second)} items/s")
    return "   ".join(parts)


def _runs(title: str, runs: Sequence[RunAndProgress], now: float) -> Table:
    rows: list[tuple[str, ...]] = []
    for one in runs:
        record, progress = one.record, one.progress
        took = present.seconds(max(0.0, (record.ended or now) - record.created))
        rate = present.count(progress.items_per_second) if progress and progress.iteration else ""
        rows.append((record.id, record.program, record.state, took, _iteration(one), rate))
    columns = ("run", "program", "state", "time>", "iteration>", "items/s>")
    return table(title, columns, rows)


def _iteration(run: RunAndProgress) -> str:
    progress = run.progress
    if progress is None:
        return ""
    planned = "" if progress.iterations is None else f"/{progress.iterations}"
    return f"{progress.iteration}{planned}"


def _sessions(title: str, sessions: Sequence[session_records.SessionRecord], now: float) -> Table:
    rows = [
        (
            one.name,
            one.state,
            str(one.report.agents if one.report else 0),
            (one.report.owner if one.report else "") or "-",
            str(one.report.streams if one.report else 0),
            moment_shown(one.created, now),
        )
        for one in sessions
    ]
    columns = ("session", "state", "agents>", "owner", "streams>", "created")
    return table(title, columns, rows)


def _connected(title: str, programs: Sequence[calls.ConnectedUser], now: float) -> Table:
    rows = [
        (
            one.name,
            one.user or "-",
            one.address or "here",
            "?" if one.agents is None else str(one.agents),
            fold_hosts(sorted(one.nodes)),
            moment_shown(one.since, now),
            ", ".join(f"{run.run} ({present.seconds(now - run.started)})" for run in one.runs),
        )
        for one in programs
    ]
    columns = ("connection", "user", "address", "agents>", "nodes", "since", "runs")
    return table(title, columns, rows)


def _nodes(nodes: Sequence[calls.NodeSnapshot], room: int) -> list[RenderableType]:
    """Return a table of those that are not ready, then the busiest; and how many more there are."""
    if not nodes:
        said = "No nodes yet: `sapwood token create` prints a line with which one joins."
        return [Text(of_cluster(said))]
    order = sorted(nodes, key=lambda one: (one.state == "ready", -_share(one), one.host))
    rows = [
        (
            one.name,
            one.state,
            _bar(one),
            "" if one.load is None else f"{one.load:.2f}",
            str(one.cores or ""),
            describe_size(one.free_memory) if one.free_memory else "",
            str(one.processes),
            "" if one.round_trip is None else present.seconds(one.round_trip),
        )
        for one in order[:room]
    ]
    columns = ("node", "state", "load", ">", "cores>", "free>", "processes>", "rtt>")
    parts: list[RenderableType] = [table("Nodes", columns, rows)]
    if len(order) > room:
        parts.append(Text(f"… {len(order) - room} more, less busy", style="dim"))
    return parts


def _share(node: calls.NodeSnapshot) -> float:
    return (node.load or 0.0) / (node.cores or 1)


def _bar(node: calls.NodeSnapshot) -> str:
    """Return a bar of the load, as a share of the cores.

    Example:
        >>> _bar(calls.NodeSnapshot(host=1, name="n1", state="ready", load=4.0, cores=8))
        '██████······'
    """
    if node.load is None or not node.cores:
        return ""
    full = round(BAR * min(1.0, _share(node)))
    return "█" * full + "·" * (BAR - full)
