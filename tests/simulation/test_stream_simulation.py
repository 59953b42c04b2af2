"""Streams of every kind under crashes, pauses, broken connections and lost zygotes."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from sapwood.comm.messages import Configure
from sapwood.comm.peers import Effects
from sapwood.comm.streams import late
from sapwood.comm.streams.contributors import PushReceived
from sapwood.comm.streams.control import ControlOperations
from sapwood.comm.streams.engine import GeneralWaves, PlainWaves, TimedWaves, WaveEngine
from sapwood.comm.streams.filters import StreamFilters
from sapwood.comm.streams.push import PushContributions
from sapwood.comm.streams.stream import NodeStream
from sapwood.comm.streams.wave import Wave
from sapwood.core.topology import ROOT
from sapwood_simulation.faults import Faults
from sapwood_simulation.simulation import (
    InvariantError,
    SimulationOptions,
)
from sapwood_simulation.stream_simulation import AMPLE, StreamKind, StreamSimulation

Sync = Literal["all", "time-out", "none"]
Late = Literal["drop", "next"]
Loss = Literal["replace", "partial", "fail"]
FAULTS = Faults(crash=0.002, pause=0.001, sever=0.001, zygote=0.0002)
SEEDS, NIGHTLY = 8, 6

SYNCS: list[tuple[Sync, Late]] = [
    ("all", "drop"),
    ("time-out", "drop"),
    ("time-out", "next"),
    ("none", "drop"),
]
LOSSES: list[Loss] = ["replace", "partial", "fail"]
KINDS = [
    StreamKind(sync=sync, late=late, on_loss=on_loss, own_filters=own)
    for sync, late in SYNCS
    for on_loss in LOSSES
    for own in (False, True)
] + [
    StreamKind(sync="time-out", seconds=AMPLE + 1, late=late, on_loss=on_loss)
    for late in ("drop", "next")
    for on_loss in ("replace", "partial")
]
"""The last ones wait so long that no agent is late where nothing goes wrong."""


def simulated(kind: StreamKind, seed: int, faults: Faults = FAULTS) -> StreamSimulation:
    options = SimulationOptions(seed=seed, agents=12, fanout=3, waves=8, faults=faults)
    simulation = StreamSimulation(options, kind)
    simulation.run()
    return simulation


def name(kind: StreamKind) -> str:
    ample = "-ample" if kind.seconds >= AMPLE else ""
    return f"{kind.sync}-{kind.late}-{kind.on_loss}{'-own' if kind.own_filters else ''}{ample}"


@pytest.mark.row("D-2")
@pytest.mark.row("C2-RED")
@pytest.mark.row("C3-STREAM")
@pytest.mark.parametrize(
    ("first", "seeds"),
    [(0, SEEDS - NIGHTLY), pytest.param(SEEDS - NIGHTLY, NIGHTLY, marks=pytest.mark.nightly)],
)
@pytest.mark.parametrize("kind", KINDS, ids=name)
@pytest.mark.slow
def test_contributions_count_once_and_waves_name_who_is_in_them(
    kind: StreamKind, first: int, seeds: int
) -> None:
    for seed in range(first, first + seeds):
        simulated(kind, seed)


UPDATED = [
    StreamKind(sync=sync, late=late, on_loss=on_loss, own_filters=True, updates=0.5)
    for sync, late in SYNCS
    for on_loss in LOSSES
]


@pytest.mark.row("C3-JUNC")
@pytest.mark.parametrize(
    ("first", "seeds"), [(0, 1), pytest.param(1, 12, marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("kind", UPDATED, ids=name)
@pytest.mark.slow
def test_waves_go_through_one_version_of_filters_while_their_code_is_replaced(
    kind: StreamKind, first: int, seeds: int
) -> None:
    runs = [simulated(kind, seed) for seed in range(first, first + seeds)]
    assert sum(run.updates + run.refusals for run in runs) > 0


def test_a_place_that_does_not_hear_of_versions_from_its_new_parent_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(NodeStream, "take_versions", lambda _stream, _spec: False)
    with pytest.raises(InvariantError, match="with b'' and code"):
        simulated(UPDATED[0], 0, Faults(crash=0.004, sever=0.002))


@pytest.mark.row("C3-JUNC")
def test_parameters_that_are_forgotten_too_early_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places forgot what they had no wave of, and one was under way above."""
    original = NodeStream.configure

    def forgetful(stream: NodeStream, message: Configure) -> list[str]:
        used = [wave.value.version for wave in stream.waves.values()]
        oldest = min([*used, message.version])
        return original(stream, msgspec.structs.replace(message, oldest=oldest))

    monkeypatch.setattr(NodeStream, "configure", forgetful)
    monkeypatch.setattr(StreamFilters, "is_over", lambda _filters, _spec, _version: False)
    monkeypatch.setattr(NodeStream, "forget_versions", lambda _stream: [])
    with pytest.raises(InvariantError, match="with b'' and code"):
        until_one_fails(UPDATED[0])


@pytest.mark.row("C2-RED")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.sync == "time-out"], ids=name)
@pytest.mark.slow
def test_a_wave_that_was_asked_for_by_name_is_over_in_time_below(kind: StreamKind) -> None:
    """A junction waited for an agent that hung, and the one beside it was late above."""
    simulated(kind, 5)


@pytest.mark.row("C2-RED")
def test_a_wave_may_be_over_before_its_time_when_a_place_below_passed_it_on_in_time() -> None:
    """A junction was slow to answer without an agent that hung: those beside it were late, too."""
    kind = StreamKind(sync="time-out", late="next", on_loss="partial", own_filters=True)
    assert simulated(kind, 17).late > 0


@pytest.mark.row("C2-RED")
@pytest.mark.parametrize("own", [False, True], ids=["plain", "own"])
@pytest.mark.slow
def test_places_that_wait_too_short_are_found(
    monkeypatch: pytest.MonkeyPatch, *, own: bool
) -> None:
    original = late.time_at
    monkeypatch.setattr(late, "time_at", lambda seconds, depth: original(seconds, depth) / 2)
    with pytest.raises(InvariantError, match=r"lacks agent \d+, which lives"):
        until_one_fails(StreamKind(sync="time-out", own_filters=own))


@pytest.mark.parametrize("kind", KINDS, ids=name)
@pytest.mark.slow
def test_without_faults_nobody_is_lost(kind: StreamKind) -> None:
    simulation = simulated(kind, 1, Faults())
    assert simulation.failed == []
    if kind.sync != "time-out" or kind.seconds >= AMPLE:
        assert simulation.partial == 0
    assert simulation.counted >= (0.3 if kind.sync == "time-out" else 1.0)


@pytest.mark.slow
def test_the_simulations_see_what_they_are_about() -> None:
    kind = StreamKind(sync="time-out", late="next", on_loss="partial", own_filters=True)
    runs = [simulated(kind, seed) for seed in (*range(SEEDS), 13)]
    assert sum(run.late for run in runs) > 0
    assert sum(run.partial for run in runs) > 0
    failing = [simulated(StreamKind(on_loss="fail"), seed) for seed in range(SEEDS)]
    assert sum(len(run.failed) for run in failing) > 0


EMITTING = StreamKind(sync="none")


@pytest.mark.row("C3-STREAM")
@pytest.mark.row("D-2")
@pytest.mark.parametrize("own", [False, True], ids=["plain", "own"])
@pytest.mark.parametrize("first", [0, pytest.param(SEEDS // 2, marks=pytest.mark.nightly)])
@pytest.mark.slow
def test_what_agents_send_unasked_arrives_once_and_in_order(first: int, *, own: bool) -> None:
    faults = Faults(crash=0.001, sever=0.003, clog=0.001, partition=0.0005, pause=0.0003)
    kind = StreamKind(sync="none", own_filters=own)
    runs = [simulated(kind, seed, faults) for seed in range(first, first + SEEDS // 2)]
    assert sum(len(sent) for run in runs for sent in run.pushed.values()) > 500


@pytest.mark.slow
def test_a_place_that_does_not_send_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PushContributions, "again", lambda _emissions, _stream: [])
    with pytest.raises(InvariantError, match="no progress"):
        until_one_fails(EMITTING)


@pytest.mark.slow
def test_a_value_that_is_taken_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PushReceived, "takes", lambda _heard, _number: True)
    with pytest.raises(InvariantError, match=r"at another time|twice"):
        until_one_fails(EMITTING)


def until_one_fails(kind: StreamKind) -> None:
    for seed in range(40):
        simulated(kind, seed)


def test_a_contribution_that_is_counted_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = TimedWaves._take_late

    def twice(waves: TimedWaves, stream: Any, child: int, message: Any, payload: Any) -> Effects:
        effects = kept(waves, stream, child, message, payload)
        stream.late.for_next *= 2
        return effects

    monkeypatch.setattr(TimedWaves, "_take_late", twice)
    with pytest.raises(InvariantError, match="twice"):
        until_one_fails(StreamKind(sync="time-out", late="next"))


@pytest.mark.slow
def test_a_late_contribution_that_is_lost_on_its_way_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TimedWaves, "_hand_on", lambda *_what: [])
    with pytest.raises(InvariantError, match="are lost"):
        until_one_fails(StreamKind(sync="time-out", late="next"))


@pytest.mark.row("D-2")
@pytest.mark.slow
def test_late_contributions_count_once_when_links_break_and_places_move() -> None:
    """One that had been counted on another way was put together with others, and counted again."""
    moving = Faults(pause=0.0005, sever=0.003, clog=0.001, partition=0.0005)
    ending = msgspec.structs.replace(moving, crash=0.001, zygote=0.0001)
    for seed, faults in ((333, moving), (1328, ending), *((one, ending) for one in range(10))):
        options = SimulationOptions(seed=seed, agents=17, fanout=2, waves=8, faults=faults)
        StreamSimulation(options, StreamKind(sync="time-out", late="next")).run()


@pytest.mark.row("C2-RED")
@pytest.mark.parametrize(
    "seed", [17, 54, 66, 1158], ids=["quiet", "hung", "flushed", "asked-again"]
)
@pytest.mark.slow
def test_waves_with_an_ample_time_out_lack_only_who_was_lost(seed: int) -> None:
    """Waves lost all answers that a quiet time held back; late ones were taken for later ones."""
    faults = Faults(crash=0.001, pause=0.0005, sever=0.003, clog=0.001, split=0.1)
    options = SimulationOptions(seed=seed, agents=17, fanout=2, waves=6, faults=faults)
    StreamSimulation(
        options, StreamKind(sync="time-out", seconds=AMPLE + 1, on_loss="partial")
    ).run()


def test_a_quiet_stream_that_moves_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ControlOperations, "_advance", lambda _sweeps, _stream, _event: None)
    with pytest.raises(InvariantError, match="quiet"):
        until_one_fails(StreamKind(sweeps=1.0, pipelined=8))


@pytest.mark.slow
def test_the_message_says_how_to_have_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wave, "accepts", lambda _wave, _child, _attempt: False)
    with pytest.raises(InvariantError, match=r"--what streams --seed 3 .* --own-filters"):
        simulated(StreamKind(own_filters=True), 3)


@pytest.mark.slow
def test_who_moves_in_a_quiet_time_goes_on_when_the_others_do() -> None:
    """They had not heard that the quiet time was over: a new parent says so."""
    faults = Faults(crash=0.0005, pause=0.0003, sever=0.003, clog=0.001)
    for seed in (8, 23):
        options = SimulationOptions(seed=seed, agents=30, fanout=3, waves=6, faults=faults)
        StreamSimulation(options, StreamKind()).run()


def test_a_child_may_answer_for_ranks_that_a_wave_goes_on_without_by_then() -> None:
    faults = Faults(crash=0.001, pause=0.0005, zygote=0.0002, partition=0.0005)
    options = SimulationOptions(seed=429, agents=13, fanout=2, waves=8, faults=faults)
    StreamSimulation(options, StreamKind(on_loss="partial", own_filters=True)).run()


@pytest.mark.parametrize("late", ["drop", "next"])
def test_contributions_that_are_lost_behind_a_time_out_are_found(
    late: Late, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = WaveEngine.on_up

    def lose(engine: WaveEngine, link: Any, message: Any, payload: Any) -> Effects:
        return [] if message.wave == 3 else original(engine, link, message, payload)

    monkeypatch.setattr(WaveEngine, "on_up", lose)
    kind = StreamKind(sync="time-out", seconds=AMPLE + 1, late=late)
    with pytest.raises(InvariantError, match=r"wave 3 lacks agent \d+, which lives"):
        simulated(kind, 1, Faults())


def test_a_wave_that_is_over_before_its_time_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimedWaves, "_start_timeout", lambda _waves, _now, _stream, _wave: [])
    original = WaveEngine.on_up

    def hurry(engine: WaveEngine, link: Any, message: Any, payload: Any) -> Effects:
        effects = original(engine, link, message, payload)
        stream = engine.open.get(message.stream)
        wave = stream.waves.get(message.wave) if stream is not None else None
        return effects + stream.policy.complete(stream, wave) if stream and wave else effects

    monkeypatch.setattr(WaveEngine, "on_up", hurry)
    with pytest.raises(InvariantError, match=r"lacks agent \d+, which lives"):
        simulated(StreamKind(sync="time-out"), 1, Faults())


@pytest.mark.parametrize("faults", [Faults(), Faults(sever=0.0005)], ids=["none", "elsewhere"])
@pytest.mark.slow
def test_a_failure_that_names_an_agent_which_lives_is_found(
    faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = GeneralWaves._leave_out_absent

    def blame(waves: GeneralWaves, stream: Any, wave: Any) -> Effects:
        if wave.number != 2 or waves._near.rank != ROOT:
            return original(waves, stream, wave)
        return waves._go_on_without(stream, wave, {2, 11}, "made up")

    monkeypatch.setattr(GeneralWaves, "_leave_out_absent", blame)
    with pytest.raises(InvariantError, match=r"wave 2 failed, and agents \[.*\] live"):
        simulated(StreamKind(on_loss="fail"), 1, faults)


def test_an_agent_that_is_left_out_though_another_one_is_lost_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = PlainWaves.agents_lost

    def more(waves: PlainWaves, stream: Any, ranks: Any, reason: str, *, told: bool) -> Effects:
        return original(waves, stream, {*ranks, 7}, reason, told=told)

    monkeypatch.setattr(PlainWaves, "agents_lost", more)
    with pytest.raises(InvariantError, match="lacks agent 7, which lives"):
        until_one_fails(StreamKind(on_loss="partial"))
