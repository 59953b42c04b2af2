"""Fills an array on every agent and sums the arrays: what ``tree.py`` measures."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from sapwood import Program, empty, parameter


class Filling(Program):
    """Each round the agent of item ``i`` contributes an array full of ``i + turn``.

    Attributes:
        seconds: Of each round, from the end of one update to the begin of the next, in the
            caller's process; the check of the sum lies between and does not count.
    """

    reduce: ClassVar = {"total": "sum"}

    nbytes: int = parameter(1 << 20, minimum=8)
    rounds: int = parameter(10, minimum=1)

    seconds: ClassVar[list[float]] = []
    ended: ClassVar[list[float]] = []

    def init(self, data: Any) -> dict[str, Any]:
        """Start the clock."""
        self.seconds.clear()
        self.ended[:] = [time.perf_counter()]
        return {"turn": 0, "items": data.length}

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as in Program
        """Fill an array where the tree reads it, as the floor's processes do."""
        array = empty(self.nbytes // 8)
        array.fill(slice.start + state["turn"])
        return {"total": array}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        """Stop the clock, check the sum, start the clock."""
        self.seconds.append(time.perf_counter() - self.ended[-1])
        expected = sum(item + state["turn"] for item in range(state["items"]))
        if total["total"].nbytes != self.nbytes or not (total["total"] == expected).all():
            raise ValueError(f"the sum is wrong in round {state['turn']}")
        self.ended[:] = [time.perf_counter()]
        return {**state, "turn": state["turn"] + 1}

    def done(self, state: dict[str, Any]) -> bool:
        """Stop after the given number of rounds."""
        return bool(state["turn"] >= self.rounds)
