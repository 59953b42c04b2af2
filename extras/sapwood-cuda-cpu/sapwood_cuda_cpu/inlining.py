"""Device functions that bring threads together, put into the kernels that call them.

Only what is certain to mean the same is done: one definition of the name, one ``return`` at its
end, a call that is evaluated whenever its statement is. Everything else stays a call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sapwood_cuda_cpu.calls import CallGraph
from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.parse import CudaSource, Function, declared_names, plain, walk

_NOT_COPIED: Final = frozenset(
    {
        *("goto_statement", "labeled_statement", "lambda_expression", "try_statement", "ERROR"),
        *("preproc_if", "preproc_ifdef", "preproc_def", "preproc_function_def"),
    }
)
_MAYBE: Final = frozenset({"&&", "||"})
HOLDERS: Final = frozenset({"expression_statement", "declaration"})


def inline_calls(source: CudaSource, kernel: Function, graph: CallGraph) -> Edits | None:
    """Return the edits that put one round of called functions into a kernel; None for nothing."""
    edits = Edits(source.data)
    types = variable_types(kernel)
    found = False
    for node in walk(kernel.body):
        if node.type != "call_expression":
            continue
        callee = _callee(node, kernel, graph)
        statement = holder(node, kernel)
        if callee is None or statement is None:
            continue
        condition = statement.child_by_field_name("condition")
        if sum(1 for _ in _meeting(condition or statement, graph)) > 1:
            continue
        text = _Inlined(callee, node, types).text()
        if text is None:
            continue
        before, shared, value = text
        if shared:
            edits.insert(kernel.body.start_byte + 1, shared)
        alone = statement.type == "expression_statement" and statement.named_children[0] == node
        if alone:
            edits.replace(statement.start_byte, statement.end_byte, f"{{ {before} }}")
        else:
            insert_before(edits, statement, before)
            edits.replace(node.start_byte, node.end_byte, value)
        found = True
    return edits if found else None


def insert_before(edits: Edits, statement: Any, text: str) -> None:
    """Insert statements before one; in braces where only one may stand."""
    if statement.parent.type == "compound_statement":
        edits.insert(statement.start_byte, text + " ")
    else:
        edits.insert(statement.start_byte, "{ " + text + " ")
        edits.insert(statement.end_byte, " }")


def holder(call: Any, kernel: Function) -> Any:
    """Return the statement that evaluates a call whenever it runs, with no other effects before.

    None where that is not certain.
    """
    node = call
    while node.type not in HOLDERS:
        above = node.parent
        if above is not None and above.type == "condition_clause":
            return above.parent if above.parent.type == "if_statement" and _pure(above) else None
        if (
            above is None
            or above.id == kernel.body.id
            or (above.type.endswith("_statement") and above.type not in HOLDERS)
        ):
            return None
        if above.type == "conditional_expression" and node != above.child_by_field_name(
            "condition"
        ):
            return None
        if above.type == "binary_expression" and above.children[1].type in _MAYBE:
            return None
        node = above
    if node.type == "declaration" and node.parent.type != "compound_statement":
        return None
    if node.type == "declaration" and len(list(declared_names(node))) != 1:
        return None
    changes = [n for n in walk(node) if n.type in {"assignment_expression", "update_expression"}]
    inner = node.named_children[0] if node.type == "expression_statement" else None
    return node if all(change == inner for change in changes) else None


def _pure(node: Any) -> bool:
    return not any(n.type in {"assignment_expression", "update_expression"} for n in walk(node))


def variable_types(kernel: Function) -> dict[str, str]:
    """Return the types of a kernel's variables as written, of those with one plain type."""
    found: dict[str, set[str]] = {p.name: {_plain_type(p.type)} for p in kernel.parameters}
    for node in walk(kernel.body):
        if node.type != "declaration":
            continue
        first = node.child_by_field_name("declarator")
        head = plain(node.text[: first.start_byte - node.start_byte]) if first else ""
        for declarator in node.children_by_field_name("declarator"):
            spelled = plain(declarator.text).split("=")[0]
            kind = "" if re.search(r"[*&\[(]", spelled) else _plain_type(head)
            names = re.findall(r"\w+", spelled)
            if names:
                found.setdefault(names[0], set()).add(kind)
    return {name: min(kinds) for name, kinds in found.items() if len(kinds) == 1 and min(kinds)}


def _plain_type(text: str) -> str:
    if re.search(r"[*&]|__shared__|\bauto\b", text):
        return ""
    dropped = {"const", "static", "constexpr", "register", "volatile", "__restrict__"}
    return " ".join(word for word in text.split() if word not in dropped)


def _callee(call: Any, kernel: Function, graph: CallGraph) -> Function | None:
    name = plain(call.child_by_field_name("function").text).split("<")[0].strip()
    found = graph.functions.get(name, [])
    if name not in graph.meeting or len(found) != 1 or name in graph.macros:
        return None
    callee = found[0]
    ok = "__device__" in callee.attributes and not callee.is_kernel and name not in callee.words
    ok = ok and callee.is_whole and callee.body.parent.type == "function_definition"
    return callee if ok else None


def _meeting(statement: Any, graph: CallGraph) -> Iterator[Any]:
    for node in walk(statement):
        if node.type == "call_expression":
            name = plain(node.child_by_field_name("function").text).split("<")[0].strip()
            if name in graph.meeting or graph.meets({name}):
                yield node


class _Inlined:
    """The body of a function for one call of it."""

    def __init__(self, callee: Function, call: Any, types: Mapping[str, str]) -> None:
        self._suffix = f"_sapwood{call.start_byte}"
        self._callee = callee
        self._call = call
        self._types = types
        self._names: dict[str, str] = {}

    def text(self) -> tuple[str, str, str] | None:
        """Return statements, shared declarations, and the value; None if it cannot be done."""
        statements = [n for n in self._callee.body.named_children if n.type != "comment"]
        given = self._template_arguments() if self._ends_once(statements) else None
        bound = self._bind(given) if given is not None else None
        if given is None or bound is None:
            return None
        for node in walk(self._callee.body):
            if node.type == "declaration":
                for name in declared_names(node):
                    self._names.setdefault(name, name + self._suffix)
        self._names |= given
        shared, value = "", ""
        pieces = [bound]
        for node in statements:
            if node.type == "declaration" and "__shared__" in plain(node.text):
                shared += " " + self._renamed(node)
            elif node.type == "return_statement":
                inner = node.named_children
                value = f"({self._renamed(inner[0])})" if inner else ""
            elif node.type != "preproc_call":
                pieces.append(self._renamed(node))
        return " ".join(pieces), shared, value

    def _ends_once(self, statements: list[Any]) -> bool:
        """Whether the function ends at its end only, and holds nothing that cannot be moved."""
        nodes = list(walk(self._callee.body))
        if any(node.type in _NOT_COPIED or node.is_missing for node in nodes):
            return False
        if any(
            node.type == "storage_class_specifier"
            and node.text == b"extern"
            and b"__shared__" not in node.parent.text
            for node in nodes
        ):
            return False
        returns = [node for node in nodes if node.type == "return_statement"]
        return not returns or (len(returns) == 1 and returns[0] == statements[-1])

    def _template_arguments(self) -> dict[str, str] | None:
        """Return what template parameters stand for; None if that is not written down."""
        above = self._callee.node.parent
        if above is None or above.type != "template_declaration":
            return {}
        listed = above.child_by_field_name("parameters")
        names = [re.findall(r"\w+", plain(each.text))[-1] for each in listed.named_children]
        function = self._call.child_by_field_name("function")
        arguments = function.child_by_field_name("arguments")
        given = [plain(a.text) for a in arguments.named_children] if arguments is not None else []
        found = dict(zip(names, given, strict=False))
        passed = self._call.child_by_field_name("arguments").named_children
        for parameter, value in zip(self._callee.parameters, passed, strict=False):
            kind = _plain_type(parameter.type)
            if kind in names and kind not in found:
                known = self._types.get(plain(value.text))
                if known is None:
                    return None
                found[kind] = known
        return found if set(names) <= found.keys() else None

    def _bind(self, given: Mapping[str, str]) -> str | None:
        """Return the declarations of the parameters."""
        passed = [
            node
            for node in self._call.child_by_field_name("arguments").named_children
            if node.type != "comment"
        ]
        parameters = self._callee.parameters
        if len(passed) != len(parameters):
            return None
        text = ""
        for parameter, value in zip(parameters, passed, strict=True):
            if "&" in parameter.type or "[" in parameter.type:
                if value.type != "identifier":
                    return None
                self._names[parameter.name] = plain(value.text)
                continue
            name = parameter.name + self._suffix
            kind = re.sub(r"\b\w+\b", lambda m: given.get(m[0], m[0]), parameter.type)
            kind = kind.replace("__restrict__", "").replace("volatile", "")
            self._names[parameter.name] = name
            text += f"{kind} {name} = {plain(value.text)}; "
        return text

    def _renamed(self, node: Any) -> str:
        """Return the text of a part on one line, with unique names."""
        data: bytes = self._callee.source.data
        pieces, position = [], node.start_byte
        for each in walk(node):
            if each.type in {"comment", "preproc_call"}:
                new = " "
            elif each.type in {"identifier", "type_identifier"}:
                new = self._names.get(plain(each.text), "")
            else:
                continue
            if new:
                pieces += [data[position : each.start_byte].decode("utf-8", "replace"), new]
                position = each.end_byte
        pieces.append(data[position : node.end_byte].decode("utf-8", "replace"))
        return " ".join("".join(pieces).split())
