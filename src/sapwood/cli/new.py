"""``sapwood new``: the files of a program that runs, to begin with."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from sapwood.cli.failures import reported
from sapwood.cli.options import Debug
from sapwood.cli.templates import new_program
from sapwood.core.errors import InputError


def new(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder to make; its name is the program's.")
    ],
    *,
    language: Annotated[
        Literal["c", "c++", "python", "cuda"],
        typer.Option("--language", "-l", help="What the hot loop is written in."),
    ] = "c",
    debug: Debug = False,
) -> None:
    """Make a folder with a small program that runs, to be changed into yours."""
    with reported(debug=debug):
        files = new_program(language)
        _write(folder, files)
        name = shlex.quote(str(folder))
        typer.echo(f"made {folder} with {', '.join(files)}")
        typer.echo(f"next:  sapwood run {name}")
        typer.echo(f"then edit {folder / next(iter(files))}; run it again at each edit with")
        typer.echo(f"       sapwood run {name} --watch")


def _write(folder: Path, files: dict[str, str]) -> None:
    """Write files into a new or empty folder.

    Raises:
        InputError: The folder holds something already, or is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError("this is a file", where=str(folder), hint="name a folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(
            "the folder is not empty",
            where=str(folder),
            hint="name one that does not exist yet; nothing was written",
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
