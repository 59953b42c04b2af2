"""From the text of options to values."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from sapwood.core.errors import InputError, ParameterError


def parameters(assignments: Iterable[str]) -> dict[str, str]:
    """Return the texts of ``-p name=value`` options by name; the program gives them types.

    Raises:
        ParameterError: An option has no ``=``, no name, or repeats a name.

    Example:
        >>> parameters(["colours=16", "title=a=b"])
        {'colours': '16', 'title': 'a=b'}
    """
    values: dict[str, str] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name.strip():
            raise ParameterError(
                f"{assignment!r} is not a parameter", hint="write -p name=value, without blanks"
            )
        if name.strip() in values:
            raise ParameterError(f"parameter {name.strip()!r} is given twice", where="-p")
        values[name.strip()] = text
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
