"""K-means with a kernel of OpenCL C: the points stay on each agent's device between iterations."""

from typing import Any, ClassVar

import numpy as np

from sapwood import Program, native, parameter


class Clusters(Program):
    """Finds centres of clusters of points."""

    description = "k-means on OpenCL devices"
    sources = ("nearest.cl",)
    inputs = ("points",)
    reduce: ClassVar = {"sums": "sum", "counts": "sum"}
    map = native("nearest")

    k: int = parameter(8, minimum=1, maximum=1000, help="centres to find")
    rounds: int = parameter(20, minimum=1, help="iterations at most")

    def default_data(self) -> Any:
        random = np.random.default_rng(4)
        middles = random.uniform(-10, 10, size=(self.k, 3))
        points = middles[random.integers(0, self.k, 200_000)] + random.normal(size=(200_000, 3))
        return {"points": points.astype(np.float32)}

    def init(self, data: Any) -> dict[str, Any]:
        points = data["points"]
        return {"centres": points[:: max(1, len(points) // self.k)][: self.k].copy(), "round": 0}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        counts = np.maximum(total["counts"], 1)[:, None]
        empty = total["counts"][:, None] == 0
        centres = np.where(empty, state["centres"], total["sums"] / counts).astype(np.float32)
        moved = float(np.abs(centres - state["centres"]).max())
        return {"centres": centres, "round": state["round"] + 1, "moved": moved}

    def done(self, state: dict[str, Any]) -> bool:
        return bool(state["round"] >= self.rounds or state["moved"] < 1e-4)

    def metrics(self, state: dict[str, Any]) -> dict[str, float]:
        return {"moved": state["moved"]}

    def result(self, state: dict[str, Any]) -> Any:
        return state["centres"]
