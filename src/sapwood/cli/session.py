"""``sapwood session``: the options; ``session_command.py`` does what they say."""

from __future__ import annotations

from typing import Annotated

import typer

from sapwood.cli.failures import reported
from sapwood.cli.options import Cluster, Debug, Env, Json, Set, assignments, variables

app = typer.Typer(help="Sessions that outlive the programs that use them.", no_args_is_help=True)

Which = Annotated[str, typer.Argument(metavar="SESSION", help="Its name, id or name#id.")]


@app.command()
def create(  # noqa: PLR0913 - each parameter is one option of the command line
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="What to call it.")] = "",
    *,
    on: Annotated[
        str,
        typer.Option(
            metavar="PLACE",
            help="head: the nodes of the cluster; local: the head's machine alone; slurm:N, "
            "ssh:n1,n2, ray:N, …: machines that the session brings along, as run --on has them.",
        ),
    ] = "head",
    agents: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Agents; default: one for each core.")
    ] = None,
    agents_per_node: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Agents on each node.")
    ] = None,
    fanout: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Children of each junction, with local.")
    ] = None,
    topology: Annotated[
        str,
        typer.Option(
            metavar="SHAPE",
            help="flat, kary:K, knomial:K or file:PATH: how nodes are below each other, or, "
            "with local, agents.",
        ),
    ] = "",
    idle: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="End it after this time without attached clients; 0: never."
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
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import session_command  # noqa: PLC0415 - --help must load little

        session_command.create(
            session_command.SessionRequest(
                name,
                on,
                agents,
                agents_per_node,
                fanout,
                topology,
                idle,
                cluster,
                assignments(settings or (), "--set") | variables(env or ()),
            ),
            as_json=as_json,
        )


@app.command("list")
def show_all(
    *,
    ended: Annotated[
        bool, typer.Option("--all", help="Also those that have ended lately.")
    ] = False,
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the sessions, who is attached to them, and what they hold."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import session_command  # noqa: PLC0415 - --help must load little

        session_command.show_all(cluster, ended=ended, as_json=as_json)


@app.command()
def show(
    session: Which,
    *,
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show a session, also one that has ended lately, and why it did."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import session_command  # noqa: PLC0415 - --help must load little

        session_command.show(session, cluster, as_json=as_json)


@app.command()
def credential(
    session: Which,
    *,
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the line with which a program on another machine attaches; it is a secret."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import session_command  # noqa: PLC0415 - --help must load little

        session_command.show_credential(session, cluster, as_json=as_json)


@app.command()
def attach(
    session: Which,
    *,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait for one that has not begun yet.")
    ] = True,
    cluster: Cluster = "default",
    debug: Debug = False,
) -> None:
    """Watch a session: show what its agents print, until it ends or Ctrl-C."""
    with reported(debug=debug, as_json=False):
        from sapwood.cli import session_command  # noqa: PLC0415 - --help must load little

        session_command.watch(session, cluster, wait=wait)


@app.command()
def merge(
    session: Which,
    other: Annotated[
        str,
        typer.Argument(
            metavar="OTHER", help="The other one: name, id or name#id; name#id@host:port elsewhere."
        ),
    ],
    *,
    credential: Annotated[
        str, typer.Option(metavar="FILE", help="What its owner gave you; - reads standard input.")
    ] = "",
    key: Annotated[
        str, typer.Option(metavar="FILE", help="Your key, if the credential is bound to one.")
    ] = "",
    of: Annotated[
        str, typer.Option("--of", metavar="NAME", help="The cluster of the other session.")
    ] = "",
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Let streams of a session also use the agents of another one, which continues as before."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import session_command  # noqa: PLC0415 - --help must load little

        request = session_command.MergeRequest(session, other, credential, key, of or cluster)
        session_command.merge(request, cluster, as_json=as_json)


@app.command()
def split(
    session: Which,
    other: Annotated[str, typer.Argument(metavar="OTHER", help="The other one.")],
    *,
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="How long open waves may take still.")
    ] = "10s",
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """End a merge; both sessions continue separately."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import session_command  # noqa: PLC0415 - --help must load little

        session_command.split(session, other, timeout, cluster, as_json=as_json)


@app.command()
def expand(
    session: Which,
    agents: Annotated[int, typer.Argument(min=1, metavar="N", help="How many more agents.")] = 1,
    *,
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Add agents to a session while it works, also beside its owner."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import session_command  # noqa: PLC0415 - --help must load little

        session_command.expand(session, agents, cluster, as_json=as_json)


@app.command()
def contract(
    session: Which,
    agents: Annotated[str, typer.Argument(metavar="SET", help="Their ranks, such as 2-4,7.")],
    *,
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="How long they may take for what they do still.")
    ] = "10s",
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Remove agents from a session; what they were asked for is done first."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import session_command  # noqa: PLC0415 - --help must load little

        session_command.contract(session, agents, timeout, cluster, as_json=as_json)


@app.command()
def delete(
    session: Which,
    *,
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """End a session and all its processes."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import session_command  # noqa: PLC0415 - --help must load little

        session_command.delete(session, cluster, as_json=as_json)
