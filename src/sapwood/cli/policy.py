"""``sapwood policy``: the automatic actions of a running cluster."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import typer

from sapwood.cli.failures import reporting
from sapwood.cli.head_connection import CALL_TIMEOUT, asked_head
from sapwood.cli.options import Cluster, Debug, Json
from sapwood.cli.present import print_json, table, write
from sapwood.core.errors import InputError
from sapwood.core.hints import command
from sapwood.head.parts.policy import Policy
from sapwood.head.parts.sessions import Sessions
from sapwood.head.session_records import SessionRecord
from sapwood.session_server.session_policy import BY_CREATOR

app = typer.Typer(help="Show and change the policy of a cluster.", no_args_is_help=True)


@app.command()
@reporting
def show(
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="A key, or the first part of keys; default: all.")
    ] = "",
    *,
    name: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the policy, and where each value comes from."""
    found = asked_head(name, CALL_TIMEOUT, Policy.rows, key)
    if as_json:
        print_json({"policy": found})
        return
    rows = [(one.key, one.value, one.origin) for one in found]
    write(table("", ("key", "value", "origin"), rows, wrap="value"))
    if len(found) == 1:
        write(f"{found[0].about} It is {found[0].expected}.")


@app.command("set")
@reporting
def change(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Key, for example idle.session.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="New value, for example 2h.")] = "",
    *,
    reset: Annotated[
        bool, typer.Option("--reset", help="Return to the value that applied before.")
    ] = False,
    name: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Change the policy, immediately and for good.

    Example: `sapwood policy set idle.session 2h`
    """
    if reset == bool(value):
        raise InputError("give a value, or --reset", hint=command("policy", "set", key, "VALUE"))
    found = asked_head(name, CALL_TIMEOUT, Policy.change, key, value)
    others = _with_own(key, asked_head(name, CALL_TIMEOUT, Sessions.every))
    if as_json:
        print_json({"policy": found, "keep_their_own": others})
        return
    for row in found:
        typer.echo(f"{row.key} = {row.value}  ({row.origin})")
        if row.counts:
            typer.echo(f"It applies {row.counts}.")
    if others:
        typer.echo(f"Sessions that keep what they were made with: {', '.join(others)}.")


def _with_own(key: str, sessions: list[SessionRecord]) -> list[str]:
    """Return the sessions whose creator has chosen a value: the policy does not change it there."""
    return [
        one.handle
        for one in sessions
        if one.report is not None
        and one.pid
        and any(value.key == key and value.origin == BY_CREATOR for value in one.report.policy)
    ]


@app.command()
@reporting
def history(*, name: Cluster = "default", as_json: Json = False, debug: Debug = False) -> None:
    """Show the changes of the policy, and who made them."""
    found = asked_head(name, CALL_TIMEOUT, Policy.history)
    if as_json:
        print_json({"changes": found})
        return
    rows = [
        (
            f"{dt.datetime.fromtimestamp(one.time, dt.UTC).astimezone():%Y-%m-%d %H:%M}",
            one.key,
            one.before or "-",
            one.value or "reset",
            one.by or "the user of the head",
        )
        for one in found
    ]
    write(table("", ("when", "key", "before", "after", "by"), rows, wrap="after"))
