"""Built-in reductions: how contributions to a wave are put together.

Each field of a contribution has its own reduction. All are associative, so any tree gives the
same result (floating-point sums up to rounding, as the order is that of arrival).

``sum min max``
    Numbers or arrays, element by element; shapes and types must agree, and stay. A sum of
    booleans counts. Where one number is NaN, the least and the greatest are NaN.
``mean``
    Mean over the *items* behind the contributions: each counts with its weight.
``concat``
    Along the first axis, in the order of the ranks; numbers become arrays of one element.
``count``
    Number of contributions in which the field is not None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sapwood.comm import values
from sapwood.comm.payload import Payload
from sapwood.core.errors import ExecutionError, ProtocolError

Array = np.ndarray[Any, Any]


class Sum:
    """Adds up."""

    __slots__ = ("_private", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self._private = False

    def add(self, value: Any, _rank: int, _weight: float) -> None:
        """Take one more contribution."""
        value = self.prepare(value)
        if self.value is None:
            self.value = value  # a view of the contributor's memory: not written to
        elif isinstance(value, np.ndarray) or isinstance(self.value, np.ndarray):
            _check_alike(self.value, value)
            if self._private:
                self.combine(self.value, value, out=self.value)
            else:
                self.value = np.asarray(self.combine(self.value, value))
                self._private = True
        else:
            self.value = self.combine_scalars(self.value, value)

    def prepare(self, value: Any) -> Any:
        """Return a contribution as it is put together with others."""
        return _counted(_number(value))

    combine: Callable[..., Any] = staticmethod(np.add)

    def combine_scalars(self, left: Any, right: Any) -> Any:
        """Combine two numbers."""
        return left + right

    def partial(self) -> Any:
        """Return what travels on to the next vertex."""
        return self.value

    def total(self) -> Any:
        """Return the result; never a view of a contributor's memory."""
        if isinstance(self.value, np.ndarray) and not self._private:
            return np.array(self.value)
        return self.value


class Minimum(Sum):
    """Keeps the smallest."""

    __slots__ = ()
    combine = staticmethod(np.minimum)

    def prepare(self, value: Any) -> Any:
        """Return a contribution as it is put together with others."""
        return _number(value)

    def combine_scalars(self, left: Any, right: Any) -> Any:
        """Combine two numbers."""
        return right if right < left or _is_nan(right) else left


class Maximum(Sum):
    """Keeps the largest."""

    __slots__ = ()
    combine = staticmethod(np.maximum)

    def prepare(self, value: Any) -> Any:
        """Return a contribution as it is put together with others."""
        return _number(value)

    def combine_scalars(self, left: Any, right: Any) -> Any:
        """Combine two numbers."""
        return right if right > left or _is_nan(right) else left


class Mean:
    """Weighted mean; the formula is that of Chan, Golub and LeVeque (1979)."""

    __slots__ = ("value", "weight")

    def __init__(self) -> None:
        self.value: Any = None
        self.weight = 0.0

    def add(self, value: Any, _rank: int, weight: float) -> None:
        """Take one more contribution, itself a mean over ``weight`` items."""
        if weight <= 0:
            return
        value = _real(_number(value))
        if self.value is None:
            self.value, self.weight = value, weight
            return
        if isinstance(value, np.ndarray) or isinstance(self.value, np.ndarray):
            _check_alike(self.value, value)
        self.weight += weight
        self.value = self.value + (value - self.value) * (weight / self.weight)

    def partial(self) -> Any:
        """Return what travels on to the next vertex."""
        return self.value

    def total(self) -> Any:
        """Return the result."""
        return np.array(self.value) if isinstance(self.value, np.ndarray) else self.value


class Concat:
    """Puts pieces one after the other, by rank."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[tuple[int, Any]] = []

    def add(self, value: Any, rank: int, _weight: float) -> None:
        """Take one more contribution: a value, or the pieces of a subtree."""
        if isinstance(value, dict):
            if value.keys() != {"pieces"}:
                raise ExecutionError("a dictionary cannot be put after another")
            self.pieces.extend((int(first), piece) for first, piece in value["pieces"])
        else:
            self.pieces.append((rank, value))

    def partial(self) -> Any:
        """Return what travels on to the next vertex."""
        return {"pieces": self.pieces}

    def total(self) -> Any:
        """Return the result."""
        ranks, pieces = zip(*sorted(self.pieces, key=_by_rank), strict=True)
        ordered = [np.atleast_1d(piece) for piece in pieces]
        for rank, piece in zip(ranks, ordered, strict=True):
            if piece.shape[1:] != ordered[0].shape[1:]:
                raise ExecutionError(
                    f"a piece of shape {piece.shape} does not fit after one of {ordered[0].shape}",
                    where=f"agent {rank}",
                )
        return np.concatenate(ordered)


class Count:
    """Counts contributions."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, value: Any, _rank: int, _weight: float) -> None:
        """Take one more contribution: a value, or the count of a subtree."""
        if isinstance(value, dict) and value.keys() == {"count"}:
            self.value += int(value["count"])
        elif value is not None:
            self.value += 1

    def partial(self) -> Any:
        """Return what travels on to the next vertex."""
        return {"count": self.value}

    def total(self) -> Any:
        """Return the result."""
        return self.value


REDUCTIONS: dict[str, type[Sum | Mean | Concat | Count]] = {
    "sum": Sum,
    "min": Minimum,
    "max": Maximum,
    "mean": Mean,
    "concat": Concat,
    "count": Count,
}
"""The built-in reductions by name."""


class Accumulator:
    """Puts the contributions to one wave together, field by field.

    Args:
        reduce: Reduction of each field.

    Raises:
        ProtocolError: A reduction is unknown.

    Example:
        >>> both = Accumulator({"total": "sum", "parts": "concat"})
        >>> both.add({"total": 3, "parts": [1.0, 2.0]}, rank=2, weight=2)
        >>> both.add({"total": 4, "parts": [9.0]}, rank=1, weight=1)
        >>> both.total()
        {'total': 7, 'parts': array([9., 1., 2.])}
    """

    __slots__ = ("_fields",)

    def __init__(self, reduce: Mapping[str, str]) -> None:
        for field, kind in reduce.items():
            if kind not in REDUCTIONS:
                raise ProtocolError(
                    f"unknown reduction '{kind}' of field '{field}'",
                    hint=f"use one of {', '.join(REDUCTIONS)}",
                )
        self._fields = {field: REDUCTIONS[kind]() for field, kind in reduce.items()}

    def add(self, value: Any, rank: int, weight: float) -> None:
        """Take one more contribution: a dictionary with exactly the expected fields.

        Raises:
            ExecutionError: A field is missing, unknown, or does not fit the others.
        """
        if not isinstance(value, dict) or value.keys() != self._fields.keys():
            found = sorted(value) if isinstance(value, dict) else type(value).__name__
            raise ExecutionError(
                f"a map returned {found} where the reduction expects {sorted(self._fields)}",
                where=f"agent {rank}",
                hint="return a dictionary with exactly the fields that 'reduce' names",
            )
        for field, reduction in self._fields.items():
            try:
                reduction.add(value[field], rank, weight)
            except (ExecutionError, TypeError, ValueError, KeyError) as error:
                raise ExecutionError(
                    f"cannot reduce field '{field}': {getattr(error, 'what', error)}",
                    where=f"agent {rank}",
                ) from error

    def partial(self) -> dict[str, Any]:
        """Return what a junction sends on."""
        return {field: reduction.partial() for field, reduction in self._fields.items()}

    def total(self) -> dict[str, Any]:
        """Return the result at the root.

        Raises:
            ExecutionError: The contributions to a field do not fit together.
        """
        totals: dict[str, Any] = {}
        for field, reduction in self._fields.items():
            try:
                totals[field] = reduction.total()
            except (ExecutionError, TypeError, ValueError) as error:
                raise ExecutionError(
                    f"cannot reduce field '{field}': {getattr(error, 'what', error)}",
                    where=getattr(error, "where", ""),
                ) from error
        return totals


class ValueGathering:
    """Gathers encoded contributions: decodes each, and encodes what travels on.

    Args:
        reduce: Reduction of each field.
        place: Puts the arrays of a value into a payload, for example into shared memory.
    """

    __slots__ = ("_accumulator", "_place")

    def __init__(
        self, reduce: Mapping[str, str], place: Callable[[values.Encoded], Payload | None]
    ) -> None:
        self._accumulator = Accumulator(reduce)
        self._place = place

    def add(self, body: bytes, payload: Payload | None, rank: int, weight: float) -> None:
        """Take one more contribution."""
        value = values.decode(body, payload.view if payload is not None else b"")
        self._accumulator.add(value, rank, weight)

    def partial(self) -> tuple[bytes, Payload | None]:
        """Return what a junction sends on."""
        encoded = values.encode(self._accumulator.partial())
        return encoded.body, self._place(encoded)

    def total(self) -> dict[str, Any]:
        """Return the result at the root."""
        return self._accumulator.total()


def inline(encoded: values.Encoded) -> Payload | None:
    """Put the arrays of a value into the message itself."""
    return Payload(encoded.payload()) if encoded.nbytes else None


def gathering(
    place: Callable[[values.Encoded], Payload | None] = inline,
) -> Callable[[Mapping[str, str]], ValueGathering]:
    """Return what a node needs to gather values."""
    return lambda reduce: ValueGathering(reduce, place)


def _by_rank(piece: tuple[int, Any]) -> int:
    return piece[0]


def _number(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))
    if isinstance(value, (np.generic, int, float, complex)):
        return value
    raise ExecutionError(f"{type(value).__name__} is neither a number nor an array")


def _counted(value: Any) -> Any:
    """Return booleans as integers, as ``numpy.sum`` takes them."""
    if isinstance(value, np.ndarray):
        return value.astype(np.int64) if value.dtype == np.bool_ else value
    return int(value) if isinstance(value, (bool, np.bool_)) else value


def _real(value: Any) -> Any:
    """Return whole numbers as floating-point ones: differences and means of them are such."""
    if isinstance(value, np.ndarray):
        return value.astype(np.float64) if value.dtype.kind in "biu" else value
    return float(value) if isinstance(value, (int, np.integer, np.bool_)) else value


def _is_nan(value: Any) -> bool:
    return bool(value != value)  # noqa: PLR0124 - only NaN differs from itself


def _check_alike(left: Any, right: Any) -> None:
    if not (
        isinstance(left, np.ndarray)
        and isinstance(right, np.ndarray)
        and left.shape == right.shape
        and left.dtype == right.dtype
    ):
        raise ExecutionError(f"{_described(left)} does not fit {_described(right)}")


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}"
    return type(value).__name__
