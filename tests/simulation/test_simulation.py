"""D-2, D-6: waves are exactly once whatever fails, shown over seeds of faults."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from sapwood.comm import events as ev
from sapwood.comm.streams.streams import Streams
from sapwood.comm.streams.wave import Wave
from sapwood.core.topology import ROOT, kary, plan
from sapwood.session.supervisor import SupervisionTimeouts
from sapwood_simulation import simulation
from sapwood_simulation.faults import Faults
from sapwood_simulation.network import Network
from sapwood_simulation.simulation import (
    InvariantError,
    Simulation,
    SimulationOptions,
    SimulationReport,
)

Apart = Callable[[Callable[[], Any]], Any]
HALTS = Faults(crash=0.002, halt=0.002, pause_seconds=1e6)
BLOCKS, SEEDS_OF_A_BLOCK, NIGHTLY = 20, 50, 19
"""More seeds run with ``make torture``."""


def drawn(seed: int) -> SimulationOptions:
    """Return a simulation of 50 to 200 places with faults, all drawn from the seed."""
    chance = random.Random(seed)  # noqa: S311 - chance that can be attached
    return SimulationOptions(
        seed=seed,
        agents=50 + int(80 * chance.random() ** 4),  # most are small, which takes a third less
        fanout=chance.choice([0, 3, 6, 16]),
        waves=3,
        pipelined=1 + seed % 3,
        faults=Faults.drawn(
            chance,
            crash=(0.0, 0.0005, 0.003),
            pause=(0.0, 0.0, 0.0005),
            zygote=(0.0, 0.0, 0.0001),
            halt=(0.0,) * 9 + (0.0001,),
            stall=(0.0,) * 9 + (0.03,),
            sever=(0.0, 0.002, 0.01),
            clog=(0.0, 0.0, 0.001),
            swizzle=(0.0, 0.0, 0.0002),
            slow=(0.0, 0.0, 0.1),
            skew=(0.0, 0.05),
            split=(0.0, 0.2),
        ),
    )


def test_the_drawn_trees_have_50_to_200_places() -> None:
    options = [drawn(seed) for seed in range(BLOCKS * SEEDS_OF_A_BLOCK)]
    sizes = [plan(one.agents, one.fanout).size for one in options]
    assert 50 <= min(sizes) <= max(sizes) <= 200


@pytest.mark.slow
def test_two_simulations_do_not_meet() -> None:
    first, second = Simulation(drawn(4)), Simulation(drawn(5))
    assert first.run() == Simulation(drawn(4)).run()
    assert second.run() == Simulation(drawn(5)).run()


SHORT_PATIENCE = 20.0
"""Seconds of virtual time without progress, for small trees with a mistake: each costs time."""


def run_with(faults: Faults, *, seeds: int) -> None:
    """Run one small simulation after the other."""
    for seed in range(seeds):
        Simulation(SimulationOptions(seed=seed, agents=20, fanout=2, faults=faults)).run()


@pytest.mark.row("D-2")
@pytest.mark.row("C2-ORDER")
@pytest.mark.parametrize(
    "block",
    [
        *range(BLOCKS - NIGHTLY),
        *(pytest.param(one, marks=pytest.mark.nightly) for one in range(BLOCKS - NIGHTLY, BLOCKS)),
    ],
)
@pytest.mark.slow
def test_every_wave_has_every_agent_once(block: int, apart: Apart) -> None:
    seeds = range(block * SEEDS_OF_A_BLOCK, (block + 1) * SEEDS_OF_A_BLOCK)
    reports = apart(lambda: [Simulation(drawn(seed)).run() for seed in seeds])
    assert [report.waves for report in reports] == [drawn(seed).waves for seed in seeds]
    assert sum(report.crashes for report in reports) > 20
    assert sum(report.pauses for report in reports) > 2
    assert sum(report.severed for report in reports) > 100
    assert sum(report.clogged for report in reports) > 10
    assert sum(report.attached for report in reports) > 10


def test_what_fails_apart_fails_here(apart: Apart) -> None:
    def fail() -> None:
        raise InvariantError("wave 3 lacks agent 7")

    with pytest.raises(AssertionError, match="InvariantError: wave 3 lacks agent 7"):
        apart(fail)


@pytest.mark.slow
def test_broken_connections_cost_no_process() -> None:
    for seed in range(15):
        options = SimulationOptions(
            seed=seed, agents=40, fanout=3, waves=5, faults=Faults(sever=0.02)
        )
        report = Simulation(options).run()
        assert report.severed > 0
        assert report.restarts == report.attached == 0


@pytest.mark.row("D-2")
@pytest.mark.slow
def test_spare_junctions_take_over_and_give_back() -> None:
    reports = []
    for seed in range(15):
        faults = Faults(crash=0.002, pause=0.0005, sever=0.002, clog=0.0005)
        options = SimulationOptions(
            seed=seed, agents=40, fanout=3, waves=4, spares=True, faults=faults
        )
        reports.append(Simulation(options).run())
    assert sum(report.attached for report in reports) > 50


def test_children_of_a_lost_junction_are_at_its_spare_until_it_is_back() -> None:
    network = Network(kary(4, 2, spares=True), answer=lambda rank, value: {"x": rank * value["x"]})
    network.start()
    network.open_stream(1, {"x": "sum"})
    network.kill(5)
    network.advance(1.0)
    root = network.nodes[ROOT].router
    assert [placed.parent for placed in map(root.placed, (1, 2)) if placed] == [7, 7]
    network.broadcast(1, {"x": 1})
    network.run()
    assert network.observed(ev.WaveCompleted, ROOT)[0].total == {"x": 10}
    network.begin([5])
    network.advance(1.0)
    assert [placed.parent for placed in map(root.placed, (1, 2)) if placed] == [5, 5]


@pytest.mark.nightly
def test_a_clogged_link_is_taken_for_a_hung_process_on_one_side_or_both() -> None:
    faults = Faults(clog=0.01, swizzle=0.001)
    options = [
        SimulationOptions(seed=seed, agents=20, fanout=2, waves=5, faults=faults)
        for seed in range(20)
    ]
    reports = [Simulation(one).run() for one in options]
    assert sum(report.clogged for report in reports) > 100
    assert sum(report.restarts for report in reports) > 0
    assert sum(report.attached for report in reports) > 0


@pytest.mark.slow
def test_processes_that_stop_before_they_join_and_zygotes_that_stop_are_replaced() -> None:
    faults = Faults(crash=0.0005, stall=0.2, halt=0.001, pause_seconds=6.0)
    options = [
        SimulationOptions(seed=seed, agents=20, fanout=3, waves=5, faults=faults)
        for seed in range(15)
    ]
    reports = [Simulation(one).run() for one in options]
    assert sum(report.stalls for report in reports) > 25
    assert sum(report.halts for report in reports) > 2
    assert sum(report.restarts for report in reports) > 25


@pytest.mark.parametrize(
    ("faults", "without"),
    [(Faults(crash=0.001, stall=0.5, pause_seconds=1e6), "join"), (HALTS, "silence")],
)
@pytest.mark.slow
def test_who_waits_for_ever_for_those_that_hang_is_found(
    monkeypatch: pytest.MonkeyPatch, faults: Faults, without: str
) -> None:
    """A mistake on purpose: the supervisor does not look for those that hang."""
    original = SupervisionTimeouts.polls

    def polls(patience: SupervisionTimeouts, seconds: float) -> int:
        ours = {"join": patience.join, "silence": patience.silence}[without]
        return 10**9 if seconds == ours else original(patience, seconds)

    monkeypatch.setattr(SupervisionTimeouts, "polls", polls)

    def run_all() -> None:
        for seed in range(20):
            options = SimulationOptions(seed=seed, agents=20, fanout=3, waves=5, faults=faults)
            Simulation(options).run()

    with pytest.raises(InvariantError, match="no progress in"):
        run_all()


@pytest.mark.slow
def test_the_same_seed_is_the_same_course_of_events() -> None:
    options = drawn(4)
    first: SimulationReport = Simulation(options).run()
    assert first == Simulation(options).run()
    assert first != Simulation(drawn(5)).run()


@pytest.mark.row("D-6")
@pytest.mark.parametrize(
    "agents",
    [
        500,
        pytest.param(2_000, marks=[pytest.mark.nightly, pytest.mark.timeout(400)]),
        pytest.param(10_000, marks=[pytest.mark.nightly, pytest.mark.timeout(1200)]),
    ],
)
@pytest.mark.slow
def test_a_large_tree_of_which_one_agent_in_a_hundred_crashes(agents: int, apart: Apart) -> None:
    """The largest tree takes minutes."""
    crash = 1 / 3000 if agents < 2_000 else 1 / 6000  # at each of an agent's steps
    options = SimulationOptions(agents=agents, fanout=16, waves=20, faults=Faults(crash=crash))
    report = apart(Simulation(options).run)
    assert report.waves == 20
    assert report.crashes > agents // 200


@pytest.mark.slow
def test_a_wave_that_counts_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake on purpose: a place that was given up still counts when its answer comes."""
    original = Wave.drop

    def drop(wave: Wave, child: int) -> set[int]:
        asks = wave.waiting.get(child, ())
        asked = original(wave, child)
        if asks:
            wave.waiting[child] = asks
        return asked

    monkeypatch.setattr(Wave, "drop", drop)
    monkeypatch.setattr(simulation, "PATIENCE", SHORT_PATIENCE)
    with pytest.raises(InvariantError, match=r"twice|other agents|no progress"):
        run_with(Faults(crash=0.01, pause=0.002), seeds=200)


def test_an_exception_of_the_protocol_names_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_streams: Streams, _ranks: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(Streams, "places_came", fail)
    with pytest.raises(
        InvariantError, match=r"KeyError: 'lost'\n.*python -m sapwood_simulation --seed"
    ) as caught:
        run_with(Faults(crash=0.01), seeds=20)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.slow
def test_a_wave_that_is_not_repeated_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake on purpose: a reattached place is not asked for missing contributions."""
    monkeypatch.setattr(Streams, "places_came", lambda _streams, _ranks: [])
    monkeypatch.setattr(simulation, "PATIENCE", SHORT_PATIENCE)
    with pytest.raises(
        InvariantError, match=r"no progress.*\n.*python -m sapwood_simulation --seed"
    ):
        run_with(Faults(crash=0.01), seeds=20)


def test_too_many_faults_are_told_from_code_that_has_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simulation, "PATIENCE", 2.0)
    faults = Faults(crash=0.02, clog=0.02)
    options = SimulationOptions(seed=5, agents=13, fanout=2, waves=4, faults=faults)
    with pytest.raises(InvariantError, match=r"no progress in 2 s .* after the faults"):
        Simulation(options).run()
    monkeypatch.setattr(Streams, "places_came", lambda _streams, _ranks: [])
    with pytest.raises(InvariantError, match=r"no progress in 2 s of virtual time\n"):
        Simulation(options).run()
