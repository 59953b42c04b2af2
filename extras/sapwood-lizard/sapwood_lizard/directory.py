"""Reading a program's folder: ``config.yaml`` and the files that it names."""

from __future__ import annotations

import io
import json
import os
import tokenize
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from sapwood.errors import DataMissingError, ProgramError
from sapwood.plugins.programs import Bundle, python_files, with_sources
from sapwood.plugins.tools import expand_user, shown, suggest
from sapwood_lizard.registration import (
    CONFIGURATION,
    FILES,
    MAX_PROGRAM_BYTES,
    Registration,
    checked_name,
    checksum_of,
    define,
)


def read_directory(folder: Path) -> Registration:
    """Read a program's folder.

    The checksum is that of lizard-slayer where the folder holds nothing beside the files that
    ``sources`` names; other files that those include or import are part of the program too.

    Raises:
        ProgramError: ``config.yaml`` or a file that it names is missing or wrong.
    """
    where = str(folder / CONFIGURATION)
    config = _read_configuration(folder)
    sources = config.get("sources")
    if not isinstance(sources, dict) or not sources:
        raise ProgramError(
            "the configuration names no sources",
            where=where,
            hint="write sources: with the keys python, header and cuda; "
            f"there is {', '.join(map(str, config)) or 'nothing'}",
        )
    code = config.get("code")
    if code is None:
        code = config["code"] = {}
    if not isinstance(code, dict):
        raise ProgramError("code must be empty: the sources are put there", where=where)
    for key, named in sources.items():
        if named is None:
            continue  # "header:" with nothing behind it names no file
        names = [
            _name(key, name, where) for name in (named if isinstance(named, list) else [named])
        ]
        texts = [_read(folder, name, where=where) for name in names]
        code[key] = texts if isinstance(named, list) else texts[0]
    extra = _beside(folder, sources, where=where)
    if extra:
        config[FILES] = extra
    registration = _registration(config, _name_of(config, folder))
    if len(registration.data) > MAX_PROGRAM_BYTES:
        raise ProgramError(
            f"the program has more than {MAX_PROGRAM_BYTES // 2**20} MiB",
            where=str(folder),
            hint="keep data out of its sources",
        )
    define(registration)
    return registration


def _registration(config: dict[str, Any], name: str) -> Registration:
    # The text is the program's identity, so it is written exactly as lizard-slayer writes it.
    try:
        data = json.dumps(config, default=_as_text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ProgramError(
            f"the configuration cannot be written as JSON: {error}",
            where=CONFIGURATION,
            hint="use mappings with names as keys, lists, texts and numbers",
        ) from error
    return Registration(name=name, data=data, checksum=checksum_of(data))


def _as_text(value: Any) -> Any:
    """Return what JSON has in place of a value of YAML, for example of a date."""
    return sorted(map(str, value)) if isinstance(value, (set, frozenset)) else str(value)


def _name_of(config: dict[str, Any], folder: Path) -> str:
    info = config.get("info")
    name = info.get("name") if isinstance(info, dict) else None
    return str(name) if name else folder.resolve().name


def _read_configuration(folder: Path) -> dict[str, Any]:
    path = folder / CONFIGURATION
    if not folder.is_dir():
        near = [entry.name for entry in folder.parent.iterdir()] if folder.parent.is_dir() else []
        raise ProgramError(
            "there is no such folder", where=str(folder), hint=suggest(folder.name, near)
        )
    if not path.is_file():
        beside = [entry.name for entry in folder.iterdir()]
        raise ProgramError(
            f"the folder holds no {CONFIGURATION}",
            where=str(folder),
            hint=suggest(CONFIGURATION, beside),
        )
    try:
        config = yaml.safe_load(_decoded(path.read_bytes()))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        hint = "indent with blanks, not with tabs" if "'\\t'" in str(problem) else ""
        if "another document" in str(problem):
            hint = "leave one document in it: nothing may follow a second line of ---"
        place = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        raise ProgramError(
            f"the configuration is not YAML: {problem}", where=place, hint=hint
        ) from error
    if not isinstance(config, dict):
        raise ProgramError("the configuration is not a mapping", where=str(path))
    return config


def _name(key: Any, name: Any, where: str) -> str:
    if not isinstance(name, str) or not name:
        raise ProgramError(f"sources: {key} must name a file, not {shown(name)}", where=where)
    return checked_name(name, where=where)


def _read(folder: Path, name: str, *, where: str) -> str:
    path = folder / name
    try:
        return _decoded(path.read_bytes(), python=name.endswith(".py"))
    except OSError as error:
        beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise ProgramError(
            f"cannot read {name}: {error.strerror}", where=where, hint=suggest(path.name, beside)
        ) from error


def _decoded(data: bytes, *, python: bool = False) -> str:
    """Return text as Python's text files give it; other text than UTF-8 is read as Latin-1.

    A Python file may name another encoding in its first lines.
    """
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0] if python else "utf-8"
        text = data.decode(encoding.removesuffix("-sig"))
    except (SyntaxError, UnicodeDecodeError):
        text = data.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _beside(folder: Path, sources: dict[str, Any], *, where: str) -> dict[str, str]:
    """Return the files that the sources include or import and that ``sources`` does not name."""
    named = [name for value in sources.values() if value is not None for name in _flat(value)]
    native = [name for name in named if not name.endswith(".py")]
    found = with_sources(Bundle(origin=""), native, folder=folder, named_by=where).files
    for name in named:
        if name.endswith(".py"):
            imports = python_files((folder / name).parent, Path(name).name, named_by=where)
            prefix = os.path.dirname(name)  # noqa: PTH120 - a name, not a path of this machine
            found |= {str(Path(prefix) / each): data for each, data in imports.items()}
    return {
        name: _decoded(found[name], python=name.endswith(".py"))
        for name in sorted(found)
        if name not in named and ".." not in Path(name).parts
    }


def _flat(value: Any) -> Iterable[str]:
    return value if isinstance(value, list) else [value]


def existing_directory(text: str) -> Path:
    """Return the folder of a program: the folder itself, or the folder of its ``config.yaml``.

    Raises:
        DataMissingError: There is none.
    """
    path = expand_user(text)
    if path.name == CONFIGURATION and path.is_file():
        path = path.parent
    if not path.exists():
        raise DataMissingError("there is no such folder", where=text, hint="check the path")
    return path
