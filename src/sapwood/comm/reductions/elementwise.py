"""``sum``, ``min``, ``max``: element by element."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from sapwood.comm.reductions.numbers import check_alike, counted, is_nan, number
from sapwood.comm.reductions.partials import marked, partial_of
from sapwood.core.errors import ExecutionError
from sapwood.core.shown import shown

INT = "int"
"""Kind of Python's integers, and of the sum of integers of different types."""

TRAVELS = range(-(2**63), 2**64)
"""Integers that a message carries as such."""


class ExactIntegers:
    """Adds up integers of any type and size exactly, in any order.

    Attributes:
        value: The sum.
        kind: Name of the numpy type of all summands; :data:`INT` if they differ.
    """

    __slots__ = ("kind", "value")

    def __init__(self) -> None:
        self.value = 0
        self.kind = ""

    def add(self, value: int, kind: str) -> None:
        """Add an integer."""
        self.kind = kind if self.kind in {"", kind} else INT
        self.value += value

    def result(self) -> Any:
        """Return the sum: of the type of the summands if it fits, else an int."""
        if self.kind == INT:
            return self.value
        limits = np.iinfo(self.kind)
        fits = limits.min <= self.value <= limits.max
        return np.dtype(self.kind).type(self.value) if fits else self.value


class Elementwise(ABC):
    """Combines arrays element by element, and numbers; the base of sums, minima and maxima."""

    __slots__ = ("_private", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self._private = False

    def add(self, value: Any, _rank: int, _weight: float) -> None:
        """Take one more contribution."""
        total = self.value
        if type(value) is np.ndarray and type(total) is np.ndarray and value.dtype is total.dtype:
            # The total was prepared, so what is of its type needs no preparation.
            if value.shape != total.shape:
                check_alike(total, value)
            if self._private:
                self.combine(total, value, out=total)
            else:
                self.value = np.asarray(self.combine(total, value))
                self._private = True
            return
        self.add_prepared(self.prepare(value))

    def add_prepared(self, value: Any) -> None:
        """Take one more contribution as :meth:`prepare` returns it."""
        if self.value is None:
            self.value = value  # a view of the contributor's memory: not written to
        elif isinstance(value, np.ndarray) or isinstance(self.value, np.ndarray):
            check_alike(self.value, value)
            if self._private:
                self.combine(self.value, value, out=self.value)
            else:
                self.value = np.asarray(self.combine(self.value, value))
                self._private = True
        else:
            self.value = self.combine_scalars(self.value, value)

    def prepare(self, value: Any) -> Any:
        """Return a contribution as it is put together with others."""
        return number(value)

    combine: Callable[..., Any]

    @abstractmethod
    def combine_scalars(self, left: Any, right: Any) -> Any:
        """Combine two numbers."""

    def partial(self) -> Any:
        """Return what travels on to the next vertex."""
        return self.value

    def total(self) -> Any:
        """Return the result; never a view of a contributor's memory."""
        if isinstance(self.value, np.ndarray) and not self._private:
            return np.array(self.value)
        return self.value


class Sum(Elementwise):
    """Adds up.

    Integers are added exactly and apart from other numbers, so that neither the order in which
    contributions arrive nor the shape of the tree changes their sum or its type.
    """

    __slots__ = ("_integers",)
    combine = staticmethod(np.add)

    def __init__(self) -> None:
        super().__init__()
        self._integers: ExactIntegers | None = None

    def prepare(self, value: Any) -> Any:
        """Return a contribution as it is put together with others."""
        return counted(number(value))

    def add(self, value: Any, rank: int, weight: float) -> None:
        """Take one more contribution: a value, or the sum of a subtree."""
        if isinstance(value, int) or (isinstance(value, np.generic) and value.dtype.kind in "biu"):
            self._add_integer(value)
            return
        if self._integers is not None and isinstance(value, np.ndarray):
            self._refuse(value)
        partial = partial_of(value)
        if partial is None:
            super().add(value, rank, weight)
            return
        kind, digits, rest = partial
        if kind != INT and (not isinstance(kind, str) or kind not in np.sctypeDict):
            raise ExecutionError(f"a sum of unknown type {shown(kind)}")
        self._add_exact(int(digits), kind)
        if rest is not None:
            self.add_prepared(self.prepare(rest))

    def combine_scalars(self, left: Any, right: Any) -> Any:
        """Combine two numbers."""
        return left + right

    def partial(self) -> Any:
        """Return what travels on to the next vertex."""
        integers = self._integers
        if integers is None:
            return self.value
        whole = integers.result()
        if self.value is None and int(whole) in TRAVELS and type(whole).__name__ == integers.kind:
            return whole
        return marked([integers.kind, str(integers.value), self.value])

    def total(self) -> Any:
        """Return the result; never a view of a contributor's memory."""
        if self._integers is None:
            return super().total()
        whole = self._integers.result()
        return whole if self.value is None else self.value + whole

    def _add_integer(self, value: Any) -> None:
        plain = isinstance(value, (int, np.bool_))
        self._add_exact(int(value), INT if plain else value.dtype.name)

    def _add_exact(self, value: int, kind: str) -> None:
        if isinstance(self.value, np.ndarray):
            self._refuse(self.value)
        if self._integers is None:
            self._integers = ExactIntegers()
        self._integers.add(value, kind)

    def _refuse(self, array: np.ndarray[Any, Any]) -> None:
        check_alike(array, 0)


class Extreme(Elementwise):
    """Keeps one of the contributions; the base of minima and maxima."""

    __slots__ = ()
    choose: Callable[..., Any]

    def combine_scalars(self, left: Any, right: Any) -> Any:
        """Combine two numbers."""
        if is_nan(left) or is_nan(right):
            return left if is_nan(left) else right
        if left == right:
            return self.choose(left, right, key=_place_among_equals)
        return self.choose(left, right)


class Minimum(Extreme):
    """Keeps the smallest."""

    __slots__ = ()
    combine = staticmethod(np.minimum)
    choose = staticmethod(min)


class Maximum(Extreme):
    """Keeps the largest."""

    __slots__ = ()
    combine = staticmethod(np.maximum)
    choose = staticmethod(max)


def _place_among_equals(value: Any) -> tuple[bool, str]:
    """Order equal numbers, so that the order of arrival does not: -0.0 is below 0.0."""
    return str(value)[:1] != "-", type(value).__name__
