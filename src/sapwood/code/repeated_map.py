"""Calling a native map again: for the same slice, with values like the last call's values.

In an iteration only the values in the arrays of the state are new. The checks and preparations of
the last call hold for this one, where types and shapes are the same; the small arrays that take
the results are reused, once they have no other references. It all happens in few functions:
between two iterations other code uses the caches, and each further function comes from memory.

This module keeps a prepared *call*: addresses in registers, guards, outputs. Whether a state is
like the one before is the question of :class:`~sapwood.comm.cached_codec.ArrayField`, as for values
that travel.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from sapwood.code import guarded
from sapwood.code.array_address import address_of
from sapwood.code.call_record import MAX_ARRAYS
from sapwood.code.native_binding import NativeFunction
from sapwood.code.native_call import NativeCall, Output
from sapwood.comm.cached_codec import ArrayField

Array = np.ndarray[Any, Any]

MAX_KEPT: Final = 32 * 1024
"""Bytes of a result that is made in the same memory again; larger ones lie where the tree reads
them."""

REFERENCES: Final = 4
"""References to the memory for a result that is not in use: an attribute, its
bytes, a variable, and the argument of the function that counts."""

MAX_MISSES: Final = 8
"""Calls unlike those before them after which no map is prepared for being called again."""

_MISSING: Final = object()


class RepeatedMap:
    """A call that can be made again.

    Args:
        function: The function that is called.
        slice: The slice.
        state: The state.
        values: The arguments, in the order of the C parameters.
        names: The parameters that are looked up in the state: index and name.
        fields: The outputs of the function, in the order of the result.
    """

    __slots__ = (
        "_absent",
        "_arrays",
        "_function",
        "_held",
        "_numbers",
        "_outputs",
        "_passed",
        "_places",
        "_slice",
    )

    def __init__(
        self,
        function: NativeFunction,
        slice: Any,  # noqa: A002 - as Program.map
        state: Mapping[str, Any],
        values: Sequence[Any],
        names: Sequence[tuple[int, str]],
        fields: Sequence[tuple[int, str]],
    ) -> None:
        self._function = function
        self._slice = slice
        self._passed, self._places = function.prepare(values)
        place = {index: 2 * number for number, index in enumerate(function.array_indices)}
        self._arrays: list[tuple[int, int, ArrayField]] = []
        self._numbers: list[tuple[str, Any]] = []
        self._absent: list[str] = []
        for index, name in names:
            value = state.get(name, _MISSING)
            if value is _MISSING:
                self._absent.append(name)
            elif type(value) is np.ndarray:
                field = ArrayField(name, value.dtype, value.shape, value.size, 0)
                self._arrays.append((index, place[index], field))
            else:
                self._numbers.append((name, value))
        renewed = {index for index, *_ in self._arrays} | {index for index, _ in fields}
        # Arrays of the slice and of parameters: their addresses are noted, so they must stay.
        self._held = [values[i] for i in function.array_indices if i not in renewed]
        self._outputs = [
            _Output(index, place[index], name, values[index]) for index, name in fields
        ]

    def __call__(self, slice: Any, state: Mapping[str, Any]) -> dict[str, Any] | None:  # noqa: A002 - as Program.map
        """Return the result; None, and nothing was called, if the call is not like the last one.

        Raises:
            ArgumentError: The function wrote beside an output.
            ExecutionError: Its device says that something went wrong for good.
        """
        if slice is not self._slice or not self._takes(state):
            return None
        passed, places = self._passed, self._places
        result: dict[str, Any] = {}
        for output in self._outputs:
            flat = output.flat
            if flat is None or sys.getrefcount(flat) != output.alone:
                array = guarded.zeros(output.shape, output.dtype)
            else:
                output.bytes.fill(0)
                array = flat.reshape(output.shape)
            result[output.name] = array
            passed[output.index] = places[output.place] = address_of(array)
        self._function.call_prepared(passed, places)
        for output in self._outputs:
            array = result[output.name]
            flat = output.flat
            if flat is None or array.base is not flat or not output.untouched():
                self._function.check_guards(((output.index, array),))
            if not output.shape:
                result[output.name] = array[()]
        return result

    def native_call(self) -> NativeCall | None:
        """Return the call, so that it can be made without Python; None where it cannot."""
        passed: list[Any] = [*self._passed]
        places: list[int | str] = [*self._places]
        for index, place, field in self._arrays:
            passed[index] = places[place] = field.name
        outputs: list[Output] = []
        for each in self._outputs:
            flat = each.flat
            if flat is None or sys.getrefcount(flat) != each.alone:
                return None
            passed[each.index] = places[each.place] = address = address_of(flat)
            around = guarded.marked(address, flat.nbytes)
            outputs.append(Output(each.name, address, flat.nbytes, around))
        parts = self._function.native_parts(passed, places)
        if parts is None:
            return None
        function, numbers, floats, record = parts
        taken = frozenset(field.name for _, _, field in self._arrays)
        taken |= {name for name, _ in self._numbers}
        return NativeCall(function, numbers, floats, taken, tuple(outputs), record, self)

    def _takes(self, state: Mapping[str, Any]) -> bool:
        """Record where the arrays of a state are; False if it differs in form from the last one."""
        passed, places = self._passed, self._places
        for index, place, field in self._arrays:
            array: Any = state.get(field.name)
            if not field.fits(array):
                return False
            passed[index] = places[place] = address_of(array)
        for name, number in self._numbers:
            value = state.get(name)
            if type(value) is not type(number) or value != number:
                return False
        return not any(name in state for name in self._absent)


class _Output:
    """Where an output goes.

    Attributes:
        index: Which C parameter it is.
        place: Where its address is noted.
        name: Its field of the result.
        shape: Its shape.
        dtype: Its type.
        flat: Memory for it; None for a large one.
        bytes: The same memory.
        alone: The number of references to ``flat`` when it is not in use.
    """

    __slots__ = ("_around", "alone", "bytes", "dtype", "flat", "index", "name", "place", "shape")

    def __init__(self, index: int, place: int, name: str, array: Array) -> None:
        self.index, self.place, self.name = index, place, name
        self.shape, self.dtype = array.shape, array.dtype
        self.flat: Array | None = None
        self.bytes = np.empty(0, np.uint8)
        self.alone = 0
        self._around: tuple[tuple[memoryview, bytes], ...] = ()
        if 0 < array.nbytes <= MAX_KEPT:
            flat = guarded.zeros((array.size,), array.dtype)
            if isinstance(flat.base, np.ndarray):
                return  # not between guards: views of it refer to its base, and do not count
            self.flat = flat
            self.bytes = flat.view(np.uint8)
            self._around = guarded.around(address_of(flat), flat.nbytes)
            # Here, too, from an attribute and a variable; a debugger that looks on does not count.
            self.alone = min(sys.getrefcount(flat), REFERENCES)

    def untouched(self) -> bool:
        """Whether the bytes around the memory are what they were."""
        return all(view.tobytes() == pattern for view, pattern in self._around)


def repeatable(
    state: Mapping[str, Any], values: Sequence[Any], names: Sequence[tuple[int, str]]
) -> bool:
    """Whether a call can be made again: it took of its state arrays as they are, and numbers.

    Args:
        state: The state of the call.
        values: The arguments, in the order of the C parameters.
        names: The parameters that are looked up in the state: index and name.
    """
    if len(values) > MAX_ARRAYS or guarded.guards_all_arrays():
        return False
    for index, name in names:
        value = state.get(name, 1)
        if type(value) is np.ndarray:
            if values[index] is not value:  # it was converted
                return False
        elif type(value) not in {int, bool} and (type(value) is not float or not value):
            return False  # a zero may have either sign
    return True
