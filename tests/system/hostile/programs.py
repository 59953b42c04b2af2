"""A program whose result is known."""

from typing import Any, ClassVar

import numpy as np

import sapwood


class Total(sapwood.Program):
    """Adds up its items."""

    inputs: ClassVar[list[str]] = ["x"]
    reduce: ClassVar[dict[str, str]] = {"total": "sum"}

    def map(self, slice: Any, state: Any) -> dict[str, float]:  # noqa: A002 - as users write it
        del state
        return {"total": float(slice["x"].sum())}


DATA = {"x": np.arange(4.0)}
