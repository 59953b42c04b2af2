"""Which variables of a kernel live across a cut: each thread of the block keeps its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sapwood_cuda_cpu.cursors import Kind
from sapwood_cuda_cpu.parse import plain
from sapwood_cuda_cpu.part import Part
from sapwood_cuda_cpu.variables import NotPossibleError, Variable, Variables, used_words

_NUMBERS: Final = frozenset(
    ["bool", "char", "short", "int", "long", "signed", "unsigned", "float", "double", "size_t"]
    + [f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
"""Words of types that are numbers."""

_MOST_KEPT: Final = 4096
"""Bytes for each thread that live across cuts: a block of 1024 threads has them on one stack."""

_NO_ADDRESS: Final = {"array_declarator", "sizeof_expression", "parenthesized_expression"}
"""What the name of an array stands in without being the address of its first element."""


def find_expanded(variables: Variables, parts: Sequence[Part]) -> dict[str, Variable]:
    """Return the variables that live across a cut and cannot be computed again.

    Raises:
        NotPossibleError: One of them cannot be kept for each thread.
    """
    found = {
        variable.name: variable
        for variable in variables.parameters
        if variable.changes and not variable.is_reference and variable.name not in variables.uniform
    }
    for variable in found.values():
        if variable.kind is Kind.OTHER:
            raise NotPossibleError(f"each thread needs its own copy of {variable.name}")
    inside: list[tuple[str, Part]] = []
    for part in parts:
        for name in part.declared - variables.floating:
            if any(name in other.words for other in parts if other is not part):
                found[name] = _expandable(variables, name, parts)
            else:
                inside.append((name, part))
    found |= _pointed_to(variables, found, inside, parts)
    if sum(max(each.size, 0) for each in found.values()) > _MOST_KEPT:
        largest = max(found.values(), key=lambda each: each.size)
        raise NotPossibleError(f"{largest.name} is too large to be kept for each thread")
    return found


def is_plain_number(known: Sequence[Variable]) -> bool:
    """Whether a variable is one number that is only ever changed by its own name.

    Args:
        known: The variables of that name.
    """
    if len(known) != 1 or known[0].is_array or known[0].is_reference or known[0].is_shared:
        return False
    (variable,) = known
    words = variable.type.split()
    return (
        bool(words)
        and _NUMBERS.issuperset(words)
        and all(c.type in {"assignment_expression", "update_expression"} for c in variable.changes)
    )


def _pointed_to(
    variables: Variables,
    found: Mapping[str, Variable],
    inside: Sequence[tuple[str, Part]],
    parts: Sequence[Part],
) -> dict[str, Variable]:
    """Return what a pointer that lives across a cut may point to: it must live as well."""
    if not any(_may_hold_address(variable) for variable in found.values()):
        return {}
    return {
        name: _expandable(variables, name, parts)
        for name, part in inside
        if _is_pointed_to(variables.by_name[name], name, part.nodes)
    }


def _expandable(variables: Variables, name: str, parts: Sequence[Part]) -> Variable:
    in_skeleton = [
        variable
        for variable in variables.by_name[name]
        if variable.declaration.parent.type == "compound_statement"
        and any(variable.declaration.id == node.id for part in parts for node in part.statements)
    ]
    if len(in_skeleton) != 1:
        raise NotPossibleError(f"{name} is declared twice")
    (variable,) = in_skeleton
    line = variable.declaration.start_point[0] + 1
    if (
        variable.kind in {Kind.REFERENCE, Kind.OTHER}
        or "auto" in variable.type.split("*")[0].split()
    ):
        raise NotPossibleError(f"line {line}: {name} lives across a barrier")
    return variable


def _may_hold_address(variable: Variable) -> bool:
    """Whether a variable may be or contain a pointer: it is not a number, nor an array of them."""
    words = variable.type.replace("*", " * ").split()
    return not words or not _NUMBERS.issuperset(words)


def _is_pointed_to(known: Sequence[Variable], name: str, nodes: Sequence[Any]) -> bool:
    """Whether the address of a variable that is used in some nodes may be kept."""
    if any(variable.is_reference or variable.is_shared for variable in known):
        return False
    changes = [change.type for variable in known for change in variable.changes]
    if not {"assignment_expression", "update_expression"}.issuperset(changes):
        return True  # its address, or a reference to it
    if any("][" in variable.extents.replace(" ", "") for variable in known):
        return True  # a row of it is an address, too
    is_array = any(variable.is_array for variable in known)
    return any(
        _binds(node, name)
        or (is_array and node.type == "identifier" and plain(node.text) == name and _decays(node))
        for node in nodes
    )


def _binds(node: Any, name: str) -> bool:
    """Whether a declaration makes a reference to a variable, or to a part of it."""
    if node.type != "init_declarator":
        return False
    declarator, value = node.child_by_field_name("declarator"), node.child_by_field_name("value")
    return "&" in plain(declarator.text) and value is not None and name in used_words(value)


def _decays(node: Any) -> bool:
    """Whether the name of an array stands for the address of its first element."""
    if node.parent.type == "subscript_expression":
        return bool(node.parent.child_by_field_name("argument") != node)
    return node.parent.type not in _NO_ADDRESS
