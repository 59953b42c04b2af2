"""Own filters in C: a function of a program that adds one array to another."""

from __future__ import annotations

from typing import Any

import numpy as np

from sapwood.code.binding import NativeFunction
from sapwood.code.filter import Filter
from sapwood.code.interface import Role
from sapwood.core.errors import ProgramError

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
        parameters = function.signature.parameters
        written = [p.name for p in parameters if p.role in {Role.OUTPUT, Role.INOUT}]
        read = [p.name for p in parameters if p.role is Role.INPUT]
        if len(written) != 1 or len(read) != 1:
            raise ProgramError(
                f"{function.signature.declaration} cannot combine two arrays", hint=_ONE_EACH
            )
        self._into, self._from = written[0], read[0]
        self._scalars = [p.name for p in parameters if p.role is Role.SCALAR]
        self._lengths = [
            p.name
            for p in parameters
            if p.role is Role.SCALAR and np.dtype(p.element.dtype).kind in "iu"
        ]

    def up(self, values: list[Any]) -> Any:
        """Add all arrays to a copy of the first; of dictionaries, each field by itself."""
        first = values[0]
        if isinstance(first, dict):
            return {name: self._combined([value[name] for value in values]) for name in first}
        return self._combined(values)

    def _combined(self, arrays: list[Any]) -> Any:
        into = np.array(arrays[0])
        for array in arrays[1:]:
            if np.shape(array) != into.shape:
                raise ProgramError(
                    f"an array of shape {np.shape(array)} does not fit to one of {into.shape}",
                    where=self._function.signature.name,
                )
            arguments: dict[str, Any] = {self._into: into, self._from: np.asarray(array)}
            for name in self._scalars:
                if name in self.parameters:
                    arguments[name] = self.parameters[name]
                elif name in self._lengths:
                    arguments[name] = into.size
            self._function(**arguments)
        return into
