"""Built-in reductions: how contributions to a wave are put together.

Each field of a contribution has its own reduction. All are associative, so any tree gives the
same result (floating-point sums up to rounding, as the order is that of arrival).

``sum min max``
    Element by element; shapes and types must agree.
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

from sapwood.core.errors import ExecutionError

Array = np.ndarray[Any, Any]


class Sum:
    """Adds up."""

    __slots__ = ("_private", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self._private = False

    def add(self, value: Any, _rank: int, _weight: float) -> None:
        """Take one more contribution."""
        if self.value is None:
            self.value = value  # a view of the contributor's memory: not written to
        elif isinstance(value, np.ndarray):
            _check_alike(self.value, value)
            if self._private:
                self.combine(self.value, value, out=self.value)
            else:
                self.value = self.combine(self.value, value)
                self._private = True
        else:
            self.value = self.combine_scalars(self.value, value)

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

    def combine_scalars(self, left: Any, right: Any) -> Any:
        """Combine two numbers."""
        return min(left, right)


class Maximum(Sum):
    """Keeps the largest."""

    __slots__ = ()
    combine = staticmethod(np.maximum)

    def combine_scalars(self, left: Any, right: Any) -> Any:
        """Combine two numbers."""
        return max(left, right)


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
        if self.value is None:
            self.value, self.weight = value, weight
            return
        if isinstance(value, np.ndarray):
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
            self.pieces.extend((int(first), piece) for first, piece in value["pieces"])
        else:
            self.pieces.append((rank, value))

    def partial(self) -> Any:
        """Return what travels on to the next vertex."""
        return {"pieces": self.pieces}

    def total(self) -> Any:
        """Return the result."""
        ordered = [np.atleast_1d(piece) for _, piece in sorted(self.pieces, key=_by_rank)]
        for piece in ordered[1:]:
            if piece.shape[1:] != ordered[0].shape[1:]:
                raise ExecutionError(
                    f"cannot put pieces of shapes {ordered[0].shape} and {piece.shape} "
                    "one after the other"
                )
        return np.concatenate(ordered)


class Count:
    """Counts contributions."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, value: Any, _rank: int, _weight: float) -> None:
        """Take one more contribution: a value, or the count of a subtree."""
        if isinstance(value, dict):
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

    Example:
        >>> both = Accumulator({"total": "sum", "parts": "concat"})
        >>> both.add({"total": 3, "parts": [1.0, 2.0]}, rank=2, weight=2)
        >>> both.add({"total": 4, "parts": [9.0]}, rank=1, weight=1)
        >>> both.total()
        {'total': 7, 'parts': array([9., 1., 2.])}
    """

    __slots__ = ("_fields",)

    def __init__(self, reduce: Mapping[str, str]) -> None:
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
        """Return the result at the root."""
        return {field: reduction.total() for field, reduction in self._fields.items()}


def _by_rank(piece: tuple[int, Any]) -> int:
    return piece[0]


def _check_alike(left: Any, right: Array) -> None:
    if getattr(left, "shape", None) != right.shape or left.dtype != right.dtype:
        raise ExecutionError(
            f"{getattr(left, 'dtype', type(left).__name__)}{getattr(left, 'shape', '')} does not "
            f"fit {right.dtype}{right.shape}"
        )
