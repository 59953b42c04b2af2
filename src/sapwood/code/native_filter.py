"""Own filters in C: a function of a program that adds one array to another."""

from __future__ import annotations

from typing import Any

import numpy as np

from sapwood.code import guarded
from sapwood.code.filter import Filter
from sapwood.code.interface import ParameterSignature, Role
from sapwood.code.native_binding import NativeFunction
from sapwood.core.errors import ArgumentError, ProgramError
from sapwood.core.shown import shown

_ONE_EACH = "write void combine(double *into, const double *from, size_t n)"


class NativeFilter(Filter):
    """A filter made of a native function ``combine(into, from, n)``.

    The first array that is written is ``into``, the first that is only read is ``from``; whole
    numbers without a name among the parameters are their number of elements.

    Args:
        function: The function.

    Raises:
        ProgramError: It has not these two arrays.
    """

    def __init__(self, function: NativeFunction) -> None:
        self._function = function
        parameters = self._parameters = function.signature.parameters
        written = [p.name for p in parameters if p.role in {Role.OUTPUT, Role.INOUT}]
        read = [p.name for p in parameters if p.role is Role.INPUT]
        if len(written) != 1 or len(read) != 1:
            raise ProgramError(
                f"{function.signature.declaration} cannot combine two arrays", hint=_ONE_EACH
            )
        self._into, self._from = written[0], read[0]
        self._guards = [i for i, p in enumerate(parameters) if p.name == self._into]

    def up(self, values: list[Any]) -> Any:
        """Add all arrays to a copy of the first; of dictionaries, each field separately."""
        first = values[0]
        if isinstance(first, dict):
            return {name: self._combined([value[name] for value in values]) for name in first}
        return self._combined(values)

    def _combined(self, arrays: list[Any]) -> Any:
        into = guarded.copy(self._checked(arrays[0]))
        for array in arrays[1:]:
            source = np.ascontiguousarray(self._checked(array))
            if source.shape != into.shape:
                raise ArgumentError(
                    f"an array of shape {source.shape} does not fit to one of {into.shape}",
                    where=self._function.signature.name,
                )
            arguments = [self._argument(p, into, source) for p in self._parameters]
            self._function.apply(arguments, self._guards)
        return into

    def _checked(self, value: Any) -> Any:
        array = np.asarray(value)
        for parameter in self._parameters:
            wanted = parameter.element.numpy()
            if parameter.role is not Role.SCALAR and array.dtype != wanted:
                raise ArgumentError(
                    f"{self._function.signature.name}: parameter {parameter.name} wants "
                    f"{wanted}, got {array.dtype}",
                    where=self._function.signature.where,
                    hint=f"have the agents contribute arrays of {wanted}",
                )
        return array

    def _argument(self, parameter: ParameterSignature, into: Any, source: Any) -> Any:
        if parameter.name == self._into:
            return into
        if parameter.name == self._from:
            return source
        if parameter.name in self.parameters:
            return self.parameters[parameter.name]
        if np.dtype(parameter.element.dtype).kind not in "iu":
            raise ArgumentError(
                f"{self._function.signature.name}: parameter {parameter.name} is missing",
                where=self._function.signature.where,
                hint=f"open the stream with parameters={{{shown(parameter.name)}: …}}",
            )
        return into.size
