from __future__ import annotations

import random

from sapwood.comm import events as ev
from sapwood.core.clock import VirtualClock
from sapwood.core.topology import ROOT, flat
from sapwood_simulation.faults import Faults
from sapwood_simulation.links import skewed_clock
from sapwood_simulation.network import Network
from sapwood_simulation.simulation import Simulation, SimulationOptions


def test_nothing_arrives_on_a_clogged_wire_until_it_is_free() -> None:
    network = Network(flat(2), answer=lambda rank, value: {"x": rank * value["x"]})
    network.start()
    network.open_stream(1, {"x": "sum"})
    network.run()
    (wire,) = network.links(1)
    wire.clogged = True
    network.broadcast(1, {"x": 10})
    network.run()
    assert network.observed(ev.WaveArrived, 1)  # the other direction is free
    assert network.observed(ev.WaveCompleted) == []
    wire.unclog()
    network.run()
    assert network.observed(ev.WaveCompleted)[0].total == {"x": 30}


def test_a_slow_place_reads_less_often_and_all_the_same() -> None:
    network = Network(flat(2), answer=lambda rank, value: {"x": rank * value["x"]})
    network.scheduler.slow = {1}
    network.start()
    network.open_stream(1, {"x": "sum"})
    network.broadcast(1, {"x": 1})
    network.run()
    assert network.observed(ev.WaveCompleted, ROOT)[0].total == {"x": 3}


def test_clocks_differ_and_go_at_their_own_rate() -> None:
    clock = VirtualClock()
    chance = random.Random(1)  # noqa: S311 - chance that can be repeated
    first, second = skewed_clock(clock, chance, 0.1), skewed_clock(clock, chance, 0.1)
    before = first(), second()
    clock.advance(100.0)
    passed = first() - before[0], second() - before[1]
    assert before[0] != before[1]
    assert passed[0] != passed[1]
    assert all(90.0 <= seconds <= 110.0 for seconds in passed)


def test_without_skew_there_is_one_clock() -> None:
    clock = VirtualClock(3.0)
    assert skewed_clock(clock, random.Random(1), 0.0)() == 3.0  # noqa: S311 - as above


def test_faults_are_said_as_options() -> None:
    assert Faults().as_options() == ""
    assert Faults(crash=0.5, pause_seconds=2.0).as_options() == "--crash 0.5 --pause-seconds 2"


def test_a_zygote_that_is_killed_and_a_process_that_stalls_excuse_who_is_away() -> None:
    """A stream called agents alive whose zygote had hung, or that had not come back yet."""
    options = SimulationOptions(agents=4, fanout=2, faults=Faults(stall=1.0))
    simulation = Simulation(options)
    lost = simulation._injector.may_have_lost
    simulation.supervisor.start()
    assert simulation.stall(2) > 0
    assert [lost(rank, 0.0, 0.0) for rank in (1, 2, 3, 4)] == [False, True, False, False]
    simulation.supervisor.simulated.end()
    assert all(lost(rank, 0.0, 0.0) for rank in (1, 2, 3, 4))
