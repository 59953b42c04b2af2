"""The simulator of Sapwood: the protocol under virtual time, faults, fuzzers, hostile peers.

It is for those who develop Sapwood: beside the tests, in no wheel. ``make torture`` and
``python -m sapwood_simulation`` run it.
"""

from sapwood_simulation.faults import Faults
from sapwood_simulation.kinds import KINDS, made
from sapwood_simulation.simulation import (
    InvariantError,
    Simulation,
    SimulationOptions,
    SimulationReport,
    collecting_seldom,
)
from sapwood_simulation.stream_simulation import StreamKind

__all__ = [
    "KINDS",
    "Faults",
    "InvariantError",
    "Simulation",
    "SimulationOptions",
    "SimulationReport",
    "StreamKind",
    "collecting_seldom",
    "made",
]
