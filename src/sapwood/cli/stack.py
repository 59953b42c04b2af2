"""``sapwood stack``: where user code is now, on all agents of sessions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

import msgspec
import typer

from sapwood.cli.failures import reporting
from sapwood.cli.head_connection import CALL_TIMEOUT, asked_head
from sapwood.cli.options import Cluster, Debug, Json
from sapwood.cli.present import print_json
from sapwood.cli.session_work import attached
from sapwood.code.stacks import StackResult
from sapwood.core.errors import ConfigurationError
from sapwood.core.hints import command
from sapwood.core.hostset import expand_hosts
from sapwood.core.rankset import parse_ranks
from sapwood.core.shown import shown
from sapwood.core.terminal_text import printable
from sapwood.environment.units import parse_duration
from sapwood.head.parts.sessions import Sessions
from sapwood.session.session_life import SessionState


@reporting
def stack(
    session: Annotated[
        str,
        typer.Argument(
            metavar="SESSION", help="Its name, id or name#id.", show_default="all sessions"
        ),
    ] = "",
    *,
    agents: Annotated[
        str,
        typer.Option(
            "--agents", metavar="SET", help="Ranks of the agents, such as 2-4,7; default: all."
        ),
    ] = "",
    nodes: Annotated[
        str,
        typer.Option(
            "--nodes", metavar="SET", help="Agents on these machines, such as n[1-4]; default: all."
        ),
    ] = "",
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="Time to wait for answers.")
    ] = "5s",
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show where user code is now: the stacks of all agents, equal ones once.

    Also answers while the code hangs or never returns from C. Example: `sapwood stack night`
    """
    ranks = ranks_of(agents)
    seconds = parse_duration(timeout)
    machines = set(expand_hosts(nodes)) if nodes else None
    names = [session] if session else _active(cluster)
    found: dict[str, StackResult] = {}
    for name in names:
        with attached(name, "watch", cluster) as watcher:
            every = watcher.stacks(seconds, agents=ranks)
        if machines is not None:
            every = StackResult(tuple(one for one in every.agents if one.node in machines))
        found[name] = every
    if as_json:
        print_json(
            {
                "sessions": [
                    {"session": name, "agents": msgspec.to_builtins(one.agents)}
                    for name, one in found.items()
                ]
            }
        )
        return
    for name, one in found.items():
        if len(found) > 1:
            typer.echo(f"Session {printable(name)}")
        typer.echo(printable(str(one)))


def ranks_of(agents: str) -> Collection[int] | None:
    """Return the ranks that a set names; None without one.

    Raises:
        ConfigurationError: It is not a set of agents.
    """
    ranks = parse_ranks(agents) if agents else None
    if ranks is not None and not ranks:
        raise ConfigurationError(
            f"{shown(agents)} is not a set of agents", hint="write their ranks, such as 2-4,7"
        )
    return ranks


def _active(cluster: str) -> list[str]:
    """Return the sessions that can be attached to.

    Raises:
        ConfigurationError: There are none.
    """
    ready = {SessionState.READY.value, SessionState.DETACHED.value}
    names = [
        one.handle
        for one in asked_head(cluster, CALL_TIMEOUT, Sessions.every)
        if one.state in ready
    ]
    if not names:
        raise ConfigurationError(
            "no session is running in this cluster",
            hint=command("session", "list", "--all", cluster=cluster)
            + " lists the ended ones; a run in a terminal shows its stacks at Ctrl-\\",
        )
    return names
