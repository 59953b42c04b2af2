"""``top:K``: the largest values, and which agents had them."""

from __future__ import annotations

from typing import Any

import numpy as np

from sapwood.comm.reductions.numbers import number
from sapwood.core.errors import ExecutionError, ProgramError

MAX_KEPT = 2**24
"""Values that one reduction keeps."""


class Top:
    """Keeps the largest values of all; NaN is never among them.

    The total is a dictionary: ``values`` in falling order, at most as many as asked for, and
    ``agents``, the rank that each came from. Of equal values the lower rank comes first.

    Args:
        count: How many to keep.
    """

    __slots__ = ("_count", "agents", "values")

    def __init__(self, count: str) -> None:
        if not count.isdecimal() or not 1 <= int(count) <= MAX_KEPT:
            raise ProgramError(
                f"top:{count} is not a reduction",
                hint=f"write a whole number from 1 to {MAX_KEPT}, as in top:10",
            )
        self._count = int(count)
        self.values: Any = None
        self.agents = np.zeros(0, np.int64)

    def add(self, value: Any, rank: int, _weight: float) -> None:
        """Take one more contribution: numbers, or the largest of a subtree."""
        if isinstance(value, dict):
            found, agents = number(value["values"]), number(value["agents"])
        else:
            found = np.asarray(number(value)).ravel()
            if found.dtype.kind not in "biuf":
                raise ExecutionError(f"{found.dtype} has no order")
            if found.dtype.kind == "f":
                found = found[~np.isnan(found)]
            agents = np.full(len(found), rank, np.int64)
        if self.values is not None and found.dtype != self.values.dtype:
            raise ExecutionError(f"{found.dtype} does not fit {self.values.dtype}")
        every = found if self.values is None else np.concatenate([self.values, found])
        who = np.concatenate([self.agents, agents])
        _, place = np.unique(every, return_inverse=True)  # -every would overflow for integers
        order = np.lexsort((who, -place))
        kept = order[: self._count]
        self.values, self.agents = every[kept], who[kept]

    def partial(self) -> Any:
        """Return what travels on to the next vertex."""
        return {"values": self.values, "agents": self.agents}

    def total(self) -> Any:
        """Return the result."""
        return {"values": self.values, "agents": self.agents}
