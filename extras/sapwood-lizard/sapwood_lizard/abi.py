"""Compares the layouts of a program's Python structures with its library's structures."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final

from sapwood.errors import ProgramError
from sapwood_lizard.layout import CType, EntryPoint
from sapwood_lizard.structures import field_types
from sapwood_lizard.uniform import same_numbers, simple_kind

ENTRY_POINTS: Final[Mapping[str, tuple[str, ...]]] = {
    "run_iteration": ("", "GlobalParams", "Dataset", "GlobalState", "AggregationResult"),
    "setup_dataset": ("Dataset", "GlobalParams"),
    "free_dataset": ("Dataset", "GlobalParams"),
    "setup_global_state": ("GlobalState", "GlobalParams"),
    "free_global_state": ("GlobalState", "GlobalParams"),
    "setup_aggregation_result": ("AggregationResult", "GlobalParams"),
    "free_aggregation_result": ("AggregationResult", "GlobalParams"),
}
"""The functions that a library must have, and the classes whose structures they take."""

_OPAQUE: Final = "PzZOXv"
"""Codes of ctypes for pointers that do not say what they point to."""


def check_entry_points(points: Mapping[str, EntryPoint], *, where: str) -> None:
    """Check that all functions are there and take as many pointers as they must.

    Raises:
        ProgramError: One is missing or of another signature.
    """
    for name, classes in ENTRY_POINTS.items():
        point = points.get(name)
        if point is None:
            raise ProgramError(
                f"no source defines {name}",
                where=where,
                hint=f'define it with C linkage: extern "C" void {_declaration(name)}',
            )
        fits = len(point.parameters) == len(classes) and all(
            given.kind == "pointer" if wanted else given.kind == "int" and given.size in {4, 8}
            for given, wanted in zip(point.parameters, classes, strict=False)
        )
        if not fits:
            found = ", ".join(each.text for each in point.parameters)
            raise ProgramError(
                f"{name} takes ({found})",
                where=point.place or where,
                hint=f"it must be void {_declaration(name)}",
            )


def _declaration(name: str) -> str:
    names = {
        "": "int block_size",
        "GlobalParams": "global_params_t *",
        "Dataset": "dataset_t *",
        "GlobalState": "global_state_t *",
        "AggregationResult": "agg_res_t *",
    }
    return f"{name}({', '.join(names[each] for each in ENTRY_POINTS[name])})"


def check_structures(points: Mapping[str, EntryPoint], module: ModuleType, *, where: str) -> None:
    """Check that the classes of a module are laid out as the structures that functions take.

    Raises:
        ProgramError: Size, offset or type of something differs; the message says of what.
    """
    for name, classes in ENTRY_POINTS.items():
        for parameter, wanted in zip(points[name].parameters, classes, strict=True):
            target = parameter.target
            if wanted and target is not None and target.kind == "struct":
                _check_structure(target, getattr(module, wanted), name, where)


def _check_structure(c: CType, kind: Any, function: str, where: str) -> None:
    problem = _difference(c, kind)
    if problem:
        raise ProgramError(
            f"class {kind.__name__} is not laid out as {c.text}, which {function} takes: {problem}",
            where=", ".join(filter(None, (where, c.place))),
            hint="list the same fields in the same order and with the same types in _fields_",
        )


def _difference(c: CType, kind: Any) -> str:
    fields = list(field_types(kind))
    for index, member in enumerate(c.members):
        if index >= len(fields):
            return f"Python has no field for {member.type.text} {member.name}"
        name, declared = fields[index]
        descriptor = getattr(kind, name)
        given = f"{describe(declared)} {name}"
        expected = f"{member.type.text} {member.name}"
        if descriptor.offset != member.offset or not _fits(member.type, declared):
            places = ""
            if descriptor.offset != member.offset:
                places = f" (at byte {member.offset} and at byte {descriptor.offset})"
            elif ctypes.sizeof(declared) != member.type.size > 0:
                places = f" ({member.type.size} and {ctypes.sizeof(declared)} bytes)"
            return f"C has {expected} where Python has {given}{places}"
    if len(fields) > len(c.members):
        return f"C has no member for {fields[len(c.members)][0]}"
    if ctypes.sizeof(kind) != c.size:
        return f"{c.size} bytes in C, {ctypes.sizeof(kind)} bytes in Python"
    return ""


def _fits(c: CType, declared: Any) -> bool:
    """Say whether a type of ctypes is the same in memory as a type of C."""
    if c.kind == "other":
        return c.size in {0, ctypes.sizeof(declared)}
    if c.kind == "pointer":
        return _pointer_fits(c, declared)
    if ctypes.sizeof(declared) != c.size:
        return False
    if same_numbers(c, declared):
        return True
    if issubclass(declared, ctypes.Array):
        return c.kind == "array" and c.target is not None and _leaf(c.target) == _leaf_of(declared)
    if issubclass(declared, ctypes.Structure):
        return c.kind == "struct" and not _difference(c, declared)
    return c.kind == simple_kind(declared) or {c.kind, simple_kind(declared)} <= {"int", "bool"}


def _pointer_fits(c: CType, declared: Any) -> bool:
    if ctypes.sizeof(declared) != ctypes.sizeof(ctypes.c_void_p):
        return False
    if getattr(declared, "_type_", None) in set(_OPAQUE):
        return True  # it does not say what it points to
    inner = getattr(declared, "_type_", None)
    is_pointer = isinstance(inner, type) and not issubclass(declared, (ctypes.Array,))
    if not is_pointer or issubclass(declared, ctypes.Structure):
        return False
    target = c.target
    if target is None or target.kind in {"void", "other"}:
        return True
    if target.kind == "struct" and not target.members:
        return True
    return same_numbers(target, inner) or _fits(target, inner)


def _leaf(c: CType) -> str:
    while c.kind == "array" and c.target is not None:
        c = c.target
    return "int" if c.kind == "bool" else c.kind


def _leaf_of(declared: Any) -> str:
    while issubclass(declared, ctypes.Array):
        declared = declared._type_
    if issubclass(declared, ctypes.Structure):
        return "struct"
    kind = simple_kind(declared)
    return "int" if kind == "bool" else kind


def describe(declared: Any) -> str:
    """Return a type of ctypes as its author writes it.

    Example:
        >>> describe(ctypes.POINTER(ctypes.POINTER(ctypes.c_float)))
        'POINTER(POINTER(c_float))'
    """
    inner = getattr(declared, "_type_", None)
    if isinstance(inner, type):
        if issubclass(declared, ctypes.Array):
            return f"{describe(inner)} * {declared._length_}"
        return f"POINTER({describe(inner)})"
    return str(declared.__name__)
