"""Guards: conditions like ``i < n`` that nearly always all threads of a block answer alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sapwood.gpu.cuda.parse import plain, walk
from sapwood.gpu.cuda.variables import Variables, used_words

_COMPARISONS: Final = {"<", "<=", ">", ">="}
_LINEAR: Final = {"+", "-", "*"}


def guards_of(statement: Any, variables: Variables) -> Iterator[tuple[Any, bool]]:
    """Yield the condition of a statement that is a guard, and the answer that is the usual one.

    Both sides of each comparison are sums and products of indices and of what the threads have
    in common, so an answer that the corners of the block agree on is that of all its threads.
    """
    if statement.type != "if_statement":
        return
    condition = statement.child_by_field_name("condition")
    value = condition.child_by_field_name("value") if condition is not None else None
    if value is None or variables.is_uniform(value):
        return
    leaves = _leaves_thread(statement)
    if _is_chain(value, "||" if leaves else "&&", variables):
        yield value, not leaves


def guard_words(condition: Any) -> set[str]:
    """Return the names that a condition uses."""
    return used_words(condition)


def _leaves_thread(statement: Any) -> bool:
    body = statement.child_by_field_name("consequence")
    while body is not None and body.type == "compound_statement" and len(body.named_children) == 1:
        body = body.named_children[0]
    return body is not None and body.type == "return_statement"


def _is_chain(node: Any, link: str, variables: Variables) -> bool:
    if node.type == "parenthesized_expression":
        return _is_chain(node.named_children[0], link, variables)
    if node.type != "binary_expression":
        return False
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    operator = node.children[1].type
    if operator == link:
        return _is_chain(left, link, variables) and _is_chain(right, link, variables)
    return operator in _COMPARISONS and all(_is_linear(side, variables) for side in (left, right))


def _is_linear(node: Any, variables: Variables) -> bool:
    if variables.is_uniform(node):
        return variables.is_arithmetic(node) and _steady(node, variables)
    for each in walk(node):
        if each.type == "binary_expression" and each.children[1].type not in _LINEAR:
            return False
        if each.type in {"conditional_expression", "call_expression", "cast_expression"}:
            return False
        if each.type == "identifier":
            word = plain(each.text)
            if word in variables.by_name:
                value = variables.by_name[word][0].value
                if word in variables.uniform:
                    if not _steady(each, variables):
                        return False
                elif word not in variables.floating or not _is_linear(value, variables):
                    return False
    return variables.is_arithmetic(node)


def _steady(node: Any, variables: Variables) -> bool:
    """Whether the names of an expression never change, so that it can be computed early."""
    return all(
        not variable.changes and (variable.declaration is None or word in variables.floating)
        for word in used_words(node)
        for variable in variables.by_name.get(word, ())
    )
