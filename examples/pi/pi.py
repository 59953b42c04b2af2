"""The number pi by Monte Carlo: the share of random points that fall into a circle.

The data set is only a range of sample numbers. The generator is a function of the sample's
number (``hits.cpp``), so the result is the same, bit for bit, however the range is split.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from sapwood import Program, native, parameter


class Pi(Program):
    """Count random points in a quarter of a circle."""

    sources = ("hits.cpp",)
    map = native("hits")
    reduce: ClassVar = {"inside": "sum"}

    samples: int = parameter(1_000_000_000, minimum=1, help="points, without data of one's own")
    seed: int = parameter(0, minimum=0, help="another seed, other points")

    def default_data(self) -> range:
        """Return the numbers of the samples."""
        return range(self.samples)

    def init(self, data: Any) -> dict[str, Any]:
        """Remember how many samples there are."""
        return {"items": data.length}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        """Take the count."""
        return {**state, "inside": int(total["inside"][0])}

    def metrics(self, state: dict[str, Any]) -> dict[str, float]:
        """Show the estimate."""
        return {"pi": self.result(state)["pi"]} if "inside" in state else {}

    def result(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the estimate and its standard error."""
        share = state["inside"] / state["items"]
        return {
            "pi": 4 * share,
            "standard_error": 4 * math.sqrt(share * (1 - share) / state["items"]),
            "inside": state["inside"],
            "samples": state["items"],
        }
