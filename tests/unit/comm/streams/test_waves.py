"""What is left of waves that failed, were lost or came too late: at all places, nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.messages import FilterAt, StreamSpec, Synchronisation
from sapwood.comm.reduction import WHOLE
from sapwood.core.errors import ExecutionError, ProtocolError
from sapwood.core.rankset import from_ranges, to_ranges
from sapwood.core.topology import ROOT, Tree, kary, plan
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
    with pytest.raises(ProtocolError, match="resume while open"):
        network.post(ROOT, ev.SweepStream(1, 4, "resume"))


@pytest.mark.row("C3-STREAM")
@given(shapes, seeds)
@settings(max_examples=30)
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


def test_what_a_filter_raises_fails_the_wave_once() -> None:
    def broken(rank: int, _effect: ev.Filter, _parts: list[Any]) -> Any:
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
