"""``sapwood agent``: processes join a session as agents by an invitation."""

from __future__ import annotations

import datetime as dt
import os
import sys
from typing import Annotated

import msgspec
import typer

import sapwood
from sapwood.cli.failures import reporting
from sapwood.cli.node_joining import MAX_LINE, hide_line
from sapwood.cli.options import Cluster, Debug, Json
from sapwood.cli.present import print_json, table, write
from sapwood.cli.session import Which
from sapwood.cli.session_work import attached
from sapwood.contexts import background
from sapwood.core.hints import command_line
from sapwood.environment.units import parse_duration
from sapwood.security.invitations import AGENTS
from sapwood.session.invited import InvitationInfo

app = typer.Typer(
    help="Invite agents that you start into a session, and be one.", no_args_is_help=True
)


@app.command()
@reporting
def invite(
    session: Which,
    *,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Number of lines.")] = 1,
    ttl: Annotated[
        str, typer.Option(metavar="TIME", help="Lifetime of the lines, for example 30min.")
    ] = "24h",
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Address at which processes reach the session; default: the setting nodes.listen. "
            "The first call decides.",
        ),
    ] = "",
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Create invitations: show a line for each agent that may join; each is a secret.

    A line lets in one agent at a time. When that has ended, another process may use it.
    """
    lifetime = parse_duration(ttl)
    with attached(session, "watch", cluster, wait=True) as watched:
        lines = watched.invite(count, lifetime=lifetime, listen=listen)
    if as_json:
        print_json({"lines": lines})
        return
    for line in lines:
        typer.echo(command_line("agent", "join", line))


@app.command("list")
@reporting
def show_all(
    session: Which,
    *,
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the invitations of a session, and the agents that joined by them."""
    with attached(session, "watch", cluster, wait=True) as watched:
        found = watched.invitations
    if as_json:
        print_json({"invitations": [msgspec.to_builtins(one) for one in found]})
        return
    rows = [(one.id, one.state, _until(one.expires), str(one.joined), _who(one)) for one in found]
    write(table("", ("id", "state", "until", "joined>", "agent"), rows, wrap="agent"))


@app.command()
@reporting
def revoke(
    session: Which,
    invitation: Annotated[str, typer.Argument(metavar="ID", help="Id of the invitation.")],
    *,
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Revoke an invitation; agents that joined by it stay."""
    with attached(session, "watch", cluster, wait=True) as watched:
        watched.revoke_invitation(invitation)
    if as_json:
        print_json({"revoked": invitation})
    else:
        typer.echo(f"Revoked the invitation {invitation}.")


@app.command()
@reporting
def join(
    line: Annotated[
        str,
        typer.Argument(
            metavar="LINE", help="Line of `sapwood agent invite`; - reads standard input."
        ),
    ],
    *,
    debug: Debug = False,
) -> None:
    """Run an agent of a session in this process, until the session ends or Ctrl-C.

    After Ctrl-C it first finishes its work.
    """
    if line != "-":
        AGENTS.parse(line)
        hide_line(line, background.own_command("agent", "join", "-"))
        return  # it continues as another command
    text = sys.stdin.read(MAX_LINE)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - what children of this process read
        os.dup2(nothing.fileno(), 0)
    typer.echo(f"It has ended: {sapwood.join_as_agent(text, on_join=_joined)}.")


def _until(expires: float) -> str:
    return f"{dt.datetime.fromtimestamp(expires, dt.UTC).astimezone():%F %H:%M}"


def _who(one: InvitationInfo) -> str:
    return f"{one.rank}: process {one.pid} on {one.host}" if one.rank else "-"


def _joined(rank: int, session: str) -> None:
    print(f"Agent {rank} of the session {session}: process {os.getpid()}.", flush=True)  # noqa: T201 - a line for programs that wait for it
