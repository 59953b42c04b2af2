"""The variables of a kernel: which have one value for the whole block, which can be recomputed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sapwood.gpu.cuda.calls import CallGraph, is_atomic, is_warp_operation
from sapwood.gpu.cuda.parse import INDICES, Function, KernelParameter, plain, walk

_ARITHMETIC_CALLS: Final = frozenset({"min", "max", "int", "float", "unsigned", "double", "size_t"})
_CONTROL: Final = {
    "for_statement",
    "while_statement",
    "do_statement",
    "if_statement",
    "switch_statement",
    "conditional_expression",
}


_BINDING: Final = {"init_declarator", "for_range_loop"}
"""What may bind a reference to a variable."""


class Variable:
    """A local variable.

    Attributes:
        name: Its name.
        type: Its type as written, without ``const`` and ``static``, with ``*``.
        declaration: The statement; none for a parameter.
        declarator: Its part of the statement.
        value: What it starts with, or none.
        scope: Where it can be seen: the compound or loop around its declaration.
        is_array: Whether it is an array.
        is_shared: Whether it belongs to the block.
        is_reference: Whether it is another name of something; of a constant it may be a copy.
        changes: Expressions that change it later.
    """

    def __init__(self, name: str, declaration: Any, declarator: Any) -> None:
        self.name = name
        self.declaration = declaration
        self.declarator = declarator
        self.value = None
        self.type = ""
        self.scope = None
        self.is_array = self.is_shared = self.is_reference = False
        self.extents = ""
        self.changes: list[Any] = []
        if declaration is None:
            return
        self.scope = declaration.parent
        inner = declarator
        if declarator.type == "init_declarator":
            self.value = declarator.child_by_field_name("value")
            inner = declarator.child_by_field_name("declarator")
        spelled = plain(inner.text)
        first = declaration.child_by_field_name("declarator")
        head = plain(declaration.text[: first.start_byte - declaration.start_byte])
        self.is_shared = "__shared__" in head
        self.is_reference = "&" in spelled
        self.is_array = "[" in spelled
        self.extents = spelled[spelled.index("[") :] if self.is_array else ""
        dropped = {"const", "static", "constexpr", "register", "volatile"}
        words = [word for word in head.split() if word not in dropped]
        self.is_constexpr = "constexpr" in head
        self.type = " ".join(words) + "*" * spelled.split("[", maxsplit=1)[0].count("*")


class Variables:
    """All variables of a kernel by name.

    Attributes:
        by_name: The variables; several of one name where scopes repeat it.
        uniform: Names with the same value in all threads of the block.
        inner: Names that are declared inside of statements, where the skeleton does not see them.
        floating: Names whose first value is arithmetic on indices and uniform names, and
            that never change: they can be computed again anywhere.
    """

    def __init__(self, kernel: Function, graph: CallGraph, skeleton: set[int]) -> None:
        self._graph = graph
        self._skeleton = skeleton
        self.parameters = [Variable(p.name, None, None) for p in kernel.parameters]
        for variable, parameter in zip(self.parameters, kernel.parameters, strict=True):
            variable.is_reference = is_reference(parameter)
        self.by_name: dict[str, list[Variable]] = {v.name: [v] for v in self.parameters}
        self.nodes = list(walk(kernel.body))
        for node in self.nodes:
            if node.type == "declaration":
                for name, declarator in _declarators(node):
                    self.by_name.setdefault(name, []).append(Variable(name, node, declarator))
        self.inner = {
            name
            for name, variables in self.by_name.items()
            if any(
                v.declaration is not None and v.declaration.id not in skeleton for v in variables
            )
        }
        self._collect_changes()
        self.uniform = self._find_uniform()
        self.floating = self._find_floating()

    def _collect_changes(self) -> None:
        for node in self.nodes:
            for name in changed_names(node, self._graph):
                for variable in self.by_name.get(name, ()):
                    variable.changes.append(node)

    def _find_uniform(self) -> set[str]:
        found = {
            name
            for name, variables in self.by_name.items()
            if all(v.is_shared or not (v.is_array or v.is_reference) for v in variables)
        }
        while True:
            lost = {name for name in found if not self._stays_uniform(name, found)}
            if not lost:
                return found
            found -= lost

    def _stays_uniform(self, name: str, uniform: set[str]) -> bool:
        for variable in self.by_name[name]:
            if variable.is_shared:
                continue
            if variable.value is not None and not self.is_uniform(variable.value, uniform):
                return False
            if variable.declaration is not None and variable.declaration.id not in self._skeleton:
                return not variable.changes and self._certain(variable)
            for change in variable.changes:
                if not self._changes_for_all(change, uniform):
                    return False
        return True

    @staticmethod
    def _certain(variable: Variable) -> bool:
        return variable.value is not None

    def _changes_for_all(self, change: Any, uniform: set[str]) -> bool:
        """Whether all threads make a change at the same place, and with the same value."""
        place = change.parent
        while place.type == "comma_expression":
            place = place.parent
        if place.type not in {"expression_statement", "for_statement"}:
            return False
        if place.id not in self._skeleton or change.type not in {
            "assignment_expression",
            "update_expression",
        }:
            return False
        value = change.child_by_field_name("right")
        return value is None or self.is_uniform(value, uniform)

    def is_uniform(self, node: Any, uniform: set[str] | None = None) -> bool:
        """Whether an expression has one value for the whole block, and no effects."""
        known = self.uniform if uniform is None else uniform
        for each in walk(node):
            if each.type in {"assignment_expression", "update_expression", "lambda_expression"}:
                return False
            if each.type == "identifier":
                word = plain(each.text)
                if word == "threadIdx" or is_atomic(word) or is_warp_operation(word):
                    return False
                if word in self.by_name and word not in known:
                    return False
                if word in self._graph.placed or word in self._graph.meeting:
                    return False
        return True

    def is_arithmetic(self, node: Any) -> bool:
        """Whether an expression reads no memory and calls nothing but arithmetic."""
        for each in walk(node):
            if each.type in {
                "subscript_expression",
                "assignment_expression",
                "update_expression",
                "lambda_expression",
                "new_expression",
                "initializer_list",
                "string_literal",
            }:
                return False
            if each.type == "pointer_expression" or plain_type(each) == "->":
                return False
            if each.type == "call_expression":
                callee = plain(each.child_by_field_name("function").text)
                if callee not in _ARITHMETIC_CALLS:
                    return False
            if each.type == "identifier" and plain(each.text) in self._graph.device_variables:
                return False
        return True

    def _find_floating(self) -> set[str]:
        found: set[str] = set()
        while True:
            more = {
                name
                for name, variables in self.by_name.items()
                if name not in found and len(variables) == 1 and self._floats(variables[0], found)
            }
            if not more:
                return found
            found |= more

    def _floats(self, variable: Variable, floating: set[str]) -> bool:
        if variable.value is None or variable.changes or variable.is_shared or variable.is_array:
            return False
        if variable.is_reference or not self.is_arithmetic(variable.value):
            return False
        if variable.declaration.id not in self._skeleton:
            return False
        return all(self._lasts(word, floating) for word in used_words(variable.value))

    def _lasts(self, word: str, floating: set[str]) -> bool:
        """Whether a name means the same everywhere behind its declaration."""
        if word in INDICES or word not in self.by_name:
            return word not in self._graph.placed
        return word in floating or all(
            v.is_shared or (v.declaration is None and not v.changes and word in self.uniform)
            for v in self.by_name[word]
        )


def is_reference(parameter: KernelParameter) -> bool:
    """Whether a parameter is a reference to what is not constant: all threads have the same one."""
    words = parameter.type.replace("&", " & ").split()
    return words[-1:] == ["&"] and words[-2:] != ["&", "&"] and "const" not in words


def plain_type(node: Any) -> str:
    """Return what kind of token a node is."""
    return str(node.type)


def used_words(node: Any) -> set[str]:
    """Return the identifiers that an expression or statement uses."""
    return {plain(each.text) for each in walk(node) if each.type == "identifier"}


def changed_names(node: Any, graph: CallGraph) -> Iterator[str]:
    """Yield the variables that an expression itself changes, or lets others change."""
    target = None
    if node.type == "assignment_expression":
        target = node.child_by_field_name("left")
    elif node.type == "update_expression" or (
        node.type == "pointer_expression" and node.children[0].type == "&"
    ):
        target = node.child_by_field_name("argument")
    elif node.type == "call_expression":
        yield from _given_by_reference(node, graph)
    elif node.type in _BINDING and _is_reference(node):
        target = node.child_by_field_name("value") or node.child_by_field_name("right")
    while target is not None and target.type in {"field_expression", "parenthesized_expression"}:
        target = target.child_by_field_name("argument") or next(iter(target.named_children), None)
    if target is not None and target.type == "identifier":
        yield plain(target.text)
    elif target is not None and target.type == "subscript_expression":
        yield from _owner(target, graph)
    if _is_array_member(node, graph) and node.parent.type != "subscript_expression":
        yield from _owner(node, graph)  # the address of its first element


def _is_reference(node: Any) -> bool:
    """Whether a declaration makes a reference by which a variable can be changed."""
    declarator = node.child_by_field_name("declarator")
    holder = node.parent if node.type == "init_declarator" else node
    is_const = any(plain(child.text) == "const" for child in holder.children)
    return not is_const and declarator.type == "reference_declarator"


def _is_array_member(node: Any, graph: CallGraph) -> bool:
    """Whether an expression is ``object.member`` with a member that is an array."""
    return bool(
        node.type == "field_expression"
        and node.children[1].type == "."
        and plain(node.child_by_field_name("field").text) in graph.array_members
    )


def _owner(node: Any, graph: CallGraph) -> Iterator[str]:
    """Yield the variable that an element lies in, if it lies in no other memory."""
    while node.type in {"field_expression", "subscript_expression", "parenthesized_expression"}:
        if node.type == "subscript_expression":
            inner = node.child_by_field_name("argument")
            if inner.type != "subscript_expression" and not _is_array_member(inner, graph):
                return
        elif node.type == "field_expression" and node.children[1].type != ".":
            return
        node = node.child_by_field_name("argument") or next(iter(node.named_children))
    if node.type == "identifier":
        yield plain(node.text)


def _given_by_reference(node: Any, graph: CallGraph) -> Iterator[str]:
    function = node.child_by_field_name("function")
    if function.type == "field_expression" and function.children[1].type == ".":
        called, on = plain(function.child_by_field_name("field").text), function.children[0]
    else:
        called, on = "operator()", function
    if any(not method.is_const for method in graph.functions.get(called, [])):
        yield from _owner(on, graph)
    callee = plain(function.text).split("<")[0].split("::")[-1]
    functions = graph.functions.get(callee, [])
    by_reference = callee == "swap" or any(
        "&" in parameter.type for function in functions for parameter in function.parameters
    )
    arguments = node.child_by_field_name("arguments")
    if by_reference and arguments is not None:
        for argument in arguments.named_children:
            if argument.type == "identifier":
                yield plain(argument.text)


def _declarators(node: Any) -> Iterator[tuple[str, Any]]:
    for declarator in node.children_by_field_name("declarator"):
        inner = declarator
        while inner is not None and inner.type != "identifier":
            inner = inner.child_by_field_name("declarator") or next(
                (c for c in inner.named_children if c.type == "identifier"), None
            )
        if inner is not None:
            yield plain(inner.text), declarator
