"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout, nothing else.")
]

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")]

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A setting for this command, for example log.console=debug; may be repeated.",
    ),
]
