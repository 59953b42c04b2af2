"""What a CPU forgives and a GPU does not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from sapwood_cuda_cpu.calls import CallGraph
from sapwood_cuda_cpu.check import Finding
from sapwood_cuda_cpu.parse import CudaSource, Function, plain, walk
from sapwood_cuda_cpu.steps import find_computed, find_steps

SHARED_LIMIT: Final = 48 * 1024
"""Bytes of static shared memory that every GPU gives a block."""

_SIZES: Final = {
    "char": 1, "bool": 1, "short": 2, "int": 4, "unsigned": 4, "float": 4, "long": 8, "double": 8,
    "size_t": 8, "int2": 8, "float2": 8, "int4": 16, "float4": 16, "double2": 16, "uint8_t": 1,
    "int64_t": 8, "uint64_t": 8, "uint32_t": 4, "int32_t": 4,
}  # fmt: skip
_IN_STEP: Final = "relies on the lanes of a warp running in step"
_COMPUTED: Final = "reads what another thread may have written, without a barrier between"
_CHECKS: Final = frozenset(
    {
        "cudaGetLastError",
        "cudaPeekAtLastError",
        "cudaDeviceSynchronize",
        "cudaStreamSynchronize",
    }
)


def find_traps(source: CudaSource) -> list[Finding]:
    """Return what of a source works on a CPU node but may go wrong on a GPU, in order.

    Example:
        >>> from sapwood_cuda_cpu.parse import CudaSource
        >>> code = b"__global__ void k() { __shared__ double s[8000]; }"
        >>> print(find_traps(CudaSource("a.cu", code))[0].what)
        64000 bytes of shared memory, more than the 49152 that a block has
    """
    found = [*_too_much_shared(source), *find_lanes_in_step([source])]
    for function in source.functions:
        if not function.attributes & {"__global__", "__device__"}:
            found += _host_access(source, function)
            found += _unchecked(source, function)
    return sorted(found, key=lambda each: each.line)


def find_lanes_in_step(sources: Iterable[CudaSource]) -> list[Finding]:
    """Return the statements that rely on the lanes of a warp running in step.

    Those of the first kind are run so on a CPU node; recent GPUs do not promise it. Those of the
    second kind, which read at an index that was computed, are not.
    """
    given = list(sources)
    graph = CallGraph(given)
    kinds = (
        (find_steps, _IN_STEP, "put __syncwarp() between reading and writing, and after it"),
        (find_computed, _COMPUTED, "put __syncwarp() or __syncthreads() before it"),
    )
    return [
        Finding(
            file=source.name,
            line=step.line,
            kind="trap",
            what=what,
            text=step.text[:120],
            advice=advice,
        )
        for source in given
        for find, what, advice in kinds
        for step in find(source, graph)
    ]


def _trap(source: CudaSource, node: Any, what: str, advice: str) -> Finding:
    return Finding(
        file=source.name,
        line=int(node.start_point[0]) + 1,
        kind="trap",
        what=what,
        text=plain(node.text)[:120],
        advice=advice,
    )


def _too_much_shared(source: CudaSource) -> Iterator[Finding]:
    for kernel in source.kernels:
        total = 0
        for node in source.shared:
            if kernel.body.start_byte <= node.start_byte < kernel.body.end_byte:
                total += _shared_bytes(source, node)
                if total > SHARED_LIMIT:
                    what = f"{total} bytes of shared memory, more than the {SHARED_LIMIT}"
                    advice = "use smaller tiles, or dynamic shared memory with cudaFuncSetAttribute"
                    yield _trap(source, node, f"{what} that a block has", advice)
                    break


def _shared_bytes(source: CudaSource, node: Any) -> int:
    kind = node.child_by_field_name("type")
    words = plain(kind.text).split() if kind is not None else []
    size = max((_SIZES.get(word, 0) for word in words), default=0)
    total = 0
    for declarator in node.children_by_field_name("declarator"):
        extents = re.findall(r"\[([^\]]*)\]", plain(declarator.text))
        count = 1
        for extent in extents:
            count *= _number(extent, source)
        total += count * size
    return total


def _number(text: str, source: CudaSource) -> int:
    """Return the value of an extent made of numbers and macros; 0 when it cannot be known."""
    for _ in range(8):
        text = re.sub(r"\b[A-Za-z_]\w*\b", lambda m: f"({source.macros.get(m[0], '0')})", text)
    product = 1
    for term in text.replace("(", " ").replace(")", " ").split("*"):
        numbers = [part.strip() for part in term.split("+")]
        if not all(number.isdigit() for number in numbers):
            return 0
        product *= sum(map(int, numbers))
    return product


def _host_access(source: CudaSource, function: Function) -> Iterator[Finding]:
    """Find a subscript or ``*`` on the host of what cudaMalloc gave."""
    device: set[str] = set()
    for node in walk(function.body):
        if node.type == "call_expression":
            callee = plain(node.child_by_field_name("function").text)
            arguments = node.child_by_field_name("arguments")
            if callee in {"cudaMalloc", "cudaMallocPitch", "cudaMallocAsync"} and arguments:
                match = re.search(r"&\s*(\w+)\s*[,)]", plain(arguments.text))
                if match:
                    device.add(match[1])
        access = None
        if node.type == "subscript_expression" or (
            node.type == "pointer_expression" and node.children[0].type == "*"
        ):
            access = node.child_by_field_name("argument")
        is_address = node.parent is not None and plain(node.parent.text).startswith("&")
        if access is not None and plain(access.text) in device and not is_address:
            what = f"the host uses {plain(access.text)}, which is memory of the device"
            advice = "copy it with cudaMemcpy first, or allocate it with cudaMallocManaged"
            yield _trap(source, node, what, advice)


def _unchecked(source: CudaSource, function: Function) -> Iterator[Finding]:
    """Find the first launch of a function that never asks for errors."""
    if function.words & _CHECKS or any("check" in word.lower() for word in function.words):
        return
    for launch in source.launches:
        at = launch.node.start_byte + launch.offset
        if function.body.start_byte <= at < function.body.end_byte:
            advice = "ask cudaGetLastError() after the launch"
            yield _trap(source, launch.node, "no code checks whether the launch failed", advice)
            return
