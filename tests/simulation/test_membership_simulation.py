"""C3-SESS-2: places come and go under waves, crashes, pauses and broken connections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sapwood.comm.epochs import Epochs
from sapwood.comm.peers import Effects
from sapwood.comm.streams.roster import Roster
from sapwood_simulation.faults import Faults
from sapwood_simulation.membership_simulation import MembershipReport, MembershipSimulation
from sapwood_simulation.simulation import InvariantError, SimulationOptions

FAULTS = Faults(
    crash=0.002,
    pause=0.0005,
    zygote=0.0001,
    sever=0.005,
    clog=0.001,
    partition=0.0003,
    split=0.1,
)


def simulated(seed: int, faults: Faults = FAULTS) -> MembershipReport:
    options = SimulationOptions(
        seed=seed,
        agents=1 + seed % 14,
        fanout=[0, 2, 3, 4][seed % 4],
        waves=6,
        pipelined=1 + seed % 3,
        spares=seed % 5 == 0,
        faults=faults,
    )
    return MembershipSimulation(options).run()


@pytest.mark.row("C3-SESS-2")
@pytest.mark.parametrize(
    "block", [0, 1, *(pytest.param(one, marks=pytest.mark.nightly) for one in range(2, 20))]
)
@pytest.mark.slow
def test_each_wave_has_who_was_there_when_it_began_exactly_once(
    block: int, apart: Callable[[Callable[[], Any]], Any]
) -> None:
    seeds = range(10 * block, 10 * block + 10)
    reports = apart(lambda: [simulated(seed) for seed in seeds])
    assert sum(report.crashes for report in reports) > 2
    assert sum(report.severed for report in reports) > 2
    assert sum(report.added for report in reports) > 20
    assert sum(report.removed for report in reports) > 20


@pytest.mark.slow
def test_without_faults_all_goes_at_once() -> None:
    for seed in range(10):
        assert simulated(seed, Faults()).seconds < 2.0


def until_one_fails() -> None:
    for seed in range(60):
        simulated(seed)


def test_a_wave_with_somebody_who_was_removed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Roster, "tree_changed", lambda _roster: None)
    with pytest.raises(InvariantError, match=r"took no part|lacks|no progress"):
        until_one_fails()


def test_a_wave_without_somebody_who_is_there_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_roster: Roster, _ranks: Sequence[int]) -> None:
        """Admit no place."""

    monkeypatch.setattr(Roster, "places_came", nobody)
    with pytest.raises(InvariantError, match="lacks"):
        until_one_fails()


@pytest.mark.slow
def test_a_place_that_is_not_told_what_it_missed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(_epochs: Epochs, _rank: int) -> Effects:
        return []

    monkeypatch.setattr(Epochs, "tell", silent)
    with pytest.raises(InvariantError):
        until_one_fails()
