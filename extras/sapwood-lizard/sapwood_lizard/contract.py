"""What a Python module must offer to be a program, checked when it is registered."""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

from sapwood.errors import FunctionMissingError, ProgramError
from sapwood.plugins.tools import suggest
from sapwood_lizard.structures import field_types, pointer_fields

FUNCTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "aggregate": ("global_params", "running_aggregate", "aggregation_result"),
    "init_aggregation_result": ("global_params",),
    "init_global_state": ("global_params",),
    "update_global_state": ("global_params", "aggregation_result", "global_state"),
    "get_dataset_slice": ("global_params", "full_dataset", "start_idx", "size"),
}
"""Functions of the module of a program for ctypes, and with what they are called."""

EXTENSION_FUNCTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "aggregate": ("params", "aggregation_result", "partial"),
    "init_aggregation_result": ("params",),
    "initialize_global_state": ("params",),
    "update_global_state": ("params", "aggregation_result", "state"),
    "terminate": ("params", "prev_state", "state"),
    "split_data": ("data",),
    "to_array": ("rows",),
    "run_iteration": ("params", "data_count", "global_state", "pinned", "dataset"),
}
"""The same for C extensions."""

CLASSES: Final = ("GlobalParams", "Dataset", "GlobalState", "AggregationResult")

_METHODS: Final = ("encode", "decode")
_OF_POINTERS: Final = ("encode_dynamic", "decode_dynamic", "init_aux_structures")


def check_module(module: ModuleType, *, extension: bool, where: str) -> None:
    """Check that a module has all functions and classes of a program.

    Raises:
        FunctionMissingError: A function or class is missing.
        ProgramError: One is not as it must be, or the program is of the other kind.
    """
    _check_kind(module, extension=extension, where=where)
    for name, wanted in (EXTENSION_FUNCTIONS if extension else FUNCTIONS).items():
        _check_function(module, name, wanted, where)
    if not extension:
        for name in CLASSES:
            _check_class(_find(module, name, "class", where), name, where)
        _check_roles(module, where)


def _check_kind(module: ModuleType, *, extension: bool, where: str) -> None:
    """Tell a wrong ``py_c_extention`` from a function that is missing."""
    kinds = {True: EXTENSION_FUNCTIONS, False: FUNCTIONS}
    lacking = {
        kind: [name for name in names if not callable(getattr(module, name, None))]
        for kind, names in kinds.items()
    }
    if lacking[extension] and not lacking[not extension]:
        names = {True: "a C extension", False: "a program for ctypes"}
        said = str(not extension).lower()
        raise ProgramError(
            f"config.yaml makes this {names[extension]}, but its Python module is written for "
            f"{names[not extension]}",
            where=where,
            hint=f"write py_c_extention: {said} under info; the module has no "
            f"{', '.join(lacking[extension])}",
        )


def _find(module: ModuleType, name: str, what: str, where: str) -> Any:
    found = getattr(module, name, None)
    if found is None:
        known = [each for each, value in vars(module).items() if callable(value)]
        raise FunctionMissingError(
            f"the Python module has no {what} {name}", where=where, hint=suggest(name, known)
        )
    return found


def _check_function(module: ModuleType, name: str, wanted: tuple[str, ...], where: str) -> None:
    function = _find(module, name, "function", where)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        if callable(function):
            return  # built in C, so the signature is unknown
        raise ProgramError(f"{name} is not a function", where=where) from None
    try:
        signature.bind(*wanted)
    except TypeError as error:
        line = getattr(getattr(function, "__code__", None), "co_firstlineno", None)
        raise ProgramError(
            f"{name}{signature} cannot be called as {name}({', '.join(wanted)}): {error}",
            where=f"{where}:{line}" if line else where,
            hint=f"define it as def {name}({', '.join(wanted)})",
        ) from error


def _check_class(kind: Any, name: str, where: str) -> None:
    if not (isinstance(kind, type) and issubclass(kind, ctypes.Structure)):
        raise ProgramError(
            f"{name} is not a structure",
            where=where,
            hint=f"derive it: class {name}(user_prog_resources.EncodableStructure)",
        )
    missing = [method for method in _METHODS if not callable(getattr(kind, method, None))]
    if missing:
        raise ProgramError(
            f"{name} has no {' and no '.join(missing)}",
            where=where,
            hint="derive it from user_prog_resources.EncodableStructure",
        )
    fields = dict(field_types(kind))
    pointers = pointer_fields(kind)
    for field in pointers:
        if field not in fields:
            hint = suggest(field, fields)
            raise ProgramError(
                f"{name}.aux_field_names names {field}, which is not a field",
                where=where,
                hint=hint,
            )
    own = not (_inherited(kind, "encode") or _inherited(kind, "decode"))
    for field, declared in fields.items():
        what = "is" if _is_pointer(declared) else "holds"
        if field not in pointers and (what == "is" or (not own and _holds_pointer(declared))):
            raise ProgramError(
                f"{name}.{field} {what} a pointer that aux_field_names does not name",
                where=where,
                hint=f'write aux_field_names = ("{field}",) and encode what it points to',
            )
    for method in _OF_POINTERS if pointers else ():
        if _inherited(kind, method):
            raise ProgramError(f"{name} has pointers but does not define {method}", where=where)


def _is_pointer(declared: Any) -> bool:
    inner = getattr(declared, "_type_", None)
    if isinstance(inner, type):
        return not issubclass(declared, ctypes.Array)
    return inner in set("PzZOX")


def _holds_pointer(declared: Any) -> bool:
    """Return whether a structure or an array contains a pointer, however deep."""
    if issubclass(declared, ctypes.Array):
        return _holds_pointer(declared._type_)
    if issubclass(declared, (ctypes.Structure, ctypes.Union)):
        return any(_holds_pointer(inner) for _, inner in field_types(declared))
    return _is_pointer(declared)


def _inherited(kind: type, method: str) -> bool:
    """Say whether a class has a method only from the base of all structures."""
    for base in kind.__mro__:
        if method in vars(base):
            return base.__name__ == "EncodableStructure"
    return True


def _check_roles(module: ModuleType, where: str) -> None:
    if pointer_fields(module.GlobalParams):
        raise ProgramError(
            "GlobalParams has pointers, which parameters cannot have",
            where=where,
            hint="move them into the dataset or the global state",
        )
    if not hasattr(module.GlobalState, "done"):
        raise ProgramError(
            "GlobalState has no field done, which ends a run",
            where=where,
            hint='add ("done", ctypes.c_int) to its _fields_ and to the structure in C',
        )
    if _inherited(module.Dataset, "__len__"):
        raise ProgramError(
            "Dataset does not define __len__",
            where=where,
            hint="define it: def __len__(self): return self.num_points",
        )


def can_be_called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    """Say whether a function takes these arguments; True where it does not tell.

    Example:
        >>> can_be_called(lambda a, b=1: a, 1), can_be_called(lambda a, b=1: a, 1, c=2)
        (True, False)
    """
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except ValueError:
        return True
    except TypeError:
        return False
    return True
