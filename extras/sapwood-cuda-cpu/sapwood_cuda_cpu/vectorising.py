"""What helps compilers to vectorise the loops over threads, and the loops inside of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from sapwood_cuda_cpu.calls import CallGraph, is_atomic
from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.parse import declared_names, plain, walk

_LOOPS: Final = frozenset({"for_statement", "while_statement", "do_statement"})
_SHORT: Final = 16
"""Rounds below which a loop is better unrolled than vectorised."""
_MOST_STEPS: Final = 4
"""How often the text of a macro is looked up."""


def can_be_vectors(nodes: Iterable[Any], graph: CallGraph, own: Collection[int]) -> bool:
    """Whether compilers may make vectors of what neighbouring threads do.

    They do not with atomics, nor with memory that each thread has in turn: arrays, and variables
    whose address is taken.

    Args:
        nodes: What the threads do.
        graph: Says which names hold atomic operations or arrays.
        own: Where objects with arrays are made, or functions called that have such memory.
    """
    for node in nodes:
        if node.start_byte in own:
            return False
        if node.type == "array_declarator" or (
            node.type == "pointer_expression" and node.children[0].type == "&"
        ):
            return False
        if node.type == "identifier":
            word = plain(node.text)
            if is_atomic(word) or word in graph.atomic:
                return False
    return True


def keep_sums_rolled(nodes: Iterable[Any], graph: CallGraph, edits: Edits) -> None:
    """Keep loops that sum up as loops, where the loop over threads cannot be vectorised.

    clang unrolls them completely otherwise, and does not vectorise what is left.
    """
    for node in nodes:
        if node.type == "for_statement" and _sums(node) and _is_long(node, graph):
            edits.insert(node.start_byte, "SAPWOOD_ROLLED ")


def _sums(loop: Any) -> bool:
    """Whether a loop is alone, holds no other, and adds to a variable from outside."""
    before = loop.prev_named_sibling
    if loop.parent.type != "compound_statement" or (
        before is not None and before.type == "preproc_call"
    ):
        return False
    inside = [node for node in walk(loop) if node.id != loop.id]
    own = {name for node in inside if node.type == "declaration" for name in declared_names(node)}
    if any(node.type in _LOOPS for node in inside):
        return False
    for node in inside:
        if node.type == "assignment_expression" and node.children[1].type in {"+=", "-="}:
            left = node.child_by_field_name("left")
            if left.type == "identifier" and plain(left.text) not in own:
                return True
    return False


def _is_long(loop: Any, graph: CallGraph) -> bool:
    """Whether a loop has a number of rounds that is written down, and many of them."""
    condition = loop.child_by_field_name("condition")
    if condition is None or condition.type != "binary_expression":
        return False
    text = plain(condition.child_by_field_name("right").text)
    for _ in range(_MOST_STEPS):
        text = graph.macros.get(text, text).strip("()")
    return text.isdigit() and int(text) >= _SHORT
