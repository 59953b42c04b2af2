"""``sapwood session``."""

from __future__ import annotations

import datetime as dt
import sys
import threading
import time
from typing import Annotated, Any, Literal

import msgspec
import typer

import sapwood
from sapwood.cli import starting
from sapwood.cli.failures import reporting
from sapwood.cli.head_connection import CALL_TIMEOUT, asked_head
from sapwood.cli.old_names import warn_of
from sapwood.cli.options import Cluster, Debug, Env, Json, Set, assignments, variables
from sapwood.cli.present import begun_again, print_json, table, write
from sapwood.client.finding import CREATE_TIMEOUT, must_be_there, once_there
from sapwood.contexts.launchers.specs import absolute, is_launched
from sapwood.core.errors import ConfigurationError
from sapwood.core.hints import DEFAULT_CLUSTER, command
from sapwood.core.hostset import fold_hosts
from sapwood.core.rankset import fold, parse_ranks
from sapwood.core.shown import shown
from sapwood.environment.configuration import load_configuration, whole_paths
from sapwood.environment.units import parse_duration
from sapwood.head import calls
from sapwood.head.parts.sessions import Sessions
from sapwood.head_client.remote import SCHEME
from sapwood.session.invited import InvitationView
from sapwood.session.session_life import SessionState
from sapwood.session_server.session_credential import credential_text

END_TIMEOUT = 60.0
"""Seconds in which a session that is ended must be gone."""

_NO_REPORT = calls.SessionReport(id="", state="")

app = typer.Typer(
    help="Manage sessions, which outlive the programs that use them.", no_args_is_help=True
)

Which = Annotated[str, typer.Argument(metavar="SESSION", help="Its name, id or name#id.")]


@app.command()
@reporting
def create(  # noqa: PLR0913 - each parameter is one option of the command line
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Name of the session.")] = "",
    *,
    on: Annotated[
        str,
        typer.Option(
            metavar="SPEC",
            help="Machines: head (the nodes of the cluster), local (the machine of the head), or "
            "own machines of the session: slurm:4, ssh:n1,n2, ray:2.",
        ),
    ] = "head",
    agents: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Agents to start; default: one for each core."),
    ] = None,
    agents_per_node: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Agents to start on each node.")
    ] = None,
    fanout: Annotated[
        int | None,
        typer.Option(min=0, metavar="K", help="Children of a junction, with --on local."),
    ] = None,
    topology: Annotated[
        str,
        typer.Option(
            metavar="SHAPE",
            help="How nodes are below each other, with --on local agents: flat, kary:16, "
            "knomial:2 or file:PATH.",
        ),
    ] = "",
    idle: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="End it after this time without attached clients; 0 for never."
        ),
    ] = None,
    cluster: Cluster = "default",
    env: Env = None,
    settings: Set = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Start a session, which lives until it is deleted or idle for too long.

    If its machines are not available yet, it starts when they are.
    """
    if topology and fanout is not None:
        raise ConfigurationError(
            "--fanout and --topology are both given", hint="leave one of them out"
        )
    flags = {**assignments(settings or (), "--set"), **variables(env or ())}
    if topology:
        flags["cluster.shape" if on == "local" else "nodes.topology"] = topology
    wanted = calls.CreateSession(
        name=name,
        on=absolute(on),
        agents=agents,
        agents_per_node=agents_per_node,
        fanout=fanout,
        idle=None if idle is None else parse_duration(idle),
        settings=msgspec.to_builtins(whole_paths(load_configuration(flags).settings)),
    )
    record = asked_head(cluster, CREATE_TIMEOUT, Sessions.create, wanted)
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
    if cluster.startswith("sapwood://"):
        typer.echo(
            command("session", "credential", record.name, cluster=cluster)
            + " shows the line for sapwood.attach()."
        )
    else:
        typer.echo(_how_to_use(record, cluster))


@app.command("list")
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


@app.command()
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


@app.command()
@reporting
def credential(
    session: Which,
    *,
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the line with which a program on another machine attaches; it is a secret."""
    text = _line_of(session, cluster)
    if as_json:
        print_json({"credential": text})
    else:
        typer.echo(text)


@app.command()
@reporting
def follow(
    session: Which,
    *,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait if the session has not started yet.")
    ] = True,
    cluster: Cluster = "default",
    debug: Debug = False,
) -> None:
    """Show what the agents of a session print, until it ends or Ctrl-C."""
    with attached(session, "watch", cluster, wait=wait) as watched:
        over = threading.Event()
        watched.session.subscribe(
            lambda change: over.set() if watched.session.failure is not None else None
        )
        typer.echo(f"Watching {session}: {len(watched.agents)} agents; Ctrl-C leaves.", err=True)
        while watched.session.failure is None:
            over.wait(3600.0)
        raise watched.session.failure


@app.command()
@reporting
def merge(
    session: Which,
    other: Annotated[
        str,
        typer.Argument(
            metavar="OTHER",
            help="Other session: name, id or name#id; of another cluster on this machine "
            "CLUSTER/NAME; of another machine name#id@host:port.",
        ),
    ],
    *,
    credential: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="Credential of the other session's owner; - reads standard input."
        ),
    ] = "",
    key: Annotated[
        str, typer.Option(metavar="FILE", help="Your key, if the credential is bound to it.")
    ] = "",
    of: Annotated[
        str, typer.Option("--of", metavar="NAME", hidden=True, help="The cluster of OTHER.")
    ] = "",
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Let streams of a session also use the agents of another session.

    The other session continues as before. Example: `sapwood session merge mine lab/theirs`
    """
    if of:
        warn_of(f"--of {of}", f"{of}/{other}")
    else:
        of, other = in_cluster(other, cluster)
    secret = sys.stdin.readline().strip() if credential == "-" else credential or None
    with attached(session, "user", cluster) as user:
        made = user.merge(other, credential=secret, key=key or None, cluster=of)
        count = len(made.agents)
        if as_json:
            print_json({"merged": made.handle, "first": made.first, "agents": count})
            return
    typer.echo(
        f"The session {made.handle} is merged into {session}: {count} "
        f"agent{'s' * (count != 1)} more, whose ranks are {made.first} and their own."
    )
    split = command("session", "split", session, made.name, cluster=cluster)
    typer.echo(f"{split} ends that.")


@app.command()
@reporting
def split(
    session: Which,
    other: Annotated[str, typer.Argument(metavar="OTHER", help="Other session of the merge.")],
    *,
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="Time that open waves may take.")
    ] = "10s",
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """End a merge; both sessions continue."""
    with attached(session, "user", cluster) as user:
        user.split(other, timeout=parse_duration(timeout))
    if as_json:
        print_json({"split": other})
    else:
        typer.echo(f"The sessions {session} and {other} are split.")


@app.command()
@reporting
def expand(
    session: Which,
    agents: Annotated[
        int, typer.Argument(min=1, metavar="[N]", help="Number of agents to add.")
    ] = 1,
    *,
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Add agents to a session while it works."""
    with attached(session, "user", cluster) as user:
        ranks = user.expand(agents)
        count = len(user.agents)
    if as_json:
        print_json({"added": list(ranks), "agents": count})
    else:
        typer.echo(f"The session {session} has {fold('agent', ranks)} more: {count} altogether.")


@app.command()
@reporting
def contract(
    session: Which,
    agents: Annotated[
        str, typer.Argument(metavar="SET", help="Ranks of the agents, such as 2-4,7.")
    ],
    *,
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="Time that the agents may take to finish.")
    ] = "10s",
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Remove agents from a session, after they finished their work."""
    ranks = parse_ranks(agents)
    if not ranks:
        raise ConfigurationError(
            f"{shown(agents)} is not a set of agents", hint="write their ranks, such as 2-4,7"
        )
    with attached(session, "user", cluster) as user:
        user.contract(ranks, parse_duration(timeout))
        count = len(user.agents)
    if as_json:
        print_json({"removed": sorted(ranks), "agents": count})
    else:
        typer.echo(f"{fold('agent', ranks)} left the session {session}: {count} remain.")


@app.command()
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
        print_json(_facts(record))
    else:
        typer.echo(f"The session {record.handle} has ended.")


def in_cluster(session: str, cluster: str) -> tuple[str, str]:
    """Return the cluster and the name of a session that is given as ``CLUSTER/NAME`` or ``NAME``.

    Example:
        >>> in_cluster("lab/night", "nw"), in_cluster("night", "nw")
        (('lab', 'night'), ('nw', 'night'))
    """
    named, slash, rest = session.partition("/")
    return (named, rest) if slash else (cluster, session)


def _how_to_use(record: calls.SessionRecord, cluster: str) -> str:
    """Return how runs and programs on this machine use a session."""
    if cluster == DEFAULT_CLUSTER:
        return f"Use it with --session {record.name}, or sapwood.attach({record.handle!r})."
    return (
        f"Use it with --session {record.name} --cluster {cluster}, or "
        f"sapwood.attach({record.handle!r}, cluster={cluster!r})."
    )


def _line_of(session: str, cluster: str) -> str:
    return credential_text(asked_head(cluster, CALL_TIMEOUT, Sessions.credential, session))


def attached(
    session: str, role: Literal["user", "watch"], cluster: str, *, wait: bool = False
) -> sapwood.Cluster:
    """Attach to a session; by a line of its head, if that is on another machine."""
    if not cluster.startswith(SCHEME):
        return sapwood.attach(session, role=role, cluster=cluster, wait=wait, on_wait=starting.wait)

    def find() -> None:
        must_be_there(asked_head(cluster, CALL_TIMEOUT, Sessions.find, session))

    if wait:
        once_there(find, starting.wait)
    else:
        find()
    return sapwood.attach(_line_of(session, cluster), role=role)


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
    has = f"merged with {', '.join(report.merged)}" if report.merged else ""
    part = f"merged into {', '.join(report.part_of)}" if report.part_of else ""
    return has or part


def _age(since: float) -> str:
    return _time(max(0.0, time.time() - since))


def _time(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
