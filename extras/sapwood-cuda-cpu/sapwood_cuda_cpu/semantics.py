"""What a compiler knows of kernels: their variables, who changes them, and what they call.

A kernel is cut into loops only where all of that is known. Of a template each instantiation of the
program is looked at; in one that is never instantiated, what depends on its arguments is unknown.
"""

from __future__ import annotations

import bisect
import enum
import functools
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from sapwood_cuda_cpu.calls import BARRIERS, VOTING_BARRIERS, is_atomic, is_warp_operation
from sapwood_cuda_cpu.cursors import (
    FUNCTIONS,
    MEMBERS,
    Kind,
    below,
    body_of,
    children,
    holds_arrays,
    is_function,
    is_implicit,
    is_pure,
    is_read,
    is_shared,
    is_written,
    key_of,
    kind_of,
    libclang,
    record_of,
    walk_inside,
)
from sapwood_cuda_cpu.parse import CudaSource, Function
from sapwood_cuda_cpu.precompiled import SHIM
from sapwood_cuda_cpu.units import Reading, Units, UnitsMissingError, cursors_of

_RECORDS: Final = frozenset(
    {
        "STRUCT_DECL",
        "CLASS_DECL",
        "UNION_DECL",
        "CLASS_TEMPLATE",
        "CLASS_TEMPLATE_PARTIAL_SPECIALIZATION",
    }
)
_SCOPES: Final = _RECORDS | {"NAMESPACE", "LINKAGE_SPEC", "UNEXPOSED_DECL"}
_ERROR: Final = 3
_FATAL: Final = 4
_NAMING: Final = frozenset({"CALL_EXPR", "DECL_REF_EXPR", "MEMBER_REF_EXPR"})
"""Expressions that may mean a function."""
_DEPENDENT: Final = frozenset({"<dependent type>", "<overloaded function type>"})


class CallEffect(enum.Flag):
    """What a piece of code does apart from computing a value from its arguments."""

    NONE = 0
    PLACED = enum.auto()
    """It asks which thread it is in."""
    BLOCK = enum.auto()
    """It asks which block it is in, or how large blocks are."""
    MEETS = enum.auto()
    """It waits for other threads."""
    WRITES = enum.auto()
    """It changes what others see, or its value may be another one each time."""
    OWN = enum.auto()
    """It has memory that threads would share in a loop: arrays, atomic operations."""
    UNKNOWN = enum.auto()
    """It calls what only an instantiation decides."""


_OF_THREAD: Final = {
    "index": CallEffect.PLACED,
    "rank": CallEffect.PLACED,
    "block": CallEffect.BLOCK,
}
"""What the headers' record of a thread says, by the names of its members."""


class Named(msgspec.Struct, frozen=True):
    """A variable of a kernel.

    Attributes:
        name: Its name.
        line: Its line.
        kind: What it is.
        is_shared: Whether it is ``__shared__``.
        is_static: Whether it is ``static`` or ``extern`` and not shared.
        has_value: Whether it is a number that has a first value.
        size: Bytes of it; less than one where they are not known.
        type: Its type, without aliases; empty where it differs between instantiations.
        start: Where its declaration begins.
        at: Where its name stands.
        end: Where its first value ends, or its name.
    """

    name: str
    line: int
    kind: Kind
    is_shared: bool
    is_static: bool
    has_value: bool
    size: int
    type: str
    start: int
    at: int
    end: int


class Meaning:
    """The facts about a kernel.

    Attributes:
        problem: Why it is not known; empty if it is.
        variables: Its variables in the order of the text, parameters first.
        changes: Where each variable is used other than by reading its value, by name.
    """

    def __init__(self, problem: str = "") -> None:
        self.problem = problem
        self.variables: list[Named] = []
        self.changes: dict[str, set[int]] = {}
        self._effects: dict[tuple[int, int], CallEffect] = {}
        self._sorted: list[tuple[int, int]] | None = None

    def add(self, start: int, end: int, effect: CallEffect) -> None:
        """Record what a part does."""
        if effect:
            self._effects[start, end] = self._effects.get((start, end), CallEffect.NONE) | effect
            self._sorted = None

    def all_effects(self) -> list[tuple[tuple[int, int], CallEffect]]:
        """Return what each part does."""
        return list(self._effects.items())

    def effects(self, start: int, end: int) -> CallEffect:
        """Return what the calls and operators between two positions do."""
        if self._sorted is None:
            self._sorted = sorted(self._effects)
        found = CallEffect.NONE
        for place in self._sorted[bisect.bisect_left(self._sorted, (start, 0)) :]:
            if place[0] >= end:
                break
            if place[1] <= end:
                found |= self._effects[place]
        return found

    def places(self, wanted: CallEffect, start: int, end: int) -> set[int]:
        """Return where, between two positions, something is done."""
        return {
            place[0]
            for place, effect in self._effects.items()
            if effect & wanted and start <= place[0] and place[1] <= end
        }

    def moved(self, by: int) -> Meaning:
        """Return what is known of the kernel at another place in its source."""
        found = Meaning(self.problem)
        found.variables = [
            msgspec.structs.replace(each, start=each.start + by, at=each.at + by, end=each.end + by)
            for each in self.variables
        ]
        found.changes = {name: {at + by for at in known} for name, known in self.changes.items()}
        for (start, end), effect in self._effects.items():
            found.add(start + by, end + by, effect)
        return found

    def meeting(self) -> list[tuple[int, int]]:
        """Return the calls that wait for other threads."""
        return [place for place, effect in self._effects.items() if CallEffect.MEETS in effect]

    def merged(self, other: Meaning) -> Meaning:
        """Return what holds for two meanings of a kernel, of two units or instantiations."""
        if self.problem or other.problem:
            return other if self.problem else self
        kinds = [(each.name, each.kind, each.is_shared) for each in self.variables]
        if kinds != [(each.name, each.kind, each.is_shared) for each in other.variables]:
            return Meaning("its variables differ between its instantiations")
        found = Meaning()
        found.variables = [
            a if a.type == b.type else msgspec.structs.replace(a, type="")
            for a, b in zip(self.variables, other.variables, strict=True)
        ]
        for each in (self, other):
            for name, places in each.changes.items():
                found.changes.setdefault(name, set()).update(places)
            for (start, end), effect in each.all_effects():
                found.add(start, end, effect)
        return found


Place = tuple[str, int]
"""A kernel, by its source and its line."""

Meanings = Mapping[tuple[str, int], Meaning]
"""The facts about each kernel, by its source and where its body begins."""


def read_meanings(
    sources: Mapping[str, CudaSource],
    reading: Reading,
    chosen: Callable[[Function], bool] = lambda _kernel: True,
) -> dict[tuple[str, int], Meaning]:
    """Return what is known of the kernels of some sources.

    Args:
        sources: Sources and headers that are built together.
        reading: How their files are read.
        chosen: Whether a kernel is looked at.

    Example:
        >>> from sapwood_cuda_cpu.parse import read_sources
        >>> sources = read_sources({"a.cu": b"__global__ void k(int *x) { int v(*x); x[0] = v; }"})
        >>> [meaning] = read_meanings(sources, Reading()).values()
        >>> [(each.name, each.kind.name) for each in meaning.variables]
        [('x', 'NUMBER'), ('v', 'NUMBER')]
    """
    every = [kernel for source in sources.values() for kernel in source.kernels]
    kernels = [kernel for kernel in every if chosen(kernel)]
    if not kernels:
        return {}
    try:
        units = Units(sources, reading)
    except UnitsMissingError as error:
        return {_place(kernel): Meaning(str(error)) for kernel in kernels}
    try:
        bodies = {_body(kernel, reading) for kernel in every}
        read = [_Unit(unit, path, units.names, bodies) for path, unit in units.parsed]
        for unit in read:
            unit.find_functions()
        found: dict[tuple[str, int], Meaning] = {}
        for kernel in kernels:
            for unit in read:
                meaning = unit.meaning(kernel, reading.path(kernel.source.name))
                if meaning is not None:
                    known = found.get(_place(kernel))
                    found[_place(kernel)] = meaning if known is None else known.merged(meaning)
            found.setdefault(_place(kernel), Meaning(_unseen(read)))
        return found
    finally:
        units.close()


class KnownMeanings:
    """The facts about kernels, for texts of a program in which some kernels change.

    Args:
        reading: How files are read.
    """

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._known: dict[tuple[str, int], tuple[Function, Meaning]] = {}

    def read(self, sources: Mapping[str, CudaSource], without: Collection[Place]) -> Meanings:
        """Return the facts about kernels; those that are as before are not looked at again.

        Args:
            sources: All current sources, each with the same number of kernels each time.
            without: Kernels that are not asked for.
        """

        def is_asked(kernel: Function) -> bool:
            return (kernel.source.name, kernel.line) not in without

        asked = {
            (name, number): kernel
            for name, source in sources.items()
            for number, kernel in enumerate(source.kernels)
            if is_asked(kernel)
        }
        if any(self._has_changed(key, kernel) for key, kernel in asked.items()):
            found = read_meanings(sources, self._reading, is_asked)
            self._known = {key: (each, meaning_of(each, found)) for key, each in asked.items()}
        moved = {}
        for key, kernel in asked.items():
            before, meaning = self._known[key]
            by = int(kernel.body.start_byte) - int(before.body.start_byte)
            moved[_place(kernel)] = meaning.moved(by) if by else meaning
        return moved

    def _has_changed(self, key: tuple[str, int], kernel: Function) -> bool:
        known = self._known.get(key)
        return known is None or bool(known[0].node.text != kernel.node.text)


def read_variables(
    sources: Mapping[str, CudaSource], reading: Reading, chosen: Callable[[Function], bool]
) -> dict[tuple[str, int], list[Named]]:
    """Return the variables of kernels, and nothing else, by source and beginning of the body.

    Args:
        sources: Sources and headers that are built together.
        reading: How their files are read.
        chosen: Whether a kernel is looked at.
    """
    kernels = [each for source in sources.values() for each in filter(chosen, source.kernels)]
    if not kernels:
        return {}
    try:
        units = Units(sources, reading)
    except UnitsMissingError:
        return {}
    try:
        places = {_body(kernel, reading) for kernel in kernels}
        read = [_Unit(unit, path, units.names, places) for path, unit in units.parsed]
        known = {place: named for unit in read for place, named in unit.variables().items()}
        return {_place(k): known.get(_body(k, reading), []) for k in kernels}
    finally:
        units.close()


def meaning_of(kernel: Function, meanings: Meanings) -> Meaning:
    """Return what is known of a kernel."""
    return meanings[_place(kernel)]


def _place(kernel: Function) -> tuple[str, int]:
    return kernel.source.name, int(kernel.body.start_byte)


def _body(kernel: Function, reading: Reading) -> tuple[str, int]:
    """Return where libclang sees the body of a kernel."""
    return reading.path(kernel.source.name), int(kernel.body.start_byte)


def _unseen(units: Sequence[_Unit]) -> str:
    """Return why a kernel was not seen: usually a header is missing."""
    for unit in units:
        if unit.fatal:
            return unit.fatal
    return "the compiler does not see it"


class _Code:
    """What a function does without its callees, and the keys of these."""

    def __init__(self, effect: CallEffect) -> None:
        self.effect = effect
        self.calls: set[str] = set()


class _Unit:
    """One translation unit."""

    def __init__(
        self, unit: Any, path: str, names: Mapping[str, str], bodies: Collection[tuple[str, int]]
    ) -> None:
        self._bodies = bodies
        self._names = names
        self._unit = unit
        self.fatal = ""
        self._errors: list[tuple[str, int, int, str]] = []
        for each in unit.diagnostics:
            if each.severity >= _ERROR:
                file = each.location.file
                name = os.path.normpath(file.name) if file is not None else path
                self._errors.append((name, each.location.offset, each.location.line, each.spelling))
                if each.severity >= _FATAL:
                    self.fatal = f"{names.get(name, name)}:{each.location.line}: {each.spelling}"
        self._code: dict[str, _Code] = {}
        self._cursors: dict[str, Any] = {}
        self._records: dict[str, CallEffect] = {}
        self._kernels: dict[tuple[str, int], list[Any]] = {}
        self._callable: list[str] = []

    # Finding functions and their instantiations.

    def _written(self) -> Iterator[Any]:
        """Yield the functions of the sources, and variables: a lambda may be the value of one."""
        pending = list(cursors_of(self._unit, self._names))
        while pending:
            each = pending.pop()
            kind = each.kind.name
            if kind in FUNCTIONS or kind == "VAR_DECL":
                yield each
            elif kind in _SCOPES:
                pending += children(each)

    def find_functions(self) -> None:
        """Find the functions of the sources, and their instantiations."""
        functions = list(self._written())
        seen: set[str] = set()
        while functions:
            function = functions.pop()
            key = key_of(function)
            if key in seen:
                continue
            seen.add(key)
            at = _body_place(function)
            if at in self._bodies:
                self._kernels.setdefault(at, []).append(function)
            else:
                self._callable.append(self._named(function))
            for node in below(function):
                callee = node.referenced if node.kind.name in _NAMING else None
                if (
                    callee is not None
                    and callee.kind.name in FUNCTIONS
                    and self._is_instance(callee)
                ):
                    functions.append(callee)

    def _is_instance(self, function: Any) -> bool:
        file = function.location.file
        if file is None or os.path.normpath(file.name) not in self._names:
            return False
        pattern = libclang().clang_getSpecializedCursorTemplate(function)
        return pattern is not None and not pattern.kind.is_invalid()

    # What functions do.

    def _named(self, function: Any) -> str:
        """Return the key of a function that is looked into when its effects are needed."""
        key = key_of(function)
        self._cursors.setdefault(key, function)
        return key

    def _own(self, key: str) -> _Code:
        """Return what a function or class does, without its callees."""
        known = self._code.get(key)
        if known is None:
            known = self._code[key] = _Code(CallEffect.NONE)
            function = self._cursors[key]
            if _body_place(function.get_definition() or function) not in self._bodies:
                self._scan(function, known)  # what looks like a call of a kernel is a launch
        return known

    def _scan(self, function: Any, code: _Code) -> None:
        name, file = function.spelling, function.location.file
        in_shim = file is not None and file.name.startswith(str(SHIM))
        if in_shim and (is_warp_operation(name) or name in BARRIERS | VOTING_BARRIERS):
            code.effect |= CallEffect.MEETS | CallEffect.WRITES | CallEffect.OWN
            return
        if in_shim and is_atomic(name):
            code.effect |= CallEffect.WRITES | CallEffect.OWN
            return
        if is_implicit(function) and name == "operator=":  # its extent is its whole class
            code.calls |= self._assignments(function.semantic_parent)
            return
        definition = function.get_definition() or function
        if definition != function:
            for parameter in function.get_arguments():  # default arguments are in a declaration
                for node in below(parameter):
                    effect, callees = self._of_node(node)
                    code.effect |= effect
                    code.calls |= callees
        if body_of(definition) is None:
            if not is_pure(definition):
                code.effect |= CallEffect.WRITES
            return
        for node in below(definition):
            effect, callees = self._of_node(node)
            code.effect |= effect
            code.calls |= callees
            if is_written(node, definition):
                code.effect |= CallEffect.WRITES
        if in_shim:
            code.effect &= ~CallEffect.BLOCK  # it knows about larger blocks

    def _of_node(self, node: Any) -> tuple[CallEffect, set[str]]:
        """Return what one node does, and whom it calls."""
        kind = node.kind.name
        if kind == "MEMBER_REF_EXPR" and node.spelling in _OF_THREAD:
            field = node.referenced
            if field is not None and field.semantic_parent.spelling == "Thread":
                return _OF_THREAD[node.spelling], set()
        if kind in {"VAR_DECL", "CALL_EXPR"}:
            effect, callees = self._made(node.type)
        else:
            effect, callees = CallEffect.NONE, set()
        if kind == "VAR_DECL":
            if holds_arrays(node.type):
                effect |= CallEffect.OWN
            return effect, callees
        if node.kind.is_expression() and node.type.spelling in _DEPENDENT:
            effect |= CallEffect.UNKNOWN
        if kind == "CALL_EXPR" or (kind == "DECL_REF_EXPR" and is_function(node.referenced)):
            callee = node.referenced
            if not is_function(callee) or (
                callee.kind.name == "CXX_METHOD" and callee.is_virtual_method()
            ):
                return effect | CallEffect.UNKNOWN, callees
            callees = callees | {self._named(callee)}
        if kind in {
            "CXX_NEW_EXPR",
            "CXX_DELETE_EXPR",
            "CXX_THROW_EXPR",
            "ASM_STMT",
            "GCC_ASM_STMT",
        }:
            effect |= CallEffect.WRITES
        return effect, callees

    def _assignments(self, record: Any) -> set[str]:
        """Return the assignment operators that an implicit one of a class calls."""
        found: set[str] = set()
        for each in children(record):
            inner = record_of(each.type) if each.kind.name in MEMBERS else None
            if inner is not None:
                own = [e for e in children(inner) if e.spelling == "operator=" and is_function(e)]
                found |= {self._named(e) for e in own} or self._assignments(inner)
        return found

    def _made(self, type_: Any) -> tuple[CallEffect, set[str]]:
        """Return what making and ending an object of a type does: its class's special functions."""
        record = record_of(type_)
        if record is None:
            return CallEffect.NONE, set()
        key = "record " + key_of(record)
        if key not in self._code:
            code = self._code[key] = _Code(CallEffect.NONE)
            for each in children(record):
                if each.kind.name in {"CONSTRUCTOR", "DESTRUCTOR"}:
                    code.calls.add(self._named(each))
                elif each.kind.name in MEMBERS:
                    _, more = self._made(each.type)
                    code.calls |= more
                    for node in below(each):
                        if node.kind.is_expression():
                            effect, callees = self._of_node(node)
                            code.effect |= effect
                            code.calls |= callees
        return CallEffect.NONE, {key}

    def _reach(self, effect: CallEffect, callees: Collection[str]) -> CallEffect:
        """Return what a node does together with all that it calls."""
        found = self._reach_known(effect, callees)
        return found | self._any if CallEffect.UNKNOWN in found else found

    def _reach_known(self, effect: CallEffect, callees: Collection[str]) -> CallEffect:
        seen: set[str] = set()
        pending = list(callees)
        while pending:
            key = pending.pop()
            if key not in seen:
                seen.add(key)
                code = self._own(key)
                effect |= code.effect
                pending += code.calls
        return effect

    @functools.cached_property
    def _any(self) -> CallEffect:
        """What a call may do of which it is not known whom it calls."""
        return self._reach_known(CallEffect.WRITES | CallEffect.OWN, self._callable)

    # What a kernel is.

    def variables(self) -> dict[tuple[str, int], list[Named]]:
        """Return the variables of each kernel without errors."""
        found = {}
        for function in self._written():
            place = _body_place(function)
            start, end = function.extent.start.offset, function.extent.end.offset
            if place in self._bodies and not any(
                name == place[0] and start <= offset <= end for name, offset, *_ in self._errors
            ):
                found[place] = [_named(each) for each in below(function) if _is_variable(each)]
        return found

    def meaning(self, kernel: Function, path: str) -> Meaning | None:
        """Return what is known of a kernel here; None if it is not seen."""
        known = self._kernels.get((path, int(kernel.body.start_byte)), [])
        for name, offset, line, text in self._errors:
            if name == path and kernel.node.start_byte <= offset <= kernel.node.end_byte:
                return Meaning(f"line {line}: {text}")
        if any(int(body_of(each).extent.end.offset) != kernel.body.end_byte for each in known):
            return Meaning("its end is not where it looks")
        instances = [each for each in known if each.kind.name != "FUNCTION_TEMPLATE"]
        found: Meaning | None = None
        for each in instances or known:
            meaning = self._of_kernel(each)
            found = meaning if found is None else found.merged(meaning)
        return found

    def _of_kernel(self, function: Any) -> Meaning:
        found = Meaning()
        start, end = function.extent.start.offset, function.extent.end.offset
        listed: dict[tuple[int, str], Named] = {}
        for node, above in walk_inside(function):
            kind = node.kind.name
            if _is_variable(node):
                listed.setdefault((node.location.offset, node.spelling), _named(node))
            if kind == "DECL_REF_EXPR" and node.referenced is not None:
                declared = node.referenced
                at = declared.location
                if declared.kind.name in {"VAR_DECL", "PARM_DECL"} and at.file is not None:
                    own = start <= at.offset < end and at.file.name == function.location.file.name
                    if own and not is_read(node, above):
                        found.changes.setdefault(node.spelling, set()).add(node.location.offset)
            effect, callees = self._of_node(node)
            if kind == "VAR_DECL" and is_shared(node):
                effect &= ~CallEffect.OWN
            if kind != "PARM_DECL" and (effect or callees):
                place = (node.extent.start.offset, node.extent.end.offset)
                found.add(*place, self._reach(effect, callees))
        found.variables = [listed[key] for key in sorted(listed)]
        return found


def _is_variable(node: Any) -> bool:
    """Whether a node declares a variable that the source names."""
    is_one = node.kind.name in {"VAR_DECL", "PARM_DECL"}
    return is_one and bool(node.spelling) and not node.spelling.startswith("__")


def _body_place(function: Any) -> tuple[str, int]:
    """Return where the body of a function begins."""
    body, file = body_of(function), function.location.file
    if body is None or file is None:
        return "", 0
    return os.path.normpath(file.name), int(body.extent.start.offset)


def _named(node: Any) -> Named:
    kind = kind_of(node.type)
    shared = is_shared(node)
    storage = node.storage_class.name if node.kind.name == "VAR_DECL" else "NONE"
    return Named(
        name=node.spelling,
        line=int(node.location.line),
        kind=kind,
        is_shared=shared,
        is_static=storage in {"STATIC", "EXTERN"} and not shared,
        has_value=kind is Kind.NUMBER and any(e.kind.is_expression() for e in children(node)),
        size=int(node.type.get_size()),
        type=node.type.get_canonical().spelling,
        start=int(node.extent.start.offset),
        at=int(node.location.offset),
        end=int(node.extent.end.offset),
    )
