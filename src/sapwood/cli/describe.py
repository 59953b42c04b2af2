"""What a program is, as plain data: for ``program show`` and ``run --dry-run``."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from sapwood.client import Program
from sapwood.code.build import build
from sapwood.code.cache import BuildCache, CacheEntry, Fill
from sapwood.code.interface import FunctionSignature
from sapwood.code.languages.base import BuildRequest
from sapwood.code.languages.registry import group_sources
from sapwood.code.program import parameters_of
from sapwood.code.target import host_target


class ParameterView(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of a program with its value."""

    name: str
    type: str
    value: bool | int | float | str
    default: bool | int | float | str
    allowed: str
    help: str


class LibraryView(msgspec.Struct, frozen=True, kw_only=True):
    """A library that a program's sources become, and what else decides its build."""

    language: str
    sources: tuple[str, ...]
    identity: dict[str, str]


class ArrayView(msgspec.Struct, frozen=True, kw_only=True):
    """An array that a function takes: its extents, and whether it is read or written."""

    name: str
    shape: str
    role: str


class FunctionView(msgspec.Struct, frozen=True, kw_only=True):
    """A function of a program's sources; ``problem`` says why it cannot be called."""

    name: str
    declaration: str
    place: str
    doc: str = ""
    arrays: list[ArrayView] = []
    problem: str = ""


class ProgramView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything ``sapwood program show --json`` prints; fields are only ever added."""

    name: str
    description: str
    folder: str
    hash: str
    inputs: tuple[str, ...]
    reduce: dict[str, str]
    map: str
    parameters: list[ParameterView]
    libraries: list[LibraryView]
    functions: list[FunctionView]
    target: str
    built: bool


class _NotBuiltError(Exception):
    """A library is not in the cache."""


class _LookupCache(BuildCache):
    """A cache in which everything that is there is found, and nothing is built."""

    def get_or_build(self, key: str, fill: Fill) -> CacheEntry:
        """Return the entry of a key, if there is one."""
        del fill
        entry = self._open(key)
        if entry is None:
            raise _NotBuiltError
        return entry


def view_program(program: Program, cache: BuildCache) -> ProgramView:
    """Describe a program; its sources are built if they are not yet.

    Raises:
        BuildError: A source does not compile.
        CompilerMissingError: This machine has no compiler for a source.
    """
    libraries = library_views(program)
    built = is_built(program, cache)
    return ProgramView(
        name=program.name,
        description=program.description,
        folder=program.bundle.origin,
        hash=program.hash,
        inputs=tuple(program.inputs),
        reduce=dict(program.reduce),
        map=program.map_function or "in Python",
        parameters=parameter_views(program),
        libraries=libraries,
        functions=function_views(program, cache),
        target=str(host_target()),
        built=built,
    )


def is_built(program: Program, cache: BuildCache) -> bool:
    """Whether all libraries of a program are in a cache, for this machine."""
    try:
        build(program, cache=_LookupCache(cache.folder, size_limit=cache.size_limit))
    except _NotBuiltError:
        return False
    return True


def parameter_views(program: Program) -> list[ParameterView]:
    """Return the parameters of a program."""
    return [
        ParameterView(
            name=name,
            type=parameter.type.__name__,
            value=program.parameters[name],
            default=parameter.default,
            allowed=parameter.range_text(),
            help=parameter.help,
        )
        for name, parameter in parameters_of(type(program)).items()
    ]


def library_views(program: Program) -> list[LibraryView]:
    """Return what a program's sources would be built into on this machine.

    Raises:
        CompilerMissingError: It has no compiler for them.
    """
    views = []
    for language, sources in group_sources(program.bundle.sources, where=program.name):
        request = BuildRequest(
            folder=Path(),
            sources=sources,
            output=Path(),
            target=host_target(),
            environment=dict(os.environ),
            origin=program.bundle.origin,
        )
        identity = dict(language.identity(request))
        views.append(LibraryView(language=language.name, sources=sources, identity=identity))
    return views


def function_views(program: Program, cache: BuildCache) -> list[FunctionView]:
    """Return the functions of a program's sources, which are built if they are not yet.

    Raises:
        BuildError: A source does not compile.
        CompilerMissingError: This machine has no compiler for a source.
    """
    interface = build(program, cache=cache).interface
    found = [_function_view(function) for function in interface.functions]
    return found + [
        FunctionView(name=one.name, declaration=one.name, place=one.where, problem=one.reason)
        for one in interface.unbound
    ]


def _function_view(function: FunctionSignature) -> FunctionView:
    arrays = [
        ArrayView(
            name=parameter.name,
            shape="".join(f"[{extent}]" for extent in parameter.shape),
            role=parameter.role.value,
        )
        for parameter in function.parameters
        if parameter.shape is not None
    ]
    return FunctionView(
        name=function.name,
        declaration=function.declaration,
        place=function.where,
        doc=function.doc,
        arrays=arrays,
    )
