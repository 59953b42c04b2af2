"""A few untried seeds: each run of the tests draws others, and prints them."""

from __future__ import annotations

import random

import msgspec
import pytest

from sapwood_simulation.faults import Faults
from sapwood_simulation.kinds import KINDS, made
from sapwood_simulation.node_simulation import NodeSimulation
from sapwood_simulation.simulation import SimulationOptions

SEEDS = 2
"""Of each kind of simulation."""


def drawn(what: str, seed: int) -> SimulationOptions:
    """Return a tree and its faults, all drawn from the seed."""
    chance = random.Random(seed)  # noqa: S311 - chance that can be repeated
    faults = Faults.drawn(
        chance,
        crash=(0.0, 0.0005, 0.002),
        pause=(0.0, 0.0, 0.0003),
        zygote=(0.0, 0.0, 0.0001),
        sever=(0.0, 0.002, 0.01),
        clog=(0.0, 0.0, 0.0005),
    )
    if what == NodeSimulation.what:  # which has no zygotes
        faults = msgspec.structs.replace(faults, zygote=0.0)
    return SimulationOptions(
        seed=seed,
        agents=chance.randint(2, 40),
        fanout=chance.choice([0, 2, 3]),
        waves=3,
        faults=faults,
    )


@pytest.mark.parametrize("what", sorted(KINDS))
def test_no_fresh_seed_breaks_an_invariant(what: str, fresh_seed: int) -> None:
    for seed in range(fresh_seed, fresh_seed + SEEDS):
        try:
            made(what, drawn(what, seed)).run()
        except Exception as error:
            error.add_note(f"repeat with SAPWOOD_FRESH_SEED={fresh_seed}; it was seed {seed}")
            raise
