"""Calling native functions with Python numbers and numpy arrays, which are passed uncopied."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

import numpy as np

from sapwood.code import guarded
from sapwood.code.argument import (
    MISSING,
    Array,
    ArrayChecker,
    Checker,
    Lengths,
    ScalarChecker,
    ctype_of,
    outputs_hint,
)
from sapwood.code.array_address import address_of
from sapwood.code.call_record import CallRecord, Names
from sapwood.code.extent import Extent
from sapwood.code.floating_point import Environment
from sapwood.code.floating_point import restore as restore_modes
from sapwood.code.floating_point import save as save_modes
from sapwood.code.interface import FunctionSignature, Role
from sapwood.core.errors import ArgumentError, ExecutionError
from sapwood.core.suggest import suggest

_C = TypeVar("_C", bound=Checker)

RETURN: Final = "return"
"""Name of a function's own value among its outputs."""


class NativeFunction:
    """A function of a loaded library.

    Arguments are given by keyword or position. Positions count in the order of the C
    parameters without outputs, which are allocated, and without lengths that the shapes of
    arrays tell; both can be given by keyword. A parameter of the name of a program parameter
    is that, unless it is given.

    Attributes:
        signature: What it takes and returns.
        array_indices: Which of its parameters are arrays.
        takes_addresses: Whether it is called with the addresses of arrays, and needs nothing else.

    Returns its outputs by name, with the function's own value as ``return``; only that value
    without outputs.

    Raises:
        ArgumentError: An argument does not fit; the function was not called.
        ExecutionError: Its device says that something went wrong for good.
    """

    takes_addresses: ClassVar[bool] = True

    def __init__(
        self,
        signature: FunctionSignature,
        function: Any,
        constants: Mapping[str, Any],
        problem: Callable[[], bytes | None] | None = None,
    ) -> None:
        self.signature = signature
        self._problem = problem
        self.__name__: str = signature.name
        self.__doc__ = signature.doc
        self._function = function
        checkers: list[Checker] = [
            ScalarChecker(parameter, signature)
            if parameter.role is Role.SCALAR
            else ArrayChecker(parameter, signature)
            for parameter in signature.parameters
        ]
        self._index = {checker.name: index for index, checker in enumerate(checkers)}
        self._scalars = _numbered(checkers, ScalarChecker)
        self._arrays = _numbered(checkers, ArrayChecker)
        self._compound = [(i, array) for i, array in self._arrays if array.compound]
        self.array_indices: tuple[int, ...] = tuple(index for index, _ in self._arrays)
        outputs = {Role.OUTPUT, Role.INOUT}
        self._outputs = [(i, array) for i, array in self._arrays if array.signature.role in outputs]
        self._lengths = length_names(signature)
        self._told = told_lengths(signature)
        self._constants = {
            name: value
            for name, value in constants.items()
            if name in self._lengths and type(value) is int and name not in self._index
        }
        self._defaults = {
            self._index[name]: value for name, value in constants.items() if name in self._index
        }
        self._positions = [
            index
            for name, index in self._index.items()
            if signature.parameters[index].role is not Role.OUTPUT and name not in self._told
        ]
        function.argtypes = [
            checker.ctype if isinstance(checker, ScalarChecker) else ctypes.c_void_p
            for checker in checkers
        ]
        returns = signature.returns
        function.restype = None if returns is None else ctype_of(returns.dtype)
        names = tuple((a.name, a.signature.element.c, a.dtype.itemsize) for _, a in self._arrays)
        self._record = CallRecord(Names(signature.name, signature.where, names))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self._call(self._arrange(args, kwargs))

    def call_remotely(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call it for another process, whose arrays may not be written.

        Those that the function changes in place are copied, and returned as outputs.
        """
        values = self._arrange(args, kwargs)
        for index, _ in self._outputs:
            value = values[index]
            if isinstance(value, np.ndarray) and not value.flags.writeable:
                values[index] = value.copy()
        return self._call(values)

    def _call(self, values: list[Any]) -> Any:
        outputs = self.invoke(values, {})
        if not self._outputs:
            return outputs.get(RETURN)
        return outputs

    def invoke(
        self, values: list[Any], lengths: Lengths, copied: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Call with values in the order of the C parameters; MISSING where there is none.

        Args:
            values: Is changed: holds the arrays that were passed afterwards.
            lengths: More lengths that annotations may name; is changed.
            copied: Which values are arrays that :mod:`sapwood.code.guarded` made.
        """
        lengths.update(self._constants)
        for index, default in self._defaults.items():
            if values[index] is MISSING:
                values[index] = default
        for index, scalar in self._scalars:
            value = values[index]
            if value is not MISSING:
                values[index] = converted = scalar.convert(value)
                if scalar.name in self._lengths:
                    lengths[scalar.name] = int(converted)
        for index, array in self._arrays:
            value = values[index]
            if value is not MISSING:
                values[index] = array.check(value, lengths)
        guards = self._fill(values, lengths)
        guards += copied
        if guarded.guards_all_arrays():
            returned = self._call_guarded(values, guards)
        else:
            returned = self.call_native(values)
        self._check_guards(values, guards)
        outputs = {
            array.name: values[index] if values[index].ndim else values[index][()]
            for index, array in self._outputs
        }
        if self.signature.returns is not None:
            outputs[RETURN] = returned
        return outputs

    def call_native(self, values: list[Any]) -> Any:
        """Call the C function with values that are checked and complete."""
        return self.call_prepared(*self.prepare(values))

    def prepare(self, values: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """Return what is passed for complete values, and address and size of each array."""
        passed = list(values)
        places: list[int] = []
        for index, _ in self._arrays:
            array = values[index]
            address = passed[index] = address_of(array)
            places += (address, array.nbytes)
        return passed, places

    def call_prepared(self, passed: Sequence[Any], places: Sequence[int]) -> Any:
        """Call the C function with what :meth:`prepare` returned; the arrays must still exist."""
        modes = Environment()
        save_modes(modes)
        self._record.begin(places)
        returned = self._function(*passed)
        self._record.end()
        restore_modes(modes)
        if self._problem is not None:
            self._raise_problem(self._problem())
        return returned

    def native_parts(
        self, passed: Sequence[Any], places: Sequence[int | str]
    ) -> tuple[int, tuple[int | str, ...], tuple[bytes, ...], tuple[int | str, ...]] | None:
        """Return address, integers, floating-point numbers and record of a call.

        None if more than a call of the function is needed.

        Args:
            passed: As :meth:`call_prepared`; names may stand for addresses.
            places: As :meth:`call_prepared`; names may stand for addresses.
        """
        address = ctypes.cast(self._function, ctypes.c_void_p).value
        if self._problem is not None or address is None:
            return None
        scalars, numbers, floats = dict(self._scalars), list[int | str](), list[bytes]()
        for index, value in enumerate(passed):
            scalar = scalars.get(index)
            if scalar is None:
                numbers.append(value)
            elif scalar.ctype in {ctypes.c_float, ctypes.c_double}:
                floats.append(bytes(scalar.ctype(value)))
            else:
                numbers.append(int(value))
        return address, tuple(numbers), tuple(floats), self._record.words(places)

    def _raise_problem(self, told: bytes | None) -> None:
        """Raise what the library's device says after a call."""
        if told is not None:
            text = told.decode("utf-8", "replace")
            raise ExecutionError(
                f"the device reports an error after {self.__name__}: {text}",
                where=self.signature.where,
                hint="correct the kernel; `sapwood patch SOURCE --check` looks for more",
            )

    def _call_guarded(self, values: list[Any], guards: list[int]) -> Any:
        """Call with copies between guards of the arrays that have none; copy back what is written.

        Reading past the end of an array is found as well, and writing to one that is only read.
        """
        passed = values.copy()
        back: list[tuple[int, Array]] = []
        for index, array in self._arrays:
            if index in guards:
                continue
            if array.writable:
                passed[index] = guarded.copy(values[index])
                back.append((index, values[index]))
            else:
                passed[index] = guarded.read_only(values[index])
        returned = self.call_native(passed)
        self._check_guards(passed, [index for index, _ in back])
        for index, original in back:
            original[...] = passed[index]
        return returned

    def _check_guards(self, values: list[Any], guards: Sequence[int]) -> None:
        self.check_guards([(index, values[index]) for index in guards])

    def check_guards(self, arrays: Iterable[tuple[int, Array]]) -> None:
        """Look whether the function wrote beside arrays that :mod:`sapwood.code.guarded` made.

        Args:
            arrays: Which parameters they were, and the arrays.

        Raises:
            ArgumentError: It did.
        """
        for index, array in arrays:
            offset = guarded.strayed(address_of(array), array.nbytes)
            if offset is not None:
                checker = next(checker for number, checker in self._arrays if number == index)
                raise checker.strayed(offset, array.nbytes)

    def apply(self, values: list[Any], guards: Sequence[int] = ()) -> None:
        """Call with contiguous arrays and numbers as they are, in the order of the C parameters.

        Types and lengths are not checked: the caller answers for them.

        Args:
            values: The arguments.
            guards: Which of them are arrays that :mod:`sapwood.code.guarded` made.

        Raises:
            ArgumentError: One of those was written outside its bounds.
        """
        self.call_native(values)
        self._check_guards(values, guards)

    def _fill(self, values: list[Any], lengths: Lengths) -> list[int]:
        """Make what is missing; return which arrays are new."""
        made: list[int] = []
        for index, scalar in self._scalars:
            if values[index] is MISSING:
                if scalar.name not in lengths:
                    raise self._missing(self._untold(values) or scalar.name)
                values[index] = scalar.convert(lengths[scalar.name])
        for index, array in self._arrays:
            if values[index] is MISSING:
                if array.signature.role is not Role.OUTPUT:
                    raise self._missing(array.name)
                values[index] = array.allocate(lengths)
                made.append(index)
        for index, array in self._compound:
            array.check_compound(values[index], lengths)
        return made

    def _arrange(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        values = [MISSING] * len(self._index)
        if len(args) > len(self._positions):
            raise ArgumentError(
                f"{self.signature.name} takes {len(self._positions)} arguments by position, "
                f"got {len(args)}",
                where=self.signature.where,
                hint=(
                    (f"they are: {self._usage()}" if self._positions else "")
                    + outputs_hint(self.signature)
                ).removeprefix("; "),
            )
        for index, value in zip(self._positions, args, strict=False):
            values[index] = value
        for name, value in kwargs.items():
            index = self._index.get(name, -1)
            if index < 0:
                raise ArgumentError(
                    f"{self.signature.name} has no parameter {name}",
                    where=self.signature.where,
                    hint=suggest(name, self._index),
                )
            if values[index] is not MISSING:
                raise ArgumentError(
                    f"{self.signature.name}: parameter {name} is given twice",
                    where=self.signature.where,
                    hint="give it by position or by keyword",
                )
            values[index] = value
        return values

    def _untold(self, values: list[Any]) -> str:
        """Return an array that is missing: it is what would have told a length."""
        missing = (array for index, array in self._arrays if values[index] is MISSING)
        return next((each.name for each in missing if each.signature.role is not Role.OUTPUT), "")

    def _missing(self, name: str) -> ArgumentError:
        return ArgumentError(
            f"{self.signature.name}: parameter {name} is missing",
            where=self.signature.where,
            hint=f"call {self.signature.name}({self._usage()})",
        )

    def _usage(self) -> str:
        return ", ".join(self.signature.parameters[index].name for index in self._positions)

    def __repr__(self) -> str:
        return f"<native function {self.signature.declaration}>"


def length_names(signature: FunctionSignature) -> set[str]:
    """Return the names in the extents of all arrays of a function."""
    return {
        name
        for parameter in signature.parameters
        for text in parameter.shape or ()
        for name in Extent(text).names
    }


def told_lengths(signature: FunctionSignature) -> set[str]:
    """Return the lengths that the shapes of arguments tell: plain names in their extents."""
    return {
        text.strip()
        for parameter in signature.parameters
        if parameter.role in {Role.INPUT, Role.INOUT}
        for text in parameter.shape or ()
        if text.strip().isidentifier()
    }


def _numbered(checkers: list[Checker], kind: type[_C]) -> list[tuple[int, _C]]:
    return [(index, each) for index, each in enumerate(checkers) if isinstance(each, kind)]
