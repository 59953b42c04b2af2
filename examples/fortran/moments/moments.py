"""Mean and variance of the columns of a table; the map is Fortran."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from sapwood import Program, native, parameter


class Moments(Program):
    """Sum up on the agents, divide at the root."""

    sources = ("moments.f90",)
    inputs = ("points",)
    map = native("moments")
    reduce: ClassVar = {"sums": "sum", "squares": "sum"}

    rows: int = parameter(100_000, minimum=1, help="rows, without data of one's own")

    def default_data(self) -> dict[str, Any]:
        """Return normally distributed columns of mean 1, 2 and 3 and variance 1, 4 and 9."""
        drawn = np.random.default_rng(1).normal(size=(self.rows, 3))
        return {"points": drawn * [1.0, 2.0, 3.0] + [1.0, 2.0, 3.0]}

    def init(self, data: Any) -> dict[str, Any]:
        """Remember the number of rows."""
        return {"rows": len(data)}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        """Divide."""
        mean = total["sums"] / state["rows"]
        return {**state, "mean": mean, "variance": total["squares"] / state["rows"] - mean**2}

    def result(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return mean and variance of each column."""
        return {"mean": state["mean"], "variance": state["variance"]}
