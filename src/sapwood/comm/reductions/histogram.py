"""``histogram:LOW:HIGH:BINS``: how many values fall into each of some equal bins."""

from __future__ import annotations

from typing import Any

import numpy as np

from sapwood.comm.reductions.numbers import counted, number
from sapwood.comm.reductions.partials import marked, partial_of
from sapwood.core.errors import ExecutionError, ProgramError

MAX_BINS = 2**24
"""Bins of one histogram."""


class Histogram:
    """Counts values by bins; as in numpy, the last bin includes its upper edge.

    The total is a dictionary: ``counts`` (int64), ``edges`` (one more than bins), and the
    numbers of values ``below``, ``above`` and ``nan`` that are in no bin.

    Args:
        low: Lower edge of the first bin.
        high: Upper edge of the last bin.
        bins: Number of bins.
    """

    __slots__ = ("_edges", "counts", "outside")

    def __init__(self, low: str, high: str, bins: str) -> None:
        try:
            first, last, count = float(low), float(high), int(bins)
        except ValueError as error:
            raise ProgramError(
                f"histogram:{low}:{high}:{bins} is not a reduction",
                hint="write two numbers and a whole one, as in histogram:0:1:50",
            ) from error
        if not first < last or not 1 <= count <= MAX_BINS:
            raise ProgramError(
                f"a histogram cannot have {count} bins from {first:g} to {last:g}",
                hint=f"the second number is the larger one; 1 to {MAX_BINS} bins",
            )
        self._edges = np.linspace(first, last, count + 1)
        self.counts = np.zeros(count, np.int64)
        self.outside = np.zeros(3, np.int64)

    def add(self, value: Any, _rank: int, _weight: float) -> None:
        """Take one more contribution: numbers, or the counts of a subtree."""
        partial = partial_of(value)
        if partial is not None:
            self.counts += partial["counts"]
            self.outside += partial["outside"]
            return
        numbers = np.asarray(counted(number(value))).ravel()
        if numbers.dtype.kind not in "biuf":
            raise ExecutionError(f"{numbers.dtype} has no order")
        found, _ = np.histogram(numbers, self._edges)
        self.counts += found
        self.outside += (
            int((numbers < self._edges[0]).sum()),
            int((numbers > self._edges[-1]).sum()),
            int(np.isnan(numbers).sum()) if numbers.dtype.kind == "f" else 0,
        )

    def partial(self) -> Any:
        """Return what travels on to the next vertex."""
        return marked({"counts": self.counts, "outside": self.outside})

    def total(self) -> Any:
        """Return the result."""
        below, above, nan = (int(count) for count in self.outside)
        return {
            "counts": self.counts,
            "edges": self._edges,
            "below": below,
            "above": above,
            "nan": nan,
        }
