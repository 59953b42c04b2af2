"""Variables that start as ``T v(a, b);``, written as ``T v = T(a, b);``.

The syntax tree takes ``T v(a);`` for the declaration of a function: only what the names mean tells
them apart. A kernel in which all values stand behind ``=`` can be cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from sapwood_cuda_cpu.cursors import Kind
from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.parse import CudaSource, Function, walk
from sapwood_cuda_cpu.semantics import Named, read_variables
from sapwood_cuda_cpu.units import Reading

_DROPPED: Final = re.compile(r"\b(?:const|constexpr|static|register|volatile)\b")
_NAME: Final = re.compile(r"[\w:]+(?:<[\w:<>, ]*>)?")


def with_plain_values(sources: Mapping[str, CudaSource], reading: Reading) -> dict[str, CudaSource]:
    """Return sources whose kernels give variables their first values by ``=``.

    Example:
        >>> from sapwood_cuda_cpu.parse import read_sources
        >>> code = b"__global__ void k(int n) { dim3 at(n, n); int v(n); }"
        >>> found = with_plain_values(read_sources({"a.cu": code}), Reading())
        >>> found["a.cu"].data
        b'__global__ void k(int n) { dim3 at = dim3(n, n); int v = int(n); }'
    """
    known = read_variables(sources, reading, _is_unclear)
    found = {}
    for name, source in sources.items():
        edits = Edits(source.data)
        for kernel in filter(_is_unclear, source.kernels):
            for variable in known.get((name, int(kernel.body.start_byte)), ()):
                _edit(variable, source.data, kernel, edits)
        found[name] = source.changed(edits) if edits else source
    return found


def _is_unclear(kernel: Function) -> bool:
    return any(
        node.type == "declaration" and any(map(_has_brackets, _declarators(node)))
        for node in walk(kernel.body)
    )


def _declarators(node: Any) -> list[Any]:
    return list(node.children_by_field_name("declarator"))


def _has_brackets(declarator: Any) -> bool:
    """Whether brackets stand behind the name, not in the first value behind a ``=``."""
    value = declarator.child_by_field_name("value")
    if value is not None and value.type != "argument_list":
        declarator = declarator.child_by_field_name("declarator")
    return any(each.type in {"function_declarator", "argument_list"} for each in walk(declarator))


def _edit(variable: Named, data: bytes, kernel: Function, edits: Edits) -> None:
    behind = variable.at + len(variable.name.encode())
    if variable.at < kernel.body.start_byte or data[behind : variable.end].lstrip()[:1] != b"(":
        return
    head = data[variable.start : variable.at].decode("utf-8", "replace")
    kind = " ".join(_DROPPED.sub(" ", head).split())
    if _NAME.fullmatch(kind) and kind != "auto":
        edits.insert(behind, f" = {kind}")
    elif variable.kind is Kind.NUMBER or kind == "auto":
        edits.insert(behind, " = ")
