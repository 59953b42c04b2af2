"""Which threads of a row a condition holds for, computed before any of them is asked.

The threads of a row are neighbours, and ``x > 0 && x < n - 1 && y < m`` holds for those between two
of them, or for none. Both ends are computed with the types of the source (``spans.h``), so that
the loop over the row goes from one to the other without a check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from sapwood_cuda_cpu.guards import counts_with_thread, is_linear, leaves_thread
from sapwood_cuda_cpu.parse import declared_names, plain, walk
from sapwood_cuda_cpu.variables import Variables, used_words

_HERE: Final = "__attribute__((always_inline))"
_IS: Final = {"<": "below", "<=": "at_most", ">": "above", ">=": "at_least", "==": "equal"}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}
_OPPOSITE: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "!=": "=="}
_VOIDS: Final = "(void)sapwood_x; (void)sapwood_y; (void)sapwood_z; "
_INDICES: Final = "auto sapwood_x, auto sapwood_y, auto sapwood_z"


class Comparison(msgspec.Struct, frozen=True):
    """A comparison that neighbours of a row of threads satisfy, or that a whole row does.

    Attributes:
        node: The comparison.
        sign: The operator between its sides; for whole rows the one that it has.
        counting: The side that counts with the thread; none for whole rows.
        other: The other side.
        wanted: The answer of the threads that are looked for.
    """

    node: Any
    sign: str
    counting: Any
    other: Any
    wanted: bool

    def kept(self, text: Callable[[Any], str]) -> str:
        """Return the expression that leaves the threads that satisfy it in ``sapwood_k``."""
        if self.counting is None:
            sign = "" if self.wanted else "!"
            left, right = _sides(self.node)
            asked = f"({text(left)}) {self.sign} ({text(right)})"
            return f"::sapwood_cuda::keep_row(sapwood_k, {sign}({asked}))"
        given = f"sapwood_k, sapwood_b.sx, {text(self.counting)}, {text(self.other)}"
        return f"::sapwood_cuda::keep<::sapwood_cuda::Is::{_IS[self.sign]}>({given})"


class Limit(msgspec.Struct, frozen=True):
    """The condition that says which threads of a row do anything in a part.

    Attributes:
        condition: The whole condition.
        comparisons: Those that are decided before; behind them each thread is asked.
    """

    condition: Any
    comparisons: tuple[Comparison, ...]

    @property
    def words(self) -> set[str]:
        """The names that it uses."""
        return set().union(*(used_words(each.node) for each in self.comparisons))

    def runs(self, recomputed: str, text: Callable[[Any], str]) -> str:
        """Return the head of a loop over the runs of a row that do anything.

        Args:
            recomputed: Declarations of the variables in it, for one thread and for all of a row.
            text: Returns the text of a node.
        """
        kept = " && ".join(each.kept(text) for each in self.comparisons)
        asked = " && ".join(
            f"{'' if each.wanted else '!'}({text(each.node)})" for each in self.comparisons
        )
        here = "sapwood_b.sx, sapwood_y, sapwood_z, sapwood_h"
        return (
            f"const auto sapwood_h = [&]({_INDICES}) {_HERE} {{ {_VOIDS}{recomputed}"
            "if constexpr (std::is_same_v<decltype(sapwood_x), int>) { "
            f"return bool({asked}); }} else {{ "
            "::sapwood_cuda::Run sapwood_k{0, sapwood_b.sx, true}; "
            f"(void)({kept}); return sapwood_k; }} }}; "
            f"for (auto sapwood_u = ::sapwood_cuda::first_run({here}); "
            "sapwood_u.first < sapwood_u.end; "
            f"sapwood_u = ::sapwood_cuda::next_run(sapwood_u, {here})) {{ "
        )


def limit_of(
    statements: list[Any], variables: Variables, hidden: set[str], *, returns: bool
) -> Limit | None:
    """Return the limit of a part: ``if (i < n) ...`` at its end, or ``if (i >= n) return;``.

    Args:
        statements: Those of the part.
        variables: The kernel's variables.
        hidden: Names whose values are not known before the part.
        returns: Whether threads that return do nothing more.
    """
    for node in statements:
        if node.type == "declaration" and set(declared_names(node)) <= variables.floating:
            continue
        if node.type != "if_statement" or node.child_by_field_name("alternative") is not None:
            return None
        leaves = leaves_thread(node)
        if (node is not statements[-1] and not leaves) or (leaves and not returns):
            return None
        condition = node.child_by_field_name("condition")
        value = condition.child_by_field_name("value") if condition is not None else None
        if value is None or variables.is_uniform(value):
            return None
        found = tuple(comparisons(value, variables, hidden, wanted=not leaves))
        return Limit(value, found) if found else None
    return None


def comparisons(
    node: Any, variables: Variables, hidden: set[str], *, wanted: bool
) -> Iterator[Comparison]:
    """Yield the first comparisons of a chain whose threads can be computed.

    Args:
        node: Comparisons with ``&&`` between them; with ``||`` where they are not to hold.
        variables: The kernel's variables.
        hidden: Names whose values are not known before the part.
        wanted: Whether they are to hold.
    """
    for each in chain(node, "&&" if wanted else "||"):
        made = None if used_words(each) & hidden else _comparison(each, variables, wanted=wanted)
        if made is None:
            return
        yield made


def chain(node: Any, link: str) -> Iterator[Any]:
    """Yield what stands between the links of a chain."""
    while node.type == "parenthesized_expression":
        node = node.named_children[0]
    if node.type == "binary_expression" and node.children[1].type == link:
        for side in _sides(node):
            yield from chain(side, link)
    else:
        yield node


def _comparison(node: Any, variables: Variables, *, wanted: bool) -> Comparison | None:
    if node.type != "binary_expression":
        return None
    left, right = _sides(node)
    sign = node.children[1].type
    if sign not in _MIRRORED and sign != "!=":
        return None
    if _is_of_row(left, variables) and _is_of_row(right, variables):
        return Comparison(node, sign, None, None, wanted)
    if not wanted:
        sign = _OPPOSITE.get(sign, "")
    if counts_with_thread(left, variables) and _is_of_row(right, variables):
        return Comparison(node, sign, left, right, wanted) if sign in _IS else None
    if counts_with_thread(right, variables) and _is_of_row(left, variables):
        sign = _MIRRORED.get(sign, "")
        return Comparison(node, sign, right, left, wanted) if sign in _IS else None
    return None


def _is_of_row(node: Any, variables: Variables) -> bool:
    """Whether an expression is the same for a row of threads, and its bounds can be computed."""
    return is_linear(node, variables) and not _uses_x(node, variables)


def _uses_x(node: Any, variables: Variables) -> bool:
    for each in walk(node):
        if each.type == "field_expression" and plain(each.text) == "threadIdx.x":
            return True
        word = plain(each.text) if each.type == "identifier" else ""
        if word in variables.floating and _uses_x(variables.by_name[word][0].value, variables):
            return True
    return False


def _sides(node: Any) -> tuple[Any, Any]:
    return node.child_by_field_name("left"), node.child_by_field_name("right")
