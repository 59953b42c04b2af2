"""``program.toml``: a program as a folder.

::

    [program]
    name = "quantize"                 # default: the folder's name
    description = "…"
    python = "quantize.py"            # optional: init, map, update, done, metrics, …
    sources = ["assign.c"]            # optional: C and C++ files
    inputs = ["data"]                 # fields of the dataset that the map wants
    allow_nan = false                 # whether the data may hold NaN and infinite values
    movable = true                    # whether items may move to other agents

    [data]
    source = "points/*.parquet"       # the default data; or a URL
    columns = ["x", "y"]              # optional: the columns of a table that are used

    [parameters.colours]
    default = 16                      # the only required key
    type = "int"                      # int, float, str, bool; default: the default's type
    minimum = 2
    maximum = 256
    choices = [8, 16, 32]
    help = "colours to keep"

    [map]
    function = "assign"               # a native function; without [map] the Python file's map

    [reduce]
    sums = "sum"                      # a reduction by name,
    best = "better"                   # an associative function of two values in the Python file,
    bins = "native:add_bins"          # or a native function that adds one array to another

A function of the Python file becomes the program's method of the same name; its first argument
is the program, so that ``def init(program, data)`` reads ``program.colours``. A Python file may
define a :class:`~sapwood.code.program.Program` subclass instead; then the class says everything,
and ``[program]`` holds only ``python``, ``name`` and ``description``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from sapwood.code.native_marker import Native
from sapwood.code.parameter import PARAMETER_TYPES, Parameter
from sapwood.code.program import Program
from sapwood.code.reducers import NATIVE_PREFIX
from sapwood.comm.reductions import REDUCTIONS
from sapwood.core import typed
from sapwood.core.errors import ProgramError
from sapwood.core.shown import shown
from sapwood.core.suggest import suggest

MAIN_FILE = "program.toml"

METHODS = (
    "default_data",
    "init",
    "map",
    "update",
    "done",
    "metrics",
    "iterations",
    "result",
    "output",
    "own_filter",
)
"""Functions of the Python file that become methods of the program."""


class ProgramTable(msgspec.Struct, frozen=True):
    """``[program]``."""

    name: str = ""
    description: str = ""
    python: str = ""
    sources: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ("data",)
    allow_nan: bool = False
    movable: bool | None = None


class ParameterTable(msgspec.Struct, frozen=True):
    """``[parameters.NAME]``."""

    default: bool | int | float | str
    type: str = ""
    minimum: int | float | None = None
    maximum: int | float | None = None
    choices: tuple[bool | int | float | str, ...] | None = None
    help: str = ""


class DataTable(msgspec.Struct, frozen=True):
    """``[data]``."""

    source: str
    columns: tuple[str, ...] | None = None


class MapTable(msgspec.Struct, frozen=True):
    """``[map]``."""

    function: str


class ProgramDefinition(msgspec.Struct, frozen=True):
    """A whole ``program.toml``."""

    program: ProgramTable
    parameters: dict[str, ParameterTable] = {}
    map: MapTable | None = None
    data: DataTable | None = None
    reduce: dict[str, str] = {}


def read_definition(data: bytes, *, where: str) -> ProgramDefinition:
    """Read and check a ``program.toml``.

    Raises:
        ProgramError: It is not TOML, a key is unknown, or a value is of the wrong type.
    """
    import tomllib  # noqa: PLC0415 - only programs in folders need it, and agents start faster

    try:
        document = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProgramError(f"not valid TOML: {error}", where=where) from error
    _check_keys(document, where)
    try:
        return typed.convert(document, ProgramDefinition)
    except msgspec.ValidationError as error:
        raise ProgramError(f"a value is wrong: {error}", where=where) from error


def class_from_definition(
    definition: ProgramDefinition, functions: Mapping[str, Any], *, where: str
) -> type[Program]:
    """Make the program class of a folder from its TOML and the functions of its Python file.

    Raises:
        ProgramError: It has no map, or two, or a parameter's definition is wrong.
    """
    table = definition.program
    attributes: dict[str, Any] = {
        "name": table.name,
        "description": table.description,
        "sources": table.sources,
        "inputs": table.inputs,
        "allow_nan": table.allow_nan,
        "movable": table.movable,
        "reduce": {field: _reducer(how, functions) for field, how in definition.reduce.items()},
        **{name: functions[name] for name in METHODS if name in functions},
    }
    if definition.data is not None:
        if "default_data" in functions:
            raise ProgramError(
                f"both [data] and {table.python} say which data are used",
                where=where,
                hint="keep one of them",
            )
        attributes["default_data"] = _DefaultData(definition.data.source, where)
        attributes["data_columns"] = definition.data.columns
    for name, spec in definition.parameters.items():
        attributes[name] = _parameter(spec, where=f"{where} [parameters.{name}]")
    if definition.map is not None:
        if "map" in functions:
            raise ProgramError(
                f"both [map] and {table.python} define the map",
                where=where,
                hint="keep one of them",
            )
        attributes["map"] = Native(definition.map.function)
    elif "map" not in functions:
        raise ProgramError(
            "the program has no map",
            where=where,
            hint='write [map] function = "NAME" for a native one, or def map(program, slice, '
            "state) in the Python file",
        )
    try:
        return type(table.name, (Program,), attributes)
    except ProgramError as error:
        raise error.located(where) from None


class _DefaultData:
    """The method ``default_data`` of a program whose ``program.toml`` names its data."""

    def __init__(self, source: str, where: str) -> None:
        self._source = source
        self._folder = Path(where).parent

    def __call__(self) -> str:
        """Return the path, from the folder of the program, or the URL."""
        return self._source if "://" in self._source else str(self._folder / self._source)


def _reducer(how: str, functions: Mapping[str, Any]) -> Any:
    """Return what the text of a reduction stands for: itself, or code of the program."""
    if how.startswith(NATIVE_PREFIX):
        return Native(how.removeprefix(NATIVE_PREFIX))
    return how if how.partition(":")[0] in REDUCTIONS else functions.get(how, how)


def _parameter(table: ParameterTable, *, where: str) -> Parameter:
    if table.type and table.type not in PARAMETER_TYPES:
        raise ProgramError(
            f"unknown type {shown(table.type)}",
            where=where,
            hint=suggest(table.type, PARAMETER_TYPES),
        )
    return Parameter(
        table.default,
        kind=PARAMETER_TYPES.get(table.type),
        minimum=table.minimum,
        maximum=table.maximum,
        choices=table.choices,
        help=table.help,
    )


def check_minimal(definition: ProgramDefinition, class_name: str, *, where: str) -> None:
    """Refuse what a ``program.toml`` says a second time beside a program class.

    Raises:
        ProgramError: It holds more than python, name and description.
    """
    table = definition.program
    given = {
        "sources": bool(table.sources),
        "inputs": table.inputs != ProgramTable().inputs,
        "allow_nan": table.allow_nan,
        "movable": table.movable is not None,
        "[data]": definition.data is not None,
        "[parameters]": bool(definition.parameters),
        "[map]": definition.map is not None,
        "[reduce]": bool(definition.reduce),
    }
    extra = [name for name, present in given.items() if present]
    if extra:
        raise ProgramError(
            f"{', '.join(extra)} cannot stand beside a program class",
            where=where,
            hint=f"say it in class {class_name} of {table.python}",
        )


def _check_keys(document: dict[str, Any], where: str) -> None:
    _check_table(document, ProgramDefinition, where)
    if "program" not in document:
        raise ProgramError(
            "the table [program] is missing", where=where, hint='write [program] and name = "…"'
        )
    for key, kind in (("program", ProgramTable), ("map", MapTable), ("data", DataTable)):
        if key not in document:
            continue
        _check_table(document.get(key, {}), kind, f"{where} [{key}]")
    parameters = document.get("parameters", {})
    for name, table in parameters.items() if isinstance(parameters, dict) else ():
        _check_table(table, ParameterTable, f"{where} [parameters.{name}]")


def _check_table(table: Any, kind: type[msgspec.Struct], where: str) -> None:
    if not isinstance(table, dict):
        raise ProgramError("a table is expected here", where=where)
    for key in table:
        if key not in kind.__struct_fields__:
            raise ProgramError(
                f"unknown key {key}", where=where, hint=suggest(key, kind.__struct_fields__)
            )
