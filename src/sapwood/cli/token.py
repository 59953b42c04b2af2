"""``sapwood token``: what lets machines join a cluster that is up."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import typer

from sapwood.cli.failures import reporting
from sapwood.cli.head_connection import CALL_TIMEOUT, asked_head
from sapwood.cli.options import Cluster, Debug, Json
from sapwood.cli.present import print_json, table, write
from sapwood.core.errors import InputError
from sapwood.core.hints import command_line
from sapwood.core.shown import shown
from sapwood.environment.units import parse_duration
from sapwood.head.parts.tokens import JoinTokens

app = typer.Typer(help="Create, list and revoke join tokens.", no_args_is_help=True)


@app.command()
@reporting
def create(
    *,
    name: Cluster = "default",
    uses: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of machines that may use it.")
    ] = 1,
    ttl: Annotated[str, typer.Option(metavar="TIME", help="Lifetime, for example 30min.")] = "1h",
    names: Annotated[
        str,
        typer.Option(metavar="PATTERN", help="Names that the machines may have, for example gpu*."),
    ] = "*",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Create a join token, and show the command with which a machine joins."""
    line = asked_head(name, CALL_TIMEOUT, JoinTokens.create, uses, parse_duration(ttl), names)
    if as_json:
        print_json(line)
    else:
        typer.echo(command_line("node", "join", line.text))


@app.command("list")
@reporting
def show(*, name: Cluster = "default", as_json: Json = False, debug: Debug = False) -> None:
    """List the tokens that can be used; the head keeps no secrets."""
    found = asked_head(name, CALL_TIMEOUT, JoinTokens.usable)
    if as_json:
        print_json({"tokens": found})
        return
    rows = [(one.id, str(one.uses), _time(one.expires), one.names) for one in found]
    write(table("", ("id", "uses>", "until", "names"), rows, wrap="names"))


@app.command()
@reporting
def revoke(
    token: Annotated[str, typer.Argument(metavar="ID", help="Id of the token.")],
    *,
    name: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Revoke a join token; nodes that joined by it stay."""
    known = asked_head(name, CALL_TIMEOUT, JoinTokens.revoke, token)
    if not known:
        raise InputError(f"unknown token {shown(token)}", hint="`sapwood token list` shows them")
    if as_json:
        print_json({"revoked": token})
    else:
        typer.echo(f"revoked {token}")


def _time(seconds: float) -> str:
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC).astimezone():%Y-%m-%d %H:%M}"
