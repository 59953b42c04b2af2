"""Cooperative groups of kernels as the barriers and warp operations that they stand for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sapwood_cuda_cpu.calls import FOLD, GRID_SYNC
from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.parse import CudaSource, Function, plain, walk

_BLOCK: Final = re.compile(
    r"(?:(?:cg|cooperative_groups)::)?this_thread_block\(\)|thread_block::this_thread_block\(\)"
)
_GRID: Final = re.compile(r"(?:(?:cg|cooperative_groups)::)?this_grid\(\)")
_TILE: Final = re.compile(
    r"(?:(?:cg|cooperative_groups)::)?tiled_partition<\s*(\w+)\s*>\(\s*(\w+|[\w:]+\(\))\s*\)"
)
_GROUP: Final = re.compile(
    r"(?:(?:cg|cooperative_groups)::)?(?:thread_block|thread_group|grid_group|thread_block_tile<\s*\w+\s*>|auto)"
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
_REDUCES: Final = frozenset({"reduce", "cg::reduce", "cooperative_groups::reduce"})
_OPERATION: Final = re.compile(
    r"(?:(?:cg|cooperative_groups)::)?(plus|less|greater|bit_and|bit_or|bit_xor)<[^<>]*>(?:\(\)|\{\})"
)
_OPERATIONS: Final = {
    "plus": "Add",
    "less": "Min",
    "greater": "Max",
    "bit_and": "And",
    "bit_or": "Or",
    "bit_xor": "Xor",
}
_WHOLE: Final = "grid"
"""Stands where a tile has its width."""
_BLOCKS: Final = "((unsigned long long)gridDim.x * gridDim.y * gridDim.z)"
_NUMBER: Final = (
    "(blockIdx.x + (unsigned long long)gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z))"
)
_OF_GRID: Final = {
    "sync": f"{GRID_SYNC}()",
    "thread_rank": f"({_NUMBER} * {_SIZE} + {_RANK})",
    "size": f"({_BLOCKS} * {_SIZE})",
    "num_threads": f"({_BLOCKS} * {_SIZE})",
    "block_rank": _NUMBER,
    "num_blocks": _BLOCKS,
    "group_dim": "gridDim",
    "dim_blocks": "gridDim",
    "block_index": "blockIdx",
}


def without_groups(source: CudaSource, kernel: Function) -> Edits:
    """Return the edits that replace the groups of a kernel that are known completely.

    A group of which anything is used that has no replacement stays, and so the kernel needs
    separate stacks.
    """
    edits = Edits(source.data)
    found: list[tuple[Any, str]] = []
    widths = _groups(kernel)
    for name, (declaration, *width) in widths.items():
        uses = [
            node
            for node in walk(kernel.body)
            if node.type == "identifier" and plain(node.text) == name
        ]
        made = [_use(node, name, tuple(width), widths) for node in uses]
        if all(text is not None for text in made):
            found += [each for each in made if each is not None and each[0] is not None]
            found.append((declaration, ""))
    for node, text in _outermost(found):
        edits.replace(node.start_byte, node.end_byte, text)
    return edits


def _outermost(found: list[tuple[Any, str]]) -> Iterator[tuple[Any, str]]:
    """Yield the replacements that are in no other one, with those that are in them made."""
    for node, text in found:
        inside = [each for each in found if _is_inside(each[0], node)]
        if any(_is_inside(node, other) for other, _ in found):
            continue
        for inner, new in sorted(inside, key=lambda each: each[0].start_byte - each[0].end_byte):
            text = text.replace(plain(inner.text), new)  # noqa: PLW2901 - grows step by step
        yield node, text


def _is_inside(node: Any, other: Any) -> bool:
    return bool(
        node.id != other.id
        and other.start_byte <= node.start_byte
        and node.end_byte <= other.end_byte
    )


def _groups(kernel: Function) -> dict[str, tuple[Any, str, str]]:
    """Return the groups by name: declaration, lanes of a tile and of the tile that it is a part of.

    Lanes are nothing for the block.
    """
    found: dict[str, tuple[Any, str, str]] = {}
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
            found[name] = (node, *found[text][1:])
            continue
        if _BLOCK.fullmatch(text):
            found[name] = (node, "", "")
        elif _GRID.fullmatch(text):
            found[name] = (node, _WHOLE, "")
        elif tile is not None and (
            _BLOCK.fullmatch(tile[2]) or found.get(tile[2], (None, _WHOLE))[1] != _WHOLE
        ):
            found[name] = (node, tile[1], found[tile[2]][1] if tile[2] in found else "")
    return found


def _use(
    node: Any, name: str, widths: tuple[str, ...], groups: Mapping[str, tuple[Any, str, str]]
) -> tuple[Any, str] | None:
    """Return what is replaced by what; nothing to replace for the declaration itself."""
    width, around = widths
    above = node.parent
    if above.type == "init_declarator":
        other = plain(above.child_by_field_name("declarator").text)
        return (None, "") if other in groups else None
    if above.type == "argument_list":
        call = above.parent
        word = plain(call.child_by_field_name("function").text) if call is not None else ""
        if word in {"sync", "cg::sync", "cooperative_groups::sync"}:
            barriers = {"": "__syncthreads()", _WHOLE: f"{GRID_SYNC}()"}
            return call, barriers.get(width, "__syncwarp()")
        if word in _REDUCES and width not in {"", _WHOLE}:
            return _reduced(call, name, width)
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
    known = {"": _OF_BLOCK, _WHOLE: _OF_GRID}.get(width)
    text = _of_tile(method, width, around, arguments) if known is None else known.get(method)
    return None if text is None else (call, text)


def _reduced(call: Any, name: str, width: str) -> tuple[Any, str] | None:
    given = [plain(each.text) for each in call.child_by_field_name("arguments").named_children]
    operation = _OPERATION.fullmatch(given[2]) if len(given) == 3 and given[0] == name else None
    if operation is None:
        return None
    fold = f"::sapwood_cuda::{_OPERATIONS[operation[1]]}()"
    return call, f"{FOLD}({_lanes(width)}, {given[1]}, {fold})"


def _lanes(width: str) -> str:
    return "0xffffffffu" if width == "32" else f"::sapwood_cuda::tile_lanes({_RANK}, {width})"


def _of_tile(method: str, width: str, around: str, arguments: list[str]) -> str | None:
    rank, size = (f"({_RANK} % {around})", around) if around else (_RANK, _SIZE)
    given = ", ".join(arguments)
    if method in {"shfl", "shfl_up", "shfl_down", "shfl_xor"} and len(arguments) == 2:
        return f"__{method}_sync({_lanes(width)}, {given}, {width})"
    if method in {"any", "all", "ballot"} and width == "32" and len(arguments) == 1:
        return f"__{method}_sync(0xffffffffu, {given})"
    return {
        "sync": "__syncwarp()",
        "size": f"({width} + 0u)",
        "num_threads": f"({width} + 0u)",
        "thread_rank": f"({_RANK} % {width})",
        "meta_group_rank": f"({rank} / {width})",
        "meta_group_size": f"(({size} + {width} - 1) / {width})",
    }.get(method)
