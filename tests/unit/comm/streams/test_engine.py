"""The wave engine: failures, time-outs, the loss policy, control operations."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.comm import events as ev
from sapwood.comm import frames, values
from sapwood.comm import messages as msg
from sapwood.comm.link import LinkTiming
from sapwood.comm.messages import (
    FAIL,
    NO_WAIT,
    PARTIAL,
    REPLACE,
    TIME_OUT,
    FilterAt,
    StreamSpec,
    Synchronisation,
)
from sapwood.comm.messaging import events
from sapwood.comm.reduction import WHOLE
from sapwood.comm.streams.filters import code_name
from sapwood.comm.streams.stream import StreamEvent
from sapwood.core.errors import ExecutionError, InputError, ProtocolError
from sapwood.core.rankset import from_ranges, to_ranges
from sapwood.core.topology import ROOT, Tree, flat, kary, plan
from sapwood_simulation.network import Network

seeds = st.integers(0, 2**16)
shapes = st.builds(plan, st.integers(2, 14), st.sampled_from([0, 2, 3]))


def opened(network: Network, **what: Any) -> None:
    members = to_ranges(range(1, network.tree.agents + 1))
    reduce = what.pop("reduce", {WHOLE: "sum"})
    spec = StreamSpec(1, "test", members, reduce, counted=True, **what)
    network.post(ROOT, ev.OpenStream(spec))


def open_waves(network: Network) -> int:
    return sum(
        len(stream.waves) for node in network.nodes.values() for stream in node.streams.values()
    )


def let_pass(network: Network, seconds: float) -> None:
    for _ in range(round(seconds / 0.01)):
        network.clock.advance(0.01)
        network.clock_loop.run_due()
        network.run()


def sweep(network: Network, action: str, number: int) -> None:
    network.post(ROOT, ev.SweepStream(1, number, action))
    network.run()


# --- failures -----------------------------------------------------------------------------------


@given(shapes, seeds)
@settings(max_examples=50)
@pytest.mark.slow
def test_a_wave_that_failed_is_forgotten_everywhere(tree: Tree, seed: int) -> None:
    def answer(rank: int, value: Any) -> Any:
        if rank == 2 and value == "bad":
            raise ExecutionError("no")
        return {"x": 1}

    network = Network(tree, seed, answer)
    network.start()
    network.open_stream(1, {"x": "sum"})
    for value in ("bad", "good", "bad"):
        network.broadcast(1, value)
    network.run()
    assert sorted(wave.wave for wave in network.observed(ev.WaveFailed)) == [1, 3]
    assert [wave.wave for wave in network.observed(ev.WaveCompleted)] == [2]
    assert open_waves(network) == 0
    held = [s.kept for node in network.nodes.values() for s in node.streams.values()]
    assert all(3 not in kept for kept in held)


def test_the_memory_of_a_wave_that_failed_is_free_before_the_next_one() -> None:
    import numpy as np  # noqa: PLC0415 - only here

    def answer(rank: int, _value: Any) -> Any:
        if rank == 4:
            raise ExecutionError("no")
        return {"x": np.ones(4)}

    network = Network(kary(4, 2), 0, answer)
    network.start()
    network.open_stream(1, {"x": "sum"})
    network.broadcast(1, None)
    network.run()
    released = {seen.rank for seen in network.observations if isinstance(seen.effect, ev.Released)}
    assert {1, 2} <= released  # without another wave, and without the end of the stream
    assert not any(s.kept for node in network.nodes.values() for s in node.streams.values())


# --- quiet streams ------------------------------------------------------------------------------


@pytest.mark.parametrize("counted", [True, False])
def test_a_junction_that_loses_its_children_in_a_quiet_time_says_nothing(counted: bool) -> None:
    network = Network(kary(4, 2), 1, lambda rank, _value: rank)
    network.start()
    spec = StreamSpec(1, "test", ((1, 5),), {WHOLE: "sum"}, counted=counted)
    network.post(ROOT, ev.OpenStream(spec))
    network.run()
    network.broadcast(1, None)
    junction = network.nodes[5]
    stream = junction.streams[1]
    while not stream.waves:
        assert network.step()
    for event in (StreamEvent.QUIESCE, StreamEvent.DRAINED):
        stream.advance(event)
    children = [number for number, link in junction.links.items() if link.rank in {1, 2}]
    effects: list[ev.Effect] = []
    for link in children:
        effects += junction.step(network.clock.now(), ev.LinkClosed(link, "gone"))
    sent = [one.message for one in effects if isinstance(one, ev.Transmit)]
    assert not any(isinstance(message, msg.Up) for message in sent)
    stream.advance(StreamEvent.RESUME)
    (answer,) = (
        one.message for one in stream.policy.resumed(stream) if isinstance(one, ev.Transmit)
    )
    assert isinstance(answer, msg.Up)
    assert answer.ranks == ()


# --- time-outs ----------------------------------------------------------------------------------


@pytest.mark.row("C2-RED")
@pytest.mark.parametrize("late", ["drop", "next"])
def test_a_late_contribution_counts_once_or_is_counted_as_late(late: str) -> None:
    network = Network(kary(4, 2), 3, lambda rank, _value: rank)
    network.start()
    opened(network, sync=Synchronisation("time-out", 0.2, late))
    network.pause(3)
    network.broadcast(1, None)
    network.run()
    let_pass(network, 1.0)
    network.resume(3)
    network.run()
    network.broadcast(1, None)
    network.run()
    let_pass(network, 1.0)
    first, second = network.observed(ev.WaveCompleted)
    assert (first.total, from_ranges(first.ranks)) == (7, {1, 2, 4})
    assert from_ranges(second.ranks) == {1, 2, 3, 4}
    assert (second.total, from_ranges(second.late)) == (
        (13, {3}) if late == "next" else (10, set())
    )
    sweep(network, "query", 1)
    (done,) = network.observed(ev.SweepDone)
    assert sum(report.late for report in done.reports) >= 1


def test_a_wave_to_which_nobody_contributes_in_time_is_over() -> None:
    network = Network(kary(4, 2), 0, lambda rank, _value: rank)
    network.start()
    opened(network, sync=Synchronisation("time-out", 0.1))
    for rank in (1, 2, 3, 4):
        network.pause(rank)
    network.broadcast(1, None)
    network.run()
    let_pass(network, 0.5)
    (wave,) = network.observed(ev.WaveCompleted)
    assert (wave.total, wave.ranks) == (None, ())


@pytest.mark.row("C2-RED")
@pytest.mark.parametrize("late", ["drop", "next"])
def test_a_wave_that_is_asked_for_by_name_has_a_time_out_at_every_place(late: str) -> None:
    """Whoever shared a junction with a place that hung was late, as the junction waited for it."""
    network = Network(kary(9, 3), 3, lambda rank, _value: rank)
    network.start()
    opened(network, sync=Synchronisation("time-out", 0.2, late))
    network.run()
    network.kill(1)
    network.run()
    network.pause(2)
    network.broadcast(1, None)  # the client misses agent 1, and asks for agents 2 and 3
    network.run()
    let_pass(network, 0.5)
    (wave,) = network.observed(ev.WaveCompleted)
    assert (wave.total, from_ranges(wave.ranks)) == (42, set(range(3, 10)))


@pytest.mark.parametrize("late", ["drop", "next"])
def test_a_quiet_time_takes_nothing_from_the_time_of_a_wave(late: str) -> None:
    """Answers wait while a stream is quiet: all of them were late when it moved again."""
    network = Network(kary(4, 2), 3, lambda rank, _value: rank)
    network.start()
    opened(network, sync=Synchronisation("time-out", 0.2, late))
    network.run()
    network.pause(4)
    network.broadcast(1, None)
    for rank in (1, 2, 3):
        network.pause(rank)
    network.run()
    let_pass(network, 0.1)
    for rank in (1, 2, 3, 4):
        network.resume(rank)
    sweep(network, "quiesce", 1)
    let_pass(network, 1.0)
    assert network.observed(ev.WaveCompleted) == []
    network.pause(4)
    sweep(network, "resume", 2)
    let_pass(network, 0.05)
    assert network.observed(ev.WaveCompleted) == []
    let_pass(network, 0.1)  # the rest of the 0.2 s
    (wave,) = network.observed(ev.WaveCompleted)
    assert (wave.total, from_ranges(wave.ranks)) == (6, {1, 2, 3})


@pytest.mark.row("C2-RED")
def test_all_below_a_junction_are_late_when_it_answers_behind_the_time_above_it() -> None:
    """The root does not wait for them: the wave is over when its last child has answered."""
    network = Network(kary(27, 3), 3, lambda rank, _value: rank)
    network.start()
    opened(network, sync=Synchronisation("time-out", 0.2, "next"))
    network.run()
    junction = network.tree.parents[1]
    network.pause(1)
    network.pause(junction)  # at depth 2: it has 0.16 s, and the place above it 0.18 s
    network.broadcast(1, None)
    network.run()
    let_pass(network, 0.03)
    network.resume(junction)
    let_pass(network, 0.16)
    (wave,) = network.observed(ev.WaveCompleted)  # 0.01 s before the time of the root
    assert from_ranges(wave.ranks) == set(range(4, 28))
    network.resume(1)
    let_pass(network, 0.1)
    network.broadcast(1, None)
    network.run()
    _, wave = network.observed(ev.WaveCompleted)
    assert from_ranges(wave.late) == {1, 2, 3}
    assert from_ranges(wave.ranks) == set(range(1, 28))


# --- sweeps -------------------------------------------------------------------------------------


@pytest.mark.row("C3-STREAM")
def test_after_a_flush_a_stream_moves_and_after_a_quiesce_it_does_not() -> None:
    network = Network(kary(4, 2), 5, lambda rank, _value: rank)
    network.start()
    opened(network)
    network.broadcast(1, None)
    sweep(network, "flush", 1)
    network.broadcast(1, None)
    network.run()
    assert len(network.observed(ev.WaveCompleted)) == 2
    sweep(network, "quiesce", 2)
    arrived = len(network.observed(ev.WaveArrived))
    network.broadcast(1, None)
    network.run()
    assert len(network.observed(ev.WaveCompleted)) == 2
    assert len(network.observed(ev.WaveArrived)) == arrived
    assert {s.state.value for n in network.nodes.values() for s in n.streams.values()} == {"quiet"}
    sweep(network, "resume", 3)
    assert len(network.observed(ev.WaveCompleted)) == 3
    assert [from_ranges(done.reached) for done in network.observed(ev.SweepDone)] == [
        {1, 2, 3, 4}
    ] * 3
    assert not any(s.sweeps for n in network.nodes.values() for s in n.streams.values())
    with pytest.raises(InputError, match="resume of a stream that is open"):
        network.post(ROOT, ev.SweepStream(1, 4, "resume"))


@pytest.mark.row("C3-STREAM")
@given(shapes, seeds)
@settings(max_examples=30)
@pytest.mark.slow
def test_when_a_flush_is_done_all_that_was_sent_has_arrived(tree: Tree, seed: int) -> None:
    network = Network(tree, seed, lambda rank, _value: rank)
    network.start()
    opened(network)
    for number in range(3):
        network.broadcast(1, number)
    network.post(ROOT, ev.SweepStream(1, 1, "flush"))
    while not network.observed(ev.SweepDone):
        assert network.step()
    assert len(network.observed(ev.WaveArrived)) == 3 * tree.agents


def test_a_place_that_is_lost_is_not_waited_for_by_a_flush() -> None:
    network = Network(kary(4, 2), 1, lambda rank, _value: rank)
    network.start()
    opened(network)
    network.pause(2)
    network.post(ROOT, ev.SweepStream(1, 1, "flush"))
    network.run()
    assert network.observed(ev.SweepDone) == []
    network.kill(2)
    network.run()
    (done,) = network.observed(ev.SweepDone)
    assert from_ranges(done.reached) == {1, 3, 4}


# --- filters ------------------------------------------------------------------------------------


def test_a_flush_waits_for_what_is_in_a_filter() -> None:
    network = Network(kary(4, 2), 2, lambda rank, _value: rank)
    network.start()
    network.filters.own = lambda _rank, effect, parts: sum(parts) if effect.upward else parts[0]
    opened(network, filters=(FilterAt("*", b"up", b"down"),), parameters={1: b""})
    network.broadcast(1, None)
    network.post(ROOT, ev.SweepStream(1, 1, "flush"))
    while not network.observed(ev.SweepDone):
        assert network.step()
    assert len(network.observed(ev.WaveArrived)) == 4
    network.run()
    (wave,) = network.observed(ev.WaveCompleted)
    assert values.decode(wave.body, b"") == 10


@pytest.mark.parametrize("sync", ["all", "none"])
def test_a_filter_is_told_whose_contributions_it_has(sync: str) -> None:
    told: list[tuple[int, int]] = []

    def look(_rank: int, effect: ev.FilterWanted, parts: list[Any]) -> Any:
        told.extend((part.rank, value) for part, value in zip(effect.parts, parts, strict=True))
        return min(parts)

    network = Network(kary(4, 2), 2, lambda rank, _value: rank)
    network.start()
    network.filters.own = look
    reduce = {WHOLE: "min"} if sync == "all" else {}
    what = {"sync": Synchronisation(sync), "parameters": {1: b""}}
    opened(network, reduce=reduce, filters=(FilterAt("*", b"up"),), **what)
    network.broadcast(1, None)
    network.run()
    assert {rank for rank, _ in told} == {1, 2, 3, 4}
    assert all(rank == value for rank, value in told)


def test_what_a_filter_makes_counts_also_when_nobody_waits_for_it() -> None:
    network = Network(kary(4, 2), 2, lambda rank, _value: rank)
    network.start()
    opened(network)
    network.run()
    for seconds in (0.5, 0.25):
        network.post(5, ev.Filtered(1, 99, b"", None, seconds))
    sweep(network, "query", 1)
    (done,) = network.observed(ev.SweepDone)
    found = {report.rank: (report.filtered, report.filter_seconds) for report in done.reports}
    assert found == {rank: (2, 0.75) if rank == 5 else (0, 0.0) for rank in range(7)}


def test_what_a_filter_raises_fails_the_wave_once() -> None:
    def broken(rank: int, _effect: ev.FilterWanted, _parts: list[Any]) -> Any:
        raise ExecutionError(f"not at {rank}")

    network = Network(kary(4, 2), 2, lambda rank, _value: rank)
    network.start()
    network.filters.own = broken
    opened(network, filters=(FilterAt("depth 1", b"up"),), parameters={1: b""})
    network.broadcast(1, None)
    network.run()
    (failed,) = network.observed(ev.WaveFailed)
    assert failed.rank in {5, 6}
    assert open_waves(network) == 0


def test_a_value_that_waits_in_a_filter_keeps_the_parameters_of_its_wave() -> None:
    """Places forgot its wave's parameters when they received others, before the wave came by."""
    seen: list[tuple[int, int, bytes, bytes]] = []

    def look(rank: int, effect: ev.FilterWanted, parts: list[Any]) -> Any:
        seen.append((rank, effect.wave, effect.parameters, effect.own.down))
        return sum(parts) if effect.upward else parts[0]

    network = Network(kary(4, 2), 2, lambda rank, _value: rank)
    network.start()
    network.filters.own = look
    opened(network, filters=(FilterAt("*", b"up", b"old"),), parameters={1: b"first"})
    network.run()
    new = (FilterAt("*", b"up", b"new"),)
    network.post(ROOT, ev.SweepStream(1, 1, "stage", new))
    network.run()
    network.broadcast(1, None)
    network.post(ROOT, ev.ConfigureStream(1, b"second", code_name(new)))
    network.broadcast(1, None)
    network.run()
    assert {wave: (parameters, code) for _, wave, parameters, code in seen} == {
        1: (b"first", b"old"),
        2: (b"second", b"new"),
    }
    assert len(set(seen)) == 2 * 3
    waves = network.observed(ev.WaveCompleted)
    assert [(wave.wave, wave.version) for wave in waves] == [(1, 1), (2, 2)]


def test_filters_that_a_place_cannot_load_are_reported_with_the_place() -> None:
    def loads(rank: int, _effect: ev.FilterStaging) -> None:
        if rank == 6:
            raise ExecutionError("not at 6")

    network = Network(kary(4, 2), 2, lambda rank, _value: rank)
    network.start()
    network.filters.loads = loads
    opened(network, filters=(FilterAt("*", b"old"),), parameters={1: b""})
    network.post(ROOT, ev.SweepStream(1, 1, "stage", (FilterAt("*", b"new"),)))
    network.run()
    (done,) = network.observed(ev.SweepDone)
    problems = {report.rank: report.problem for report in done.reports}
    assert [rank for rank, problem in sorted(problems.items()) if problem is not None] == [6]
    assert sorted(problems) == [0, 5, 6]
    names = {report.code for report in done.reports}, {report.staged for report in done.reports}
    assert names == ({code_name(FilterAt("*", b"old"))}, {code_name(FilterAt("*", b"new"))})
    network.post(ROOT, ev.SweepStream(1, 2, "stage"))
    network.run()
    unused = network.observed(ev.FilterUnused)
    assert [effect.code for effect in unused] == [code_name(FilterAt("*", b"new"))] * 3


def test_what_is_not_staged_cannot_be_used() -> None:
    network = Network(kary(4, 2), 2, lambda rank, _value: rank)
    network.start()
    opened(network, filters=(FilterAt("*", b"old"),), parameters={1: b""})
    with pytest.raises(ProtocolError, match="staged"):
        network.post(ROOT, ev.ConfigureStream(1, b"", "0123"))


# --- time-outs: a late contribution counts once, wherever it is lost -----------------------------

LATE = Synchronisation("time-out", 0.2, "next")


def opened_late(network: Network, **what: Any) -> None:
    network.start()
    network.post(ROOT, ev.OpenStream(StreamSpec(1, "test", ((1, 5),), {WHOLE: "sum"}, **what)))


def wave_without(network: Network, *late: int) -> None:
    """Have a wave whose time is over before some agents have answered, which then do."""
    for rank in late:
        network.pause(rank)
    network.broadcast(1, None)
    network.run()
    let_pass(network, 1.0)


def one_more(network: Network) -> None:
    network.broadcast(1, None)
    network.run()
    let_pass(network, 1.0)


@pytest.mark.row("C2-RED")
@pytest.mark.parametrize("lost", [5, 6], ids=["its parent", "another junction"])
def test_what_is_late_is_not_lost_with_a_junction(lost: int) -> None:
    network = Network(kary(4, 2), 3, lambda rank, _value: rank)
    opened_late(network, sync=LATE)
    wave_without(network, 1)
    network.resume(1)
    network.kill(lost)
    network.run()
    let_pass(network, 1.0)
    one_more(network)
    first, second = network.observed(ev.WaveCompleted)
    assert (first.total, from_ranges(first.ranks)) == (9, {2, 3, 4})
    assert (second.total, from_ranges(second.late)) == (11, {1})
    assert network.problems == []


def test_late_arrays_are_drawn_where_no_memory_is_shared() -> None:
    network = Network(kary(4, 2), 1, lambda rank, _value: np.full(900, rank), LinkTiming(piece=64))
    network.apart = True
    opened_late(network, sync=LATE)
    wave_without(network, 4)
    network.resume(4)
    network.run()
    one_more(network)
    _first, second = network.observed(ev.WaveCompleted)
    np.testing.assert_array_equal(second.total, np.full(900, 14))
    assert [len(node.large) for node in network.nodes.values()] == [0] * 7


def test_who_cannot_contribute_and_is_late_fails_a_later_wave() -> None:
    def answer(rank: int, _value: Any) -> Any:
        if rank == 2 and len(network.observed(ev.WaveCompleted)) == 1:
            raise ExecutionError("no")
        return rank

    network = Network(kary(4, 2), 3, answer)
    opened_late(network, sync=LATE)
    wave_without(network, 2)
    network.resume(2)
    network.run()
    network.answer = lambda rank, _value: rank
    for _ in range(2):
        one_more(network)
    (failed,) = network.observed(ev.WaveFailed)
    assert (failed.wave, failed.rank, failed.error.what) == (2, 2, "no")
    assert [wave.total for wave in network.observed(ev.WaveCompleted)] == [8, 10]


def test_a_value_is_kept_for_those_who_are_late() -> None:
    """A process that takes the place of a late one is given the wave, too."""
    network = Network(kary(4, 2), 3, lambda rank, value: rank * value[0])
    opened_late(network, sync=LATE)
    network.pause(3)
    network.broadcast(1, np.full(70_000, 2.0))
    network.run()
    let_pass(network, 1.0)
    assert not network.observed(ev.Released)
    network.kill(3)
    network.begin([3])
    network.run()
    let_pass(network, 1.0)
    network.broadcast(1, np.full(70_000, 2.0))
    network.run()
    first, second = network.observed(ev.WaveCompleted)
    assert (first.total, second.total) == (14, 26)


def test_what_is_late_behind_a_late_failure_counts_in_the_wave_after_it() -> None:
    """The failure ends the wave that it is added to; the others are not lost with it."""

    def answer(rank: int, _value: Any) -> Any:
        if rank == 2 and not fine:
            raise ExecutionError("no")
        return 10**rank

    fine = False
    network = Network(kary(4, 2), 1, answer)
    opened_late(network, sync=LATE)
    wave_without(network, 2, 3, 4)
    for rank in (2, 3, 4):  # the failure comes first
        network.resume(rank)
        network.run()
        fine = True
    for _ in range(2):
        network.broadcast(1, None)
        network.run()
        let_pass(network, 1.0)
    (failed,) = network.observed(ev.WaveFailed)
    assert (failed.wave, failed.rank) == (2, 2)
    first, third = network.observed(ev.WaveCompleted)
    assert first.total == 10
    assert (third.wave, from_ranges(third.late)) == (3, {3, 4})
    assert third.total == 11110 + 11000


def asked_again(network: Network, attempt: int, *ranks: int) -> list[Any]:
    """Ask the junction above the first agents for some of wave 1; return what it sends."""
    junction = network.nodes[network.tree.parents[1]]
    (link,) = [one.number for one in junction.links.values() if one.rank == ROOT]
    asked = msg.Down(1, 1, attempt, b"", ranks=to_ranges(ranks))
    effects = junction.step(network.clock.now(), ev.Received(link, asked, None))
    return [one.message for one in effects if isinstance(one, ev.Transmit)]


def in_threes(*late: int) -> Network:
    network = Network(kary(9, 3), 1, lambda rank, _value: 10**rank)
    network.start()
    network.post(ROOT, ev.OpenStream(StreamSpec(1, "test", ((1, 10),), {WHOLE: "sum"}, sync=LATE)))
    wave_without(network, *late)
    return network


def test_a_place_that_is_asked_for_some_gives_nothing_of_others() -> None:
    """A retained part of a late wave is sent on requests for all of it; else later answers are."""
    network = in_threes(1, 3)
    junction = network.nodes[network.tree.parents[1]]
    assert [set(kept.ranks) for kept in junction.streams[1].kept[1]] == [{2}]
    given = [one for one in asked_again(network, 9, 1, 3) if isinstance(one, msg.Up)]
    assert [(one.attempt, one.ranks) for one in given] == [(9, ())]
    sent = asked_again(network, 10, 1, 2, 3)
    given = [one for one in sent if isinstance(one, msg.Up)]
    assert [(one.attempt, one.ranks) for one in given] == [(10, ((2, 3),))]
    again = [rank for one in sent if isinstance(one, msg.Down) for rank in from_ranges(one.ranks)]
    assert 2 not in again


def test_what_is_kept_of_some_and_others_is_not_given_to_who_asks_for_some() -> None:
    network = in_threes(1)
    junction = network.nodes[network.tree.parents[1]]
    assert [set(kept.ranks) for kept in junction.streams[1].kept[1]] == [{2, 3}]
    given = [one for one in asked_again(network, 9, 1, 2) if isinstance(one, msg.Up)]
    assert [(one.attempt, one.ranks) for one in given] == [(9, ())]


# --- loss policy: a wave does not wait for a process that began after it did ---------------------


def after_a_loss(seed: int, on_loss: str) -> Network:
    """Broadcast a wave, lose agent 1 meanwhile, and let its new process never answer."""
    chance = random.Random(seed)  # noqa: S311 - chance that can be repeated
    tree = plan(chance.choice([4, 6, 8]), 2)
    network = Network(tree, seed, lambda rank, _value: [rank])
    network.start()
    members = ((1, tree.agents + 1),)
    spec = StreamSpec(1, "test", members, {WHOLE: "concat"}, on_loss=on_loss, counted=True)
    network.post(ROOT, ev.OpenStream(spec))
    network.run()
    network.broadcast(1, {"x": 1})
    network.run(chance.randint(0, 12))
    network.kill(1)
    network.post(ROOT, events.AnnounceMembership(((1, 1),), (), "killed"))
    network.begin([1])
    junction = network.nodes[tree.parents[1]].router
    while (placed := junction.placed(1)) is None or placed.incarnation < 2:
        network.step()
    network.pause(1)
    network.run()
    return network


@pytest.mark.row("D-2")
@pytest.mark.slow
def test_a_wave_goes_on_without_an_agent_that_was_replaced_before_it_got_there() -> None:
    partial = 0
    for seed in range(80):
        network = after_a_loss(seed, PARTIAL)
        (wave,) = network.observed(ev.WaveCompleted)
        others = set(range(2, network.tree.agents + 1))
        named = from_ranges(wave.ranks)
        assert others <= named  # agent 1 may have answered before it was lost
        assert sorted(wave.total) == sorted(named)
        partial += named == others
        assert network.observed(ev.WaveFailed) == []
        network.resume(1)
        network.run()
        assert len(network.observed(ev.WaveCompleted)) == 1
        streams = [node.streams[1] for node in network.nodes.values()]
        assert not any(stream.waves for stream in streams)
        assert network.problems == []
    assert partial > 40


@pytest.mark.slow
def test_a_wave_fails_or_waits_as_its_policy_says() -> None:
    for seed in range(40):
        failed = after_a_loss(seed, FAIL)
        over = failed.observed(ev.WaveFailed) + failed.observed(ev.WaveCompleted)
        assert len(over) == 1
        waiting = after_a_loss(seed, REPLACE)
        waiting.resume(1)
        waiting.run()
        (wave,) = waiting.observed(ev.WaveCompleted)
        assert from_ranges(wave.ranks) == set(range(1, waiting.tree.agents + 1))


@pytest.mark.row("D-2")
@pytest.mark.parametrize("on_loss", [PARTIAL, FAIL])
def test_a_wave_that_begins_while_an_agent_is_lost_does_not_wait_for_it(on_loss: str) -> None:
    network = Network(plan(4, 2), 1, lambda rank, _value: [rank])
    network.start()
    spec = StreamSpec(1, "test", ((1, 5),), {WHOLE: "concat"}, on_loss=on_loss)
    network.post(ROOT, ev.OpenStream(spec))
    network.run()
    network.kill(1)
    network.run()
    network.post(ROOT, events.AnnounceMembership(((1, 1),), (), "killed"))
    network.run()
    for _ in range(2):
        network.broadcast(1, None)
        network.run()
    completed, failed = network.observed(ev.WaveCompleted), network.observed(ev.WaveFailed)
    if on_loss == PARTIAL:
        assert [sorted(wave.total) for wave in completed] == [[2, 3, 4]] * 2
        assert failed == []
    else:
        assert [wave.wave for wave in failed] == [1, 2]
        assert all("agent 1 ended: lost and not back yet" in one.error.what for one in failed)
    network.begin([1])
    network.run()
    network.broadcast(1, None)
    network.run()
    assert sorted(network.observed(ev.WaveCompleted)[-1].total) == [1, 2, 3, 4]


@pytest.mark.parametrize("ranks", [(), ((1, 3),), ((1, 1),), ((1, 2), (2, 3))])
@pytest.mark.parametrize("wave", [0, 1])
def test_a_contribution_of_no_agent_cuts_off_who_sent_it(
    wave: int, ranks: tuple[tuple[int, int], ...]
) -> None:
    """On an unsynchronised stream it once ended the session of the root."""
    network = Network(flat(2), 1, lambda _rank, _value: None)
    network.start()
    opened(network, reduce={}, sync=Synchronisation(NO_WAIT))
    network.run()
    connections = network.places[ROOT].links.connections
    number = next(n for n, one in connections.items() if one.channel.link.rank == 1)
    message = msg.Up(1, wave, 2**32 + 1, ranks, 1.0, b"")
    data = b"".join(frames.encode(message, None, share=False))
    network.places[ROOT].bytes_received(number, data)
    (problem,) = network.problems
    assert "rank 1 contributes for" in problem
    assert [from_ranges(lost.ranks) for lost in network.observed(ev.PlacesLost)] == [{1}]
    network.run()
    assert network.places[ROOT].node.streams.keys() == {1}


def test_waves_that_are_complete_leave_no_deadlines() -> None:
    """A stream of a thousand waves a second with a time-out of minutes keeps none of them."""
    network = Network(kary(4, 2), 1, lambda rank, _value: rank)
    network.start()
    opened(network, sync=Synchronisation(TIME_OUT, 300.0))
    for _ in range(200):
        network.broadcast(1, None)
        network.run()
        let_pass(network, 0.01)
    assert len(network.observed(ev.WaveCompleted)) == 200
    kept = [len(node.streams[1].late.deadlines) for node in network.nodes.values()]
    assert max(kept) <= 1
    # One wake-up at a time is under way at each place that waits.
    assert len(network.observed(ev.Wake)) <= 3
