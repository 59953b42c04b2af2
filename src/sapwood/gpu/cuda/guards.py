"""Guards: conditions like ``i < n`` that nearly always all threads of a block answer alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from sapwood.gpu.cuda.parse import declared_names, plain, walk
from sapwood.gpu.cuda.variables import Variables, used_words

_COMPARISONS: Final = {"<", "<=", ">", ">="}
_LIMITS: Final = {"<", "=="}
_MOST_TWICE: Final = 200
"""Longest text, in characters, that is written twice."""
_LINEAR: Final = {"+", "-", "*"}


def guards_of(statement: Any, variables: Variables, hidden: set[str]) -> Iterator[tuple[Any, bool]]:
    """Yield the condition of a statement that is a guard, and the answer that is the usual one.

    Both sides of each comparison are sums and products of indices and of what the threads have
    in common, so an answer that the corners of the block agree on is that of all its threads.
    """
    for node in walk(statement):
        if node.type == "conditional_expression":
            choice = node.child_by_field_name("condition")
            if (
                not used_words(choice) & hidden
                and not variables.is_uniform(choice)
                and _is_chain(choice, "&&", variables)
            ):
                yield choice, True
    if statement.type != "if_statement":
        return
    condition = statement.child_by_field_name("condition")
    value = condition.child_by_field_name("value") if condition is not None else None
    if value is None or variables.is_uniform(value) or used_words(value) & hidden:
        return
    leaves = _leaves_thread(statement)
    if _is_chain(value, "||" if leaves else "&&", variables):
        yield value, not leaves


def joined(
    condition: Any, name: str, *, wanted: bool, text: Callable[[Any], str]
) -> tuple[str, str]:
    """Return what stands before and behind a guard, so that the answer of the block comes first.

    Compilers make one condition of ``(all || i < n) ? a : b``, and with it masked loads, which
    are slow; of ``all ? a : (i < n) ? a : b`` they make two loops.
    """
    if not wanted:
        return f"(!{name} && (", "))"
    above = condition.parent
    if above.type == "conditional_expression":
        value = text(above.child_by_field_name("consequence"))
        if len(value) <= _MOST_TWICE:
            return f"{name} ? ({value}) : (", ")"
    return f"({name} || (", "))"


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
        return variables.is_arithmetic(node)
    for each in walk(node):
        if each.type == "binary_expression" and each.children[1].type not in _LINEAR:
            return False
        if each.type in {"conditional_expression", "call_expression", "cast_expression"}:
            return False
        if each.type == "identifier":
            word = plain(each.text)
            if word in variables.by_name:
                value = variables.by_name[word][0].value
                if word not in variables.uniform and (
                    word not in variables.floating or not _is_linear(value, variables)
                ):
                    return False
    return variables.is_arithmetic(node)


def limit_of(
    statements: list[Any], variables: Variables, hidden: set[str]
) -> tuple[Any, Any, Any] | None:
    """Return both sides and the whole of ``i < n`` or ``i == n`` where that decides about a part.

    ``i`` counts with the thread, so that the condition says which threads do anything.
    """
    *first, last = statements
    if last.type != "if_statement" or last.child_by_field_name("alternative") is not None:
        return None
    for node in first:
        if node.type != "declaration" or not set(declared_names(node)) <= variables.floating:
            return None
    condition = last.child_by_field_name("condition")
    value = condition.child_by_field_name("value") if condition is not None else None
    if value is None or value.type != "binary_expression" or value.children[1].type not in _LIMITS:
        return None
    left, right = value.child_by_field_name("left"), value.child_by_field_name("right")
    if used_words(value) & hidden or not variables.is_uniform(right):
        return None
    if not _is_linear(right, variables) or not counts_with_thread(left, variables):
        return None
    return left, right, value


def counts_with_thread(node: Any, variables: Variables) -> bool:
    """Whether an expression is a thread's x plus something that a row of threads has in common."""
    if node.type == "parenthesized_expression":
        return counts_with_thread(node.named_children[0], variables)
    if node.type == "field_expression":
        return plain(node.text) == "threadIdx.x"
    if node.type == "identifier":
        word = plain(node.text)
        if word not in variables.floating:
            return False
        return counts_with_thread(variables.by_name[word][0].value, variables)
    if node.type != "binary_expression" or node.children[1].type != "+":
        return False
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    return any(
        counts_with_thread(one, variables)
        and variables.is_uniform(other)
        and _is_linear(other, variables)
        for one, other in ((left, right), (right, left))
    )
