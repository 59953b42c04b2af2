"""``quantiles:K`` and ``distinct:LG_K``: sketches of Apache DataSketches.

A sketch is a summary of bounded size, however many values it has seen; two of them can be put
together. They travel serialised. The library is an extra, ``sapwood[sketches]``, and is loaded
where a stream has such a reduction, nowhere else.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from sapwood.comm.reductions.numbers import number
from sapwood.core.errors import ExecutionError, ProgramError

FRACTIONS = np.linspace(0.0, 1.0, 101)
"""Where the total of ``quantiles`` gives the values: every percent."""

DEVIATIONS = 2
"""Standard deviations between estimate and bounds: the bounds hold in 95 of 100 cases."""

_KLL_LEVELS_AT = 18
_KLL_HEADER = 20


class Quantiles:
    """A KLL sketch of numbers: their distribution, each rank within a known error.

    The total is a dictionary: ``count``, ``min``, ``max``, ``percentiles`` (101 values from 0
    to 100 %), ``error`` (the fraction by which the rank of a value may be wrong) and ``sketch``
    (bytes for ``datasketches.kll_doubles_sketch.deserialize``). NaN is left out. The sketch
    makes random choices: two reductions of the same values differ within the error.

    Args:
        k: Accuracy; 200 is wrong by at most 1.3 %, 800 by 0.35 %.
    """

    __slots__ = ("_library", "_sketch")

    def __init__(self, k: str) -> None:
        size = _whole(f"quantiles:{k}", k, 8, 65535, "quantiles:200")
        self._library = _datasketches()
        self._sketch = self._library.kll_doubles_sketch(size)

    def add(self, value: Any, _rank: int, _weight: float) -> None:
        """Take one more contribution: numbers, or the sketch of a subtree."""
        if isinstance(value, bytes):
            self._sketch.merge(self._read(value))
            return
        numbers = np.asarray(number(value)).ravel()
        if numbers.dtype.kind not in "biuf":
            raise ExecutionError(f"{numbers.dtype} has no order")
        doubles = numbers.astype(np.float64)
        self._sketch.update(doubles[~np.isnan(doubles)])

    def _read(self, data: bytes) -> Any:
        # The library checks its input, but not that the levels end before the bytes do.
        if len(data) >= _KLL_HEADER and len(data) < _KLL_HEADER + 4 * data[_KLL_LEVELS_AT] + 16:
            raise ExecutionError("a sketch is cut off")
        return _deserialized(self._library.kll_doubles_sketch, data)

    def partial(self) -> Any:
        """Return what travels on to the next vertex."""
        return self._sketch.serialize()

    def total(self) -> Any:
        """Return the result."""
        sketch = self._sketch
        empty = sketch.is_empty()
        nothing = np.full(len(FRACTIONS), np.nan)
        return {
            "count": sketch.n,
            "min": float("nan") if empty else sketch.get_min_value(),
            "max": float("nan") if empty else sketch.get_max_value(),
            "percentiles": nothing if empty else np.array(sketch.get_quantiles(FRACTIONS)),
            "error": sketch.normalized_rank_error(as_pmf=False),
            "sketch": sketch.serialize(),
        }


class Distinct:
    """A HyperLogLog sketch: how many different values there are.

    A contribution is a number, a string, or a set, list or array of them. Whole numbers and
    floating-point ones are different values. The total is a dictionary: ``estimate``, the bounds
    ``lower`` and ``upper`` (95 %), and ``sketch`` (bytes for
    ``datasketches.hll_sketch.deserialize``).

    Args:
        lg_k: Logarithm to base 2 of the size in bytes; 12 is wrong by about 1.6 %.
    """

    __slots__ = ("_library", "_size", "_union")

    def __init__(self, lg_k: str) -> None:
        self._size = _whole(f"distinct:{lg_k}", lg_k, 7, 21, "distinct:12")
        self._library = _datasketches()
        self._union = self._library.hll_union(self._size)

    def add(self, value: Any, _rank: int, _weight: float) -> None:
        """Take one more contribution: values, or the sketch of a subtree."""
        if isinstance(value, bytes):
            self._union.update(_deserialized(self._library.hll_sketch, value))
            return
        sketch = self._library.hll_sketch(self._size, self._library.HLL_8)
        for member in _members(value):
            sketch.update(member)
        self._union.update(sketch)

    def partial(self) -> Any:
        """Return what travels on to the next vertex."""
        return self._result().serialize_compact()

    def _result(self) -> Any:
        return self._union.get_result(self._library.HLL_8)

    def total(self) -> Any:
        """Return the result."""
        sketch = self._result()
        return {
            "estimate": sketch.get_estimate(),
            "lower": sketch.get_lower_bound(DEVIATIONS),
            "upper": sketch.get_upper_bound(DEVIATIONS),
            "sketch": sketch.serialize_compact(),
        }


def _members(value: Any) -> Iterable[int | float | str]:
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biufU":
            raise ExecutionError(f"values of type {value.dtype} cannot be counted")
        value = np.unique(value).tolist()
    elif isinstance(value, (int, float, str, np.generic)):
        value = [value]
    for member in value:
        plain = member.item() if isinstance(member, np.generic) else member
        if not isinstance(plain, (int, float, str)):
            raise ExecutionError(f"a value of type {type(plain).__name__} cannot be counted")
        yield int(plain) if isinstance(plain, bool) else plain


def _deserialized(kind: Any, data: bytes) -> Any:
    try:
        return kind.deserialize(data)
    except (IndexError, ValueError, RuntimeError) as error:
        raise ExecutionError(f"bytes from a child are not a sketch: {error}") from error


def _whole(spec: str, text: str, low: int, high: int, example: str) -> int:
    if not text.isdecimal() or not low <= int(text) <= high:
        raise ProgramError(
            f"{spec} is not a reduction",
            hint=f"write a whole number from {low} to {high}, as in {example}",
        )
    return int(text)


@functools.cache
def _datasketches() -> Any:
    try:
        import datasketches  # noqa: PLC0415 - an extra, and it takes a tenth of a second
    except ImportError as error:
        raise ProgramError(
            "this reduction needs the package datasketches", hint="pip install 'sapwood[sketches]'"
        ) from error
    return datasketches
