"""Launches by the address of a kernel: ``cudaLaunchKernel((void *)kernel, grid, block, …)``.

A cast to ``void *`` takes the types of the parameters away, which the patched launch needs.
"""

from __future__ import annotations

from typing import Any, Final

from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.parse import CudaSource, plain, walk

_CALLS: Final = frozenset({"cudaLaunchKernel", "cudaLaunchCooperativeKernel"})
_MOST_ARGUMENTS: Final = 6
"""Kernel, grid, block, arguments, bytes of shared memory, stream; the name comes behind them."""

_LEFT_OUT: Final = ("0", "nullptr")


def edit_calls(source: CudaSource, edits: Edits) -> None:
    """Take the casts away, and give the name of the kernel."""
    if b"cudaLaunch" not in source.data:
        return
    for node in walk(source.root):
        if node.type != "call_expression":
            continue
        if plain(node.child_by_field_name("function").text) not in _CALLS:
            continue
        listed = node.child_by_field_name("arguments")
        given = [child for child in listed.named_children if child.type != "comment"]
        if not 4 <= len(given) <= _MOST_ARGUMENTS:
            continue
        kernel = _without_casts(given[0])
        name = plain(kernel.text)
        if kernel.id != given[0].id:
            edits.replace(given[0].start_byte, kernel.start_byte, "")
            edits.replace(kernel.end_byte, given[0].end_byte, "")
        missing = "".join(f", {text}" for text in _LEFT_OUT[len(given) - _MOST_ARGUMENTS + 2 :])
        text = name.replace("\\", "\\\\").replace('"', '\\"')
        edits.insert(listed.end_byte - 1, f'{missing}, "{text}"')


def _without_casts(node: Any) -> Any:
    while True:
        if node.type == "cast_expression":
            node = node.child_by_field_name("value")
        elif node.type == "parenthesized_expression":
            node = node.named_children[0]
        elif node.type == "pointer_expression" and node.children[0].type == "&":
            node = node.child_by_field_name("argument")
        elif node.type == "call_expression" and plain(
            node.child_by_field_name("function").text
        ).startswith(("reinterpret_cast<", "static_cast<")):
            node = node.child_by_field_name("arguments").named_children[0]
        else:
            return node
