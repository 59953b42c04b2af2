"""Guards: conditions like ``i < n`` that nearly always all threads of a block answer alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from sapwood_cuda_cpu.indices import index_name
from sapwood_cuda_cpu.parse import plain, walk
from sapwood_cuda_cpu.variables import Variables, used_words

_COMPARISONS: Final = {"<", "<=", ">", ">="}
_MOST_TWICE: Final = 200
"""Longest text, in characters, that is written twice."""
_LINEAR: Final = {"+", "-", "*"}
_NOT_ZERO: Final = re.compile(r"^(?:0[xX][0bB]?)?[0.]*[1-9a-fA-F]")


def guards_of(statement: Any, variables: Variables, hidden: set[str]) -> Iterator[tuple[Any, bool]]:
    """Yield the condition of a statement that is a guard, and the answer that is the usual one.

    Both sides of each comparison are sums and products of indices and of what the threads have
    in common: bounds of their values for the whole block can be computed when it begins. Where
    these say that all threads agree, the guard is decided; where not, each thread is asked.
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
    leaves = leaves_thread(statement)
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


def leaves_thread(statement: Any) -> bool:
    """Whether what a condition decides about is ``return`` and nothing else."""
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
    return operator in _COMPARISONS and all(is_linear(side, variables) for side in (left, right))


def is_linear(node: Any, variables: Variables) -> bool:
    """Whether an expression is made of sums and products whose bounds can be computed.

    What all threads have in common is computed as it stands, before any thread gets there: it must
    not divide by what may be zero.
    """
    if node.type == "parenthesized_expression":
        return is_linear(node.named_children[0], variables)
    if variables.is_uniform(node):
        return variables.is_arithmetic(node) and not may_trap(node, variables)
    if node.type == "field_expression":
        return index_name(node).startswith("sapwood_") and variables.is_arithmetic(node)
    if node.type == "identifier":
        word = plain(node.text)
        return word in variables.floating and is_linear(variables.by_name[word][0].value, variables)
    if node.type == "unary_expression":
        return node.children[0].type == "-" and is_linear(node.children[1], variables)
    if node.type != "binary_expression" or node.children[1].type not in _LINEAR:
        return False
    sides = node.child_by_field_name("left"), node.child_by_field_name("right")
    return all(is_linear(side, variables) for side in sides)


def may_trap(node: Any, variables: Variables) -> bool:
    """Whether an expression divides by what may be zero."""
    for each in walk(node):
        if each.type == "binary_expression" and each.children[1].type in {"/", "%"}:
            if not _is_never_zero(each.child_by_field_name("right"), variables):
                return True
        elif each.type == "identifier":
            for variable in variables.by_name.get(plain(each.text), ()):
                value = variable.value if variable.name in variables.floating else None
                if value is not None and may_trap(value, variables):
                    return True
    return False


def _is_never_zero(divisor: Any, variables: Variables) -> bool:
    if divisor.type == "parenthesized_expression":
        return _is_never_zero(divisor.named_children[0], variables)
    text = plain(divisor.text)
    if divisor.type == "number_literal":
        return bool(_NOT_ZERO.search(text))
    if divisor.type == "identifier":  # a zero among constants does not compile
        return text.isupper() and text not in variables.by_name
    return text.startswith(("blockDim.", "gridDim.")) or divisor.type == "sizeof_expression"


def proof(node: Any, *, wanted: bool, text: Callable[[Any], str]) -> str:
    """Return what says whether a guard has its usual answer for all threads, as far as is proved.

    Args:
        node: The guard.
        wanted: Its usual answer.
        text: Returns the text of a node, in which indices are spans.
    """
    return ("" if wanted else "!") + f"({_proof(node, 'always' if wanted else 'sometimes', text)})"


def _proof(node: Any, word: str, text: Callable[[Any], str]) -> str:
    if node.type == "parenthesized_expression":
        return f"({_proof(node.named_children[0], word, text)})"
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    operator = node.children[1].type
    if operator in {"&&", "||"}:
        return f"{_proof(left, word, text)} {operator} {_proof(right, word, text)}"
    return f"::sapwood_cuda::{word}(({text(left)}) {operator} ({text(right)}))"


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
    if node.type != "binary_expression" or node.children[1].type not in {"+", "-"}:
        return False
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    pairs = ((left, right), (right, left))
    return any(
        counts_with_thread(one, variables)
        and variables.is_uniform(other)
        and is_linear(other, variables)
        for one, other in (pairs if node.children[1].type == "+" else pairs[:1])
    )
