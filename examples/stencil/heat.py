"""The heat equation on a plate with insulated rims, in Python and in C."""

from typing import Any

import sapwood


class Heat(sapwood.Stencil):
    """Explicit steps by a 5-point stencil."""

    halo = 1
    mode = "edge"

    def step(self, block: Any, out: Any) -> None:
        """Make one step of a block."""
        middle = block[1:-1, 1:-1]
        around = block[:-2, 1:-1] + block[2:, 1:-1] + block[1:-1, :-2] + block[1:-1, 2:]
        out[:] = middle + 0.2 * (around - 4 * middle)


class HeatInC(sapwood.Stencil):
    """The same, with the step in C."""

    sources = ("heat.c",)
    halo = 1
    mode = "edge"
    step = sapwood.native("heat")
