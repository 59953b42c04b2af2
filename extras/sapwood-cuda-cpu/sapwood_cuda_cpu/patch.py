"""The source that a C++ compiler takes in the place of a CUDA source, line for line.

A kernel becomes a function that runs one block. In BLOCK mode its body is cut at barriers
into loops over the block's threads (:mod:`sapwood_cuda_cpu.fission`); in FIBER mode, which is
right for everything that is supported, each thread has a separate stack.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from sapwood.errors import BuildError
from sapwood_cuda_cpu.by_address import edit_calls
from sapwood_cuda_cpu.calls import BARRIERS, CallGraph
from sapwood_cuda_cpu.direct import with_plain_values
from sapwood_cuda_cpu.dynamic import (
    dynamic_declaration,
    dynamic_pointer,
    is_dynamic,
    is_inside,
    outer_dynamic,
)
from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.endless import keep_endless_loops
from sapwood_cuda_cpu.fission import CutKernel, cut_kernel
from sapwood_cuda_cpu.guarding import edit_device_variables, guarded_shared
from sapwood_cuda_cpu.naming import with_own_names
from sapwood_cuda_cpu.parse import CudaSource, Function, Launch, plain, walk
from sapwood_cuda_cpu.semantics import KnownMeanings, Meanings, Place, meaning_of
from sapwood_cuda_cpu.shifting import edit_shifts
from sapwood_cuda_cpu.shuffles import without_warp_operations
from sapwood_cuda_cpu.starting import start_variables
from sapwood_cuda_cpu.steps import with_steps
from sapwood_cuda_cpu.units import Reading
from sapwood_cuda_cpu.variables import NotPossibleError, is_reference


class Mode(Enum):
    """How a kernel runs on a CPU."""

    BLOCK = "block"
    FIBER = "fiber"


class KernelMode(msgspec.Struct, frozen=True, kw_only=True):
    """How one kernel runs on a CPU, and why not faster.

    Attributes:
        name: The kernel.
        file: Its source.
        line: Line of its definition.
        mode: ``block`` or ``fiber``.
        reason: Why it cannot be cut into loops; empty for ``block``.
    """

    name: str
    file: str
    line: int
    mode: Mode
    reason: str = ""


class Patched(msgspec.Struct, frozen=True):
    """A patched source: its text and the mode of each kernel."""

    text: bytes
    kernels: tuple[KernelMode, ...]


def patch_sources(
    sources: Mapping[str, CudaSource],
    *,
    fiber_only: str = "",
    stacks: Mapping[Place, str] | None = None,
    reading: Reading | None = None,
) -> dict[str, Patched]:
    """Return every source patched.

    Args:
        sources: Sources and headers that are built together.
        fiber_only: Why every kernel's threads get separate stacks; empty if they need not.
        stacks: Why those of some kernels do.
        reading: How files are read that the sources include.

    Example:
        >>> from sapwood_cuda_cpu.parse import read_sources
        >>> code = b"__global__ void k(int *x) { x[threadIdx.x] = 1; }"
        >>> patch_sources(read_sources({"a.cu": code}))["a.cu"].kernels[0].mode.value
        'block'
    """
    reading = reading or Reading()
    if not fiber_only:
        sources = with_plain_values(sources, reading)
    graph = CallGraph(sources.values())
    in_step = {name: with_steps(_with_clocks(each), graph) for name, each in sources.items()}
    graph = CallGraph(in_step.values())
    if fiber_only:
        stacks = {(n, k.line): fiber_only for n, each in in_step.items() for k in each.kernels}
    chosen = dict(stacks or {})
    known = KnownMeanings(reading)
    while True:  # a kernel that turns out to need stacks is patched again from its source
        cut = {name: _with_exchanges(each, graph, chosen) for name, each in in_step.items()}
        meanings = known.read(cut, chosen)
        found: dict[Place, str] = {}
        patched = {name: _patch(each, graph, chosen, meanings, found) for name, each in cut.items()}
        if not found:
            return patched
        chosen |= found


def _with_exchanges(
    source: CudaSource, graph: CallGraph, stacks: Mapping[Place, str]
) -> CudaSource:
    """Return a source in which kernels exchange through arrays, where they can be cut then."""
    edits = Edits(source.data)
    cut = [each for each in source.kernels if (source.name, each.line) not in stacks]
    for kernel in cut:
        renamed = with_own_names(source, kernel, graph.macro_words)
        if renamed is not None:
            edits.extend(renamed)
    if edits:
        source = source.changed(edits)
    names = [kernel.name for kernel in source.kernels]
    chosen = {kernel.name for kernel in cut}
    pieces: list[bytes] = []
    position = 0
    for kernel in source.kernels:
        waits = any(word in graph.meeting for word in kernel.words) or graph.meets(
            set(kernel.words) - BARRIERS
        )
        if not waits or kernel.name not in chosen or names.count(kernel.name) > 1:
            continue
        # Parsing the whole source again for each change would take long.
        changed = without_warp_operations(source.alone(kernel), kernel.name, graph)
        if changed is not None:
            pieces += [source.data[position : kernel.node.start_byte], changed[1].node.text]
            position = kernel.node.end_byte
    return source.with_data(b"".join([*pieces, source.data[position:]]))


def _patch(
    source: CudaSource,
    graph: CallGraph,
    stacks: Mapping[Place, str],
    meanings: Meanings,
    found: dict[Place, str],
) -> Patched:
    """Return a source patched; ``found`` gets the kernels that need stacks, and why."""
    edits = Edits(source.data)
    modes = []
    inside: set[int] = set()
    if source.unread_kernels:
        raise _unread(source, source.unread_kernels[0])
    for kernel in source.kernels:
        place = (source.name, kernel.line)
        reason = stacks.get(place, "")
        if reason and not kernel.is_whole:
            raise _unread(source, kernel.line)
        if not reason:
            try:
                made = _cut(kernel, graph, meanings)
            except NotPossibleError as error:
                reason = found[place] = str(error)
            else:
                edits.extend(made.edits)
                inside |= made.shared
                modes.append(_mode(kernel, Mode.BLOCK))
                continue
        _give_stacks(kernel, edits)
        modes.append(_mode(kernel, Mode.FIBER, reason))
    for function in source.functions:
        _edit_function(function, graph, edits)
    for launch in source.launches:
        _edit_launch(launch, graph, edits)
    edit_calls(source, edits)
    _edit_shared(source, inside, edits)
    edit_device_variables(source, graph.elsewhere, edits)
    head = f'#line 1 "{source.name}"\n'.encode()
    return Patched(head + edits.apply(), tuple(modes))


def _cut(kernel: Function, graph: CallGraph, meanings: Meanings) -> CutKernel:
    if not kernel.is_whole:
        raise NotPossibleError("its end is not where its braces say")
    return cut_kernel(kernel, graph, meaning_of(kernel, meanings))


def _give_stacks(kernel: Function, edits: Edits) -> None:
    """Have each thread of a kernel run on a separate stack."""
    references = (each.name for each in kernel.parameters if is_reference(each))
    taken = "".join(["=", *(f", &{name}" for name in references)])
    edits.insert(
        kernel.body.start_byte + 1,
        f" ::sapwood_cuda::run_fibers([{taken}]() mutable -> void {{{outer_dynamic(kernel)}",
    )
    edits.insert(kernel.body.end_byte - 1, "});")
    start_variables(kernel, edits)
    edit_shifts(kernel.body, edits)


def _unread(source: CudaSource, line: int) -> BuildError:
    return BuildError(
        "a kernel cannot be read: where it ends is unclear",
        where=f"{source.name}:{line}",
        hint="write its unusual declarations as `T v = …;`",
    )


def _mode(kernel: Function, mode: Mode, reason: str = "") -> KernelMode:
    return KernelMode(
        name=kernel.name, file=kernel.source.name, line=kernel.line, mode=mode, reason=reason
    )


def _edit_function(function: Function, graph: CallGraph, edits: Edits) -> None:
    _edit_linkage(function, graph, edits)
    if "__device__" in function.attributes:
        start_variables(function, edits)
        edit_shifts(function.body, edits)
    if not function.is_kernel:
        edits.insert(function.body.start_byte + 1, outer_dynamic(function))
    keep_endless_loops(function, edits)


def _edit_linkage(function: Function, graph: CallGraph, edits: Edits) -> None:
    """Give a device function to its own file, as nvcc does: headers may define it."""
    above = function.node.parent.type
    head = plain(function.source.data[function.node.start_byte : function.body.start_byte])
    words = set(re.findall(r"\w+", head.split("(")[0]))
    if (
        function.attributes != {"__device__"}
        or above not in {"translation_unit", "declaration_list", "preproc_ifdef", "preproc_if"}
        or words & {"static", "inline", "__forceinline__", "__inline__", "extern", "operator"}
        or "::" in head.split("(")[0]
    ):
        return
    shared = function.name in graph.declared
    word = "inline __attribute__((used)) " if shared else "static "
    edits.insert(function.node.start_byte, word)


def _with_clocks(source: CudaSource) -> CudaSource:
    edits = Edits(source.data)
    for function in source.functions:
        _edit_clocks(function, edits)
    return source.changed(edits)


def _edit_clocks(function: Function, edits: Edits) -> None:
    """Give device code the clock whose rate the device tells; on the host it is C's."""
    if "clock" not in function.words or not function.attributes & {"__global__", "__device__"}:
        return
    for node in walk(function.body):
        if node.type == "call_expression":
            callee = node.child_by_field_name("function")
            if callee.text == b"clock":
                name = "::sapwood_cuda::device_clock"
                edits.replace(callee.start_byte, callee.end_byte, name)


def _edit_launch(launch: Launch, graph: CallGraph, edits: Edits) -> None:
    """Turn ``k<<<c>>>(a)`` into ``launch("k", Configuration(c), call of k, a)``."""
    at = launch.offset
    node, configuration = launch.node, launch.configuration
    inner = configuration.named_children
    arguments = node.child_by_field_name("arguments")
    name = launch.kernel.replace("\\", "\\\\").replace('"', '\\"')
    edits.replace(
        node.start_byte + at,
        inner[0].start_byte + at,
        f'::sapwood_cuda::launch("{name}", ::sapwood_cuda::Configuration(',
    )
    given = [child for child in arguments.named_children if child.type != "comment"]
    edits.replace(
        inner[-1].end_byte + at,
        arguments.start_byte + 1 + at,
        f"), {_call(launch.kernel, given)}{',' if given else ''} ",
    )
    for each in _given_by_reference(launch, given, graph):
        edits.insert(each.start_byte + at, "::sapwood_cuda::ByReference{")
        edits.insert(each.end_byte + at, "}")
    for each in given:
        if each.type == "null" or plain(each.text) == "NULL":
            edits.replace(each.start_byte + at, each.end_byte + at, "nullptr")


def _given_by_reference(launch: Launch, given: list[Any], graph: CallGraph) -> list[Any]:
    """Return the arguments that a kernel may change for the host: in managed memory."""
    name = re.sub(r"<.*", "", launch.kernel).rsplit("::", maxsplit=1)[-1].strip()
    kernels = [each for each in graph.functions.get(name, ()) if each.is_kernel]
    if len(kernels) != 1 or len(kernels[0].parameters) < len(given):
        return []
    return [
        node
        for node, parameter in zip(given, kernels[0].parameters, strict=False)
        if is_reference(parameter)
    ]


def _call(kernel: str, given: list[Any]) -> str:
    """Return what calls a kernel with its arguments; a literal 0 may be a pointer there."""
    zeros = [plain(each.text) == "0" for each in given]
    if not any(zeros) or any(each.type == "parameter_pack_expansion" for each in given):
        return f"[&](auto &...sapwood_a) {{ {kernel}(sapwood_a...); }}"
    names = [f"sapwood_a{number}" for number in range(len(given))]
    taken = ", ".join(
        "auto &" if zero else f"auto &{name}" for name, zero in zip(names, zeros, strict=True)
    )
    passed = ", ".join("0" if zero else name for name, zero in zip(names, zeros, strict=True))
    return f"[&]({taken}) {{ {kernel}({passed}); }}"


def _edit_shared(source: CudaSource, done: set[int], edits: Edits) -> None:
    """Edit the declarations of shared variables, except those that are done already."""
    for node in source.shared:
        if node.start_byte in done:
            continue
        if is_dynamic(node):
            _edit_dynamic(node, edits)
        elif is_inside(node) and (text := guarded_shared(node, on_stack=False)):
            edits.replace(node.start_byte, node.end_byte, text)


def _edit_dynamic(node: Any, edits: Edits) -> None:
    if is_inside(node):
        edits.replace(node.start_byte, node.end_byte, dynamic_pointer(node))
        return
    element, name, extents = dynamic_declaration(node)
    text = f"static const ::sapwood_cuda::DynamicShared<{element}{extents}> {name};"
    edits.replace(node.start_byte, node.end_byte, text)
