"""Cooperative groups of kernels as the barriers and warp operations that they stand for."""

from __future__ import annotations

import re
from typing import Any, Final

from sapwood.gpu.cuda.edits import Edits
from sapwood.gpu.cuda.parse import CudaSource, Function, plain, walk

_BLOCK: Final = re.compile(
    r"(?:(?:cg|cooperative_groups)::)?this_thread_block\(\)|thread_block::this_thread_block\(\)"
)
_TILE: Final = re.compile(
    r"(?:(?:cg|cooperative_groups)::)?tiled_partition<\s*(\d+)\s*>\(\s*(\w+|[\w:]+\(\))\s*\)"
)
_GROUP: Final = re.compile(
    r"(?:(?:cg|cooperative_groups)::)?(?:thread_block|thread_group|thread_block_tile<\s*\d+\s*>|auto)"
)
_RANK: Final = "(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z))"
_SIZE: Final = "(blockDim.x * blockDim.y * blockDim.z)"
_OF_BLOCK: Final = {
    "sync": "__syncthreads()",
    "thread_rank": _RANK,
    "size": _SIZE,
    "num_threads": _SIZE,
    "thread_index": "threadIdx",
    "group_index": "blockIdx",
    "group_dim": "blockDim",
    "dim_threads": "blockDim",
}


def without_groups(source: CudaSource, kernel: Function) -> Edits:
    """Return the edits that replace the groups of a kernel that are known completely.

    A group of which anything is used that has no replacement stays, and so the kernel needs
    stacks of its own.
    """
    edits = Edits(source.data)
    widths = _groups(kernel)
    for name, (declaration, width) in widths.items():
        uses = [
            node
            for node in walk(kernel.body)
            if node.type == "identifier" and plain(node.text) == name
        ]
        made = [_use(node, name, width, widths) for node in uses]
        if all(text is not None for text in made):
            for text in made:
                if text is not None and text[0] is not None:
                    edits.replace(text[0].start_byte, text[0].end_byte, text[1])
            edits.replace(declaration.start_byte, declaration.end_byte, "")
    return edits


def _groups(kernel: Function) -> dict[str, tuple[Any, int]]:
    """Return the groups by name: declaration, and lanes of a tile or 0 for the block."""
    found: dict[str, tuple[Any, int]] = {}
    for node in walk(kernel.body):
        declarators = node.children_by_field_name("declarator")
        if node.type != "declaration" or len(declarators) != 1:
            continue
        value = declarators[0].child_by_field_name("value")
        inner = declarators[0].child_by_field_name("declarator")
        if value is None or inner is None or inner.type != "identifier":
            continue
        name, text = plain(inner.text), plain(value.text)
        tile = _TILE.fullmatch(text)
        if name in found:
            return {}
        head = plain(node.text[: inner.start_byte - node.start_byte])
        if text in found and _GROUP.fullmatch(head.removeprefix("const ")):  # another name for it
            found[name] = (node, found[text][1])
            continue
        if _BLOCK.fullmatch(text):
            found[name] = (node, 0)
        elif tile is not None and (tile[2] in found or _BLOCK.fullmatch(tile[2])):
            found[name] = (node, int(tile[1]))
    return found


def _use(
    node: Any, name: str, width: int, groups: dict[str, tuple[Any, int]]
) -> tuple[Any, str] | None:
    """Return what is replaced by what; nothing to replace for the declaration itself."""
    above = node.parent
    if above.type == "init_declarator":
        other = plain(above.child_by_field_name("declarator").text)
        return (None, "") if other in groups else None
    if above.type == "argument_list":
        call = above.parent
        word = plain(call.child_by_field_name("function").text) if call is not None else ""
        if word in {"sync", "cg::sync", "cooperative_groups::sync"}:
            return call, "__syncthreads()" if width == 0 else "__syncwarp()"
        made = call.parent if call is not None else None
        if made is not None and made.type == "init_declarator":  # a tile of the block
            other = plain(made.child_by_field_name("declarator").text)
            return (None, "") if other in groups else None
        return None
    call = above.parent
    if above.type != "field_expression" or call is None or call.type != "call_expression":
        return None
    method = plain(above.child_by_field_name("field").text)
    arguments = [plain(a.text) for a in call.child_by_field_name("arguments").named_children]
    text = _OF_BLOCK.get(method) if width == 0 else _of_tile(method, width, arguments)
    return None if text is None else (call, text)


def _of_tile(method: str, width: int, arguments: list[str]) -> str | None:
    given = ", ".join(arguments)
    if method in {"shfl", "shfl_up", "shfl_down", "shfl_xor"} and len(arguments) == 2:
        lanes = f"::sapwood_cuda::tile_lanes({_RANK}, {width})" if width < 32 else "0xffffffffu"
        return f"__{method}_sync({lanes}, {given}, {width})"
    if method in {"any", "all", "ballot"} and width == 32 and len(arguments) == 1:
        return f"__{method}_sync(0xffffffffu, {given})"
    return {
        "sync": "__syncwarp()",
        "size": f"{width}u",
        "num_threads": f"{width}u",
        "thread_rank": f"({_RANK} % {width}u)",
        "meta_group_rank": f"({_RANK} / {width}u)",
        "meta_group_size": f"(({_SIZE} + {width - 1}u) / {width}u)",
    }.get(method)
