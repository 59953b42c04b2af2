"""Loading programs from a folder, a file, a class or an object."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar, overload

import msgspec

from sapwood.code.bundle import Bundle, read_file
from sapwood.code.capture import unpickle_class
from sapwood.code.folder import (
    MAIN_FILE,
    check_minimal,
    class_from_definition,
    read_definition,
)
from sapwood.code.program import Program
from sapwood.code.python_module import import_main, python_files
from sapwood.core.arguments import path_text
from sapwood.core.errors import ProgramError
from sapwood.core.suggest import suggest, suggestion
from sapwood.environment.folders import expand_user

_P = TypeVar("_P", bound=Program)

MAX_LOOKED_AT: Final = 1000
"""Entries of a folder among which programs are looked for, for a hint."""

MAX_SOURCE: Final = 2**18
"""Bytes of a file in which a program class is looked for, for a hint."""

_CLASS: Final = re.compile(rb"^class \w+\((\w+\.)*Program\):", re.MULTILINE)

_NO_PARAMETERS: Mapping[str, Any] = {}


@overload
def load_program(source: type[_P] | _P, parameters: Mapping[str, Any] = ...) -> _P: ...
@overload
def load_program(source: Path | str, parameters: Mapping[str, Any] = ...) -> Program: ...
def load_program(
    source: Path | str | type[Program] | Program, parameters: Mapping[str, Any] = _NO_PARAMETERS
) -> Program:
    """Load a program and give it its parameters.

    Args:
        source: A folder with ``program.toml``, the path of that file, a Python file with one
            program class (``file.py::Name`` where it has several), a program class, or a
            program, whose parameters are kept where no new ones are given.
        parameters: Values by name; strings are read as a command line gives them.

    Raises:
        ProgramError: The source is missing or does not define a program.
        ParameterError: A parameter is unknown or its value does not fit.
    """
    if isinstance(source, Program):
        program = type(source)(**{**source.parameters, **parameters})
    elif isinstance(source, type):
        if not issubclass(source, Program):
            raise ProgramError(
                f"class {source.__name__} is not a program", hint="derive it from sapwood.Program"
            )
        program = source(**parameters)
    elif not isinstance(source, str | Path):
        raise ProgramError(
            f"a value of type {type(source).__name__} is not a program",
            hint="give a class derived from sapwood.Program, or the path of a program",
        )
    else:
        program = class_of_bundle(_read_bundle(str(source)))(**parameters)
    program.bundle  # noqa: B018 - read the files now: an edit from here on is another version
    return program


def class_of_bundle(bundle: Bundle) -> type[Program]:
    """Return the program class of a bundle. This runs code of the user.

    Raises:
        ProgramError: The bundle does not define a program.
    """
    if not bundle.main:
        kind = unpickle_class(bundle.pickled)
        if not issubclass(kind, Program):
            raise ProgramError("the image of a program holds no program class")
        return kind
    if bundle.main.endswith(".toml"):
        kind = _class_of_folder(bundle)
    else:
        path = str(Path(bundle.origin) / bundle.main)
        found = _classes(import_main(bundle, bundle.main))
        kind = _choose(found, bundle.class_name, where=path)
    kind.class_bundle = bundle
    return kind


def _class_of_folder(bundle: Bundle) -> type[Program]:
    where = str(Path(bundle.origin) / bundle.main)
    definition = read_definition(bundle.files[bundle.main], where=where)
    table = definition.program
    name = table.name or Path(bundle.origin).name
    definition = msgspec.structs.replace(
        definition, program=msgspec.structs.replace(table, name=name)
    )
    if not table.python:
        return class_from_definition(definition, {}, where=where)
    module = import_main(bundle, table.python)
    classes = _classes(module)
    if not classes:
        kind = class_from_definition(definition, vars(module), where=where)
        kind.__module__ = module.__name__
        return kind
    kind = _choose(classes, "", where=where)
    check_minimal(definition, kind.__name__, where=where)
    kind.name = name
    if table.description:
        kind.description = table.description
    return kind


def _read_bundle(text: str) -> Bundle:
    path_part, _, class_name = text.partition("::")
    path = expand_user(path_text(path_part, "the path of the program", ProgramError)).resolve()
    if os.path.isdir(path):  # noqa: PTH112 - is_dir() raises for names that are too long
        path /= MAIN_FILE
        if not path.is_file():
            raise ProgramError(
                f"the folder holds no {MAIN_FILE}",
                where=str(path.parent),
                hint="name a program's folder, or a Python file with a program class",
            )
    if not os.path.isfile(path):  # noqa: PTH113 - as above
        kinds = f"name a folder with {MAIN_FILE}, or a Python file with a program class"
        hint = _programs_like(path.name, path.parent) or kinds
        raise ProgramError("no such program", where=str(path), hint=hint)
    folder, main = path.parent, path.name
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ProgramError(
            "the path of the program is not UTF-8 text",
            where=ascii(str(path)),
            hint="rename the folder",
        ) from None
    if path.suffix == ".toml":
        files = {main: read_file(folder, main, named_by=str(path))}
        python = read_definition(files[main], where=str(path)).program.python
        if python:
            files |= python_files(folder, python, named_by=str(path))
    elif path.suffix == ".py":
        files = python_files(folder, main, named_by=str(path))
    else:
        raise ProgramError(
            f"{path.name} is not a program",
            where=str(path),
            hint="name a folder with program.toml, or a Python file with a program class",
        )
    return Bundle(origin=str(folder), main=main, class_name=class_name, files=files)


def _programs_like(name: str, folder: Path) -> str:
    """Return a hint with the files of a folder that have nearly this name, or else its programs."""
    try:
        entries = list(itertools.islice(sorted(folder.iterdir()), MAX_LOOKED_AT))
        files = [one.name for one in entries if one.suffix == ".py" or one.is_dir()]
        near = suggestion(name, files)
        if near.startswith("did you mean"):
            return near
        programs = [one.name for one in entries if _is_program(one)]
    except OSError:
        return ""
    return suggestion(name, programs, kind="programs there") if programs else ""


def _is_program(path: Path) -> bool:
    if path.suffix == ".py":
        with contextlib.suppress(OSError), path.open("rb") as file:
            return _CLASS.search(file.read(MAX_SOURCE)) is not None
    return (path / MAIN_FILE).is_file()


def _classes(module: ModuleType) -> dict[str, type[Program]]:
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Program)
        and value.__module__ == module.__name__
    }


def _choose(found: dict[str, type[Program]], name: str, *, where: str) -> type[Program]:
    if name:
        if name in found:
            return found[name]
        raise ProgramError(f"no program class {name}", where=where, hint=suggest(name, found))
    leaves = [
        kind
        for kind in found.values()
        if not any(kind in other.__mro__[1:] for other in found.values())
    ]
    if len(leaves) == 1:
        return leaves[0]
    if not leaves:
        raise ProgramError(
            "the file defines no program", where=where, hint="derive a class from sapwood.Program"
        )
    names = ", ".join(kind.__name__ for kind in leaves)
    raise ProgramError(
        f"the file defines several programs: {names}",
        where=where,
        hint=f"name one: {Path(where).name}::{leaves[0].__name__}",
    )
