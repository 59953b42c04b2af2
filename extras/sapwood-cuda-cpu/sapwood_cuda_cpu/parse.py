"""What a CUDA source holds: functions, kernels, launches, shared and device variables."""

from __future__ import annotations

import codecs
import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec
import tree_sitter
import tree_sitter_cuda

from sapwood_cuda_cpu.architecture import (
    DEVICE_PREFIX,
    Dependent,
    Trouble,
    dependent_macros,
    resolve_architecture,
)
from sapwood_cuda_cpu.conditions import Conditions, defined_names
from sapwood_cuda_cpu.declaring import expand_declaring
from sapwood_cuda_cpu.edits import Edits
from sapwood_cuda_cpu.host_names import may_hold, rename_on_host
from sapwood_cuda_cpu.macros import (
    directives,
    expand_on_device,
    kernel_bodies,
    matching_braces,
    without_definitions,
)
from sapwood_cuda_cpu.rewriting import rewritten

ATTRIBUTES: Final = ("__global__", "__device__", "__host__")

CUDA_WORDS: Final = re.compile(
    rb"<<<|__CUDA_ARCH__|\b(?:__global__|__device__|__shared__|__constant__|__managed__|threadIdx|blockIdx|blockDim|gridDim)\b"
    rb"|\bcuda[A-Z]\w+|\bcu(?:blas|fft|rand|sparse|solver|dnn)\w+|\b(?:thrust|nvcuda|cutlass)\b"
    rb"|include\s*<(?:cub|nccl|mma|cuda)"
)
"""A local source or header with one of these is looked at too."""

SUFFIXES: Final = frozenset(
    {".cu", ".cuh", ".h", ".hh", ".hpp", ".hxx", ".inl", ".inc", ".c", ".cc", ".cpp", ".cxx", ".C"}
)
"""Files that may hold CUDA; other files of a program only mention it."""

_NAMES: Final = {"identifier", "type_identifier", "field_identifier", "namespace_identifier"}
_NAMELESS: Final = {"reference_declarator", "parenthesized_declarator", "variadic_declarator"}
"""Declarators whose grammar has no name for what they hold."""
_CONDITIONS: Final = {"preproc_if", "preproc_ifdef"}
_MACROS: Final = {"preproc_def", "preproc_function_def"}
_DECLARATIONS: Final = {"declaration", "field_declaration"}
_ON_DEVICE: Final = ("__device__", "__constant__", "__managed__")
_OTHERS: Final = {"function_definition", "call_expression", "preproc_arg", "array_declarator"}

INDICES: Final = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})

WORDS_KEPT: Final = 16_384
"""Texts of nodes of which it is remembered what they are on one line: most are words."""


class KernelParameter(msgspec.Struct, frozen=True):
    """A parameter of a function: its name and its type as written."""

    name: str
    type: str


class Function:
    """A function with a body.

    Attributes:
        name: Without scopes.
        attributes: Which of ``__global__``, ``__device__``, ``__host__`` it has.
        node: Its definition.
        body: Its compound statement.
        source: Where it is.
    """

    def __init__(self, node: Any, source: CudaSource) -> None:
        self.node = node
        self.source = source
        self.body = node.child_by_field_name("body")
        head = text_of(source, node.start_byte, self.body.start_byte)
        self.attributes = frozenset(word for word in ATTRIBUTES if word in head)
        self._declarator = _function_declarator(node)
        self.name = _declared_name(self._declarator)

    @functools.cached_property
    def words(self) -> frozenset[str]:
        """Every identifier of its body."""
        return frozenset(identifiers(self.body))

    @property
    def is_kernel(self) -> bool:
        """Whether it can be launched."""
        return "__global__" in self.attributes

    @property
    def is_whole(self) -> bool:
        """Whether its body ends where its braces say, and not where the grammar lost its way.

        Where conditions of the preprocessor are left in it, its braces alone do not tell.
        """
        if any(node.type in _CONDITIONS for node in walk(self.body)):
            return True
        return self.source.braces.get(int(self.body.start_byte)) == int(self.body.end_byte)

    @property
    def line(self) -> int:
        """Line of its definition."""
        return int(self.node.start_point[0]) + 1

    @property
    def parameters(self) -> tuple[KernelParameter, ...]:
        """Its parameters that have a name."""
        listed = self._declarator.child_by_field_name("parameters") if self._declarator else None
        found = []
        for each in listed.named_children if listed is not None else ():
            name = _declared_name(each)
            if each.type.endswith("parameter_declaration") and name:
                found.append(KernelParameter(name, plain(each.text).rsplit(name, 1)[0].strip()))
        return tuple(found)


class Launch(msgspec.Struct, frozen=True):
    """A launch ``kernel<<<…>>>(…)``.

    Attributes:
        kernel: The expression before ``<<<``.
        node: The call.
        configuration: What stands between ``<<<`` and ``>>>``.
        offset: The difference of its positions to the file's.
        line: Its line in the file.
    """

    kernel: str
    node: Any
    configuration: Any
    offset: int
    line: int


def _is_member(declarator: Any) -> bool:
    """Whether a declarator is one of a field of a class."""
    while declarator.type.endswith("declarator"):
        declarator = declarator.parent
    return bool(declarator.type == "field_declaration")


class CudaSource:
    """One source or header, parsed.

    Attributes:
        name: For messages and ``#line``.
        data: Its text; a few words that the grammar or C++ compilers do not take are others.
        root: The syntax tree.
        functions: Functions with bodies, in order, methods too.
        launches: Launches, those in macros too.
        macros: Text of each macro, by name.
        macro_words: What macros speak of, apart from their arguments.
        device_variables: Names of ``__device__``, ``__constant__`` and ``__managed__`` variables.
        declared: Names of functions that are declared without a body.
        array_members: Names of members of classes that are arrays.
        device_declarations: Nodes of the declarations of those variables.
        shared: Nodes of ``__shared__`` declarations.
        troubles: Declarations that cannot be right for host and device at once.
    """

    def __init__(
        self,
        name: str,
        data: bytes,
        conditions: Conditions | None = None,
        dependent: Dependent | None = None,
        *,
        is_resolved: bool = False,
    ) -> None:
        data = rewritten(data.removeprefix(codecs.BOM_UTF8))
        self.name = name
        known = self._conditions = conditions or Conditions({}, ())
        self.troubles: tuple[Trouble, ...] = ()
        if not is_resolved:
            data, self.troubles = resolve_architecture(data, known, dependent)
        if may_hold(data):
            data = rename_on_host(data, parse(known.leave_out(data)).root_node)
        if b"__global__" in data or b"__device__" in data:
            data = expand_on_device(_only_in_kernels(data, known.leave_out(data)), known.leave_out)
        self.root, nodes = _read(data, known)
        if b"__global__" in data and (edits := _split_declarations(data, nodes)):
            data = edits.apply()
            self.root, nodes = _read(data, known)
        self.data = data
        self.functions = [Function(node, self) for node in nodes if _has_block(node)]
        self.launches = [launch for node in nodes for launch in _launches(node)]
        self.macros = {
            plain(node.child_by_field_name("name").text): plain(value.text)
            for node in nodes
            if node.type in _MACROS and (value := node.child_by_field_name("value")) is not None
        }
        self.macro_words = frozenset(
            word for node in nodes if node.type in _MACROS for word in _macro_words(node)
        )
        declarations = [node for node in nodes if node.type in _DECLARATIONS]
        self.shared = [node for node in declarations if qualifiers(node, "__shared__")]
        self.device_declarations = [node for node in declarations if qualifiers(node, *_ON_DEVICE)]
        self.device_variables = frozenset(
            name for node in self.device_declarations for name in declared_names(node)
        )
        self.declared = frozenset(
            name for node in declarations if is_function(node) for name in declared_names(node)
        )
        self.array_members = frozenset(
            plain(node.child_by_field_name("declarator").text).split("[", maxsplit=1)[0].strip()
            for node in nodes
            if node.type == "array_declarator" and _is_member(node)
        )

    def changed(self, edits: Edits) -> CudaSource:
        """Return the source with edits made, parsed again; itself if there are none."""
        return self.with_data(edits.apply())

    def with_data(self, data: bytes) -> CudaSource:
        """Return the source with another text; itself if that is its own."""
        known = self._conditions
        return self if data == self.data else CudaSource(self.name, data, known, is_resolved=True)

    def alone(self, function: Function) -> CudaSource:
        """Return a source that holds only a function, and what the preprocessor reads."""
        node = function.node.parent
        node = node if node.type == "template_declaration" else function.node
        before, behind = self.data[: node.start_byte], self.data[node.end_byte :]
        return self.with_data(directives(before) + node.text + directives(behind))

    @functools.cached_property
    def braces(self) -> dict[int, int]:
        """Where each brace of what is compiled is closed."""
        return matching_braces(self._conditions.leave_out(self.data))

    @property
    def unread_kernels(self) -> list[int]:
        """Lines of the kernels that the grammar does not see."""
        read = {int(kernel.body.start_byte) for kernel in self.kernels}
        bodies = kernel_bodies(self._conditions.leave_out(self.data))
        return [self.data.count(b"\n", 0, at) + 1 for at, _ in bodies if at not in read]

    @property
    def kernels(self) -> list[Function]:
        """Its kernels."""
        return [function for function in self.functions if function.is_kernel]


def parse(data: bytes) -> Any:
    """Return the syntax tree of CUDA C++."""
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language())).parse(data)


def _read(data: bytes, known: Conditions) -> tuple[Any, list[Any]]:
    """Return the tree of what is compiled of a text, and the nodes of it that are looked at."""
    root = parse(without_definitions(known.leave_out(data))).root_node
    read = _MACROS | _DECLARATIONS | _OTHERS
    return root, [node for node in walk(root) if node.type in read]


def read_sources(
    files: Mapping[str, bytes], macros: Mapping[str, str] | None = None
) -> dict[str, CudaSource]:
    """Return the sources and headers among files that hold CUDA, parsed.

    Args:
        files: Their texts by name; those without CUDA may define macros too.
        macros: Macros that the compiler gets on its command line.

    Example:
        >>> code = read_sources({"a.cu": b"__global__ void k(int *x) { x[0] = 1; }"})
        >>> [(kernel.name, kernel.line) for kernel in code["a.cu"].kernels]
        [('k', 1)]
    """
    defined = {name: defined_names(data) for name, data in files.items()}

    def conditions(name: str, dependent: Dependent) -> Conditions:
        elsewhere = set().union(*(own for other, own in defined.items() if other != name))
        elsewhere |= {DEVICE_PREFIX + each for each in dependent.names}
        return Conditions(macros or {}, elsewhere)

    chosen = {
        name: data
        for name, data in files.items()
        if name.endswith((".cu", ".cuh"))
        or (PurePosixPath(name).suffix in SUFFIXES and CUDA_WORDS.search(data))
    }
    known = {name: conditions(name, Dependent()) for name in chosen}
    chosen, unclear = expand_declaring(chosen, known)
    found = dependent_macros(chosen, known)
    known = {name: conditions(name, found) for name in chosen}
    sources = {name: CudaSource(name, chosen[name], known[name], found) for name in chosen}
    for name in unclear:
        sources[name].troubles += unclear[name]
    return sources


def _only_in_kernels(data: bytes, seen: bytes) -> bytes:
    """Return a text in which only kernels are without what conditions leave out."""
    pieces, position = [], 0
    for start, end in kernel_bodies(seen):
        pieces += [data[position:start], seen[start:end]]
        position = end
    return b"".join([*pieces, data[position:]])


def _split_declarations(data: bytes, nodes: Sequence[Any]) -> Edits:
    """Make one declaration of each variable of a kernel: they may need different treatment."""
    edits = Edits(data)
    for node in nodes:
        if node.type != "declaration" or node.parent.type != "compound_statement":
            continue
        declarators = node.children_by_field_name("declarator")
        head = plain(data[node.start_byte : declarators[0].start_byte]) if declarators else ""
        if len(declarators) < 2 or "{" in head or node.has_error or not _in_kernel(node):
            continue
        for before, after in itertools.pairwise(declarators):
            edits.replace(before.end_byte, after.start_byte, f"; {head} ")
    return edits


def _in_kernel(node: Any) -> bool:
    while node is not None and node.type != "function_definition":
        node = node.parent
    body = node.child_by_field_name("body") if node is not None else None
    return body is not None and b"__global__" in node.text[: body.start_byte - node.start_byte]


def walk(node: Any) -> Iterator[Any]:
    """Yield a node and everything below it, in order of the text."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending += current.children[::-1] if current.child_count else ()


def identifiers(node: Any) -> Iterator[str]:
    """Yield every identifier below a node."""
    for each in walk(node):
        if each.type in _NAMES:
            yield plain(each.text)


@functools.lru_cache(maxsize=WORDS_KEPT)
def plain(data: bytes) -> str:
    """Return text of a node on one line, comments left out."""
    text = data.decode("utf-8", "replace")
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)
    return re.sub(r"(?:\\?\s+)+", " ", text).strip()


def text_of(source: CudaSource, start: int, end: int) -> str:
    """Return a part of a source on one line."""
    return plain(source.data[start:end])


def declared_names(node: Any) -> Iterator[str]:
    """Yield the names that a declaration declares."""
    for declarator in node.children_by_field_name("declarator"):
        name = _declared_name(declarator)
        if name:
            yield name


def _declared_name(node: Any) -> str:
    names = {"identifier", "field_identifier", "operator_name", "destructor_name"}
    while node is not None and node.type not in names:
        inner = node.child_by_field_name("declarator") or node.child_by_field_name("name")
        if inner is None and node.type in _NAMELESS:
            inner = next(iter(node.named_children), None)
        node = inner
    return plain(node.text) if node is not None else ""


def _function_declarator(node: Any) -> Any:
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator") or next(
            (c for c in declarator.named_children if c.type == "function_declarator"), None
        )
    return declarator


def _has_block(node: Any) -> bool:
    body = node.child_by_field_name("body") if node.type == "function_definition" else None
    return body is not None and body.type == "compound_statement"


def _macro_words(node: Any) -> set[str]:
    """Return the words of a macro's text that are not its arguments."""
    value, arguments = node.child_by_field_name("value"), node.child_by_field_name("parameters")
    words = re.findall(r"\b[A-Za-z_]\w*\b", plain(value.text)) if value is not None else []
    own = re.findall(r"\w+", plain(arguments.text)) if arguments is not None else []
    return set(words) - set(own)


def is_function(declaration: Any) -> bool:
    """Whether a declaration is one of a function."""
    return _function_declarator(declaration) is not None


def qualifiers(node: Any, *words: str) -> list[Any]:
    """Return those of some words that stand before the names of a declaration."""
    first = node.child_by_field_name("declarator")
    end = first.start_byte if first is not None else node.end_byte
    return [
        each
        for child in node.children
        if child.start_byte < end
        for each in (child, *child.children)
        if each.type in words
    ]


def _launches(node: Any, offset: int = 0, row: int = 0) -> Iterator[Launch]:
    if node.type == "preproc_arg" and b"<<<" in node.text:
        prefix = b"void f() {"
        inner = parse(prefix + node.text + b";}")
        moved, first = node.start_byte - len(prefix), int(node.start_point[0])
        for each in walk(inner.root_node):
            yield from _launches(each, offset + moved, row + first)
    if node.type != "call_expression":
        return
    syntax = next((c for c in node.children if c.type == "kernel_call_syntax"), None)
    if syntax is not None:
        kernel = plain(node.child_by_field_name("function").text)
        yield Launch(kernel, node, syntax, offset, int(node.start_point[0]) + row + 1)
