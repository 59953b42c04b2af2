"""What the shell offers while a command is being typed."""

from __future__ import annotations

from pathlib import Path

import typer

PROGRAM_FILE = "program.toml"


def programs(incomplete: str) -> list[str]:
    """Return program folders, and folders on the way to them, that begin like this."""
    typed = Path(incomplete)
    folder = typed if incomplete.endswith("/") or not incomplete else typed.parent
    start = "" if incomplete.endswith("/") else typed.name
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    return [
        str(entry) if _is_program(entry) or entry.is_file() else f"{entry}/"
        for entry in entries
        if entry.name.startswith(start) and _leads_to_program(entry)
    ]


def parameter_names(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return ``name=`` of each parameter of the program typed before, with its help."""
    # An option without its value, which is being typed, leaves positional arguments unread.
    program = context.params.get("program") or next(iter(context.args), None)
    if program is None:
        return []
    from sapwood.code import load_program  # noqa: PLC0415 - only wanted when completing -p
    from sapwood.code.program import parameters_of  # noqa: PLC0415 - as above

    try:
        parameters = parameters_of(type(load_program(str(program))))
    except Exception:  # noqa: BLE001 - whatever is wrong, completion offers nothing and is silent
        return []
    return [
        (f"{name}=", parameter.help)
        for name, parameter in parameters.items()
        if name.startswith(incomplete)
    ]


def _is_program(folder: Path) -> bool:
    return (folder / PROGRAM_FILE).is_file()


def _leads_to_program(entry: Path) -> bool:
    if entry.suffix == ".py":
        return True
    if not entry.is_dir() or entry.name.startswith("."):
        return False
    if _is_program(entry):
        return True
    try:
        return any(_is_program(child) for child in entry.iterdir())
    except OSError:
        return False
