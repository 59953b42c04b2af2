"""The procedures of a source that C, and so Python, can call: those with ``bind(c)``."""

from __future__ import annotations

import re
from typing import NamedTuple

from sapwood.plugins.languages import (
    ElementType,
    FunctionSignature,
    ParameterSignature,
    Role,
    UnboundFunction,
)
from sapwood_fortran.statements import Statement, split_list, statements

TYPES: dict[tuple[str, str], ElementType] = {
    ("integer", "c_int8_t"): ElementType("int8_t", "|i1", 1),
    ("integer", "c_int16_t"): ElementType("int16_t", "<i2", 2),
    ("integer", "c_int32_t"): ElementType("int32_t", "<i4", 4),
    ("integer", "c_int64_t"): ElementType("int64_t", "<i8", 8),
    ("integer", "c_int"): ElementType("int", "<i4", 4),
    ("integer", "c_long"): ElementType("long", "<i8", 8),
    ("integer", "c_size_t"): ElementType("int64_t", "<i8", 8),
    ("real", "c_float"): ElementType("float", "<f4", 4),
    ("real", "c_double"): ElementType("double", "<f8", 8),
    ("complex", "c_float_complex"): ElementType("float complex", "<c8", 8),
    ("complex", "c_double_complex"): ElementType("double complex", "<c16", 16),
    ("logical", "c_bool"): ElementType("bool", "|b1", 1),
}
"""Types of ``iso_c_binding`` that numpy has."""

_HEADER = re.compile(
    r"(?P<prefix>.*?)\b(?P<kind>subroutine|function)\s+(?P<name>\w+)\s*\((?P<arguments>[^)]*)\)"
    r"(?P<suffix>.*\bbind\s*\(\s*c\b.*)"
)
_TYPE = re.compile(
    r"(?P<type>integer|real|complex|logical)\s*\(\s*(?:kind\s*=\s*)?(?P<kind>\w+)\s*\)"
)
_ENTITY = re.compile(r"(?P<name>\w+)\s*(?:\((?P<shape>.*)\))?$")
_BOUND_NAME = re.compile(r"name\s*=\s*['\"](\w+)['\"]")
_RESULT = re.compile(r"result\s*\(\s*(\w+)\s*\)")


class Procedures(NamedTuple):
    """What a source offers, and what it would if it could."""

    functions: list[FunctionSignature]
    unbound: list[UnboundFunction]


class Declared(NamedTuple):
    """A variable: its type, its attributes, and the extents of an array."""

    element: ElementType | None
    attributes: list[str]
    shape: tuple[str, ...] | None


class CannotBindError(Exception):
    """Why a procedure cannot be called from Python."""


def read_procedures(source: str, file: str) -> Procedures:
    """Return the procedures of a source with ``bind(c)``."""
    found = Procedures([], [])
    header: tuple[Statement, re.Match[str]] | None = None
    declared: dict[str, Declared] = {}
    outside = False  # in an interface block: its declarations are defined elsewhere
    for statement in statements(source):
        match = _HEADER.match(statement.text)
        if re.match(r"(abstract\s+)?interface\b|end\s*interface\b", statement.text):
            outside = not statement.text.startswith("end")
        elif outside:
            continue
        elif match is not None and not statement.text.startswith("end"):
            header, declared = (statement, match), {}
        elif header is not None and re.match(r"end(?!\s*type\b)", statement.text):
            _finish(found, header, declared, file, source)
            header = None
        elif header is not None and "::" in statement.text:
            declared |= _declarations(statement.text)
    return found


def _declarations(text: str) -> dict[str, Declared]:
    left, _, right = text.partition("::")
    specifier, *attributes = split_list(left)
    known = _TYPE.match(specifier)
    element = TYPES.get((known["type"], known["kind"])) if known else None
    common = next((a[9:].strip(" ()") for a in attributes if a.startswith("dimension")), None)
    found = {}
    for entity in split_list(right):
        match = _ENTITY.match(entity.partition("=")[0].strip())
        if match is not None:
            shape = match["shape"] or common
            # What Fortran counts first lies closest: numpy names it last.
            extents = tuple(reversed(split_list(shape))) if shape else None
            found[match["name"]] = Declared(
                element, [a.replace(" ", "") for a in attributes], extents
            )
    return found


def _finish(
    found: Procedures,
    header: tuple[Statement, re.Match[str]],
    declared: dict[str, Declared],
    file: str,
    source: str,
) -> None:
    statement, match = header
    named = _BOUND_NAME.search(source.splitlines()[statement.line - 1]) or _BOUND_NAME.search(
        match["suffix"]
    )
    name = named[1] if named else match["name"]
    try:
        parameters = tuple(_parameter(each, declared) for each in split_list(match["arguments"]))
        returns = _returned(match, declared) if match["kind"] == "function" else None
    except CannotBindError as reason:
        found.unbound.append(UnboundFunction(name, str(reason), file, statement.line))
        return
    found.functions.append(
        FunctionSignature(name, parameters, returns, statement.comment, file, statement.line)
    )


def _parameter(name: str, declared: dict[str, Declared]) -> ParameterSignature:
    known = declared.get(name)
    if known is None:
        raise CannotBindError(f"{name} is not declared with ::")
    element, attributes, shape = known
    if element is None:
        raise CannotBindError(f"the type of {name} is none of iso_c_binding that numpy has")
    if bad := {"pointer", "allocatable", "optional"} & set(attributes):
        raise CannotBindError(f"{name} is {', '.join(sorted(bad))}")
    if "value" in attributes:
        return ParameterSignature(name, element.c, element)
    if shape is not None and any(":" in extent or extent == "*" for extent in shape):
        raise CannotBindError(f"declare the extents of {name}, for example {name}(n)")
    intents = {"intent(in)": Role.INPUT, "intent(out)": Role.OUTPUT, "intent(inout)": Role.INOUT}
    role = next((intents[each] for each in attributes if each in intents), None)
    if role is None:
        raise CannotBindError(f"{name} has no intent; a number can have the attribute value")
    if shape is None and role is not Role.OUTPUT:
        raise CannotBindError(f"{name} is one number: give it the attribute value")
    const = "const " if role is Role.INPUT else ""
    return ParameterSignature(name, f"{const}{element.c} *", element, role, shape)


def _returned(match: re.Match[str], declared: dict[str, Declared]) -> ElementType:
    known = _TYPE.search(match["prefix"])
    if known is not None:
        element = TYPES.get((known["type"], known["kind"]))
    else:
        result = _RESULT.search(match["suffix"])
        variable = declared.get(result[1] if result else match["name"])
        element = variable.element if variable else None
    if element is None or element.dtype.lstrip("<|").startswith("c"):
        raise CannotBindError("its result is not a number of iso_c_binding that numpy has")
    return element
