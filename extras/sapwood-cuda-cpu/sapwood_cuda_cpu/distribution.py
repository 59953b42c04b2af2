"""Warp operations under a condition: the condition is handed to each statement under it.

``if (c) { a; v = shuffle(v); b; }`` becomes ``bool C = c; if (C) a; if (C) v = shuffle(v);
if (C) b;``, so that all threads come to the place where values are exchanged.
"""

from __future__ import annotations

from typing import Any, Final

from sapwood_cuda_cpu.calls import BARRIERS, is_warp_operation
from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.parse import CudaSource, Function, declared_names, plain, walk

CONDITION: Final = "sapwood_c"
"""How the names of the conditions begin."""

_LEAVES: Final = frozenset(
    {"return_statement", "break_statement", "continue_statement", "goto_statement"}
)
_KEPT: Final = frozenset({"comment", "preproc_call"})


class _NotPossibleError(Exception):
    """A condition cannot be handed on."""


def distribute_conditions(source: CudaSource, kernel: Function) -> Edits:
    """Return the edits that hand conditions on, at the outermost that hold warp operations."""
    edits = Edits(source.data)
    behind = 0
    for node in walk(kernel.body):
        if node.type != "if_statement" or node.start_byte < behind or not _meets(node):
            continue
        behind = node.end_byte
        try:
            text = _distributed(node, "")
        except _NotPossibleError:
            continue
        edits.replace(node.start_byte, node.end_byte, text)
    return edits


def _meets(node: Any) -> bool:
    return any(n.type == "identifier" and is_warp_operation(plain(n.text)) for n in walk(node))


def _distributed(node: Any, outer: str) -> str:
    """Return an ``if`` with its condition handed to what is under it, braces around it."""
    value = node.child_by_field_name("condition").child_by_field_name("value")
    if node.child_by_field_name("alternative") is not None or value is None or _meets(value):
        raise _NotPossibleError
    if any(n.type in _LEAVES or plain(n.text) in BARRIERS for n in walk(node)):
        raise _NotPossibleError
    name = f"{CONDITION}{node.start_byte}"
    both = f"{outer} && ({plain(value.text)})" if outer else plain(value.text)
    body = node.child_by_field_name("consequence")
    return f"{{ const bool {name} = {both}; {_statements(body, name)} }}"


def _statements(body: Any, name: str) -> str:
    inside = body.named_children if body.type == "compound_statement" else [body]
    return " ".join(_statement(node, name) for node in inside if node.type not in _KEPT)


def _statement(node: Any, name: str) -> str:
    text = plain(node.text)
    if node.type == "declaration":
        return _declaration(node, name)
    if not _meets(node) or node.type == "expression_statement":
        return f"if ({name}) {text}"
    if node.type == "compound_statement":
        return f"{{ {_statements(node, name)} }}"
    if node.type == "if_statement":
        return _distributed(node, name)
    if node.type != "for_statement":
        raise _NotPossibleError
    initial = node.child_by_field_name("initializer")
    body = node.child_by_field_name("body")
    head = plain(node.text[: body.start_byte - node.start_byte])
    if initial is None or initial.type != "declaration" or "__sync" in head:
        raise _NotPossibleError
    return f"{head} {{ {_statements(body, name)} }}"


def _declaration(node: Any, name: str) -> str:
    """Return a declaration whose value is given to it under the condition."""
    text = plain(node.text)
    declarators = node.children_by_field_name("declarator")
    if "__shared__" in text or len(declarators) != 1 or "&" in plain(declarators[0].text):
        raise _NotPossibleError
    declarator = declarators[0]
    if declarator.type != "init_declarator":
        return text
    inner = declarator.child_by_field_name("declarator")
    value = declarator.child_by_field_name("value")
    head = plain(node.text[: inner.start_byte - node.start_byte])
    if "auto" in head.split() or inner.type == "array_declarator" or value.type == "argument_list":
        raise _NotPossibleError
    head = " ".join(word for word in head.split() if word not in {"const", "constexpr"})
    (own,) = declared_names(node)
    return f"{head} {plain(inner.text)}; if ({name}) {own} = {plain(value.text)};"
