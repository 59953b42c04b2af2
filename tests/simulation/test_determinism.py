"""D-6: a seed is a course of events: the same bytes at the same virtual times, every time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sapwood_simulation.faults import Faults
from sapwood_simulation.kinds import KINDS, made
from sapwood_simulation.simulation import Simulation, SimulationOptions

ROOT = Path(__file__).resolve().parents[2]
FAULTS = Faults(
    crash=0.001,
    pause=0.0003,
    sever=0.003,
    clog=0.001,
    drop=0.01,
    reorder=0.01,
    split=0.1,
    skew=0.05,
)
DIGESTS = """
import sys
from tests.simulation.test_determinism import digests
print(*digests())
"""


def course(what: str, seed: int) -> Simulation:
    """Return a simulation that has run."""
    options = SimulationOptions(
        seed=seed, agents=8, fanout=2, waves=2, pipelined=2, spares=seed % 2 == 0, faults=FAULTS
    )
    simulation = made(what, options)
    simulation.run()
    return simulation


def digests() -> list[str]:
    """Return what tells the courses of events of all kinds."""
    return [course(what, seed).digest for seed, what in enumerate(KINDS)]


@pytest.fixture(scope="module")
def first() -> list[str]:
    """The courses of this process."""
    return digests()


@pytest.mark.row("D-6")
@pytest.mark.slow
def test_the_same_seed_is_the_same_course_twice_in_one_process(first: list[str]) -> None:
    assert digests() == first
    assert len(set(first)) == len(first)


@pytest.mark.row("D-6")
@pytest.mark.slow
def test_the_same_seed_is_the_same_course_in_processes_that_hash_differently(
    first: list[str],
) -> None:
    """No order of a set or dictionary that hashing decides has any part in what happens."""
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    done = subprocess.run(
        [sys.executable, "-c", DIGESTS],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout == " ".join(first) + "\n"


@pytest.mark.slow
def test_a_byte_or_a_moment_makes_another_course() -> None:
    simulation = course("waves", 1)
    assert course("waves", 2).digest != simulation.digest
    options = SimulationOptions(seed=1, agents=14, fanout=3, waves=2)
    slow = SimulationOptions(
        seed=1, agents=14, fanout=3, waves=2, faults=Faults(latency=1e-9, jitter=0.0)
    )
    plain, later = Simulation(options), Simulation(slow)
    plain.run()
    later.run()
    assert plain.digest != later.digest
