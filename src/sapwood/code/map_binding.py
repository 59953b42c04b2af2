"""Calling a native function as the map of a program: every C parameter by its name.

A parameter is, in this order: an array of the slice, an entry of the state, a parameter of
the program, a length that the annotations tell, or ``start``, ``stop`` or ``count`` of the
slice. The fields that the program reduces are its outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from sapwood.code import guarded
from sapwood.code.argument import MISSING
from sapwood.code.interface import FunctionSignature, Role
from sapwood.code.native_binding import RETURN, NativeFunction, length_names, told_lengths
from sapwood.code.native_call import NativeCall
from sapwood.code.program import Program
from sapwood.code.repeated_map import MAX_MISSES, RepeatedMap, repeatable
from sapwood.core.errors import ArgumentError

SLICE_BOUNDS: Final = ("start", "stop", "count")
"""What a map can ask of its slice beside its arrays: first item, end (exclusive), how many."""

_Map = Callable[[Any, dict[str, Any]], dict[str, Any]]


class NativeMap:
    """A native function as a map."""

    def __init__(
        self, program: Program, signature: FunctionSignature, function: NativeFunction
    ) -> None:
        self._function = function
        self._fields = tuple(program.reduce)
        self._size = len(signature.parameters)
        names = {parameter.name for parameter in signature.parameters}
        self._bounds = [name for name in SLICE_BOUNDS if name in length_names(signature) - names]
        self._inputs: list[tuple[int, str, bool]] = []
        self._others: list[tuple[int, str, bool]] = []
        for index, parameter in enumerate(signature.parameters):
            if parameter.role is Role.OUTPUT:
                continue
            plan = self._inputs if parameter.name in program.inputs else self._others
            plan.append((index, parameter.name, parameter.role is Role.INOUT))
        # Parameters that can be absent from the state: the call finds them elsewhere.
        self._optional = told_lengths(signature) | program.parameters.keys()
        self._returns = None if signature.returns is None else signature.returns.dtype
        self._where = signature.name
        self._names = [(index, name) for index, name, _ in self._others]
        outputs = {
            parameter.name: index
            for index, parameter in enumerate(signature.parameters)
            if parameter.role is Role.OUTPUT
        }
        written = [p for p in signature.parameters if p.role in {Role.OUTPUT, Role.INOUT}]
        self._outputs = [(outputs[name], name) for name in self._fields if name in outputs]
        self._plain = function.takes_addresses and len(self._outputs) == len(self._fields) == len(
            written
        )
        self._repeated: RepeatedMap | None = None
        self._misses = 0

    def __call__(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as Program.map
        """Call the function for one slice."""
        if self._repeated is not None:
            result = self._repeated(slice, state)
            if result is not None:
                return result
            self._repeated = None
            self._misses += 1
        values = [MISSING] * self._size
        lengths: dict[str, int] = {name: _bound(slice, name) for name in self._bounds}
        arrays = slice.arrays
        made: list[int] = []
        for index, name, copied in self._inputs:
            value = arrays[name]
            values[index] = guarded.copy(value) if copied else value
            if copied:
                made.append(index)
        for index, name, copied in self._others:
            value = state.get(name, MISSING)
            if value is MISSING:
                if name in self._optional:
                    continue
                if name not in SLICE_BOUNDS:
                    raise self._missing(name, state)
                value = _bound(slice, name)
            values[index] = guarded.copy(np.asarray(value)) if copied else value
            if copied:
                made.append(index)
        outputs = self._function.invoke(values, lengths, made)
        if self._returns is not None:
            outputs[RETURN] = np.dtype(self._returns).type(outputs[RETURN])
        if self._plain and self._misses < MAX_MISSES and repeatable(state, values, self._names):
            self._repeated = RepeatedMap(
                self._function, slice, state, values, self._names, self._outputs
            )
        return {name: outputs[name] for name in self._fields}

    def native_call(self) -> NativeCall | None:
        """Return the last call, to be made again without Python; None where it cannot."""
        return None if self._repeated is None else self._repeated.native_call()

    def _missing(self, name: str, state: dict[str, Any]) -> ArgumentError:
        return ArgumentError(
            f"{self._where}: parameter {name} is neither in the slice nor in the state",
            where=self._where,
            hint=f"the state holds {', '.join(sorted(state)) or 'nothing'}",
        )


def bind_map(program: Program, signature: FunctionSignature, function: Any) -> _Map:
    """Return a function of the program's libraries as its map."""
    if isinstance(function, NativeFunction):
        return NativeMap(program, signature, function)
    python: _Map = function
    return python


def _bound(slice: Any, name: str) -> int:  # noqa: A002 - as Program.map
    if name == "count":
        return len(slice)
    return int(slice.start if name == "start" else slice.stop)
