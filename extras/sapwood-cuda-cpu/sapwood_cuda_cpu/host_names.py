"""Variables and fields of the host that are called like CUDA's index variables.

``dim3 blockDim(16, 16);`` is usual on the host, where CUDA's own ``blockDim`` does not exist. In
patched sources it does, as a macro, so the host's gets another name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from sapwood_cuda_cpu.edits import Edits

_NAMES: Final = frozenset({b"threadIdx", b"blockIdx", b"blockDim", b"gridDim"})
_LIKELY: Final = re.compile(
    rb"\b(?:threadIdx|blockIdx|blockDim|gridDim)\b(?!\s*\.)"
    rb"|(?:\.|->)\s*(?:threadIdx|blockIdx|blockDim|gridDim)\b"
)
"""Names other than ``threadIdx.x`` and the like."""
_PREFIX: Final = "sapwood_host_"
_DECLARES: Final = frozenset(
    {"declaration", "parameter_declaration", "optional_parameter_declaration"}
)
_DEVICE: Final = re.compile(rb"\b__(?:global|device)__\b")


def may_hold(data: bytes) -> bool:
    """Whether a source may have such names; most have not."""
    return _LIKELY.search(data) is not None


def rename_on_host(data: bytes, root: Any) -> bytes:
    """Return a source whose host has no names of CUDA's index variables.

    Args:
        data: The source.
        root: Its syntax tree.
    """
    edits = Edits(data)
    uses = [node for node in _walk(root) if node.text in _NAMES and not node.children]
    scopes = [(node.text, _function(node)) for node in uses if _is_declared(node)]
    for node in uses:
        function = _function(node)
        if node.type == "field_identifier" or any(
            name == node.text and (scope is None or _same(scope, function))
            for name, scope in scopes
            if not _is_device(function)
        ):
            edits.insert(node.start_byte, _PREFIX)
    return edits.apply() if edits else data


def _is_declared(node: Any) -> bool:
    """Whether an identifier is declared here, by the host."""
    if node.type != "identifier" or _is_device(_function(node)):
        return False
    child, above = node, node.parent
    while above is not None and above.type.endswith("declarator"):
        inner = above.child_by_field_name("declarator") or above.named_children[0]
        if inner != child:
            return False
        child, above = above, above.parent
    return (
        above is not None
        and above.type in _DECLARES
        and child in (above.children_by_field_name("declarator"))
    )


def _function(node: Any) -> Any:
    """Return the function around a node, none outside of functions."""
    while node is not None and node.type != "function_definition":
        node = node.parent
    return node


def _same(one: Any, other: Any) -> bool:
    return other is not None and bool(one.id == other.id)


def _is_device(function: Any) -> bool:
    if function is None:
        return False
    body = function.child_by_field_name("body")
    end = body.start_byte - function.start_byte if body is not None else None
    return _DEVICE.search(function.text[:end]) is not None


def _walk(node: Any) -> Iterator[Any]:
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(reversed(current.children))
