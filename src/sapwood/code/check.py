"""Checking on the client that a program and its native map fit together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from sapwood.code.argument import ArrayChecker, ScalarChecker
from sapwood.code.build import Built
from sapwood.code.interface import FunctionSignature, Interface, ParameterSignature, Role
from sapwood.code.map_binding import SLICE_BOUNDS
from sapwood.code.native_binding import RETURN, length_names, told_lengths
from sapwood.code.program import Program, natives_of
from sapwood.core.errors import ArgumentError, FunctionMissingError, ProgramError
from sapwood.core.suggest import suggest

Values = Mapping[str, Any]


def check_program(
    program: Program,
    built: Built,
    *,
    state: Values | None = None,
    arrays: Values | None = None,
    fields: Collection[str] = (),
) -> None:
    """Check that every native function a program names is there and gets what it wants.

    Args:
        program: The program.
        built: The libraries that were built from its sources.
        state: The first state, once ``init`` has made it; without it, checks that need the state
            are left out.
        arrays: The arrays by field that the map gets, to check their types; empty for a range of
            indices.
        fields: All fields of the data.

    Raises:
        FunctionMissingError: A function is not defined, with the nearest names.
        ProgramError: A function cannot be called from Python, or a reduced field is not an output.
        ArgumentError: A parameter of the map gets nothing, or something of another type.
    """
    interface = built.interface
    for native in natives_of(type(program)).values():
        find_function(interface, native.function, where=program.name)
    if program.map_function is None:
        return
    signature = find_function(interface, program.map_function, where=program.name)
    if signature.returns is not None and signature.returns.dtype == "O":
        return  # a function of a Python source takes slice and state, as Program.map
    _check_outputs(program, signature)
    if state is not None:
        given = {*state, *(program.inputs if arrays is None else arrays)}
        _check_sources_of_parameters(program, signature, given, fields)
    _check_lengths(program, signature, state)
    for parameter in signature.parameters:
        _check_value(program, signature, parameter, state or {}, arrays or {})


def find_function(interface: Interface, name: str, *, where: str) -> FunctionSignature:
    """Return a function of an interface.

    Raises:
        FunctionMissingError: It is not defined, with the nearest names.
        ProgramError: It is there but cannot be called from Python.
    """
    found = interface.function(name)
    if found is not None:
        return found
    for unbound in interface.unbound:
        if unbound.name == name:
            raise ProgramError(
                f"function {name} cannot be called from Python: {unbound.reason}",
                where=unbound.where or where,
                hint='change its signature, or write a small extern "C" function that calls it',
            )
    hint = suggest(name, interface.names())
    raise FunctionMissingError(
        f"no source of the program defines a function {name}",
        where=where,
        hint=hint if "did you mean" in hint else f"{hint}; a static function cannot be called",
    )


def _check_outputs(program: Program, signature: FunctionSignature) -> None:
    written = {Role.OUTPUT, Role.INOUT}
    outputs = {each.name for each in signature.parameters if each.role in written}
    if signature.returns is not None:
        outputs.add(RETURN)
    for field in program.reduce:
        if field not in outputs:
            raise ProgramError(
                f"{signature.name}: the reduced field {field} is not an output of the map",
                where=signature.where,
                hint=suggest(field, outputs),
            )
    for parameter in signature.parameters:
        if parameter.role is Role.OUTPUT and parameter.name not in program.reduce:
            raise ProgramError(
                f"{signature.name}: parameter {parameter.name} is an output that nothing reduces",
                where=signature.where,
                hint=f"name it in reduce, or make it const if it is an input "
                f"({suggest(parameter.name, program.reduce)})",
            )


def _check_sources_of_parameters(
    program: Program, signature: FunctionSignature, given: Collection[str], fields: Collection[str]
) -> None:
    known = {*given, *program.parameters, *told_lengths(signature), *SLICE_BOUNDS}
    for parameter in signature.parameters:
        if parameter.role is Role.OUTPUT or parameter.name in known:
            continue
        if parameter.name in fields:
            raise ArgumentError(
                f"{signature.name}: parameter {parameter.name} is a field of the data, but the "
                "program's inputs do not name it",
                where=signature.where,
                hint=f"write inputs = {[*program.inputs, parameter.name]}".replace("'", '"'),
            )
        if parameter.name in program.inputs:
            raise ArgumentError(
                f"{signature.name}: parameter {parameter.name} is a field of the data, but the "
                "data are a range of indices, which has no fields",
                where=signature.where,
                hint=f'give arrays: data={{"{parameter.name}": …}}, or an array or a file',
            )
        raise ArgumentError(
            f"{signature.name}: parameter {parameter.name} is not in the data's fields, the "
            "state or the program's parameters",
            where=signature.where,
            hint=suggest(parameter.name, known) + _length_hint(parameter, signature),
        )


def _length_hint(parameter: ParameterSignature, signature: FunctionSignature) -> str:
    """Return a hint to declare an integer as the length of an array of unknown length."""
    if parameter.role is not Role.SCALAR or parameter.element.dtype[1:2] not in {"i", "u"}:
        return ""
    for array in signature.parameters:
        if array.role is Role.INPUT and array.shape is None:
            return f". Is it a length? Say so in a comment: @array {array.name}[{parameter.name}]"
    return ""


def _check_lengths(program: Program, signature: FunctionSignature, state: Values | None) -> None:
    scalars = {each.name for each in signature.parameters if each.role is Role.SCALAR}
    known = {*told_lengths(signature), *scalars, *program.parameters, *SLICE_BOUNDS}
    for name in sorted(length_names(signature) - known):
        raise ArgumentError(
            f"{signature.name}: the length {name} in an @array annotation is not known",
            where=signature.where,
            hint=suggest(name, known),
        )


def _check_value(
    program: Program,
    signature: FunctionSignature,
    parameter: ParameterSignature,
    state: Values,
    arrays: Values,
) -> None:
    name = parameter.name
    if parameter.role is Role.OUTPUT:
        return
    for found in (arrays if name in program.inputs else {}, state, program.parameters):
        if name in found:
            value: Any = found[name]
            break
    else:
        return
    if parameter.role is Role.SCALAR:
        ScalarChecker(parameter, signature).convert(value)
        return
    if name in program.parameters and name not in state and not isinstance(value, np.ndarray | str):
        raise ArgumentError(
            f"{signature.name}: parameter {name} is a pointer, but the program's parameter "
            f"{name} is a number",
            where=signature.where,
            hint=f"declare it {parameter.element.c} {name}",
        )
    checker = ArrayChecker(parameter, signature)
    lengths = {key: item for key, item in program.parameters.items() if type(item) is int}
    if found is arrays:
        value = value[:1]  # one item tells the type of all; whole data may be large
        value = value.astype(value.dtype.newbyteorder("="))  # as it is published
    if isinstance(value, np.ndarray) and (found is arrays or parameter.role is Role.INOUT):
        value = np.array(value, order="C")  # as the call gets it: contiguous, a copy
    checker.check(value, lengths)
