"""The game of life on a torus, in Python and in C."""

from typing import Any

import sapwood


class Life(sapwood.Stencil):
    """Generations of cells that are 0 or 1, of type ``uint8``."""

    halo = 1
    mode = "wrap"

    def step(self, block: Any, out: Any) -> None:
        """Make one generation of a block."""
        rows = block[:-2] + block[1:-1] + block[2:]
        three = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]
        alive = block[1:-1, 1:-1]
        out[:] = (three == 3) | ((three == 4) & (alive == 1))


class LifeInC(sapwood.Stencil):
    """The same, with the generation in C."""

    sources = ("life.c",)
    halo = 1
    mode = "wrap"
    step = sapwood.native("life")
