"""Kernels of OpenCL C sources: their parameters, comments and sizes of groups."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import tree_sitter
import tree_sitter_c

from sapwood.code.comments import read_annotations
from sapwood.code.interface import ElementType, FunctionSignature, ParameterSignature, Role
from sapwood.code.languages.discovery import annotate
from sapwood.core.errors import BuildError

_SCALARS: Final = {
    "bool": "?", "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4",
    "uint": "u4", "long": "i8", "ulong": "u8", "float": "f4", "double": "f8", "half": "f2",
    "size_t": "u8", "unsigned": "u4", "unsigned char": "u1", "unsigned short": "u2",
    "unsigned int": "u4", "unsigned long": "u8", "signed char": "i1", "signed int": "i4",
}  # fmt: skip
_VECTOR: Final = re.compile(r"(u?(?:char|short|int|long)|float|double)(2|4|8|16)")
_WORDS: Final = re.compile(
    rb"\b(?:__global|global|__constant|constant|__private|private|restrict"
    rb"|__restrict|__local|local|volatile)\b"
)
_KERNEL: Final = re.compile(r"\b(?:__kernel|kernel)\b")
_ATTRIBUTE: Final = re.compile(rb"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)")
_LOCAL: Final = re.compile(r"\b(?:__local|local)\b")


def kernel_signatures(name: str, data: bytes) -> tuple[FunctionSignature, ...]:
    r"""Return the kernels of a source with types, comments and annotations.

    Args:
        name: Of the source, for messages.
        data: Its text.

    Raises:
        BuildError: A parameter has a type that cannot be passed, or an annotation is wrong.

    Example:
        >>> code = b"// @array x[n]\n__kernel void f(__global const float *x, int n) {}"
        >>> [str(p.shape) for p in kernel_signatures("a.cl", code)[0].parameters]
        ["('n',)", 'None']
    """
    plain = _as_c(data)
    notes = read_annotations(name, plain, cpp=False)
    found = []
    for node in _functions(_tree(plain)):
        head = data[node.start_byte : node.child_by_field_name("body").start_byte]
        if _KERNEL.search(head.decode("utf-8", "replace")):
            signature = _signature(name, data, node)
            if signature.name in notes:
                signature = annotate(signature, notes[signature.name])
            found.append(signature)
    return tuple(found)


def _as_c(data: bytes) -> bytes:
    """Return a text of the same length that is plain C."""
    data = _ATTRIBUTE.sub(lambda m: re.sub(rb"[^\n]", b" ", m[0]), data)
    data = _WORDS.sub(lambda m: b" " * len(m[0]), data)
    return re.sub(rb"\b(__)?kernel\b", lambda m: b"extern" + b" " * (len(m[0]) - 6), data)


def _tree(data: bytes) -> Any:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_c.language())).parse(data).root_node


def _functions(root: Any) -> Iterator[Any]:
    for node in root.named_children:
        if node.type == "function_definition":
            yield node
        elif node.type.startswith("preproc_"):
            yield from _functions(node)


def _signature(file: str, data: bytes, node: Any) -> FunctionSignature:
    declarator = node.child_by_field_name("declarator")
    name = declarator.child_by_field_name("declarator").text.decode()
    listed = declarator.child_by_field_name("parameters")
    line = int(node.start_point[0]) + 1
    parameters = [
        _parameter(f"{file}:{int(each.start_point[0]) + 1}", name, data, each)
        for each in listed.named_children
        if each.type == "parameter_declaration" and each.child_by_field_name("declarator")
    ]
    return FunctionSignature(name=name, parameters=tuple(parameters), file=file, line=line)


def _parameter(where: str, kernel: str, data: bytes, node: Any) -> ParameterSignature:
    raw = data[node.prev_sibling.end_byte : node.end_byte].decode("utf-8", "replace")
    text = " ".join(raw.split())
    inner = node.child_by_field_name("declarator")
    stars = inner.text.count(b"*")
    name = re.findall(r"\w+", inner.text.decode())[-1]
    kind = " ".join(node.child_by_field_name("type").text.decode().split())
    if _LOCAL.search(text):
        raise BuildError(
            f"parameter {name} of kernel {kernel} is local memory",
            where=where,
            hint="declare it inside of the kernel, with a fixed size",
        )
    element = _element(kind)
    if element is None or stars > 1:
        raise BuildError(
            f"parameter {name} of kernel {kernel} has a type that cannot be passed: {text}",
            where=where,
            hint="use numbers, vectors of numbers, and pointers to them",
        )
    if not stars:
        return ParameterSignature(name=name, c=kind, element=element)
    is_constant = re.search(r"\b(?:const|constant|__constant)\b", text) is not None
    return ParameterSignature(
        name=name,
        c=f"{'const ' if is_constant else ''}{kind} *",
        element=element,
        role=Role.INPUT if is_constant else Role.OUTPUT,
    )


def _element(kind: str) -> ElementType | None:
    if kind in _SCALARS:
        dtype = _SCALARS[kind]
        return ElementType(c=kind, dtype=dtype if dtype == "?" else f"<{dtype}", size=_size(dtype))
    match = _VECTOR.fullmatch(kind)
    if match is None:
        return None
    dtype = _SCALARS[match[1]]
    return ElementType(c=kind, dtype=f"<{dtype}", size=_size(dtype), shape=(int(match[2]),))


def _size(dtype: str) -> int:
    return 1 if dtype == "?" else int(dtype[1:])
