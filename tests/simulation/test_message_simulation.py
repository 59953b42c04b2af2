"""C2-ORDER, C2-MATCH, C2-AM: messages are exactly once and in order whatever fails around them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from sapwood.comm import events as ev
from sapwood.comm.messaging import events as mev
from sapwood.comm.messaging.delivery import ReliableDelivery
from sapwood.comm.messaging.membership import MembershipNotices
from sapwood.comm.messaging.point_to_point import PointToPoint
from sapwood.comm.payload import Payload
from sapwood.core.errors import AgentLostError
from sapwood.core.topology import plan
from sapwood_simulation.faults import Faults
from sapwood_simulation.message_simulation import MESSAGES_OF_A_WAVE, MessageSimulation, SentMessage
from sapwood_simulation.network import ProcessLife
from sapwood_simulation.simulation import InvariantError, SimulationOptions

Apart = Callable[[Callable[[], Any]], Any]
BLOCKS, SEEDS_OF_A_BLOCK, NIGHTLY = 10, 20, 9
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
            split=(0.0, 0.2),
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
@pytest.mark.slow
def test_messages_are_once_and_in_order(block: int, apart: Apart) -> None:
    seeds = range(block * SEEDS_OF_A_BLOCK, (block + 1) * SEEDS_OF_A_BLOCK)
    reports = apart(lambda: [MessageSimulation(drawn(seed)).run() for seed in seeds])
    assert sum(report.waves for report in reports) == SEEDS_OF_A_BLOCK * MESSAGES_OF_A_WAVE
    assert sum(report.astray for report in reports) > 10
    assert sum(report.crashes for report in reports) > 5
    assert sum(report.pauses for report in reports) > 0
    assert sum(report.severed for report in reports) > 25
    assert sum(report.clogged for report in reports) > 8
    assert sum(report.attached for report in reports) > 8


@pytest.mark.slow
def test_without_faults_nothing_fails_and_no_process_is_lost() -> None:
    for seed in range(2):
        faults = Faults(sever=0.01, drop=0.05, duplicate=0.05, reorder=0.05)
        simulation = MessageSimulation(SimulationOptions(seed=seed, agents=30, faults=faults))
        report = simulation.run()
        assert simulation.failed == report.restarts == 0
        assert report.astray > 100


@pytest.mark.row("C2-ORDER")
@pytest.mark.parametrize("seed", [5074, 5249, 5363])
@pytest.mark.slow
def test_courses_of_events_that_gave_messages_up(seed: int) -> None:
    faults = Faults(
        crash=0.0005,
        pause=0.0002,
        zygote=0.0001,
        sever=0.01,
        clog=0.0005,
        split=0.1,
        partition=0.0002,
        drop=0.01,
        duplicate=0.01,
        reorder=0.01,
    )
    options = SimulationOptions(seed=seed, agents=40, fanout=3, waves=4, faults=faults)
    MessageSimulation(options).run()


CRASHES = Faults(drop=0.05, crash=0.001)


def until_one_fails(faults: Faults = CRASHES) -> None:
    for seed in range(20):
        MessageSimulation(SimulationOptions(seed=seed, agents=20, fanout=2, faults=faults)).run()


@pytest.mark.nightly
def test_a_message_that_is_never_sent_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReliableDelivery, "tick", lambda *_: [])
    with pytest.raises(InvariantError, match="no progress"):
        until_one_fails(Faults(drop=0.05))  # no process ends, so nothing else ends the message


@pytest.mark.nightly
def test_a_sender_that_is_told_nothing_of_an_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReliableDelivery, "lose", lambda *_: [])
    with pytest.raises(InvariantError, match="no progress"):
        until_one_fails()


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.row("C2-ORDER")
def test_a_place_that_lives_is_not_given_up_over_many_hops_that_lose_messages() -> None:
    """14 hops at 3 %: receipts stayed out for a minute, and silence was taken for an end."""
    options = SimulationOptions(
        seed=918300017,
        agents=157,
        fanout=2,
        waves=2,
        spares=True,
        faults=Faults(
            pause=0.000110112,
            sever=0.00165168,
            clog=0.000110112,
            swizzle=3.30335e-05,
            skew=0.4,
            drop=0.03,
        ),
    )
    simulation = MessageSimulation(options)
    simulation.run()
    assert simulation.network.astray.dropped > 100


@pytest.mark.nightly
@pytest.mark.row("C2-ORDER")
def test_agents_below_a_junction_that_was_cut_off_can_write_to_who_was_replaced() -> None:
    """They had not heard that the new process was there, and never did."""
    options = SimulationOptions(
        seed=0,
        agents=39,
        fanout=2,
        waves=1,
        faults=Faults(
            crash=0.002,
            pause=0.0005,
            sever=0.002,
            clog=0.001,
            skew=0.2,
            duplicate=0.01,
            reorder=0.02,
            split=0.5,
            latency=0.0001,
            jitter=1.0,
        ),
    )
    MessageSimulation(options).run()


@pytest.mark.slow
def test_a_place_that_everybody_takes_for_gone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake on purpose: returned places are not announced."""
    original = MembershipNotices.announce

    def announce(census: MembershipNotices, now: float, event: mev.AnnounceMembership) -> Any:
        return original(census, now, mev.AnnounceMembership(event.gone, (), event.reason))

    monkeypatch.setattr(MembershipNotices, "announce", announce)
    with pytest.raises(InvariantError, match="all live, and cannot be written to"):
        until_one_fails()


@pytest.mark.slow
def test_a_message_that_was_acknowledged_and_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = PointToPoint.arrived

    def lose(tagged: PointToPoint, now: float, message: Any, payload: Any) -> Any:
        return [] if message.number == 2 else original(tagged, now, message, payload)

    monkeypatch.setattr(PointToPoint, "arrived", lose)
    with pytest.raises(InvariantError, match=r"message \d+ to rank \d+ is lost"):
        until_one_fails()


@pytest.mark.parametrize("kind", [mev.TaggedArrived, ev.Answered], ids=["message", "answer"])
def test_arrays_that_are_not_those_that_were_sent_are_found(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = MessageSimulation._saw_below

    def spoil(simulation: MessageSimulation, rank: int, effect: Any) -> None:
        if isinstance(effect, kind) and effect.payload is not None:
            data = bytearray(effect.payload.view)
            data[-1] ^= 1
            effect = msgspec.structs.replace(effect, payload=Payload(data))
        original(simulation, rank, effect)

    monkeypatch.setattr(MessageSimulation, "_saw_below", spoil)
    with pytest.raises(InvariantError, match=r"does not say what was sent|the answer of another"):
        until_one_fails()


def test_an_error_for_a_place_whose_process_ended_long_before_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An end excuses what was under way when it happened, and nothing else."""
    simulation = MessageSimulation(SimulationOptions(agents=8, fanout=2, waves=1))
    life = simulation.network.lives[3]
    life += [ProcessLife(100, 0.0, 5.0), ProcessLife(101, 5.1)]
    error = AgentLostError("agent 3 is gone: killed").to_record()
    monkeypatch.setattr(simulation.network.clock, "_now", 6.0)
    simulation._check_error(error, SentMessage(3, 4.0))
    simulation._check_arrivals()
    monkeypatch.setattr(simulation.network.clock, "_now", 60.0)
    simulation._check_error(error, SentMessage(3, 50.0))
    with pytest.raises(InvariantError, match="rank 3 lives, and its sender receives"):
        simulation._check_arrivals()
