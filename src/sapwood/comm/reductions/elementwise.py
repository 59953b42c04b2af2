"""``sum``, ``min``, ``max``: element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sapwood.comm.reductions.numbers import check_alike, counted, is_nan, number


class Sum:
    """Adds up."""

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
        value = self.prepare(value)
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
        return counted(number(value))

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
        return number(value)

    def combine_scalars(self, left: Any, right: Any) -> Any:
        """Combine two numbers."""
        return right if right < left or is_nan(right) else left


class Maximum(Sum):
    """Keeps the largest."""

    __slots__ = ()
    combine = staticmethod(np.maximum)

    def prepare(self, value: Any) -> Any:
        """Return a contribution as it is put together with others."""
        return number(value)

    def combine_scalars(self, left: Any, right: Any) -> Any:
        """Combine two numbers."""
        return right if right > left or is_nan(right) else left
