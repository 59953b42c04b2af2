"""From the text of options to values."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sapwood.core.errors import InputError, ParameterError


def parameters(assignments: Iterable[str]) -> dict[str, Any]:
    """Return the values of ``-p name=value`` options by name.

    A value that reads as a TOML number, boolean or array is one; anything else is text.

    Raises:
        ParameterError: An option has no ``=``, no name, or repeats a name.

    Example:
        >>> parameters(["colours=16", "tolerance=1e-3", "seed=random"])
        {'colours': 16, 'tolerance': 0.001, 'seed': 'random'}
    """
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ParameterError(
                f"{assignment!r} is not a parameter", hint="write -p name=value, without blanks"
            )
        if name in values:
            raise ParameterError(f"parameter {name!r} is given twice", where="-p")
        values[name] = _literal(text)
    return values


def output_path(path: Path | None) -> Path | None:
    """Return the path of a file to be written, after a look whether it can be.

    Raises:
        InputError: Its folder is missing or not writable, or it is a folder itself.
    """
    if path is None:
        return None
    folder = path.parent
    if path.is_dir():
        raise InputError("the output is a folder", where=str(path), hint="name a file in it")
    if not folder.is_dir():
        raise InputError("the folder of the output does not exist", where=str(folder))
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise InputError("the output cannot be written", where=str(path))
    return path


def _literal(text: str) -> Any:
    try:
        table = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    value = table["value"]
    plain = isinstance(value, bool | int | float | str | list)
    return value if plain and len(table) == 1 else text
