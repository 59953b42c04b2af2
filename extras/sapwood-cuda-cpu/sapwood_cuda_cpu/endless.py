"""Loops that never end: they must not end on the CPU either.

C++ compilers take for granted that a loop without side effects ends, and clang makes anything of
one that does not: it falls out of the function, or its code is gone. An empty statement that the
compiler may not touch keeps such a loop, so that a time limit finds it.
"""

from __future__ import annotations

from typing import Any, Final

from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.parse import Function, plain, walk

_KEPT: Final = '__asm__ volatile("");'
_LOOPS: Final = frozenset({"while_statement", "for_statement", "do_statement"})
_LEAVES: Final = frozenset(
    {"return_statement", "break_statement", "goto_statement", "throw_statement", "call_expression"}
)


def keep_endless_loops(function: Function, edits: Edits) -> None:
    """Edit the loops of a function that nothing ends; what calls something is left as it is."""
    for node in walk(function.body):
        if node.type not in _LOOPS or not _never_ends(node):
            continue
        body = node.child_by_field_name("body")
        if any(each.type in _LEAVES for each in walk(body)):
            continue
        if body.type == "compound_statement":
            edits.insert(body.start_byte + 1, f" {_KEPT}")
        else:
            edits.insert(body.start_byte, f"{{ {_KEPT} ")
            edits.insert(body.end_byte, "}")


def _never_ends(loop: Any) -> bool:
    condition = loop.child_by_field_name("condition")
    if condition is None:
        return bool(loop.type == "for_statement")
    text = plain(condition.text).strip("() \t\n")
    return text == "true" or (text.isdigit() and int(text) != 0)
