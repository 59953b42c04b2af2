"""Code that relies on the lanes of a warp running in step: found, and made to run so.

``s[i] += s[i + 16]; s[i] += s[i + 8];`` without a barrier between is right only if all lanes do
the first statement before any does the second, and read before any writes. Loops over threads
and stacks per thread do not run so. Where such code is found, each write to the array waits for
the lanes of the warp before and after it, by an operation that those lanes make which come.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from sapwood_cuda_cpu.accesses import Access, Accesses
from sapwood_cuda_cpu.calls import IN_STEP, CallGraph
from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.parse import CudaSource, Function, plain, walk

WARP: Final = 32
"""Lanes of a warp: neighbours that are farther apart are in another one."""

_MOST_PENDING: Final = 256
"""Accesses since a barrier that a further one is compared with."""

_DISJOINT: Final = re.compile(r"%|\^|&(?!&)|==")
"""What a condition has that chooses threads none of which reads what another one writes."""


class Step(msgspec.Struct, frozen=True):
    """A statement that relies on lanes in step: where it is, and its text."""

    line: int
    text: str


def find_steps(source: CudaSource, graph: CallGraph) -> list[Step]:
    r"""Return the statements of a source that rely on lanes in step, in order.

    Example:
        >>> text = b"__device__ void f(volatile int *s, int i) { s[i] = 1;\ns[i] += s[i + 1]; }"
        >>> source = CudaSource("a.cu", text)
        >>> [(each.line, each.text) for each in find_steps(source, CallGraph([source]))]
        [(2, 's[i] += s[i + 1];')]
    """
    found = {
        (int(node.start_point[0]) + 1, plain(node.text))
        for function in _device_functions(source)
        for node, _ in _hazards(function, graph)
    }
    return [Step(line, text) for line, text in sorted(found)]


def find_computed(source: CudaSource, graph: CallGraph) -> list[Step]:
    r"""Return the statements that read what another lane may have written since the last barrier.

    The threads have written each to its place, and read at an index that does not count with
    the thread: which of them wrote there cannot be known. That is not run in step.

    Example:
        >>> text = b"__global__ void k(int *p) { __shared__ int s[32];\ns[threadIdx.x] = 1;\n"
        >>> source = CudaSource("a.cu", text + b"p[0] = s[p[threadIdx.x]]; }")
        >>> [(each.line, each.text) for each in find_computed(source, CallGraph([source]))]
        [(3, 'p[0] = s[p[threadIdx.x]];')]
    """
    found = {
        (int(node.start_point[0]) + 1, plain(node.text).split("{")[0].strip())
        for function in _device_functions(source)
        for node in _computed(function, graph)
    }
    return [Step(line, text) for line, text in sorted(found)]


def _computed(function: Function, graph: CallGraph) -> Iterator[Any]:
    if "[" not in plain(function.body.text):
        return
    accesses = Accesses(function)
    since: list[Access] = []
    for access in accesses.in_order(graph):
        if access is None:  # a barrier
            since = []
        elif access.is_write:
            since = [*since[-_MOST_PENDING:], access]
        elif not access.base and (access.is_volatile or not accesses.is_given(access.array)):
            own = [e for e in since if e.array == access.array and not e.excludes(access)]
            if any(each.base and _many(each, access) for each in own) and not any(
                each.offset == access.offset and not each.base for each in own
            ):
                yield access.statement


def _many(write: Access, read: Access) -> bool:
    """Whether more than one thread does both, as far as conditions say."""
    return not any("==" in each for each in (*write.conditions, *read.conditions))


def with_steps(source: CudaSource, graph: CallGraph) -> CudaSource:
    """Return a source whose lanes run in step where it relies on that."""
    edits = Edits(source.data)
    for function in _device_functions(source):
        arrays = {array for _, array in _hazards(function, graph)}
        if arrays:
            _edit_writes(function, arrays, Accesses(function), edits)
    return source.changed(edits) if edits else source


def _device_functions(source: CudaSource) -> Iterator[Function]:
    for function in source.functions:
        if function.attributes & {"__global__", "__device__"}:
            yield function


def _hazards(function: Function, graph: CallGraph) -> Iterator[tuple[Any, str]]:
    """Yield statements that need what lanes in step would have done, and the array."""
    if "[" not in plain(function.body.text):
        return
    accesses = Accesses(function)
    since: list[Access] = []
    for access in accesses.in_order(graph):
        if access is None:  # a barrier
            since = []
            continue
        for before in since:
            if _conflict(before, access, since):
                yield access.statement, access.array
                break
        since = [*since[-_MOST_PENDING:], access]


def _conflict(before: Access, after: Access, since: list[Access]) -> bool:
    """Whether the second of two accesses means another lane's memory that the first used."""
    if before.array != after.array or before.base != after.base or before.excludes(after):
        return False
    if before.is_write == after.is_write or before.offset == after.offset or not after.base:
        return False
    distance = before.distance(after)
    if distance is not None and not 0 < abs(distance) < WARP:
        return False
    read = before if after.is_write else after
    kinds = (before.operator, after.operator)
    if before.turn == after.turn and read is before:
        # Lanes that come later read what is not yet changed, unless they look behind.
        crosses = "^" in kinds or read.operator == "-"
        return crosses and not any(_DISJOINT.search(each) for each in read.conditions)
    if after.is_volatile:
        return True
    own = any(
        each.is_write and each.offset == read.offset and each.base == read.base
        for each in since
        if each.array == read.array
    )
    return not own and ("^" in kinds or distance is not None)


def _edit_writes(function: Function, arrays: set[str], accesses: Accesses, edits: Edits) -> None:
    """Have each statement that writes to one of some arrays wait for the lanes."""
    for node in walk(function.body):
        if node.type != "expression_statement" or not node.named_children:
            continue
        change = node.named_children[0]
        before, behind = (f"{IN_STEP}({2 * node.start_byte + turn})" for turn in (0, 1))
        if change.type == "update_expression":
            target = accesses.array_of(change.child_by_field_name("argument"))
            text = f"{{ {before}; {plain(node.text)} {behind}; }}"
            if target in arrays:
                edits.replace(node.start_byte, node.end_byte, text)
        if change.type != "assignment_expression":
            continue
        left, right = change.child_by_field_name("left"), change.child_by_field_name("right")
        array = accesses.array_of(left)
        if array not in arrays:
            continue
        operator = plain(change.children[1].text)
        value, first = plain(right.text), ""
        if any(accesses.array_of(each) == array for each in walk(right)):
            value = f"sapwood_s{node.start_byte}"
            same = left.type == "subscript_expression" and (
                operator == "=" or right.type == left.type
            )
            kind = accesses.element_of(array) if same else "const auto"
            first = f"{kind} {value} = {plain(right.text)}; "
        text = f"{{ {first}{before}; {plain(left.text)} {operator} {value}; {behind}; }}"
        edits.replace(node.start_byte, node.end_byte, text)
