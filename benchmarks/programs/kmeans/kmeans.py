"""k-means for measuring: a fixed number of iterations, and a time stamp at each update."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np

from sapwood import Program, native, parameter


class KMeans(Program):
    """Lloyd's algorithm from the first points as centres.

    Attributes:
        stamps: ``time.perf_counter()`` at the end of each update, in the caller's process.
    """

    sources = ("assign.c",)
    inputs = ("points",)
    map = native("assign")
    reduce: ClassVar = {"sums": "sum", "counts": "sum", "inertia": "sum"}

    clusters: int = parameter(16, minimum=2, maximum=256)
    rounds: int = parameter(20, minimum=1)

    stamps: ClassVar[list[float]] = []

    def init(self, data: Any) -> dict[str, Any]:
        """Take the first points as centres."""
        self.stamps.clear()
        return {"centres": data.array("points")[: self.clusters].astype(np.float64), "round": 0}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        """Move the centres."""
        centres = total["sums"] / np.maximum(total["counts"], 1)[:, np.newaxis]
        inertia = float(total["inertia"][0])
        self.stamps.append(time.perf_counter())
        return {"centres": centres, "inertia": inertia, "round": state["round"] + 1}

    def done(self, state: dict[str, Any]) -> bool:
        """Stop after the given number of rounds."""
        return bool(state["round"] >= self.rounds)
