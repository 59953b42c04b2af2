"""``mean`` and ``variance``: moments that are put together without losing digits.

The formulas are those of Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm
for computing sample variances" (1979).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sapwood.comm.reductions.numbers import check_alike, number, real
from sapwood.comm.reductions.partials import marked, partial_of
from sapwood.core.errors import ExecutionError


class Mean:
    """Mean over the items behind the contributions: each counts with its weight."""

    __slots__ = ("value", "weight")

    def __init__(self) -> None:
        self.value: Any = None
        self.weight = 0.0

    def add(self, value: Any, _rank: int, weight: float) -> None:
        """Take one more contribution, itself a mean over ``weight`` items."""
        if weight <= 0:
            return
        value = real(number(value))
        if self.value is None:
            self.value, self.weight = value, weight
            return
        if isinstance(value, np.ndarray) or isinstance(self.value, np.ndarray):
            check_alike(self.value, value)
        self.weight += weight
        together = self.value + (value - self.value) * (weight / self.weight)
        self.value = np.asarray(together) if isinstance(value, np.ndarray) else together

    def partial(self) -> Any:
        """Return what travels on to the next vertex."""
        return self.value

    def total(self) -> Any:
        """Return the result."""
        return np.array(self.value) if isinstance(self.value, np.ndarray) else self.value


class Variance:
    """Count, mean and variance of samples; a contribution holds them along its first axis.

    The total is a dictionary: ``count``, ``mean`` and ``variance`` (divided by ``count - 1``;
    NaN for a single sample), the last two of the shape of one sample. Short floats are computed
    with as doubles; of complex samples the variance is computed from their distances to the mean.
    """

    __slots__ = ("count", "mean", "squares")

    def __init__(self) -> None:
        self.count = 0
        self.mean: Any = None
        self.squares: Any = None

    def add(self, value: Any, _rank: int, _weight: float) -> None:
        """Take one more contribution: samples, or the moments of a subtree."""
        moments = partial_of(value)
        if moments is not None:
            self._merge(int(moments["count"]), moments["mean"], moments["squares"])
            return
        samples = np.atleast_1d(real(number(value)))
        if len(samples):
            kind = np.result_type(samples.dtype, np.float64)  # short floats would lose or overflow
            mean = samples.mean(axis=0, dtype=kind)
            self._merge(len(samples), mean, _squares(samples - mean).sum(axis=0))

    def _merge(self, count: int, mean: Any, squares: Any) -> None:
        if not count:
            return
        if not self.count:
            self.count, self.mean, self.squares = count, mean, squares
            return
        if np.shape(mean) != np.shape(self.mean):
            raise ExecutionError(
                f"samples of shape {np.shape(mean)} do not fit those of {np.shape(self.mean)}"
            )
        together = self.count + count
        difference = mean - self.mean
        self.squares = (
            self.squares + squares + _squares(difference) * (self.count * count / together)
        )
        self.mean = self.mean + difference * (count / together)
        self.count = together

    def partial(self) -> Any:
        """Return what travels on to the next vertex."""
        return marked({"count": self.count, "mean": self.mean, "squares": self.squares})

    def total(self) -> Any:
        """Return the result."""
        if not self.count:
            return {"count": 0, "mean": float("nan"), "variance": float("nan")}
        free = self.count - 1
        nothing = np.full(np.shape(self.squares), np.nan)
        variance = self.squares / free if free else nothing[()]
        return {"count": self.count, "mean": self.mean, "variance": variance}


def _squares(difference: Any) -> Any:
    """Return the squares of distances; of complex numbers, of their magnitude."""
    if np.iscomplexobj(difference):
        return difference.real**2 + difference.imag**2
    return difference**2
