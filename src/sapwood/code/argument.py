"""Checking the arguments of native functions before they are called."""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from sapwood.code import guarded
from sapwood.code.call_record import place_text
from sapwood.code.extent import Extent
from sapwood.code.interface import FunctionSignature, ParameterSignature, Role
from sapwood.core.errors import ArgumentError
from sapwood.core.shown import shown

Array = np.ndarray[Any, Any]
Lengths = dict[str, int]

MISSING: Final = object()
"""Stands for an argument that was not given."""

_LARGEST_SINGLE: Final = float(np.finfo(np.float32).max)
"""What a C ``float`` can hold, at most."""

_INTEGERS: Final[dict[str, Any]] = {
    "i1": ctypes.c_int8,
    "i2": ctypes.c_int16,
    "i4": ctypes.c_int32,
    "i8": ctypes.c_int64,
    "u1": ctypes.c_uint8,
    "u2": ctypes.c_uint16,
    "u4": ctypes.c_uint32,
    "u8": ctypes.c_uint64,
}
_CTYPES: Final[dict[str, Any]] = {
    **_INTEGERS,
    "f4": ctypes.c_float,
    "f8": ctypes.c_double,
    "b1": ctypes.c_bool,
}
_CHARACTERS: Final = (np.dtype("i1"), np.dtype("u1"), np.dtype("S1"))


def ctype_of(dtype: str) -> Any:
    """Return the ctypes type of a scalar, or None where there is none."""
    return _CTYPES.get(np.dtype(dtype).str[1:])


class Checker:
    """Base of what checks one parameter.

    Attributes:
        signature: The parameter.
        function: The function it belongs to.
    """

    __slots__ = ("function", "name", "signature")

    def __init__(self, signature: ParameterSignature, function: FunctionSignature) -> None:
        self.signature = signature
        self.function = function
        self.name = signature.name

    def error(self, what: str, hint: str = "") -> ArgumentError:
        """Return an error that names function and parameter."""
        return ArgumentError(
            f"{self.function.name}: parameter {self.name} {what}",
            where=self.function.where or self.function.name,
            hint=hint,
        )


class ScalarChecker(Checker):
    """Checks a number that is passed by value."""

    __slots__ = ("convert", "ctype", "high", "low")

    def __init__(self, signature: ParameterSignature, function: FunctionSignature) -> None:
        super().__init__(signature, function)
        dtype = np.dtype(signature.element.dtype)
        self.ctype = ctype_of(signature.element.dtype)
        self.low = self.high = 0
        self.convert: Callable[[Any], int | float | bool] = self._real
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            self.low, self.high = int(limits.min), int(limits.max)
            self.convert = self._integer
        elif dtype.kind == "b":
            self.convert = self._boolean
        elif dtype == np.float32:
            self.convert = self._single

    def _integer(self, value: Any) -> int:
        if type(value) is not int:
            try:
                value = int(value) if isinstance(value, np.bool_) else operator.index(value)
            except TypeError:
                raise self._wrong(value, "a whole number") from None
        if not self.low <= value <= self.high:
            raise self.error(
                f"is {value}, which {self.signature.c} cannot hold",
                f"give {self.low} to {self.high}",
            )
        return int(value)

    def _real(self, value: Any) -> float:
        if type(value) is float:
            return value
        if isinstance(value, int | float | np.floating | np.integer) or _is_zero_dimensional(value):
            return float(value)
        raise self._wrong(value, "a number")

    def _single(self, value: Any) -> float:
        number = self._real(value)
        if _LARGEST_SINGLE < abs(number) < math.inf:
            raise self.error(
                f"is {number:g}, which {self.signature.c} cannot hold",
                f"give at most {_LARGEST_SINGLE:g}, or declare it double",
            )
        return number

    def _boolean(self, value: Any) -> bool:
        if isinstance(value, bool | np.bool_) or (
            _is_zero_dimensional(value) and value.dtype.kind == "b"
        ):
            return bool(value)
        raise self._wrong(value, "True or False")

    def _wrong(self, value: Any, wanted: str) -> ArgumentError:
        more = outputs_hint(self.function) if isinstance(value, np.ndarray | list) else ""
        return self.error(
            f"wants {self.signature.c}, got {describe_value(value)}", f"give {wanted}{more}"
        )


def outputs_hint(function: FunctionSignature) -> str:
    """Say of a function's outputs why they are not given; nothing where it has none."""
    names = [each.name for each in function.parameters if each.role is Role.OUTPUT]
    if not names:
        return ""
    made = "is an output: it is made" if len(names) == 1 else "are outputs: they are made"
    return f"; {', '.join(names)} {made} and returned; if it is read too, say @inout {names[0]}"


class ArrayChecker(Checker):
    """Checks an array that is passed by address."""

    __slots__ = ("compound", "dtype", "extents", "fixed", "inner", "others", "writable")

    def __init__(self, signature: ParameterSignature, function: FunctionSignature) -> None:
        super().__init__(signature, function)
        self.dtype = signature.element.numpy()
        self.inner = signature.element.shape
        self.writable = signature.role in {Role.OUTPUT, Role.INOUT}
        self.others = _CHARACTERS if signature.element.c in _CHARACTER_NAMES else ()
        shape = signature.shape
        self.extents = None if shape is None else tuple(Extent(text) for text in shape)
        # Of a name, a number or a formula per axis, only the first can tell a length.
        self.fixed = tuple(
            (axis, extent.name, extent.constant)
            for axis, extent in enumerate(self.extents or ())
            if extent.name or extent.constant is not None
        )
        self.compound = tuple(
            (axis, extent)
            for axis, extent in enumerate(self.extents or ())
            if not extent.name and extent.constant is None
        )

    def check(self, value: Any, lengths: Lengths) -> Array:
        """Return the array to pass, and note the lengths that its shape tells.

        Raises:
            ArgumentError: It cannot be passed.
        """
        if type(value) is not np.ndarray:
            value = self._as_array(value)
        dtype = value.dtype
        if dtype is not self.dtype and dtype != self.dtype and dtype not in self.others:
            raise self._wrong_type(value)
        flags = value.flags
        if not flags.c_contiguous:
            raise self.error(
                f"is not contiguous in memory (strides {value.strides})",
                f"pass numpy.ascontiguousarray({self.name})",
            )
        if self.writable and not flags.writeable:
            raise self.error("is written to, but the array is read-only", "pass a copy")
        if self.extents is None:
            self._check_unannotated(value)
            return value  # type: ignore[no-any-return]  # numpy types a checked Any as Any
        shape = value.shape
        if len(shape) != len(self.extents):
            raise self._wrong_rank(shape)
        for axis, name, constant in self.fixed:
            extent = shape[axis]
            known = constant if name is None else lengths.get(name)
            if known is None:
                lengths[name] = extent  # type: ignore[index]  # a constant is never None here
            elif known != extent:
                raise self._wrong_extent(axis, shape, known)
        return value  # type: ignore[no-any-return]  # as above

    def check_compound(self, value: Array, lengths: Lengths) -> None:
        """Check the extents that are formulas, once all lengths are known."""
        for axis, extent in self.compound:
            known = self._evaluate(extent, lengths)
            if known != value.shape[axis]:
                raise self._wrong_extent(axis, value.shape, known)

    def strayed(self, offset: int, nbytes: int) -> ArgumentError:
        """Return the error for changed bytes around an array.

        Args:
            offset: The first such byte, from the begin of the array.
            nbytes: Size of the array.
        """
        place = place_text(offset, self.dtype.itemsize, nbytes)
        side = "before its begin" if offset < 0 else "past its end"
        if self.extents is not None:
            extents = "".join(f"[{extent.text}]" for extent in self.extents)
            return self.error(
                f"was written {side}, {place}: it has the extents {extents}",
                "correct the function, or the extents in its comment",
            )
        return self.error(
            f"was written {side}, {place}, but nothing says that it is an array",
            f"write the comment // @array {self.name}[…] above {self.function.name}",
        )

    def allocate(self, lengths: Lengths) -> Array:
        """Return zeros for an output, between guards; without extents, one value.

        Raises:
            ArgumentError: A length is not known, or negative.
        """
        shape = self.inner
        if self.extents is not None:
            shape = tuple(self._evaluate(extent, lengths) for extent in self.extents)
        try:
            return guarded.zeros(shape, self.dtype)
        except (ValueError, MemoryError) as error:
            raise self.error(f"cannot be allocated with shape {shape}: {error}") from error

    def _evaluate(self, extent: Extent, lengths: Lengths) -> int:
        try:
            return extent.value(lengths)
        except KeyError as error:
            raise self.error(
                f"has extent [{extent.text}], but {error.args[0]} is not known",
                f"give {error.args[0]}",
            ) from None
        except ZeroDivisionError:
            raise self.error(f"has extent [{extent.text}], which divides by zero") from None

    def _as_array(self, value: Any) -> Array:
        if isinstance(value, np.ndarray):
            return value.view(np.ndarray)
        if isinstance(value, str | bytes) and self.others and not self.writable:
            data = value.encode() if isinstance(value, str) else value
            return np.frombuffer(data + b"\0", np.int8)
        if isinstance(value, np.generic) and not self.writable:
            return np.asarray(value)
        if isinstance(value, ctypes.Structure | ctypes.Array):
            if ctypes.sizeof(value) % self.dtype.itemsize:
                raise self.error(
                    f"is a {type(value).__name__} of {ctypes.sizeof(value)} bytes, but "
                    f"{self.signature.element.c} has {self.dtype.itemsize}"
                )
            return np.frombuffer(memoryview(value), self.dtype)
        raise self.error(
            f"wants {self._wanted()}, got {describe_value(value)}",
            f"pass numpy.asarray({self.name}, {self._dtype_text()})",
        )

    def _check_unannotated(self, value: Array) -> None:
        if self.inner and value.shape[-len(self.inner) :] != self.inner:
            raise self.error(f"has shape {value.shape}, but its last extents must be {self.inner}")
        if self.signature.role is Role.OUTPUT and value.size != max(1, int(np.prod(self.inner))):
            raise self.error(
                f"has shape {value.shape}, but nothing says that it is more than one value",
                f"write the comment // @array {self.name}[…] above {self.function.name}",
            )

    def _wrong_type(self, value: Array) -> ArgumentError:
        swapped = value.dtype.newbyteorder() == self.dtype
        return self.error(
            f"wants {self._wanted()}, got {value.dtype}{' of other byte order' if swapped else ''}",
            f"pass {self.name}.astype({self._dtype_text()})"
            if value.dtype.kind in "biufc" and not self.dtype.names
            else f"{self.signature.element.c} is {self.dtype}",
        )

    def _wrong_rank(self, shape: tuple[int, ...]) -> ArgumentError:
        wanted = "".join(f"[{extent.text}]" for extent in self.extents or ())
        rank = len(self.extents or ())
        axes = "dimension" if rank == 1 else "dimensions"
        return self.error(f"wants {rank} {axes} {wanted}, got shape {shape}")

    def _wrong_extent(self, axis: int, shape: tuple[int, ...], known: int) -> ArgumentError:
        extents = self.extents or ()
        wanted = "".join(f"[{extent.text}]" for extent in extents)
        return self.error(
            f"has shape {shape}, but in {wanted} {extents[axis].text} is {known}",
            "all arrays that share a length must agree",
        )

    def _wanted(self) -> str:
        return f"an array of {self.dtype if not self.dtype.names else self.signature.element.c}"

    def _dtype_text(self) -> str:
        return f"numpy.{self.dtype}" if not self.dtype.names else "…"


_CHARACTER_NAMES = {"char", "signed char", "unsigned char"}


def describe_value(value: Any) -> str:
    """Return what a value is, for an error message."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} and shape {value.shape}"
    text = shown(value)
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:39] + '…'}"


def _is_zero_dimensional(value: Any) -> bool:
    return isinstance(value, np.ndarray) and not value.ndim and value.dtype.kind in "biuf"
