"""C2-RED: large arrays of waves in pieces, under crashes, pauses and broken connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sapwood.comm.streams.bulk import AdvertisedContributions
from sapwood.comm.streams.fetch import Fetches
from sapwood.comm.streams.wave import Wave
from sapwood_simulation.faults import Faults
from sapwood_simulation.piece_simulation import PieceSimulation
from sapwood_simulation.simulation import InvariantError, SimulationOptions, SimulationReport

FAULTS = Faults(crash=0.0003, pause=0.0001, sever=0.001, zygote=0.00003, clog=0.0002)


def simulated(seed: int, faults: Faults = FAULTS) -> SimulationReport:
    options = SimulationOptions(
        seed=seed,
        agents=4 + seed % 20,
        fanout=[0, 2, 3, 4][seed % 4],
        waves=4,
        pipelined=1 + seed % 3 // 2,
        spares=seed % 5 == 0,
        faults=faults,
    )
    return PieceSimulation(options).run()


@pytest.mark.row("C2-RED")
@pytest.mark.row("D-2")
@pytest.mark.parametrize(
    "block", [0, *(pytest.param(one, marks=pytest.mark.nightly) for one in range(1, 5))]
)
@pytest.mark.slow
def test_each_piece_of_each_contribution_counts_once(
    block: int, apart: Callable[[Callable[[], Any]], Any]
) -> None:
    seeds = range(40 * block, 40 * block + 40)
    reports = apart(lambda: [simulated(seed) for seed in seeds])
    assert sum(report.crashes for report in reports) > 10
    assert sum(report.severed for report in reports) > 10


@pytest.mark.slow
def test_without_faults_all_goes_at_once() -> None:
    for seed in range(20):
        assert simulated(seed, Faults()).seconds < 5.0


def until_one_fails(first: int = 0) -> None:
    """Run seeds from one on: the first ones say nothing of some mistakes."""
    for seed in (*range(first, 200), *range(first)):
        simulated(seed)


@pytest.mark.slow
def test_pieces_of_two_attempts_that_are_put_together_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A child that has taken its offer back is drawn from as if it had not."""
    monkeypatch.setattr(Wave, "withdraw", lambda _wave, _child, _ranks=None: False)
    with pytest.raises(InvariantError, match=r"each agent once|no progress"):
        until_one_fails()


@pytest.mark.slow
def test_an_offer_that_is_not_taken_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AdvertisedContributions, "child_left", lambda _offers, _stream, _child: [])
    with pytest.raises(InvariantError, match="no progress"):
        until_one_fails(30)


@pytest.mark.slow
def test_a_place_that_does_not_go_on_with_its_next_parent_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Fetches, "end_values", lambda _fetches: None)
    with pytest.raises(InvariantError, match="no progress"):
        until_one_fails(80)
