"""Commands that start a session, or attach to one."""

from __future__ import annotations

import sys
import threading
from typing import Annotated, Literal

import msgspec
import typer

import sapwood
from sapwood.cli import starting
from sapwood.cli.failures import reporting
from sapwood.cli.head_connection import CALL_TIMEOUT, asked_head
from sapwood.cli.old_names import warn_of
from sapwood.cli.options import Cluster, Debug, Env, Json, Set, assignments, variables
from sapwood.cli.present import print_json
from sapwood.cli.session import NO_REPORT, Which, facts
from sapwood.client.finding import CREATE_TIMEOUT, must_be_there, once_there
from sapwood.contexts.launchers.specs import absolute
from sapwood.core.errors import ConfigurationError
from sapwood.core.hints import DEFAULT_CLUSTER, command
from sapwood.core.rankset import fold, parse_ranks
from sapwood.core.shown import shown
from sapwood.environment.configuration import load_configuration, whole_paths
from sapwood.environment.units import parse_duration
from sapwood.head import session_records
from sapwood.head.parts.sessions import Sessions
from sapwood.head_client.connection import SCHEME
from sapwood.session_server.session_credential import credential_text


@reporting
def create(  # noqa: PLR0913 - each parameter is one option of the command line
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the session.")] = "",
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
    wanted = session_records.CreateSession(
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
        print_json(facts(record))
        return
    report = record.report or NO_REPORT
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


@reporting
def expand(
    session: Which,
    agents: Annotated[int, typer.Argument(min=1, metavar="N", help="Number of agents to add.")] = 1,
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


def in_cluster(session: str, cluster: str) -> tuple[str, str]:
    """Return the cluster and the name of a session that is given as ``CLUSTER/NAME`` or ``NAME``.

    Example:
        >>> in_cluster("lab/night", "nw"), in_cluster("night", "nw")
        (('lab', 'night'), ('nw', 'night'))
    """
    named, slash, rest = session.partition("/")
    return (named, rest) if slash else (cluster, session)


def _how_to_use(record: session_records.SessionRecord, cluster: str) -> str:
    """Return how runs and programs on this machine use a session."""
    run = command("run", "PROGRAM", "--session", record.name, cluster=cluster)
    named = "" if cluster == DEFAULT_CLUSTER else f", cluster={cluster!r}"
    return f"Use it by {run}, or sapwood.attach({record.handle!r}{named})."


def _line_of(session: str, cluster: str) -> str:
    return credential_text(asked_head(cluster, CALL_TIMEOUT, Sessions.credential, session))
