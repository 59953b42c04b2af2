"""The result of a wave."""

from typing import Any

import msgspec

from sapwood.core.rankset import Ranges, fold, from_ranges


class WaveResult(msgspec.Struct, frozen=True):
    """The result of a wave.

    Attributes:
        total: The reduced value; None where there was nothing to reduce.
        ranks: Agents whose contributions are in it, as half-open ranges.
        weight: Number of items in it.
        wave: Number of the wave in its stream, from 1; 0 for pushed values.
        missing: Members whose contributions are not in it.
        late: Agents whose contributions to earlier waves are in it.
        version: Version of the stream's filters and their parameters that it went through at all
            places, from 1; 0 without filters.
    """

    total: Any
    ranks: Ranges
    weight: float
    wave: int = 0
    missing: Ranges = ()
    late: Ranges = ()
    version: int = 0

    @property
    def agents(self) -> list[int]:
        """The ranks of the agents that are in it."""
        return sorted(from_ranges(self.ranks))

    @property
    def missing_agents(self) -> list[int]:
        """The ranks of the members that are not in it."""
        return sorted(from_ranges(self.missing))

    def __str__(self) -> str:
        there = fold("agent", self.agents) if self.ranks else "nobody"
        without = f", without {fold('agent', self.missing_agents)}" if self.missing else ""
        return f"wave {self.wave} of {there}{without}: {self.total!r}"
