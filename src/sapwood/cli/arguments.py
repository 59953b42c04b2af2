"""From the text of options to values."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from sapwood.core.errors import InputError


def assignments(texts: Iterable[str], option: str) -> dict[str, str]:
    """Return the texts of options such as ``-p name=value`` by name.

    Raises:
        InputError: A text has no ``=`` or no name, or a name is given twice.

    Example:
        >>> assignments(["colours=16", "title=a=b"], "-p")
        {'colours': '16', 'title': 'a=b'}
    """
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise InputError(
                f"{option} cannot be {text!r}", hint=f"write {option} name=value, without blanks"
            )
        if name in values:
            raise InputError(f"{name!r} is given twice", where=option, hint="give it once")
        values[name] = value
    return values


def existing_file(path: Path) -> Path:
    """Return the path of a file that exists.

    Raises:
        InputError: It is missing or a folder.
    """
    if path.is_dir():
        raise InputError("this is a folder", where=str(path), hint="name a file in it")
    if not path.exists():
        raise InputError("there is no such file", where=str(path), hint="check the path")
    return path


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
