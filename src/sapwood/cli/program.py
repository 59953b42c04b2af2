"""``sapwood program``: what a program is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sapwood.cli import completion
from sapwood.cli.arguments import assignments
from sapwood.cli.failures import reported
from sapwood.cli.options import Debug, Json, Set
from sapwood.cli.output import print_json, table, write
from sapwood.environment.configuration import load_configuration

if TYPE_CHECKING:
    from sapwood.cli.describe import FunctionView, LibraryView, ParameterView, ProgramView

app = typer.Typer(help="Look at programs.", no_args_is_help=True)


@app.command()
def show(
    program: Annotated[
        str,
        typer.Argument(
            help="Folder with a program.toml, or a Python file with a Program class.",
            autocompletion=completion.programs,
        ),
    ],
    *,
    settings: Set = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show functions with their types, parameters, reductions, hash and builds.

    Sources are built if they are not yet: types come from a library's debug information.
    """
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli.describe import view_program  # noqa: PLC0415 - --help must not load numpy
        from sapwood.client import load_program  # noqa: PLC0415 - as above
        from sapwood.code.cache import BuildCache  # noqa: PLC0415 - as above

        configured = load_configuration(assignments(settings or (), "--set")).settings.cache
        cache = BuildCache(configured.path(), size_limit=configured.size)
        view = view_program(load_program(program), cache)
        if as_json:
            print_json(view)
        else:
            _show(view)


def parameter_table(parameters: Sequence[ParameterView]) -> Table:
    """Return one row for each parameter."""
    rows = [(one.name, one.type, str(one.value), one.allowed, one.help) for one in parameters]
    columns = ("parameter", "type", "value", "allowed", "meaning")
    return table("Parameters", columns, rows, wrap="meaning")


def library_table(libraries: Sequence[LibraryView]) -> Table:
    """Return what each library is made of, and by what."""
    rows: list[tuple[str, str, str]] = []
    for one in libraries:
        rows.append((one.language, "sources", " ".join(one.sources)))
        rows += [("", name, value) for name, value in one.identity.items()]
    return table("Libraries", ("language", "", "made of"), rows, wrap="made of")


def _show(view: ProgramView) -> None:
    title = f"{view.name}: {view.description}" if view.description else view.name
    write(Text(title, style="bold"), _fact_table(view))
    if view.parameters:
        write("", parameter_table(view.parameters))
    if view.functions:
        write("", Text("Functions", style="bold"), *_function_lines(view.functions))
    if view.libraries:
        write("", library_table(view.libraries))


def _fact_table(view: ProgramView) -> Table:
    reductions = ", ".join(f"{field} {how}" for field, how in view.reduce.items())
    facts = [
        ("folder", view.folder),
        ("hash", view.hash),
        ("inputs", ", ".join(view.inputs)),
        ("map", view.map),
        ("reduce", reductions or "nothing"),
    ]
    if view.libraries:
        facts.append(("target", f"{view.target}, {'built' if view.built else 'built just now'}"))
    made = Table.grid(padding=(0, 2))
    made.add_column()
    made.add_column(overflow="fold")
    for name, value in facts:
        made.add_row(f"  {name}", Text(value))
    return made


def _function_lines(functions: Sequence[FunctionView]) -> Iterator[RenderableType]:
    for one in functions:
        yield Padding(Text(one.declaration), (0, 0, 0, 2))
        lines = [f"{array.name}{array.shape} {array.role}" for array in one.arrays]
        lines += [" ".join(paragraph.split()) for paragraph in one.doc.split("\n\n")]
        if one.problem:
            lines.append(f"cannot be called: {one.problem}")
        for line in filter(None, [*lines, one.place]):
            yield Padding(Text(line), (0, 0, 0, 6))
