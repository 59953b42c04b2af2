"""C2-ORDER, C2-MATCH, C2-AM: letters are exactly once and in order whatever fails around them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from sapwood.comm.letters.letters import Letters
from sapwood.core.topology import plan
from sapwood.testing.injector import Faults
from sapwood.testing.letter_simulation import LETTERS_OF_A_WAVE, LetterSimulation
from sapwood.testing.simulation import InvariantError, SimulationOptions

Apart = Callable[[Callable[[], Any]], Any]
BLOCKS, SEEDS_OF_A_BLOCK, NIGHTLY = 5, 40, 3
"""More seeds run with ``make torture``."""


def drawn(seed: int) -> SimulationOptions:
    """Return a simulation of 50 to 200 places with faults, all drawn from the seed."""
    chance = random.Random(seed)  # noqa: S311 - chance that can be repeated
    return SimulationOptions(
        seed=seed,
        spares=seed % 4 == 3,
        agents=50 + int(80 * chance.random() ** 4),  # most are small, which takes a third less
        fanout=chance.choice([0, 3, 6, 16]),
        waves=1,
        faults=Faults.drawn(
            chance,
            crash=(0.0, 0.0003, 0.001),
            pause=(0.0, 0.0, 0.0005),
            zygote=(0.0, 0.0, 0.0001),
            sever=(0.0, 0.002, 0.01),
            clog=(0.0, 0.0, 0.001),
            swizzle=(0.0, 0.0, 0.0002),
            partition=(0.0, 0.0, 0.0003),
            drop=(0.0, 0.01),
            duplicate=(0.0, 0.01),
            reorder=(0.0, 0.02),
            latency=(0.0, 0.0, 1e-4),
            jitter=1.0,
        ),
    )


def test_the_drawn_trees_have_50_to_200_places() -> None:
    options = [drawn(seed) for seed in range(BLOCKS * SEEDS_OF_A_BLOCK)]
    sizes = [plan(one.agents, one.fanout).size for one in options]
    assert 50 <= min(sizes) <= max(sizes) <= 200


@pytest.mark.row("C2-ORDER")
@pytest.mark.row("C2-MATCH")
@pytest.mark.row("C2-AM")
@pytest.mark.row("D-6")
@pytest.mark.parametrize(
    "block",
    [
        *range(BLOCKS - NIGHTLY),
        *(pytest.param(one, marks=pytest.mark.nightly) for one in range(BLOCKS - NIGHTLY, BLOCKS)),
    ],
)
def test_letters_are_once_and_in_order(block: int, apart: Apart) -> None:
    seeds = range(block * SEEDS_OF_A_BLOCK, (block + 1) * SEEDS_OF_A_BLOCK)
    reports = apart(lambda: [LetterSimulation(drawn(seed)).run() for seed in seeds])
    assert sum(report.waves for report in reports) == SEEDS_OF_A_BLOCK * LETTERS_OF_A_WAVE
    assert sum(report.astray for report in reports) > 20
    assert sum(report.crashes for report in reports) > 10
    assert sum(report.pauses for report in reports) > 2
    assert sum(report.severed for report in reports) > 50
    assert sum(report.clogged for report in reports) > 20
    assert sum(report.attached for report in reports) > 20


def test_without_faults_nothing_fails_and_no_process_is_lost() -> None:
    for seed in range(5):
        faults = Faults(sever=0.01, drop=0.05, duplicate=0.05, reorder=0.05)
        simulation = LetterSimulation(SimulationOptions(seed=seed, agents=30, faults=faults))
        report = simulation.run()
        assert simulation.failed == report.restarts == 0
        assert report.astray > 100


def until_one_fails() -> None:
    for seed in range(20):
        faults = Faults(drop=0.05, crash=0.001)
        LetterSimulation(SimulationOptions(seed=seed, agents=20, fanout=2, faults=faults)).run()


def test_a_letter_that_is_never_sent_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Letters, "tick", lambda *_: [])
    with pytest.raises(InvariantError, match="no progress"):
        until_one_fails()


def test_a_sender_that_is_told_nothing_of_an_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Letters, "lose", lambda *_: [])
    with pytest.raises(InvariantError):
        until_one_fails()
