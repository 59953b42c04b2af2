"""``sapwood runs``: the options; ``runs_command.py`` does what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sapwood.cli.failures import reported
from sapwood.cli.options import Cluster, Debug, Json

app = typer.Typer(help="Manage detached runs (`sapwood run --detach`).", no_args_is_help=True)

Which = Annotated[str, typer.Argument(metavar="RUN", help="Its id, or the start of it.")]


@app.command("list")
def show_going(
    *, cluster: Cluster = "default", as_json: Json = False, debug: Debug = False
) -> None:
    """List the active runs and their progress."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import runs_command  # noqa: PLC0415 - --help must load little

        runs_command.show_all(cluster, over=False, as_json=as_json)


@app.command()
def history(*, cluster: Cluster = "default", as_json: Json = False, debug: Debug = False) -> None:
    """List all runs, also those that are over."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import runs_command  # noqa: PLC0415 - --help must load little

        runs_command.show_all(cluster, over=True, as_json=as_json)


@app.command()
def show(
    run: Which, *, cluster: Cluster = "default", as_json: Json = False, debug: Debug = False
) -> None:
    """Show a run: how far it is, or what it gave, or why it failed."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import runs_command  # noqa: PLC0415 - --help must load little

        runs_command.show(run, cluster, as_json=as_json)


@app.command()
def attach(
    run: Which,
    *,
    cluster: Cluster = "default",
    output: Annotated[
        Path | None,
        typer.Option("--answer", metavar="FILE", help="Write the answer there, as JSON."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Follow a run to its end: the agents' output, then the answer. Ctrl-C leaves it running."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import runs_command  # noqa: PLC0415 - --help must load little

        raise typer.Exit(runs_command.follow(run, cluster, output, as_json=as_json))


@app.command()
def cancel(
    run: Which, *, cluster: Cluster = "default", as_json: Json = False, debug: Debug = False
) -> None:
    """Cancel a run; the session that it is on stays."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import runs_command  # noqa: PLC0415 - --help must load little

        runs_command.cancel(run, cluster, as_json=as_json)
