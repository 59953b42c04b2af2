"""Atomic operations of kernels in BLOCK mode that need not be atomic, or not at once.

A block runs on one worker, so its shared memory needs no atomic operations. And where all that
a kernel does with an array is to add to it, each worker adds up on its own first: workers that
add to one place at the same time slow each other down.
"""

from __future__ import annotations

from typing import Any, Final

from sapwood_cuda_cpu.calls import GRID_SYNC
from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.parse import Function, plain, walk
from sapwood_cuda_cpu.variables import Variables

_PLAIN: Final = frozenset(
    f"atomic{name}" for name in ("Add", "Sub", "Min", "Max", "And", "Or", "Xor", "Inc", "Dec")
)
_FENCE: Final = "__threadfence"


def edit_atomics(kernel: Function, variables: Variables, edits: Edits) -> str:
    """Rewrite the atomic operations of a kernel; return what its body begins with."""
    calls = [node for node in variables.nodes if node.type == "call_expression"]
    named = {id(call): plain(call.child_by_field_name("function").text) for call in calls}
    for call in calls:
        callee = call.child_by_field_name("function")
        if named[id(call)] in _PLAIN and _target(call) in _shared(variables):
            edits.replace(
                callee.start_byte, callee.end_byte, f"::sapwood_cuda::own::{named[id(call)]}"
            )
    if any(word.startswith(_FENCE) or word == GRID_SYNC for word in kernel.words):
        return ""
    text = ""
    pointers = [parameter.name for parameter in kernel.parameters if "*" in parameter.type]
    for name in sorted(_only_added_to(kernel, variables)):
        given = ", ".join([name, *(other for other in pointers if other != name)])
        text += f" const auto sapwood_l_{name} = ::sapwood_cuda::later({given});"
        for call in calls:
            if named[id(call)] == "atomicAdd" and _target(call) == name:
                callee = call.child_by_field_name("function")
                edits.replace(callee.start_byte, callee.end_byte, f"sapwood_l_{name}.add")
    return text


def _shared(variables: Variables) -> set[str]:
    return {
        name
        for name, known in variables.by_name.items()
        if known and all(v.is_shared for v in known)
    }


def _only_added_to(kernel: Function, variables: Variables) -> set[str]:
    """Return the pointers among a kernel's parameters that nothing but additions uses."""
    found = {
        parameter.name
        for parameter in kernel.parameters
        if "*" in parameter.type and not {"const", "volatile"} & set(parameter.type.split())
    }
    found = {name for name in found if len(variables.by_name[name]) == 1}
    for node in variables.nodes:
        if node.type == "identifier" and plain(node.text) in found and not _is_target(node):
            found.discard(plain(node.text))
    used = {plain(node.text) for node in variables.nodes if node.type == "identifier"}
    return found & used


def _target(call: Any) -> str:
    """Return the array that the first argument of a call is a place of."""
    arguments = call.child_by_field_name("arguments").named_children
    node = arguments[0] if arguments else None
    while node is not None and node.type != "identifier":
        if (
            node.type == "pointer_expression" and node.children[0].type == "&"
        ) or node.type == "subscript_expression":
            node = node.child_by_field_name("argument")
        elif node.type == "binary_expression" and node.children[1].type == "+":
            node = node.child_by_field_name("left")
        elif node.type == "parenthesized_expression":
            node = node.named_children[0]
        else:
            return ""
    return plain(node.text) if node is not None else ""


def _is_target(node: Any) -> bool:
    """Whether an identifier is the array that an addition, whose value is not used, adds to."""
    above = node.parent
    while above is not None and above.type != "call_expression":
        if above.type.endswith(("_statement", "declaration")):
            return False
        above = above.parent
    if above is None or above.parent.type != "expression_statement":
        return False
    if plain(above.child_by_field_name("function").text) != "atomicAdd":
        return False
    first = above.child_by_field_name("arguments").named_children[0]
    target = next(each for each in walk(first) if each.type == "identifier")
    return _target(above) == plain(node.text) and bool(target.id == node.id)
