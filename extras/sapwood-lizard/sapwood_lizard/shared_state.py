"""Whether functions of a program leave something behind for each other that does not travel.

lizard-slayer calls all functions of its server in one process: what one of them writes into a
variable of the module, or beside the fields of a result, another one may read. Where what
aggregates is one of them, it is called where states are made, and nowhere else.
"""

from __future__ import annotations

import ast
import ctypes
from collections.abc import Iterator
from types import ModuleType
from typing import Final

from sapwood.plugins.programs import syntax_tree
from sapwood_lizard.registration import LizardDefinition
from sapwood_lizard.structures import field_types

AGGREGATING: Final = ("aggregate", "init_aggregation_result", "AggregationResult")
"""Functions and classes that places of the tree use."""

CHANGING: Final = {"add", "append", "appendleft", "clear", "discard", "extend", "insert"} | {
    *("pop", "popitem", "popleft", "remove", "reverse", "setdefault", "sort", "subtract"),
    *("update", "difference_update", "intersection_update", "symmetric_difference_update"),
}
"""Methods by which lists, dictionaries, sets and the like are changed."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def shares_state(definition: LizardDefinition, module: ModuleType) -> bool:
    """Say whether the functions of a program must all be called in one process.

    Args:
        definition: The program.
        module: Its Python module.
    """
    main = definition.python
    if aggregating_shares_state(main.text, main.name):
        return True
    others = (file for file in definition.files if file.name.endswith(".py") and file != main)
    if any(set(changed_variables(syntax_tree(o.text.encode(), o.name))) for o in others):
        return True
    return not definition.extension and _adds_attributes(main.text, module.AggregationResult)


def aggregating_shares_state(text: str, name: str = "python_funcs.py") -> bool:
    r"""Say whether what aggregates uses variables of its module that functions change.

    Example:
        >>> aggregating_shares_state("seen = []\ndef aggregate(a, b, c): seen.append(c)")
        True
        >>> aggregating_shares_state("seen = []\ndef update_global_state(a, b, c): seen.append(c)")
        False
    """
    tree = syntax_tree(text.encode(), name)
    changed = set(changed_variables(tree))
    uses = {name: _names(node) for node in tree.body for name in _defined(node)}
    used, pending = set(), list(AGGREGATING)
    while pending:
        found = pending.pop()
        if found not in used:
            used.add(found)
            pending.extend(uses.get(found, ()))
    return not changed.isdisjoint(used)


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


def _names(node: ast.AST) -> set[str]:
    nodes = list(ast.walk(node))
    shared = {name for n in nodes if isinstance(n, ast.Global) for name in n.names}
    return shared | {n.id for n in nodes if isinstance(n, ast.Name)}


def changed_variables(tree: ast.Module) -> Iterator[str]:
    """Yield the variables of a module that its functions set, or whose content they change."""
    variables = {
        node.id
        for statement in tree.body
        if not isinstance(statement, (*_FUNCTIONS, ast.ClassDef))
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    variables |= {alias.asname or alias.name for node in imports for alias in node.names}
    for function, local in _functions(tree, frozenset()):
        for node in ast.walk(function):
            if isinstance(node, ast.Global):
                yield from node.names
                continue
            root = None
            if isinstance(node, (ast.Attribute, ast.Subscript)):
                root = _root(node) if not isinstance(node.ctx, ast.Load) else None
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                root = _root(node.func) if node.func.attr in CHANGING else None
                root = root if root in variables else None
            if root is not None and root not in local:
                yield root


def _functions(node: ast.AST, outer: frozenset[str]) -> Iterator[tuple[ast.AST, frozenset[str]]]:
    """Yield all functions with the names that are local to them or to a function around them."""
    for child in ast.iter_child_nodes(node):
        local = outer
        if isinstance(child, _FUNCTIONS):
            local = outer | _local(child)
            yield child, local
        yield from _functions(child, local)


def _local(function: ast.AST) -> frozenset[str]:
    nodes = list(ast.walk(function))
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    given = {n.arg for n in nodes if isinstance(n, ast.arg)}
    shared = {name for n in nodes if isinstance(n, ast.Global) for name in n.names}
    return frozenset((stored | given) - shared)


def _root(node: ast.AST) -> str | None:
    """Return the name that an expression such as ``name.a[0].b`` begins with."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _adds_attributes(text: str, kind: type[ctypes.Structure]) -> bool:
    """Say whether ``aggregate`` sets attributes that an encoded result does not have."""
    fields = {name for name, _ in field_types(kind)}
    known = fields | {f"{name}_aux" for name in fields}
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.attr not in known
        for function in syntax_tree(text.encode(), "").body
        if isinstance(function, ast.FunctionDef) and function.name == "aggregate"
        for node in ast.walk(function)
    )
