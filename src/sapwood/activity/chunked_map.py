"""A map that is called once for each chunk, so that its result does not depend on who had which.

Sums that a map makes of its items are rounded as the items are cut. With chunks of a fixed size,
and results that are put together by the numbers of the chunks, all bits are the same however many
chunks an agent has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sapwood.code.image import OpenProgram
from sapwood.comm.reduction import Accumulator
from sapwood.data.slice import Slice

REPRODUCIBLE = "sum:reproducible"
"""The reduction that this is for."""

GRID_REDUCTIONS = frozenset({REPRODUCIBLE, "sum", "min", "max", "concat"})
"""Reductions that give the same for a slice as for its chunks, if the sums are reproducible."""


class ChunkedMap:
    """Maps the chunks of a slice one after the other.

    Args:
        program: The program.
        part: The slice; each field has one row an item.
        chunk: Items of a chunk; the grid begins at item 0.
        reduce: The named reduction of each field.
    """

    def __init__(
        self, program: OpenProgram, part: Slice, chunk: int, reduce: Mapping[str, str]
    ) -> None:
        self._program = program
        self._reduce = dict(reduce)
        self._chunks = [
            (start // chunk, _cut(part, start, min(start + chunk, part.stop)))
            for start in range(part.start, part.stop, chunk)
        ]

    def __call__(self, state: dict[str, Any]) -> Any:
        """Return the results of all chunks, put together as a junction does."""
        together = Accumulator(self._reduce)
        for number, chunk in self._chunks:
            result = self._program.map(chunk, state)
            self._program.check_result(result)
            # Results may be in memory that the next call reuses.
            together.add(_kept(result), number + 1, float(len(chunk)))
        return together.partial()


def _cut(part: Slice, start: int, stop: int) -> Slice:
    first, last = start - part.start, stop - part.start
    return Slice(start, stop, {name: one[first:last] for name, one in part.arrays.items()})


def _kept(result: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.copy() if hasattr(value, "__array_interface__") else value
        for name, value in result.items()
    }
