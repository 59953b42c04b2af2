"""What ``sapwood session`` does."""

from __future__ import annotations

import datetime as dt
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import typer

from sapwood.cli import starting
from sapwood.cli.head_connection import asked_head
from sapwood.cli.present import begun_again, print_json, table, write
from sapwood.client.attaching import CREATE_TIMEOUT, RoleName, attach
from sapwood.client.cluster import Cluster
from sapwood.client.finding import must_be_there, once_there
from sapwood.contexts.launchers.choice import absolute, is_launched
from sapwood.core import typed
from sapwood.core.errors import ConfigurationError
from sapwood.core.hints import DEFAULT_CLUSTER, command
from sapwood.core.hostset import fold_hosts
from sapwood.core.rankset import fold, parse_ranks
from sapwood.core.shown import shown
from sapwood.environment.configuration import load_configuration
from sapwood.environment.units import parse_duration
from sapwood.head import calls
from sapwood.head.remote import SCHEME
from sapwood.roots.remote import credential_text
from sapwood.session.port import InvitationView, SessionState

END_TIMEOUT = 60.0
"""Seconds in which a session that is ended must be gone."""


@dataclass(frozen=True)
class SessionRequest:
    """What the user wants.

    Attributes:
        name: Of the session.
        on: Where its agents are.
        agents: How many.
        agents_per_node: How many on each node.
        fanout: Children of each junction.
        topology: Shape of the tree, instead of ``fanout``; empty for as the settings say.
        idle: How long it lives without attached clients.
        cluster: At which head.
        flags: Settings by dotted key.
    """

    name: str
    on: str
    agents: int | None
    agents_per_node: int | None
    fanout: int | None
    topology: str
    idle: str | None
    cluster: str
    flags: Mapping[str, str]


@dataclass(frozen=True)
class MergeRequest:
    """Which sessions are to be merged.

    Attributes:
        session: The one that gets the other's agents.
        other: The other one.
        credential: The file of the credential for that one; - for standard input.
        key: The file of its holder's key.
        of: The cluster of the other one.
    """

    session: str
    other: str
    credential: str
    key: str
    of: str


def create(request: SessionRequest, *, as_json: bool) -> None:
    """Start a session.

    Raises:
        SapwoodError: It cannot be started.
    """
    if request.topology and request.fanout is not None:
        raise ConfigurationError(
            "--fanout and --topology are both given", hint="leave one of them out"
        )
    flags = dict(request.flags)
    if request.topology:
        flags["cluster.shape" if request.on == "local" else "nodes.topology"] = request.topology
    wanted = calls.CreateSession(
        name=request.name,
        on=absolute(request.on),
        agents=request.agents,
        agents_per_node=request.agents_per_node,
        fanout=request.fanout,
        idle=None if request.idle is None else parse_duration(request.idle),
        settings=msgspec.to_builtins(load_configuration(flags).settings),
    )
    record = _asked(
        request.cluster, calls.CREATE_SESSION, msgspec.to_builtins(wanted), CREATE_TIMEOUT
    )
    if as_json:
        print_json(_facts(record))
        return
    report = record.report or _NO_REPORT
    if report.waits:
        typer.echo(
            f"The session {record.handle} waits for its machines: {report.waits}. It begins when "
            "they are there."
        )
    else:
        typer.echo(
            f"The session {record.handle} is ready: {report.agents} "
            f"agent{'s' * (report.agents != 1)}, process {record.pid}."
        )
    if request.cluster.startswith("sapwood://"):
        typer.echo(
            command("session", "credential", record.name, cluster=request.cluster)
            + " shows the line for sapwood.attach()."
        )
    else:
        typer.echo(_how_to_use(record, request.cluster))


def _how_to_use(record: calls.SessionRecord, cluster: str) -> str:
    """Return how runs and programs on this machine use a session."""
    if cluster == DEFAULT_CLUSTER:
        return f"Use it with --session {record.name}, or sapwood.attach({record.handle!r})."
    return (
        f"Use it with --session {record.name} --cluster {cluster}, or "
        f"sapwood.attach({record.handle!r}, cluster={cluster!r})."
    )


def show_all(cluster: str, *, ended: bool, as_json: bool) -> None:
    """List the sessions of a cluster."""
    records = typed.convert(asked_head(cluster, calls.LIST_SESSIONS), list[calls.SessionRecord])
    if not ended:
        records = [one for one in records if not SessionState(one.state).is_over]
    if as_json:
        print_json({"sessions": [_facts(one) for one in records]})
        return
    rows = [
        (
            one.handle,
            one.state,
            str(report.agents),
            report.owner or "-",
            _age(report.since) if report.since else "-",
            one.reason or _note(one, report),
        )
        for one, report in ((one, one.report or _NO_REPORT) for one in records)
    ]
    write(table("", ("session", "state", "agents>", "owner", "since>", "note"), rows, wrap="note"))


def show(session: str, cluster: str, *, as_json: bool) -> None:
    """Show a session."""
    record = _asked(cluster, calls.FIND_SESSION, session)
    if as_json:
        print_json(_facts(record))
        return
    report = record.report or _NO_REPORT
    rows = [
        ("session", record.handle),
        ("state", record.state),
        ("on", record.on),
        ("agents", str(report.agents)),
        ("created", f"{dt.datetime.fromtimestamp(record.created, dt.UTC).astimezone():%F %T}"),
        ("process", str(record.pid)),
        ("attached", ", ".join(report.front_ends) or "nobody"),
        ("streams", str(report.streams)),
        *([("waits for", f"{report.waits}; for {_age(report.since)}")] if report.waits else []),
        ("merged", _merges(report) or "with no other"),
        ("nodes", fold_hosts(report.nodes) or _no_nodes(record)),
        ("ends", _end(record, report)),
        ("kept output", _kept(report) or "none"),
    ]
    rows += [(one.key, f"{one.value}  ({one.origin})") for one in report.policy]
    rows += [("joined", joined_agent(one)) for one in report.invitations if one.rank]
    if record.restarts:
        rows.append(("restarts", begun_again(record.restarts)))
    if record.reason:
        rows.append(("reason", record.reason))
    write(table("", ("what", ""), rows, wrap=""))


def show_credential(session: str, cluster: str, *, as_json: bool) -> None:
    """Show what lets a front end on another machine attach."""
    text = _line_of(session, cluster)
    if as_json:
        print_json({"credential": text})
    else:
        typer.echo(text)


def watch(session: str, cluster: str, *, wait: bool) -> None:
    """Show what the agents of a session print, until it ends.

    Args:
        session: Which one.
        cluster: Its cluster.
        wait: Whether to wait for one that has not begun yet.
    """
    with _attached(session, "watch", cluster, wait=wait) as watched:
        over = threading.Event()
        watched.session.subscribe(
            lambda change: over.set() if watched.session.failure is not None else None
        )
        typer.echo(f"Watching {session}: {len(watched.agents)} agents; Ctrl-C leaves.", err=True)
        while watched.session.failure is None:
            over.wait(3600.0)
        raise watched.session.failure


def _line_of(session: str, cluster: str) -> str:
    found = asked_head(cluster, calls.SESSION_CREDENTIAL, session)
    return credential_text(typed.convert(found, calls.SessionCredential))


def _attached(session: str, role: RoleName, cluster: str, *, wait: bool = False) -> Cluster:
    """Attach to a session; by a line of its head, if that is on another machine."""
    if not cluster.startswith(SCHEME):
        return attach(session, role=role, cluster=cluster, wait=wait, on_wait=starting.wait)

    def find() -> None:
        must_be_there(_asked(cluster, calls.FIND_SESSION, session))

    if wait:
        once_there(find, starting.wait)
    else:
        find()
    return attach(_line_of(session, cluster), role=role)


def merge(request: MergeRequest, cluster: str, *, as_json: bool) -> None:
    """Merge two sessions.

    Raises:
        SapwoodError: They cannot be merged.
    """
    credential = request.credential or None
    if credential == "-":
        credential = sys.stdin.readline().strip()
    with _attached(request.session, "user", cluster) as user:
        made = user.merge(
            request.other, credential=credential, key=request.key or None, cluster=request.of
        )
        count = len(made.agents)
        if as_json:
            print_json({"merged": made.handle, "first": made.first, "agents": count})
            return
    typer.echo(
        f"The session {made.handle} is merged into {request.session}: {count} "
        f"agent{'s' * (count != 1)} more, whose ranks are {made.first} and their own."
    )
    split = command("session", "split", request.session, made.name, cluster=cluster)
    typer.echo(f"{split} ends that.")


def split(session: str, other: str, timeout: str, cluster: str, *, as_json: bool) -> None:
    """End a merge.

    Raises:
        ConfigurationError: They are not merged.
    """
    with _attached(session, "user", cluster) as user:
        user.split(other, timeout=parse_duration(timeout))
    if as_json:
        print_json({"split": other})
    else:
        typer.echo(f"The sessions {session} and {other} are split.")


def expand(session: str, agents: int, cluster: str, *, as_json: bool) -> None:
    """Add agents to a session.

    Raises:
        SapwoodError: They cannot be added.
    """
    with _attached(session, "user", cluster) as user:
        ranks = user.expand(agents)
        count = len(user.agents)
    if as_json:
        print_json({"added": list(ranks), "agents": count})
    else:
        typer.echo(f"The session {session} has {fold('agent', ranks)} more: {count} altogether.")


def contract(session: str, agents: str, timeout: str, cluster: str, *, as_json: bool) -> None:
    """Remove agents from a session.

    Raises:
        SapwoodError: They cannot be removed.
    """
    ranks = parse_ranks(agents)
    if not ranks:
        raise ConfigurationError(
            f"{shown(agents)} is not a set of agents", hint="write their ranks, such as 2-4,7"
        )
    with _attached(session, "user", cluster) as user:
        user.contract(ranks, parse_duration(timeout))
        count = len(user.agents)
    if as_json:
        print_json({"removed": sorted(ranks), "agents": count})
    else:
        typer.echo(f"{fold('agent', ranks)} left the session {session}: {count} remain.")


def delete(session: str, cluster: str, *, as_json: bool) -> None:
    """End a session."""
    record = _asked(cluster, calls.END_SESSION, session, END_TIMEOUT)
    if as_json:
        print_json(_facts(record))
    else:
        typer.echo(f"The session {record.handle} has ended.")


_NO_REPORT = calls.SessionReport(id="", state="")


def _facts(record: calls.SessionRecord) -> dict[str, Any]:
    """Return what ``--json`` shows of a session."""
    shown = {"handle": record.handle, **msgspec.to_builtins(record)}
    report = shown.pop("report") or msgspec.to_builtins(_NO_REPORT)
    for name in ("id", "state"):
        report.pop(name)
    return {**shown, **report}


def joined_agent(one: InvitationView) -> str:
    """Return a text about an invited agent."""
    return f"agent {one.rank}: process {one.pid} on {one.host}, by invitation {one.id}"


def _note(record: calls.SessionRecord, report: calls.SessionReport) -> str:
    """Return what people are to know of a session that is there."""
    held = f"holds {fold_hosts(report.nodes)}" if report.nodes else ""
    end = _left(record, report)
    ends = f"ends in {_time(end)} if no client attaches" if end is not None else ""
    waits = f"waits for its machines: {report.waits}" if report.waits else ""
    return "; ".join(filter(None, (waits, held, ends, _merges(report), _kept(report))))


def _no_nodes(record: calls.SessionRecord) -> str:
    """Return where a session is whose agents are on no node."""
    return "none" if is_launched(record.on) else "the head's machine"


def _end(record: calls.SessionRecord, report: calls.SessionReport) -> str:
    """Return when an idle session ends."""
    if not record.idle:
        return "never"
    left = _left(record, report)
    soon = f"in {_time(left)} if no client attaches; " if left is not None else ""
    return f"{soon}{record.idle:g} s after the last one left"


def _left(record: calls.SessionRecord, report: calls.SessionReport) -> float | None:
    """Return after how many seconds a session ends as idle; None if it is not idle."""
    waits = record.state == SessionState.DETACHED.value and record.idle and report.since
    if not waits or report.merged or report.part_of:
        return None
    return max(0.0, report.since + record.idle - time.time())


def _kept(report: calls.SessionReport) -> str:
    if not report.kept and not report.dropped:
        return ""
    lost = f", {report.dropped} left out" if report.dropped else ""
    return f"{report.kept} bytes of output wait{lost}"


def _merges(report: calls.SessionReport) -> str:
    """Return who a session is merged with."""
    has = f"has {', '.join(report.merged)} in it" if report.merged else ""
    part = f"is a part of {', '.join(report.part_of)}" if report.part_of else ""
    return has or part


def _age(since: float) -> str:
    return _time(max(0.0, time.time() - since))


def _time(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _asked(cluster: str, name: str, value: Any, timeout: float = 30.0) -> calls.SessionRecord:
    return typed.convert(asked_head(cluster, name, value, timeout), calls.SessionRecord)
