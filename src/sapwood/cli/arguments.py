"""From the text of options to values."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

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


def run_settings(texts: Iterable[str]) -> dict[str, Any]:
    """Return the texts of ``--set name=value`` as a runner module gets them.

    A value that reads as JSON is what that says (numbers, true, false, null, lists, quoted
    text); anything else is text.

    Raises:
        InputError: A text has no ``=`` or no name, or a name is given twice.

    Example:
        >>> run_settings(["dims=3", "threshold=1e-3", "input_file=a.csv", 'name="7"'])
        {'dims': 3, 'threshold': 0.001, 'input_file': 'a.csv', 'name': '7'}
    """
    return {name: _read(text) for name, text in assignments(texts, "--set").items()}


def _read(text: str) -> Any:
    word = text.strip()
    try:
        return json.loads(word.lower() if word.lower() in {"true", "false"} else word)
    except ValueError:
        return text


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
