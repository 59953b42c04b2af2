"""Waves with large arrays under faults, between places of which many share no memory.

A piece has a few elements here, so each value and each contribution goes in many. Contributions
say who is in them, element by element: a piece that is lost, counted twice or put together with
one of another attempt shows.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import numpy as np

from sapwood.comm import events as ev
from sapwood.core.rankset import from_ranges
from sapwood.core.topology import ROOT
from sapwood_simulation.simulation import (
    STREAM,
    TIMING,
    InvariantError,
    Simulation,
    SimulationOptions,
)

PIECE = 64
"""Bytes of a piece."""

MAX_ELEMENTS = 80
"""Numbers in an array at most."""

REDUCTIONS: list[dict[str, str]] = [
    {"sum": "sum", "who": "sum", "mean": "mean", "count": "sum"},
    {"sum": "sum", "who": "sum", "mean": "mean", "count": "count"},
]
"""Put together piece by piece; and as a whole, as not all of it is reduced by element."""


class PieceSimulation(Simulation):
    """One run of waves with large arrays.

    Args:
        options: The options of the simulation.

    Example:
        >>> PieceSimulation(SimulationOptions(agents=8, fanout=2, waves=3)).run().waves
        3
    """

    what = "pieces"
    timing = msgspec.structs.replace(TIMING, piece=PIECE)

    def __init__(self, options: SimulationOptions) -> None:
        super().__init__(options)
        # Of some trees only the agents are apart: junctions put together what the root can map.
        self.network.apart = True if options.seed % 4 else range(1, options.agents + 1)
        self.network.answer = self._contribution
        self._sizes: dict[int, int] = {}

    def _run(self) -> None:
        self._begin()
        chance = self._random
        self.network.open_stream(STREAM, chance.choice(REDUCTIONS))
        for number in range(1, self.options.waves + 1):
            self._sizes[number] = chance.choice([0, 3, chance.randint(9, MAX_ELEMENTS)])
            ballast = np.arange(chance.choice([0, chance.randint(9, MAX_ELEMENTS)]))
            self.network.broadcast(STREAM, {"wave": number, "ballast": ballast * number})
            self._until(partial(self._has_room, number), faults=True)
        self._until(self._all_completed, faults=True)
        self._come_to_rest()
        self.network.post(ROOT, ev.CloseStream(STREAM))
        self._until(self._stream_is_gone, faults=False)
        self._check_end()

    def _contribution(self, rank: int, value: Any) -> Any:
        number, ballast = value["wave"], value["ballast"]
        if not np.array_equal(ballast, np.arange(len(ballast)) * number):
            raise InvariantError(f"agent {rank} got another value than was sent")
        size = self._sizes[number]
        who = np.zeros((self.options.agents, min(size, 4)), np.int32)
        who[rank - 1] = 1
        mean = np.full(size, float(rank))
        return {"sum": np.arange(size) * rank, "who": who, "mean": mean, "count": 1}

    def _check_wave(self, wave: ev.WaveCompleted, number: int) -> None:
        agents, size = self.options.agents, self._sizes[number]
        if from_ranges(wave.ranks) != set(range(1, agents + 1)):
            raise InvariantError(f"wave {wave.wave} completed with {wave.ranks}")
        total, expected = wave.total, np.arange(size) * sum(range(1, agents + 1))
        if not np.array_equal(total["who"], np.ones((agents, min(size, 4)))):
            raise InvariantError(f"wave {number} does not have each agent once: {total['who']}")
        if not np.array_equal(total["sum"], expected) or total["count"] != agents:
            raise InvariantError(f"wave {number} is {total}")
        if not np.allclose(total["mean"], (agents + 1) / 2):
            raise InvariantError(f"wave {number} has the mean {total['mean']}")
