"""What a CPU node cannot do with a CUDA source, and what would go wrong on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sapwood.errors import BuildError
from sapwood_cuda_cpu.architecture import Trouble
from sapwood_cuda_cpu.constructs import CUDA_NAMES, PLAIN, REFUSED
from sapwood_cuda_cpu.parse import CudaSource, Function, plain, walk


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One place of a source.

    Attributes:
        file: The source.
        line: The line.
        kind: ``refused``: a CPU node cannot do it; ``trap``: it may go wrong on a GPU.
        what: What it is.
        text: The words of the source.
        advice: What to do instead.
    """

    file: str
    line: int
    kind: str
    what: str
    text: str
    advice: str = ""

    def __str__(self) -> str:
        if self.kind == "refused":
            message = f"not supported on a CPU node: {self.what}: {self.text}"
        else:
            message = f"may go wrong on a GPU: {self.what}: {self.text}"
        return f"{self.file}:{self.line}: {message}"


_TYPES = {"identifier", "type_identifier", "namespace_identifier", "field_identifier"}


def refuse_unsupported(sources: Mapping[str, CudaSource]) -> None:
    """Refuse sources that a CPU node cannot run.

    Raises:
        BuildError: With every place, what it is, and what to do; or a function has no end.
    """
    for source in sources.values():
        _require_ends(source)
    found = [each for source in sources.values() for each in unsupported(source)]
    if found:
        raise BuildError(
            str(found[0]).split(": ", 1)[1],
            where=f"{found[0].file}:{found[0].line}",
            hint=found[0].advice,
            details={"not supported": "\n".join(map(str, found))},
        )


def unsupported(source: CudaSource) -> list[Finding]:
    r"""Return what of a source a CPU node cannot do, in order.

    Example:
        >>> from sapwood_cuda_cpu.parse import CudaSource
        >>> for each in unsupported(CudaSource("a.cu", b"\ncudaGraph_t g;\n")):
        ...     print(each)
        a.cu:2: not supported on a CPU node: CUDA graphs: cudaGraph_t g;
    """
    found: list[Finding] = []
    own = {function.name for function in source.functions} | source.macros.keys()
    for node in walk(source.root):
        if node.type in _TYPES and plain(node.text) not in own:
            match = _match(plain(node.text), node)
            if match:
                found.append(_refused(source, node, *match))
        elif node.type in {"gnu_asm_expression", "asm_statement"} or (
            node.type == "asm" and node.parent.type != "gnu_asm_expression"
        ):
            found.append(_refused(source, node, "inline PTX", PLAIN))
    for kernel in source.functions:
        if kernel.attributes & {"__global__", "__device__"} and "__host__" not in kernel.attributes:
            for launch in source.launches:
                at = launch.node.start_byte + launch.offset
                inside = kernel.body.start_byte < at < kernel.body.end_byte
                if inside and _innermost(source, at) is kernel:
                    advice = "launch from the host, or loop inside the kernel"
                    found.append(_refused(source, launch.node, "dynamic parallelism", advice))
    found += [_trouble(source, each) for each in source.troubles]
    lines: dict[tuple[int, str], Finding] = {}
    for each in sorted(found, key=lambda f: f.line):
        lines.setdefault((each.line, each.what), each)
    return list(lines.values())


def _require_ends(source: CudaSource) -> None:
    """Refuse a source in which a brace is missing: what follows would be taken for another thing.

    Raises:
        BuildError: A function begins inside another one, and more braces are opened than closed.
    """
    braces = [each.type for each in walk(source.root) if each.type in {"{", "}"}]
    missing = [each for each in walk(source.root) if each.type == "}" and each.is_missing]
    if braces.count("{") <= braces.count("}") - len(missing):
        return
    for inner in source.functions:
        at = inner.body.start_byte
        around = [each for each in source.functions if each.body.start_byte < at]
        around = [each for each in around if at < each.body.end_byte]
        if around:
            outer = min(around, key=lambda each: int(each.body.start_byte))
            raise BuildError(
                f"{outer.name} has no end: {inner.name} begins inside it",
                where=f"{source.name}:{inner.line}",
                hint=f"a }} is missing after line {outer.line}",
            )


def _innermost(source: CudaSource, at: int) -> Function:
    """Return the function at a place; where a brace is missing, functions are in others."""
    around = [each for each in source.functions if each.body.start_byte < at < each.body.end_byte]
    return max(around, key=lambda each: int(each.body.start_byte))


def _trouble(source: CudaSource, found: Trouble) -> Finding:
    return Finding(
        file=source.name,
        line=found.line,
        kind="refused",
        what=found.what,
        text=found.text[:120],
        advice=found.advice,
    )


def _match(word: str, node: Any) -> tuple[str, str] | None:
    for pattern, what, advice in REFUSED:
        if pattern.match(word):
            ambiguous = word in {"cuda", "cute"}
            if ambiguous and not _is_type_or_scope(node):
                continue
            if word == "cuda" and _next_name(node) in CUDA_NAMES:
                continue
            return what, advice
    return None


def _is_type_or_scope(node: Any) -> bool:
    """Whether a word is a type, or the first scope of a name: thrust::cuda is not cuda."""
    if node.type == "namespace_identifier":
        above = node.parent
        inside = above.parent is not None and above.parent.type == "qualified_identifier"
        is_first = not (inside and above.parent.child_by_field_name("name") == above)
        return is_first and above.type != "namespace_definition"
    return bool(node.type == "type_identifier")


def _next_name(scope: Any) -> str:
    """Return what follows a scope: ``atomic`` of ``cuda::atomic<int>::value_type``."""
    name = scope.parent.child_by_field_name("name")
    while name is not None and name.type not in _TYPES:
        name = name.child_by_field_name("scope") or name.child_by_field_name("name")
    return "" if name is None else plain(name.text)


def _refused(source: CudaSource, node: Any, what: str, advice: str) -> Finding:
    row = int(node.start_point[0])
    lines = source.data.splitlines()
    text = plain(lines[row]) if row < len(lines) else plain(node.text)
    return Finding(
        file=source.name, line=row + 1, kind="refused", what=what, text=text[:120], advice=advice
    )
