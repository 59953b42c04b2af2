"""Loops, conditions and jumps, as the syntax tree has them."""

from __future__ import annotations

from typing import Any, Final

from sapwood_cuda_cpu.parse import walk

LOOPS: Final = frozenset({"for_statement", "while_statement", "do_statement"})
LABELS: Final = frozenset({"goto_statement", "labeled_statement"})
"""Statements by which a thread changes the order of the others."""


def jumps_out(node: Any) -> bool:
    """Whether a statement holds a break or continue of a loop around it."""
    return any(
        each.type in {"break_statement", "continue_statement"} and target_loop(each, node) is None
        for each in walk(node)
    )


def target_loop(jump: Any, limit: Any) -> Any:
    """Return the loop inside of ``limit`` that a break or continue belongs to."""
    node = jump
    while node is not None and node.id != limit.id:
        node = node.parent
        if node.type in LOOPS or (
            node.type == "switch_statement" and jump.type == "break_statement"
        ):
            return node
    return None


def condition(node: Any) -> Any:
    """Return the condition of a loop or ``if``."""
    return node.child_by_field_name("condition")


def arms(node: Any) -> list[Any]:
    """Return what an ``if`` chooses from."""
    chosen = [node.child_by_field_name("consequence")]
    other = node.child_by_field_name("alternative")
    if other is not None:
        chosen.append(other.named_children[-1] if other.type == "else_clause" else other)
    return chosen


def branches(node: Any) -> list[Any]:
    """Return the statements that an ``if`` chooses from."""
    found: list[Any] = []
    for arm in arms(node):
        found += arm.named_children if arm.type == "compound_statement" else [arm]
    return found
