"""What ``sapwood program show`` tells of a program."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sapwood.code.build import Built
from sapwood.code.program import Program, parameters_of
from sapwood.code.reducers import reducer_name


class ParameterDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter; ``allowed`` is its range or its choices as text."""

    name: str
    type: str
    default: bool | int | float | str
    value: bool | int | float | str
    allowed: str = ""
    help: str = ""


class FunctionDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A native function.

    Attributes:
        name: Its name.
        declaration: The function as C text; empty when it cannot be called.
        doc: First line of its comment.
        where: File and line of its definition.
        arrays: What annotations say of its arrays, for example ``points[n][d]``.
        unbound: Why it cannot be called from Python; empty when it can.
    """

    name: str
    declaration: str = ""
    doc: str = ""
    where: str = ""
    arrays: tuple[str, ...] = ()
    unbound: str = ""


class TargetDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A library that was built; seconds is how long it took then."""

    target: str
    language: str
    key: str
    bytes: int
    seconds: float
    folder: str


class ProgramDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A program, for people and for ``--json``."""

    name: str
    description: str
    hash: str
    folder: str
    files: tuple[str, ...]
    inputs: tuple[str, ...]
    map: str
    reduce: dict[str, str]
    parameters: tuple[ParameterDescription, ...]
    functions: tuple[FunctionDescription, ...] = ()
    targets: tuple[TargetDescription, ...] = ()


def describe(program: Program, built: Built | None = None) -> ProgramDescription:
    """Describe a program, with its functions and targets when it has been built."""
    bundle = program.bundle
    return ProgramDescription(
        name=program.name,
        description=program.description or _first_line(type(program).__doc__ or ""),
        hash=program.hash,
        folder=bundle.origin,
        files=tuple(sorted(bundle.files)),
        inputs=tuple(program.inputs),
        map=program.map_function or "Python",
        reduce={field: reducer_name(how) for field, how in program.reduce.items()},
        parameters=tuple(
            ParameterDescription(
                name=name,
                type=spec.type.__name__,
                default=spec.default,
                value=program.parameters[name],
                allowed=spec.range_text(),
                help=spec.help,
            )
            for name, spec in parameters_of(type(program)).items()
        ),
        functions=_functions(built) if built is not None else (),
        targets=_targets(built) if built is not None else (),
    )


def _functions(built: Built) -> tuple[FunctionDescription, ...]:
    interface = built.interface
    callable_ones = [
        FunctionDescription(
            name=function.name,
            declaration=function.declaration,
            doc=_first_line(function.doc),
            where=function.where,
            arrays=tuple(
                f"{each.name}{''.join(f'[{extent}]' for extent in each.shape)}"
                for each in function.parameters
                if each.shape is not None
            ),
        )
        for function in interface.functions
    ]
    others = [
        FunctionDescription(name=each.name, where=each.where, unbound=each.reason)
        for each in interface.unbound
    ]
    return (*callable_ones, *others)


def _targets(built: Built) -> tuple[TargetDescription, ...]:
    return tuple(
        TargetDescription(
            target=str(built.target),
            language=library.image.language,
            key=library.entry.key,
            bytes=Path(library.image.path).stat().st_size,
            seconds=library.entry.manifest.seconds,
            folder=str(library.entry.folder),
        )
        for library in built.libraries
    )


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].strip()
