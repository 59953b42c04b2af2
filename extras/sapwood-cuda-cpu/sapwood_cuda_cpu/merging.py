"""Kernels of which several blocks can be run as one larger block.

Where a kernel asks for its indices only as ``blockIdx.x * blockDim.x + threadIdx.x`` and
``blockDim.x * gridDim.x``, neighbouring blocks are no more than a larger one: its loops are
longer, and go through memory in larger pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sapwood_cuda_cpu.parse import plain

_ALONG_X: Final = frozenset({"threadIdx.x", "blockIdx.x", "blockDim.x", "gridDim.x"})
_REPORTS: Final = frozenset({"assert", "__trap", "__assert_fail"})
"""Words of kernels whose errors name the block."""


class BlockMerging:
    """Whether blocks of a kernel can be merged.

    Attributes:
        possible: Whether they can, as far as its indices go.
        whole_rows: Whether it asks how many blocks there are.
    """

    def __init__(self, nodes: Sequence[Any], words: frozenset[str]) -> None:
        covered: set[int] = set()
        for node in nodes:
            if node.type == "binary_expression":
                covered |= {each.id for each in _position(node) or _count(node)}
        used = [
            node
            for node in nodes
            if node.type == "field_expression" and plain(node.text) in _ALONG_X
        ]
        self.possible = not words & _REPORTS and all(node.id in covered for node in used)
        self.whole_rows = any(plain(node.text) == "gridDim.x" for node in used)


def _position(node: Any) -> list[Any]:
    """Return the indices of ``blockIdx.x * blockDim.x + threadIdx.x``, if a node is that."""
    left, right = _sides(node, "+")
    for one, other in ((left, right), (right, left)):
        if one is not None and plain(one.text) == "threadIdx.x":
            factors = _factors(other, {"blockIdx.x", "blockDim.x"})
            if factors:
                return [one, *factors]
    return []


def _count(node: Any) -> list[Any]:
    """Return the indices of ``blockDim.x * gridDim.x``, if a node is that."""
    return _factors(node, {"blockDim.x", "gridDim.x"})


def _factors(node: Any, wanted: set[str]) -> list[Any]:
    sides = _sides(node, "*")
    found = [each for each in sides if each is not None]
    return found if {plain(each.text) for each in found} == wanted else []


def _sides(node: Any, operator: str) -> tuple[Any, Any]:
    while node is not None and node.type == "parenthesized_expression":
        node = node.named_children[0]
    if node is None or node.type != "binary_expression" or node.children[1].type != operator:
        return None, None
    return node.child_by_field_name("left"), node.child_by_field_name("right")
