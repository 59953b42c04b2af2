"""The sessions of a cluster: ``sapwood session list``, ``show`` and ``delete``."""

from __future__ import annotations

import datetime as dt
import time
from typing import Annotated, Any

import msgspec
import typer

from sapwood.cli.failures import reporting
from sapwood.cli.head_connection import CALL_TIMEOUT, asked_head
from sapwood.cli.options import Cluster, Debug, Json
from sapwood.cli.present import begun_again, print_json, table, write
from sapwood.contexts.launchers.specs import is_launched
from sapwood.core.hostset import fold_hosts
from sapwood.head import session_records
from sapwood.head.parts.sessions import Sessions
from sapwood.session.invited import InvitationInfo
from sapwood.session.session_life import SessionState

END_TIMEOUT = 60.0
"""Seconds in which a session that is ended must be gone."""

NO_REPORT = session_records.SessionReport(id="", state="")
"""The report of a session whose server has sent none yet."""

Which = Annotated[str, typer.Argument(metavar="SESSION", help="Its name, id or name#id.")]


@reporting
def show_all(
    *,
    ended: Annotated[
        bool, typer.Option("--all", help="List sessions that ended lately, too.")
    ] = False,
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the sessions with their owners and what they hold."""
    records = asked_head(cluster, CALL_TIMEOUT, Sessions.every)
    if not ended:
        records = [one for one in records if not SessionState(one.state).is_over]
    if as_json:
        print_json({"sessions": [facts(one) for one in records]})
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
        for one, report in ((one, one.report or NO_REPORT) for one in records)
    ]
    write(table("", ("session", "state", "agents>", "owner", "since>", "note"), rows, wrap="note"))


@reporting
def show(
    session: Which,
    *,
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show a session, or why it ended."""
    record = asked_head(cluster, CALL_TIMEOUT, Sessions.find, session)
    if as_json:
        print_json(facts(record))
        return
    report = record.report or NO_REPORT
    rows = [
        ("session", record.handle),
        ("state", record.state),
        ("on", record.on),
        ("agents", str(report.agents)),
        ("created", f"{dt.datetime.fromtimestamp(record.created, dt.UTC).astimezone():%F %T}"),
        ("process", str(record.pid)),
        ("attached", ", ".join(report.clients) or "nobody"),
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


@reporting
def delete(
    session: Which,
    *,
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Delete a session: stop all its processes."""
    record = asked_head(cluster, END_TIMEOUT, Sessions.end, session)
    if as_json:
        print_json(facts(record))
    else:
        typer.echo(f"The session {record.handle} has ended.")


def facts(record: session_records.SessionRecord) -> dict[str, Any]:
    """Return what ``--json`` shows of a session."""
    shown = {"handle": record.handle, **msgspec.to_builtins(record)}
    report = shown.pop("report") or msgspec.to_builtins(NO_REPORT)
    for name in ("id", "state"):
        report.pop(name)
    return {**shown, **report}


def _note(record: session_records.SessionRecord, report: session_records.SessionReport) -> str:
    """Return what people are to know of a session that is there."""
    held = f"holds {fold_hosts(report.nodes)}" if report.nodes else ""
    end = _left(record, report)
    ends = f"ends in {_time(end)} if no client attaches" if end is not None else ""
    waits = f"waits for its machines: {report.waits}" if report.waits else ""
    return "; ".join(filter(None, (waits, held, ends, _merges(report), _kept(report))))


def _no_nodes(record: session_records.SessionRecord) -> str:
    """Return where a session is whose agents are on no node."""
    return "none" if is_launched(record.on) else "the head's machine"


def _end(record: session_records.SessionRecord, report: session_records.SessionReport) -> str:
    """Return when an idle session ends."""
    if not record.idle:
        return "never"
    left = _left(record, report)
    soon = f"in {_time(left)} if no client attaches; " if left is not None else ""
    return f"{soon}{_time(record.idle)} after the last client detached"


def _left(
    record: session_records.SessionRecord, report: session_records.SessionReport
) -> float | None:
    """Return after how many seconds a session ends as idle; None if it is not idle."""
    waits = record.state == SessionState.DETACHED.value and record.idle and report.since
    if not waits or report.merged or report.part_of:
        return None
    return max(0.0, report.since + record.idle - time.time())


def _kept(report: session_records.SessionReport) -> str:
    if not report.kept and not report.dropped:
        return ""
    lost = f", {report.dropped} left out" if report.dropped else ""
    return f"{report.kept} bytes of output wait{lost}"


def _merges(report: session_records.SessionReport) -> str:
    """Return who a session is merged with."""
    has = f"merged with {', '.join(report.merged)}" if report.merged else ""
    part = f"merged into {', '.join(report.part_of)}" if report.part_of else ""
    return has or part


def joined_agent(one: InvitationInfo) -> str:
    """Return a text about an invited agent."""
    return f"agent {one.rank}: process {one.pid} on {one.host}, by invitation {one.id}"


def _age(since: float) -> str:
    return _time(max(0.0, time.time() - since))


def _time(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
