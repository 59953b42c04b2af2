"""Discovering the functions of a built library: debug information, then comments."""

from __future__ import annotations

import msgspec

from sapwood.code.comments import FunctionNotes, read_annotations
from sapwood.code.dwarf import read_interface
from sapwood.code.interface import FunctionSignature, Interface, ParameterSignature, Role
from sapwood.code.languages.base import Artefact, BuildRequest
from sapwood.core.errors import BuildError
from sapwood.core.suggest import suggest

HEADERS = {".h", ".hh", ".hpp", ".hxx"}


def discover(request: BuildRequest, artefact: Artefact) -> Interface:
    """Return the functions of a library with types, documentation and array shapes.

    Raises:
        BuildError: An annotation does not fit its function.
    """
    interface = read_interface(
        request.output / artefact.library, request.output / artefact.debug, set(request.sources)
    )
    notes: dict[str, FunctionNotes] = {}
    for name in (*_headers(request), *request.sources):
        data = (request.folder / name).read_bytes()
        for function, found in read_annotations(name, data, cpp=not name.endswith(".c")).items():
            if function not in notes or found.shapes or found.inout or found.doc:
                notes[function] = found
    functions = tuple(
        annotate(function, notes[function.name]) if function.name in notes else function
        for function in interface.functions
    )
    return msgspec.structs.replace(interface, functions=functions)


def _headers(request: BuildRequest) -> list[str]:
    return sorted(
        path.relative_to(request.folder).as_posix()
        for path in request.folder.rglob("*")
        if path.suffix in HEADERS
    )


def annotate(function: FunctionSignature, notes: FunctionNotes) -> FunctionSignature:
    """Return a function with what its comments say.

    Raises:
        BuildError: An annotation names no parameter, or one that is not a pointer.
    """
    names = [parameter.name for parameter in function.parameters]
    for name in (*notes.shapes, *notes.inout):
        where = f"{notes.file}:{notes.lines[name]}"
        if name not in names:
            raise BuildError(
                f"an annotation names {name}, which is not a parameter of {function.name}",
                where=where,
                hint=suggest(name, names),
            )
        parameter = function.parameters[names.index(name)]
        if parameter.role is Role.SCALAR:
            raise BuildError(
                f"an annotation says that {name} of {function.name} is an array, but it is a "
                f"{parameter.c}",
                where=where,
                hint=f"declare it {parameter.c} *{name}",
            )
        if name in notes.inout and parameter.role is Role.INPUT:
            raise BuildError(
                f"{name} of {function.name} is @inout, but const",
                where=where,
                hint="remove one of the two",
            )
    return msgspec.structs.replace(
        function,
        doc=notes.doc,
        parameters=tuple(_annotated(parameter, notes) for parameter in function.parameters),
    )


def _annotated(parameter: ParameterSignature, notes: FunctionNotes) -> ParameterSignature:
    role = Role.INOUT if parameter.name in notes.inout else parameter.role
    shape = notes.shapes.get(parameter.name)
    if shape is not None and parameter.element.shape:
        shape = _with_inner(parameter, shape, notes)
    return msgspec.structs.replace(parameter, role=role, shape=shape)


def _with_inner(
    parameter: ParameterSignature, shape: tuple[str, ...], notes: FunctionNotes
) -> tuple[str, ...]:
    inner = tuple(str(extent) for extent in parameter.element.shape)
    tail = shape[-len(inner) :]
    # A name among them (a macro, an enumerator) is the number that the compiler made of it.
    fits = all(a == b or not a.isdigit() for a, b in zip(tail, inner, strict=False))
    if len(shape) > len(inner) and fits:
        return shape[: -len(inner)] + inner
    raise BuildError(
        f"the extents of {parameter.name} do not end with its type's extents, [{']['.join(inner)}]",
        where=f"{notes.file}:{notes.lines[parameter.name]}",
        hint=f"write @array {parameter.name}[n][{']['.join(inner)}]",
    )
