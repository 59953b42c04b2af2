"""Variables of a kernel that share a name: each declaration gets a unique name.

``for (int i …) … for (int i …)`` declares two variables. Facts about variables are
kept by name, so one of them would spoil the other.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.parse import CudaSource, Function, plain, walk

_SCOPES: Final = frozenset(
    {
        "compound_statement",
        "for_statement",
        "for_range_loop",
        "if_statement",
        "while_statement",
        "switch_statement",
        "case_statement",
    }
)
_NAMES: Final = frozenset({"identifier", "type_identifier"})
_UNCLEAR: Final = frozenset({"lambda_expression", "preproc_if", "preproc_ifdef"})
"""Where these are, the text alone does not say which declaration a name means."""


class _Declared:
    """A declaration: where it can be seen from, and what it is called then."""

    def __init__(self, start: int, scope: Any, name: str) -> None:
        self.start = start
        self.scope = scope
        self.name = name


def with_own_names(source: CudaSource, kernel: Function, fixed: Collection[str]) -> Edits | None:
    """Return the edits that give a kernel's variables unique names; None if they have.

    A kernel with lambdas, or with conditions of the preprocessor that only the compiler decides,
    keeps its names. Such a kernel is not cut, so nothing needs them.

    Args:
        source: Holds the kernel.
        kernel: The kernel.
        fixed: Words of macros: a variable that a macro speaks of keeps its name.
    """
    found: dict[str, list[_Declared]] = {p.name: [] for p in kernel.parameters}
    taken = set(kernel.words)
    nodes = list(walk(kernel.body))
    if any(node.type in _UNCLEAR for node in nodes):
        return None
    for node in nodes:
        name = plain(node.text)
        if node.type != "identifier" or name.startswith("__") or not _declares(node):
            continue
        known = found.get(name)
        declared = _Declared(node.start_byte, _scope(node), name)
        if known is None:
            found[name] = [declared]
        elif name not in fixed:
            declared.name = _fresh(name, taken)
            known.append(declared)
    if all(each.name == name for name, known in found.items() for each in known):
        return None
    edits = Edits(source.data)
    for node in nodes:
        if node.type in _NAMES and plain(node.text) in found:
            seen = _seen_from(node, found[plain(node.text)])
            if seen is not None and seen.name != plain(node.text):
                edits.replace(node.start_byte, node.end_byte, seen.name)
    return edits


def _fresh(name: str, taken: set[str]) -> str:
    number = 2
    while f"{name}_{number}" in taken:
        number += 1
    taken.add(f"{name}_{number}")
    return f"{name}_{number}"


def _declares(node: Any) -> bool:
    """Whether an identifier is the name that a declaration declares."""
    child, above = node, node.parent
    while above is not None and above.type in {
        "init_declarator",
        "pointer_declarator",
        "array_declarator",
        "reference_declarator",
        "parenthesized_declarator",
    }:
        own = above.child_by_field_name("declarator") or above.named_children[0]
        if own != child:
            return False
        child, above = above, above.parent
    return above is not None and (
        above.type in {"declaration", "for_range_loop"}
        and child in above.children_by_field_name("declarator")
    )


def _scope(node: Any) -> Any:
    above = node.parent
    while above.type not in _SCOPES:
        above = above.parent
    return above


def _seen_from(node: Any, declared: list[_Declared]) -> _Declared | None:
    """Return the innermost declaration that a use of its name means."""
    inside = [
        each
        for each in declared
        if each.start <= node.start_byte
        and each.scope.start_byte <= node.start_byte < each.scope.end_byte
    ]
    return max(inside, key=lambda each: each.start, default=None)
