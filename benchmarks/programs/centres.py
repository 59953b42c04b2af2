"""k-means whose result does not depend on the agents: its sums are reproducible to the last bit."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np

import sapwood


class Centres(sapwood.Program):
    """Moves centres to the means of their points, so many times."""

    reduce: ClassVar = {"sums": "sum:reproducible", "counts": "sum"}
    inputs = ("points",)
    rounds: int = sapwood.parameter(40, minimum=1)
    pause: float = sapwood.parameter(0.05, minimum=0.0)
    seed: int = sapwood.parameter(0)

    def default_data(self) -> dict[str, Any]:
        """Return points without clusters, so that the centres move for long."""
        return {"points": np.random.default_rng(self.seed).normal(size=(6000, 4))}

    def init(self, data: Any) -> dict[str, Any]:
        """Take the first points as centres."""
        return {"centres": np.array(data["points"][:12]), "round": 0, "way": np.zeros(0)}

    def map(self, data: Any, state: dict[str, Any]) -> dict[str, Any]:
        """Add the points of each centre."""
        time.sleep(self.pause)
        points, centres = data["points"], state["centres"]
        nearest = ((points[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, points)
        return {"sums": sums, "counts": np.bincount(nearest, minlength=len(centres))}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        """Move the centres; note how the first one went, so that a lost iteration would show."""
        centres = total["sums"] / np.maximum(total["counts"], 1)[:, None]
        way = np.append(state["way"], centres[0, 0])
        return {"centres": centres, "round": state["round"] + 1, "way": way}

    def done(self, state: dict[str, Any]) -> bool:
        """Stop after so many rounds."""
        return bool(state["round"] >= self.rounds)
