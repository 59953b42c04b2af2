"""Index variables of kernels in BLOCK mode: plain integers of the loops over threads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.parse import plain

_NAMES: Final = {
    "threadIdx": "sapwood_{}",
    "blockIdx": "sapwood_b.b{}",
    "blockDim": "sapwood_b.s{}",
    "gridDim": "sapwood_b.g{}",
}
_SIGNED: Final = {"int", "const int", "int const"}
_LARGE: Final = re.compile(r"\d{7}|0[xX]|_MAX|_MIN")


def edit_indices(nodes: Sequence[Any], edits: Edits) -> None:
    """Replace ``threadIdx.x`` and the like.

    An ``int`` that starts with a sum gets its thread as an ``int`` too: the compiler then sees
    that neighbouring threads use neighbouring elements, which a sum modulo 2**32 hides.
    """
    signed = {
        term.id
        for node in nodes
        if node.type == "declaration"
        for term in _signed_terms(node, edits)
    }
    for node in nodes:
        if node.type == "field_expression":
            name = index_name(node)
            if name:
                text = name if node.id in signed else f"::sapwood_cuda::coordinate({name})"
                edits.replace(node.start_byte, node.end_byte, text)


def index_name(node: Any) -> str:
    """Return what an index variable is called in BLOCK mode; nothing for other expressions."""
    if node.type != "field_expression" or len(node.children) != 3:
        return ""
    base = plain(node.children[0].text)
    field = plain(node.children[2].text)
    return _NAMES[base].format(field) if base in _NAMES and field in {"x", "y", "z"} else ""


def _signed_terms(declaration: Any, edits: Edits) -> list[Any]:
    """Return the thread index in the sum that an ``int`` starts with; makes the rest ``int``."""
    first = declaration.child_by_field_name("declarator")
    head = plain(declaration.text[: first.start_byte - declaration.start_byte]) if first else ""
    found = []
    for declarator in declaration.children_by_field_name("declarator"):
        value = declarator.child_by_field_name("value")
        if head not in _SIGNED or value is None:
            continue
        while value.type == "parenthesized_expression":
            value = value.named_children[0]
        if plain(value.text).startswith("threadIdx") and value.type == "field_expression":
            found.append(value)
        if value.type != "binary_expression" or value.children[1].type != "+":
            continue
        sides = [value.child_by_field_name("left"), value.child_by_field_name("right")]
        for own, other in (sides, sides[::-1]):
            if _LARGE.search(plain(other.text)):
                continue  # an int would not wrap as the sum does
            if index_name(own).startswith("sapwood_") and plain(own.text).startswith("threadIdx"):
                edits.insert(other.start_byte, "::sapwood_cuda::signed_part(")
                edits.insert(other.end_byte, ")")
                found.append(own)
                break
    return found
