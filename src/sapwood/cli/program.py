"""``sapwood program``: what a program is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sapwood.cli import completion, present
from sapwood.cli.failures import reporting
from sapwood.cli.options import Debug, Json, Set, assignments
from sapwood.cli.present import print_json, table, write
from sapwood.code.build import build
from sapwood.code.cache import BuildCache
from sapwood.code.describe import (
    FunctionDescription,
    ParameterDescription,
    ProgramDescription,
    TargetDescription,
    describe,
)
from sapwood.code.load import load_program
from sapwood.environment.configuration import load_configuration
from sapwood.environment.units import describe_size

app = typer.Typer(help="Describe programs.", no_args_is_help=True)


@app.command()
@reporting
def show(
    program: Annotated[
        str,
        typer.Argument(
            metavar="PROGRAM",
            help="Folder with a program.toml, or a Python file with a Program class.",
            autocompletion=completion.programs,
        ),
    ],
    *,
    settings: Set = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show a program: functions with their types, parameters, reductions, hash, builds.

    Sources are built if they are not yet: types come from a library's debug information.
    """
    configured = load_configuration(assignments(settings or (), "--set")).settings.cache
    cache = BuildCache(configured.path(), size_limit=configured.size)
    loaded = load_program(program)
    built = build(loaded, cache=cache)
    found = describe(loaded, built)
    if as_json:
        print_json(found)
    else:
        _show(found)


def parameter_table(parameters: Sequence[ParameterDescription]) -> Table:
    """Return one row for each parameter."""
    rows = [(one.name, one.type, str(one.value), one.allowed, one.help) for one in parameters]
    columns = ("parameter", "type", "value", "allowed", "meaning")
    return table("Parameters", columns, rows, wrap="meaning")


def _show(found: ProgramDescription) -> None:
    title = f"{found.name}: {found.description}" if found.description else found.name
    write(Text(title, style="bold"), _fact_table(found))
    if found.parameters:
        write("", parameter_table(found.parameters))
    if found.functions:
        write("", Text("Functions", style="bold"), *_function_lines(found.functions))
    if found.targets:
        write("", _target_table(found.targets))


def _fact_table(found: ProgramDescription) -> Table:
    facts = (
        ("folder", found.folder),
        ("files", ", ".join(found.files)),
        ("hash", found.hash),
        ("inputs", ", ".join(found.inputs)),
        ("map", found.map),
        ("reduce", ", ".join(f"{field} by {how}" for field, how in found.reduce.items())),
    )
    made = Table.grid(padding=(0, 2))
    made.add_column()
    made.add_column(overflow="fold")
    for name, value in facts:
        if value:
            made.add_row(f"  {name}", Text(value))
    return made


def _function_lines(functions: Sequence[FunctionDescription]) -> Iterator[RenderableType]:
    for one in functions:
        yield Padding(Text(one.declaration or one.name), (0, 0, 0, 2))
        unbound = f"cannot be called: {one.unbound}" if one.unbound else ""
        for line in filter(None, (one.doc, ", ".join(one.arrays), unbound, one.where)):
            yield Padding(Text(line), (0, 0, 0, 6))


def _target_table(targets: Sequence[TargetDescription]) -> Table:
    rows = [
        (
            one.target,
            one.language,
            one.key[:12],
            describe_size(one.bytes),
            present.seconds(one.seconds),
        )
        for one in targets
    ]
    columns = ("target", "language", "key", "size>", "build>")
    return table("Targets built", columns, rows, wrap="target")
