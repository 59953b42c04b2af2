"""The variables of a kernel: which have one value for the whole block, which can be recomputed."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import Any, Final

from sapwood_cuda_cpu.calls import CallGraph, is_atomic, is_warp_operation
from sapwood_cuda_cpu.control import LABELS
from sapwood_cuda_cpu.cursors import Kind
from sapwood_cuda_cpu.indices import index_name
from sapwood_cuda_cpu.parse import INDICES, Function, KernelParameter, plain, walk
from sapwood_cuda_cpu.semantics import CallEffect, Meaning, Named

_ARITHMETIC_CALLS: Final = frozenset({"min", "max", "int", "float", "unsigned", "double", "size_t"})
_NAMES: Final = frozenset({"identifier", "type_identifier", "field_identifier"})
_CONTROL: Final = {
    "for_statement",
    "while_statement",
    "do_statement",
    "if_statement",
    "switch_statement",
    "conditional_expression",
}


class NotPossibleError(Exception):
    """A kernel cannot be cut; the text says why."""


class Variable:
    """A local variable.

    Attributes:
        name: Its name.
        type: Its type as written, with ``*``; ``const`` only of what a pointer points to.
        declaration: The statement; none for a parameter.
        declarator: Its part of the statement.
        value: What it starts with, or none.
        scope: Where it can be seen: the compound or loop around its declaration.
        is_array: Whether it is an array.
        is_shared: Whether it belongs to the block.
        is_reference: Whether it is another name of something; of a constant it may be a copy.
        kind: What it is for the compiler.
        size: Its bytes, as far as they are known.
        changes: Expressions that change it later, or let others change it.
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
        self.kind, self.size = Kind.OTHER, 0
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
        dropped = {"static", "constexpr", "register"}
        if "*" not in spelled:
            dropped |= {"const", "volatile"}
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

    def __init__(
        self,
        kernel: Function,
        graph: CallGraph,
        skeleton: set[int],
        meaning: Meaning,
        cuts: Collection[int],
    ) -> None:
        self._graph = graph
        self.meaning = meaning
        self._skeleton = skeleton
        self.parameters = [Variable(p.name, None, None) for p in kernel.parameters]
        for variable, parameter in zip(self.parameters, kernel.parameters, strict=True):
            variable.is_reference = is_reference(parameter)
        self.by_name: dict[str, list[Variable]] = {v.name: [v] for v in self.parameters}
        self.nodes = list(walk(kernel.body))
        # In a kernel that is cut, labels and gotos to them are in one statement of the skeleton.
        self._jumps = not cuts and any(node.type in LABELS for node in self.nodes)
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
        self._compare()
        self._collect_changes()
        self.uniform = self._find_uniform()
        self.floating = self._find_floating()

    def _compare(self) -> None:
        """Take over what the compiler knows of each variable.

        Raises:
            NotPossibleError: The text looks as if a variable were another thing.
        """
        listed = [*self.parameters]
        found = [each for known in self.by_name.values() for each in known if each.declarator]
        listed += sorted(found, key=lambda each: int(each.declarator.start_byte))
        known = self.meaning.variables
        for variable, named in itertools.zip_longest(listed, known):
            if variable is None or named is None or variable.name != named.name:
                name = named.name if named is not None else variable.name
                raise NotPossibleError(f"{name} is declared in an unusual way")
            if not _agree(variable, named):
                raise NotPossibleError(f"line {named.line}: {named.name} is not what it looks like")
            variable.kind, variable.size = named.kind, named.size
            if "auto" in variable.type.split() and named.kind is Kind.NUMBER and named.type:
                of_pointer = "*" in named.type
                variable.type = named.type if of_pointer else named.type.removeprefix("const ")

    def _collect_changes(self) -> None:
        places = {place: name for name, found in self.meaning.changes.items() for place in found}
        for node in self.nodes:
            if node.type in _NAMES and node.start_byte in places:
                name = places.pop(node.start_byte)
                for variable in self.by_name.get(name, ()):
                    variable.changes.append(_change(node))
        for name in places.values():  # in the text of a macro
            if name in self.by_name:
                raise NotPossibleError(f"a macro changes {name}")

    def _find_uniform(self) -> set[str]:
        found = {
            name
            for name, variables in self.by_name.items()
            if all(v.is_shared or v.kind in {Kind.NUMBER, Kind.RECORD} for v in variables)
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
            if variable.declarator is not None and self._does(variable.declarator):
                return False  # its constructor
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
        if self._jumps:
            return False
        place = change.parent
        while place.type == "comma_expression" and place.parent.type != "expression_statement":
            place = place.parent  # in the head of a loop
        if place.type not in {"expression_statement", "for_statement"}:
            return False
        if place.id not in self._skeleton or not changed_whole(change) or self._does(change):
            return False
        value = change.child_by_field_name("right")
        return value is None or self.is_uniform(value, uniform)

    def _does(self, node: Any) -> CallEffect:
        """Return what calls and operators in a node do, beyond computing a value for the block."""
        found = self.meaning.effects(node.start_byte, node.end_byte)
        return found & (
            CallEffect.PLACED | CallEffect.MEETS | CallEffect.WRITES | CallEffect.UNKNOWN
        )

    def is_uniform(self, node: Any, uniform: set[str] | None = None) -> bool:
        """Whether an expression has one value for the whole block, and no effects."""
        known = self.uniform if uniform is None else uniform
        if self._does(node):
            return False
        for each in walk(node):
            if each.type in {"assignment_expression", "update_expression", "lambda_expression"}:
                return False
            if each.type == "identifier":
                word = plain(each.text)
                if word == "threadIdx" or is_atomic(word) or is_warp_operation(word):
                    return False
                if word in self.by_name and word not in known:
                    return False
        return True

    def is_arithmetic(self, node: Any) -> bool:
        """Whether an expression reads no memory and calls nothing but arithmetic."""
        if self._does(node) & ~CallEffect.PLACED:
            return False
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
        if variable.kind is not Kind.NUMBER or not self.is_arithmetic(variable.value):
            return False
        if self._asks_otherwise(variable.value):
            return False
        if variable.declaration.id not in self._skeleton:
            return False
        return all(self._lasts(word, floating) for word in used_words(variable.value))

    def _asks_otherwise(self, node: Any) -> bool:
        """Whether an expression asks for the thread by other words than ``threadIdx.x``."""
        own = {each.start_byte for each in walk(node) if index_name(each)}
        asked = self.meaning.places(
            CallEffect.PLACED | CallEffect.BLOCK, node.start_byte, node.end_byte
        )
        return not own.issuperset(asked)

    def _lasts(self, word: str, floating: set[str]) -> bool:
        """Whether a name means the same everywhere behind its declaration."""
        if word in INDICES or word not in self.by_name:
            return True
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


def _agree(variable: Variable, named: Named) -> bool:
    """Whether a variable is what its text says."""
    if named.is_static or variable.is_shared != named.is_shared:
        return False
    if variable.declaration is None:
        return True
    if named.is_shared:
        return True
    if variable.is_reference != (named.kind is Kind.REFERENCE):
        return False
    if variable.is_array != (named.kind is Kind.ARRAY) and named.kind is not Kind.OTHER:
        return False
    if named.kind is Kind.NUMBER and named.has_value != (variable.value is not None):
        return False
    return variable.value is None or variable.value.type != "argument_list"


def _change(node: Any) -> Any:
    """Return the assignment or the like that a name is the target of; else the name itself."""
    inner, outer = node, node.parent
    while outer.type in {"field_expression", "subscript_expression", "parenthesized_expression"}:
        if outer.type == "subscript_expression" and outer.child_by_field_name("argument") != inner:
            return node
        inner, outer = outer, outer.parent
    if outer.type == "assignment_expression" and outer.child_by_field_name("left") == inner:
        return outer
    if outer.type == "update_expression":
        return outer
    return node


def changed_whole(change: Any) -> str:
    """Return the variable that an expression gives another value as a whole; nothing if none."""
    if change is None or change.type not in {"assignment_expression", "update_expression"}:
        return ""
    target = change.child_by_field_name("left") or change.child_by_field_name("argument")
    return plain(target.text) if target is not None and target.type == "identifier" else ""


def _declarators(node: Any) -> Iterator[tuple[str, Any]]:
    for declarator in node.children_by_field_name("declarator"):
        inner = declarator
        while inner is not None and inner.type != "identifier":
            inner = inner.child_by_field_name("declarator") or next(
                (c for c in inner.named_children if c.type == "identifier"), None
            )
        if inner is not None:
            yield plain(inner.text), declarator
