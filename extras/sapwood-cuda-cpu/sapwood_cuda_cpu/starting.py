"""Variables without a first value, in code whose lanes hand their values to each other.

``int at; if (lane == 0) at = atomicAdd(n, 32); at = __shfl_sync(mask, at, 0);`` is right on a GPU:
the values of the other lanes are not used. C++ compilers assume that no call passes
a value that was never set, so clang concludes that every lane is lane 0.
"""

from __future__ import annotations

import re
from typing import Any, Final

from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.parse import Function, plain, walk

_SMALL: Final = re.compile(r"u?int\d+_t|size_t|u(?:char|short|int|long)|T\w*")
_KINDS: Final = frozenset({"primitive_type", "sized_type_specifier"})
_LASTING: Final = frozenset({"static", "extern", "__shared__", "thread_local", "const"})


def start_variables(function: Function, edits: Edits) -> None:
    """Give variables of a function that have no first value one, where that is certain to compile.

    Args:
        function: A kernel or device function that is not cut into loops.
        edits: Where the edits go.
    """
    nodes = list(walk(function.body))
    if any(node.type == "goto_statement" for node in nodes):
        return  # it may not jump over a first value
    for node in nodes:
        if node.type != "declaration" or node.parent.type != "compound_statement":
            continue
        kind = node.child_by_field_name("type")
        declarators = node.children_by_field_name("declarator")
        if kind is None or not declarators or node.has_error:
            continue
        head = plain(function.source.data[node.start_byte : declarators[0].start_byte])
        small = kind.type in _KINDS or _SMALL.fullmatch(plain(kind.text))
        if not small or _LASTING & set(head.split()):
            continue
        for declarator in declarators:
            if _is_plain(declarator):
                edits.insert(declarator.end_byte, "{}")


def _is_plain(declarator: Any) -> bool:
    return bool(declarator.type == "identifier")
