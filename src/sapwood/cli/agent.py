"""``sapwood agent``: processes join a session as agents by an invitation."""

from __future__ import annotations

from typing import Annotated

import typer

from sapwood.cli.failures import reported
from sapwood.cli.options import Cluster, Debug, Json
from sapwood.cli.session import Which

app = typer.Typer(help="Agents that you start yourself join a session.", no_args_is_help=True)


@app.command()
def invite(
    session: Which,
    *,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="How many lines.")] = 1,
    ttl: Annotated[
        str, typer.Option(metavar="TIME", help="How long they let processes in, such as 30min.")
    ] = "24h",
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Where processes reach the session; by default nodes.listen. The first call "
            "decides.",
        ),
    ] = "",
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show a line for each agent that is to join; each is a secret.

    A line lets in one agent at a time. When that has ended, another process may use it.
    """
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import agent_command  # noqa: PLC0415 - --help must load little

        agent_command.invite(session, count, ttl, listen, cluster, as_json=as_json)


@app.command("list")
def show_all(
    session: Which,
    *,
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the invitations of a session, and who is there by them."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import agent_command  # noqa: PLC0415 - --help must load little

        agent_command.show_all(session, cluster, as_json=as_json)


@app.command()
def revoke(
    session: Which,
    invitation: Annotated[str, typer.Argument(metavar="ID", help="Which, as list shows it.")],
    *,
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Revoke an invitation; agents that joined by it stay."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import agent_command  # noqa: PLC0415 - --help must load little

        agent_command.revoke(session, invitation, cluster, as_json=as_json)


@app.command()
def join(
    line: Annotated[
        str,
        typer.Argument(
            metavar="LINE", help="What `agent invite` shows; - reads it from standard input."
        ),
    ],
    *,
    debug: Debug = False,
) -> None:
    """Be an agent of a session, until it ends, or Ctrl-C: then what it was asked for is done."""
    with reported(debug=debug):
        from sapwood.cli import agent_joining  # noqa: PLC0415 - --help must load little

        agent_joining.join(line)
