"""Memory that the next blocks will read, asked for in advance.

A kernel that is cut at barriers goes through memory in short pieces with other work between, and
processors do not always see that it continues: the same code took 2 or 6 ms for the same 40 MB,
depending on where it and its stack happened to lie. So the block says what comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from sapwood_cuda_cpu.accesses import index_of
from sapwood_cuda_cpu.control import LOOPS
from sapwood_cuda_cpu.guards import counts_with_thread
from sapwood_cuda_cpu.parse import Function, plain
from sapwood_cuda_cpu.part import Part
from sapwood_cuda_cpu.stride import StrideLoop
from sapwood_cuda_cpu.variables import Variables, used_words

MOST: Final = 4
"""Arrays of a part for which that is done."""


def asks_ahead(
    part: Part,
    kernel: Function,
    variables: Variables,
    hidden: set[str],
    recomputed: Callable[[set[str]], str],
    text: Callable[[Any], str],
) -> str:
    """Return what asks for the memory that the same part of the next blocks reads.

    Args:
        part: A part at the top of its kernel.
        kernel: The kernel.
        variables: Its variables.
        hidden: Names whose values are not known before the part.
        recomputed: Returns declarations of some variables.
        text: Returns the text of a node as it will be.
    """
    pointers = _lasting_pointers(kernel, variables)
    found: dict[tuple[str, str], Any] = {}
    for node in part.nodes:
        if node.type != "subscript_expression" or _is_written(node) or _is_repeated(node, part):
            continue
        array, index = plain(node.child_by_field_name("argument").text), index_of(node)
        if array not in pointers or index is None or used_words(index) & hidden:
            continue
        if counts_with_thread(index, variables):
            found.setdefault((array, plain(index.text)), index)
    return "".join(
        "{ const int sapwood_x = 0, sapwood_y = 0, sapwood_z = 0; "
        "(void)sapwood_x; (void)sapwood_y; (void)sapwood_z; "
        f"{recomputed(used_words(index))}"
        f"::sapwood_cuda::ask_ahead({array}, {text(index)}, sapwood_b.sx); }} "
        for (array, _), index in list(found.items())[:MOST]
    )


def asks_for_rounds(
    part: Part, loop: StrideLoop, kernel: Function, variables: Variables, step: str
) -> str:
    """Return what asks for the memory that the rounds after the next one of a loop read.

    Args:
        part: The part that the loop is.
        loop: A grid-stride loop.
        kernel: The kernel.
        variables: Its variables.
        step: The text of the loop's step.
    """
    pointers = _lasting_pointers(kernel, variables)
    found = {
        plain(node.child_by_field_name("argument").text)
        for node in part.nodes
        if node.type == "subscript_expression"
        and loop.body.start_byte <= node.start_byte < loop.body.end_byte
        and not _is_written(node)
        and not any(each.type in LOOPS for each in _above(node, {loop.body.id}))
        and (index := index_of(node)) is not None
        and plain(index.text) == loop.name
    }
    return "".join(
        f"if (sapwood_o.together) "
        f"::sapwood_cuda::ask_for_round({array}, {loop.name}, {step}, sapwood_b.sx); "
        for array in sorted(found & pointers)[:MOST]
    )


def _lasting_pointers(kernel: Function, variables: Variables) -> set[str]:
    """Return the pointers among a kernel's parameters that never change."""
    return {
        each.name
        for each in kernel.parameters
        if each.type.count("*") == 1 and not variables.by_name[each.name][0].changes
    }


def _is_written(node: Any) -> bool:
    above = node.parent
    if above.type == "assignment_expression":
        left = above.child_by_field_name("left")
        return bool(left.id == node.id and plain(above.children[1].text) == "=")
    return False


def _is_repeated(node: Any, part: Part) -> bool:
    """Whether a node is in a loop of its part."""
    ends = {each.id for each in part.statements}
    return any(each.type in LOOPS for each in _above(node, ends))


def _above(node: Any, ends: set[int]) -> Iterator[Any]:
    while node is not None and node.id not in ends:
        yield node
        node = node.parent
    if node is not None:
        yield node
