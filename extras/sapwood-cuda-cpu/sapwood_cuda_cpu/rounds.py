"""One of the two rounds in which nvcc compiles a source: which functions are for host or device."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import tree_sitter
import tree_sitter_cuda

_ATTRIBUTES: Final = re.compile(rb"__(?:host|device|global)__")
_MACRO: Final = re.compile(rb"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([^\n]*)", re.MULTILINE)
_WORD: Final = re.compile(rb"\w+")


class Body(msgspec.Struct, frozen=True):
    """The body of a function, braces included.

    Attributes:
        start: Where it begins.
        end: Where it ends.
        kind: ``host``, ``device`` or ``both``.
        is_constant: Whether the function is ``constexpr``.
        whole: Where its definition begins, template parameters included.
    """

    start: int
    end: int
    kind: str
    is_constant: bool
    whole: int


def attribute_macros(data: bytes) -> dict[bytes, frozenset[bytes]]:
    r"""Return the macros that stand for attributes of functions.

    Example:
        >>> sorted(attribute_macros(b"#define HD __host__ __device__\n")[b"HD"])
        [b'__device__', b'__host__']
    """
    found: dict[bytes, frozenset[bytes]] = {}
    for match in _MACRO.finditer(data):
        words = _ATTRIBUTES.findall(match[2])
        if words:
            found[match[1]] = found.get(match[1], frozenset()) | frozenset(words)
    return found


class Round:
    """A source as one round sees it.

    Args:
        text: The source, with blanks where the round sees nothing.
        macros: Macros that stand for attributes.

    Attributes:
        text: The source.
        bodies: The bodies of its functions, and of lambdas with attributes.
    """

    def __init__(self, text: bytes, macros: Mapping[bytes, frozenset[bytes]]) -> None:
        self.text = text
        self._macros = macros
        root = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language())).parse(text)
        nodes = list(_walk(root.root_node))
        self.bodies = [body for node in nodes for body in self._bodies(node)]
        self._declared = [
            (node.start_byte, node.end_byte)
            for node in nodes
            if node.type == "declaration"
            and self._kind(node.text) == "device"
            and any(child.type == "function_declarator" for child in node.children)
        ]

    def around(self, start: int, end: int) -> Body | None:
        """Return the innermost function whose body holds a part of the source."""
        holding = [body for body in self.bodies if body.start < start and end < body.end]
        return max(holding, key=lambda body: body.start, default=None)

    def without_device_code(self, start: int, end: int) -> bytes:
        """Return a part of the source in which what is only for the device is blank."""
        text = bytearray(self.text)
        spans = [(body.whole, body.end) for body in self.bodies if body.kind == "device"]
        for first, last in [*spans, *self._declared]:
            if start <= first and last <= end:
                text[first:last] = re.sub(rb"[^\r\n]", b" ", text[first:last])
        return bytes(text[start:end])

    def _bodies(self, node: Any) -> Iterator[Body]:
        if node.type not in {"function_definition", "lambda_expression"}:
            return
        body = node.child_by_field_name("body")
        if body is None or body.type != "compound_statement":
            return
        head = self.text[node.start_byte : body.start_byte]
        kind = self._kind(head)
        if node.type == "lambda_expression" and kind == "host":
            return  # it belongs to the function around it
        above = node.parent
        is_template = above is not None and above.type == "template_declaration"
        whole = above.start_byte if is_template else node.start_byte
        yield Body(body.start_byte, body.end_byte, kind, b"constexpr" in head, whole)

    def _kind(self, head: bytes) -> str:
        words = set(_WORD.findall(head))
        for word in words & self._macros.keys():
            words |= self._macros[word]
        if not words & {b"__device__", b"__global__"}:
            return "host"
        return "both" if b"__host__" in words else "device"


def _walk(node: Any) -> Iterator[Any]:
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(reversed(current.children))
