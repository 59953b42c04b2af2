"""``sum:reproducible``: the same bits whatever the tree, the arrival and the number of junctions.

Ranks are put in pairs, pairs in pairs of pairs, and so on, as in a knock-out tournament; who
meets whom follows from the ranks alone. A junction adds what has both its halves below it and
hands the rest on in parts: a subtree whose agents are numbered one after the other hands on at
most ``2 · log2(agents)`` of them, and a single one where it covers whole pairs (fan-outs that
are powers of two). Ranks that are not members make more parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sapwood.comm.reductions.numbers import check_alike, counted, number
from sapwood.core.errors import ExecutionError

LAST_LEVEL = 40
"""Rounds of the tournament: more than any number of ranks needs."""

Place = tuple[int, int]
"""Round of the tournament, and the place in it: ``(level, index)``."""


class ReproduciblePart:
    """The sum of all ranks of one place of the tournament."""

    __slots__ = ("private", "value")

    def __init__(self, value: Any, *, private: bool) -> None:
        self.value = value
        self.private = private

    def plus(self, right: ReproduciblePart) -> ReproduciblePart:
        """Return this part, which has the lower ranks, plus another; both are used up."""
        if isinstance(self.value, np.ndarray):
            # A view of a contributor's memory is not written to.
            own = self if self.private else right if right.private else None
            out = own.value if own is not None else None
            return ReproduciblePart(
                np.asarray(np.add(self.value, right.value, out=out)), private=True
            )
        return ReproduciblePart(self.value + right.value, private=True)


class ReproducibleSum:
    """Adds up in an order that follows from the ranks."""

    __slots__ = ("_like", "parts")

    def __init__(self) -> None:
        self.parts: dict[Place, ReproduciblePart] = {}
        self._like: Any = None

    def add(self, value: Any, rank: int, _weight: float) -> None:
        """Take one more contribution: a value, or the parts of a subtree."""
        if not isinstance(value, dict):
            # Agents are numbered from 1: their pairs are (1, 2), (3, 4) and so on.
            self._take((0, rank - 1), counted(number(value)))
            return
        if value.keys() != {"parts"}:
            raise ExecutionError("a dictionary cannot be added")
        for level, index, part in value["parts"]:
            self._take((int(level), int(index)), number(part))

    def _take(self, place: Place, value: Any) -> None:
        if place in self.parts or not 0 <= place[0] <= LAST_LEVEL:
            raise ExecutionError(f"the part {place} of a sum cannot be there")
        if self._like is None:
            self._like = value
        elif isinstance(value, np.ndarray) or isinstance(self._like, np.ndarray):
            check_alike(self._like, value)
        part = ReproduciblePart(value, private=False)
        while (other := self.parts.pop((place[0], place[1] ^ 1), None)) is not None:
            part = part.plus(other) if place[1] % 2 == 0 else other.plus(part)
            place = (place[0] + 1, place[1] >> 1)
        self.parts[place] = part

    def partial(self) -> Any:
        """Return what travels on to the next vertex."""
        return {"parts": [[*place, part.value] for place, part in sorted(self.parts.items())]}

    def total(self) -> Any:
        """Return the result; never a view of a contributor's memory."""
        parts = self.parts
        for level in range(LAST_LEVEL):
            if len(parts) == 1:
                break
            parts = _next_round(parts, level)
        last = [part for _, part in sorted(parts.items())]
        # Two are left where rank 0 takes part: it is in no pair with an agent.
        part = last[0] if len(last) == 1 else last[0].plus(last[1])
        if isinstance(part.value, np.ndarray) and not part.private:
            return np.array(part.value)
        return part.value


def _next_round(parts: dict[Place, ReproduciblePart], level: int) -> dict[Place, ReproduciblePart]:
    """Combine pairs of one level; a part without a partner passes unchanged."""
    after: dict[Place, ReproduciblePart] = {}
    for place, part in sorted(parts.items()):
        there = (level + 1, place[1] >> 1) if place[0] == level else place
        left = after.get(there)
        after[there] = part if left is None else left.plus(part)
    return after
