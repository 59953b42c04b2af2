"""``sapwood config``: the settings that hold, where they come from, and whether files are right."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from sapwood.cli.failures import reporting
from sapwood.cli.options import Debug, Json, Set, assignments, existing_file
from sapwood.cli.present import print_json, table, write
from sapwood.environment.configuration import Row, load_configuration
from sapwood.environment.layers import read_file

app = typer.Typer(help="Show and check the configuration.", no_args_is_help=True)


@app.command()
@reporting
def show(
    *,
    origin: Annotated[
        bool, typer.Option("--origin", help="Show where each value comes from.")
    ] = False,
    settings: Set = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show every setting; without --origin the output is a configuration file itself."""
    configuration = load_configuration(assignments(settings or (), "--set"))
    if as_json:
        print_json(
            {
                "settings": configuration.settings,
                "origins": {row.key: row.origin for row in configuration.rows()},
            }
        )
    elif origin:
        write(_origin_table(configuration.rows()))
    else:
        typer.echo(configuration.to_toml(), nl=False)


@app.command()
@reporting
def validate(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="Configuration file; default: all files that apply here."
        ),
    ] = None,
    *,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check configuration files and SAPWOOD_ variables; an error names file and line."""
    if file is None:
        load_configuration()
    else:
        read_file(existing_file(file), "file", socket.gethostname())
    if as_json:
        print_json({"valid": True, "file": None if file is None else str(file)})
    else:
        typer.echo(f"{file or 'the configuration'} is valid")


def _origin_table(rows: Sequence[Row]) -> Table:
    cells = [(row.key, row.value, row.layer, _origin(row)) for row in rows]
    return table("", ("setting", "value", "layer", "origin"), cells, wrap="origin")


def _origin(row: Row) -> str:
    return "" if row.origin == row.layer else row.origin
