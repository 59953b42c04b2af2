from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.groups.events import ForgetGroups
from sapwood.comm.payload import Payload
from sapwood.comm.reductions.elementwise import Sum
from sapwood.comm.streams import opening
from sapwood.core.errors import ExecutionError, ProtocolError
from sapwood.core.rankset import from_ranges
from sapwood.core.topology import ROOT, Tree, flat, kary, plan
from sapwood_simulation.network import Network

SHAPES = [flat(1), flat(4), kary(5, 2), kary(9, 3), kary(4, 2)]
seeds = st.integers(0, 2**16)
shapes = st.builds(plan, st.integers(1, 17), st.sampled_from([0, 2, 3, 4]))


def data_of(rank: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(rank).integers(-50, 50, 6).astype("f8")


def answer(rank: int, value: Any) -> Any:
    scaled = data_of(rank) * value["factor"]
    return {"sum": scaled, "min": scaled, "max": scaled, "all": scaled[: rank % 3], "n": 1}


REDUCE = {"sum": "sum", "min": "min", "max": "max", "all": "concat", "n": "count"}


def check_total(total: dict[str, Any], members: list[int], factor: float) -> None:
    parts = [data_of(rank) * factor for rank in members]
    np.testing.assert_array_equal(total["sum"], np.sum(parts, axis=0))
    np.testing.assert_array_equal(total["min"], np.min(parts, axis=0))
    np.testing.assert_array_equal(total["max"], np.max(parts, axis=0))
    pieces = [part[: rank % 3] for rank, part in zip(members, parts, strict=True)]
    np.testing.assert_array_equal(total["all"], np.concatenate(pieces))
    assert total["n"] == len(members)


def check_waves(network: Network, members: list[int], factors: list[float]) -> None:
    done = network.observed(ev.WaveCompleted)
    assert [wave.wave for wave in sorted(done, key=lambda wave: wave.wave)] == [
        number for number, _ in enumerate(factors, start=1)
    ]
    for wave in done:
        assert from_ranges(wave.ranks) == set(members)
        assert wave.weight == len(members)
        check_total(wave.total, members, factors[wave.wave - 1])


# --- broadcast and reduce ------------------------------------------------------------------------


@given(shapes, seeds)
@pytest.mark.slow
def test_waves_over_any_tree_give_what_numpy_gives(tree: Tree, seed: int) -> None:
    network = Network(tree, seed, answer)
    network.start()
    network.open_stream(1, REDUCE)
    factors = [1.0, 2.0, 5.0]
    for factor in factors:
        network.broadcast(1, {"factor": factor})
        network.run(seed % 40)
    network.run()
    check_waves(network, list(range(1, tree.agents + 1)), factors)
    assert network.problems == []


@given(shapes, seeds, st.data())
@pytest.mark.slow
def test_a_stream_reaches_its_members_and_nobody_else(
    tree: Tree, seed: int, data: st.DataObject
) -> None:
    members = sorted(data.draw(st.sets(st.integers(1, tree.agents), min_size=1)))
    network = Network(tree, seed, answer)
    network.start()
    network.open_stream(1, REDUCE, members)
    network.broadcast(1, {"factor": 1.0})
    network.run()
    check_waves(network, members, [1.0])
    asked = {seen.rank for seen in network.observations if isinstance(seen.effect, ev.WaveArrived)}
    assert asked == set(members)


@given(shapes, seeds)
@pytest.mark.slow
def test_streams_do_not_disturb_each_other(tree: Tree, seed: int) -> None:
    network = Network(tree, seed, lambda rank, value: {"x": rank * value})
    network.start()
    for stream in (1, 2):
        network.open_stream(stream, {"x": "sum"})
        for factor in (1, 10):
            network.broadcast(stream, factor * stream)
    network.run()
    ranks = sum(range(1, tree.agents + 1))
    totals = {
        (wave.stream, wave.wave): wave.total["x"] for wave in network.observed(ev.WaveCompleted)
    }
    assert totals == {(1, 1): ranks, (1, 2): 10 * ranks, (2, 1): 2 * ranks, (2, 2): 20 * ranks}


@pytest.mark.parametrize("tree", SHAPES, ids=str)
def test_a_closed_stream_is_forgotten_everywhere(tree: Tree) -> None:
    network = Network(tree, 0, answer)
    network.start()
    network.open_stream(1, REDUCE)
    network.broadcast(1, {"factor": 1.0})
    network.run(3)
    network.post(ROOT, ev.CloseStream(1))
    network.run()
    assert all(not node.streams for node in network.nodes.values())
    assert len(network.observed(ev.StreamClosed)) == tree.agents
    assert network.problems == []


# --- what is kept and when it is released --------------------------------------------------------


@given(shapes, seeds)
@pytest.mark.slow
def test_contributions_are_released_when_a_later_wave_confirms_them(tree: Tree, seed: int) -> None:
    network = Network(tree, seed, answer)
    network.start()
    network.open_stream(1, REDUCE)
    for number, factor in enumerate((1.0, 2.0, 3.0)):
        network.broadcast(1, {"factor": factor})
        network.run()
        released = {
            seen.effect.payload.owner
            for seen in network.observations
            if isinstance(seen.effect, ev.Released) and tree.is_agent(seen.rank)
        }
        agents = range(1, tree.agents + 1)
        assert released == {(rank, wave) for rank in agents for wave in range(1, number + 1)}
    network.post(ROOT, ev.CloseStream(1))
    network.run()
    assert all(
        not stream.kept for node in network.nodes.values() for stream in node.streams.values()
    )
    agents_released = [
        seen.effect.payload.owner
        for seen in network.observations
        if isinstance(seen.effect, ev.Released) and tree.is_agent(seen.rank)
    ]
    assert len(agents_released) == len(set(agents_released)) == 3 * tree.agents


def test_a_wave_that_misses_someone_confirms_nothing_after_it() -> None:
    network = Network(flat(2), 0, answer)
    network.start()
    network.open_stream(1, REDUCE)
    network.broadcast(1, {"factor": 1.0})
    network.pause(2)
    network.run()
    network.broadcast(1, {"factor": 2.0})
    network.run()
    assert network.observed(ev.Released, rank=1) == []
    network.resume(2)
    network.run()
    network.broadcast(1, {"factor": 3.0})
    network.run()
    released = network.observed(ev.Released, rank=1)
    assert [effect.payload.owner for effect in released] == [(1, 1), (1, 2)]


def test_the_payload_of_a_wave_is_released_when_the_wave_is_complete() -> None:
    network = Network(flat(2), 0, lambda _rank, value: {"x": value["x"]})
    network.start()
    network.open_stream(1, {"x": "sum"})
    network.broadcast(1, {"x": np.arange(3.0)})
    assert network.observed(ev.Released, ROOT) == []
    network.run()
    assert [effect.payload.owner for effect in network.observed(ev.Released, ROOT)] == [ROOT]


# --- loss ----------------------------------------------------------------------------------------


@settings(deadline=None)
@given(shapes, seeds, st.data())
@pytest.mark.slow
def test_a_wave_survives_any_loss_and_has_everybody_exactly_once(
    tree: Tree, seed: int, data: st.DataObject
) -> None:
    network = Network(tree, seed, answer)
    network.start()
    network.open_stream(1, REDUCE)
    factors: list[float] = []
    for factor in (1.0, 2.0, 3.0):
        network.broadcast(1, {"factor": factor})
        factors.append(factor)
        network.run(data.draw(st.integers(0, 30)))
        victims = data.draw(st.sets(st.integers(1, tree.size - 1), min_size=1, max_size=3))
        for victim in victims:
            network.kill(victim)
            network.run(data.draw(st.integers(0, 10)))
        network.begin(sorted(victims, reverse=True))
        network.run(data.draw(st.integers(0, 30)))
    settle(network)
    check_waves(network, list(range(1, tree.agents + 1)), factors)
    assert network.problems == []


def settle(network: Network) -> None:
    """Let things happen until nothing does, places that try again included."""
    network.run()
    while network.connects.next_due() < math.inf:
        network.clock.advance(network.connects.next_due() - network.clock.now())
        network.run()


def test_who_is_below_a_lost_junction_is_attached_above_it() -> None:
    tree = kary(9, 3)
    network = Network(tree)
    network.start()
    junction = tree.parents[1]
    network.kill(junction)
    network.run()
    (lost,) = network.observed(ev.PlacesLost)
    assert from_ranges(lost.ranks) >= {junction}
    below = tree.children(junction)
    assert set(below) <= set(network.nodes)
    assert [network.nodes[rank].router.parent for rank in below] == [ROOT] * len(below)
    network.begin([junction])
    network.run()
    assert [network.nodes[rank].router.parent for rank in below] == [junction] * len(below)


def test_an_answer_is_given_again_without_computing_it_again() -> None:
    tree = kary(4, 2)
    network = Network(tree, 0, answer)
    network.start()
    network.open_stream(1, REDUCE)
    network.broadcast(1, {"factor": 1.0})
    network.pause(4)
    network.run()
    network.kill(5)  # it had brought agents 1 and 2 together
    network.kill(6)  # it waited for agent 4
    network.run()
    network.resume(4)
    settle(network)
    check_waves(network, [1, 2, 3, 4], [1.0])
    arrived = [
        seen.rank for seen in network.observations if isinstance(seen.effect, ev.WaveArrived)
    ]
    assert sorted(arrived) == [1, 2, 3, 4]


def test_a_lost_agent_is_told_to_the_root_through_its_junctions() -> None:
    tree = kary(9, 2)
    network = Network(tree)
    network.start()
    network.kill(5)
    network.run()
    (lost,) = network.observed(ev.PlacesLost)
    assert from_ranges(lost.ranks) == {5}
    network.begin([5])
    network.run()
    joined = network.observed(ev.PlaceJoined)[-1]
    assert (joined.rank, joined.incarnation) == (5, 2)


def test_a_second_contribution_is_dropped() -> None:
    network = Network(flat(2), 0, answer)
    network.start()
    network.open_stream(1, REDUCE)
    network.broadcast(1, {"factor": 1.0})
    network.pause(2)
    network.run()
    body = values.encode(answer(1, {"factor": 77.0}))
    again = ev.Contribute(1, 1, 1.0, body.body, Payload(body.payload()))
    network.post(1, again)
    network.run()
    network.resume(2)
    network.run()
    check_waves(network, [1, 2], [1.0])
    network.post(1, again)
    network.run()
    assert len(network.observed(ev.WaveCompleted)) == 1
    assert network.problems == []


def test_what_comes_for_a_closed_stream_is_dropped_and_given_back() -> None:
    network = Network(flat(2), 0, answer)
    network.start()
    payload = Payload(b"abc", owner="mine")
    network.post(1, ev.Contribute(9, 1, 1.0, b"", payload))
    network.post(ROOT, ev.CloseStream(9))
    assert [effect.payload for effect in network.observed(ev.Released, 1)] == [payload]


# --- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", SHAPES, ids=str)
def test_a_failure_is_told_to_the_root_with_its_agent(tree: Tree) -> None:
    def failing(rank: int, value: Any) -> Any:
        if rank == tree.agents:
            raise ExecutionError("no", where="here")
        return answer(rank, value)

    network = Network(tree, 0, failing)
    network.start()
    network.open_stream(1, REDUCE)
    network.broadcast(1, {"factor": 1.0})
    network.run()
    (failed,) = network.observed(ev.WaveFailed)
    assert (failed.stream, failed.wave, failed.rank) == (1, 1, tree.agents)
    assert failed.error == ExecutionError("no", where="here").to_record()
    assert network.observed(ev.WaveCompleted) == []


@pytest.mark.parametrize("tree", SHAPES[1:], ids=str)
@pytest.mark.parametrize("bad", [{"x": np.zeros(3)}, {"y": 1}, 5, {"x": "text"}], ids=str)
def test_contributions_that_do_not_fit_fail_the_wave_and_nothing_else(tree: Tree, bad: Any) -> None:
    network = Network(tree, 0, lambda rank, _value: bad if rank == 1 else {"x": np.zeros(2)})
    network.start()
    network.open_stream(1, {"x": "sum"})
    network.broadcast(1, None)
    network.run()
    assert network.observed(ev.WaveFailed)
    assert network.observed(ev.WaveCompleted) == []
    assert len(network.nodes) == tree.size
    assert network.problems == []


def test_a_sum_beyond_64_bits_is_exact_in_a_tree() -> None:
    network = Network(kary(4, 2), 0, lambda _rank, _value: {"x": -(2**63)})
    network.start()
    network.open_stream(1, {"x": "sum"})
    network.broadcast(1, None)
    network.run()
    (done,) = network.observed(ev.WaveCompleted)
    assert done.total == {"x": -(2**65)}


def test_a_partial_result_that_cannot_travel_fails_the_wave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Sum, "partial", lambda _self: object())
    network = Network(kary(4, 2), 0, lambda _rank, _value: {"x": 1})
    network.start()
    network.open_stream(1, {"x": "sum"})
    network.broadcast(1, None)
    network.run()
    failed = network.observed(ev.WaveFailed)
    assert [effect.rank for effect in failed] in ([5], [6])  # a wave fails once
    assert all("cannot travel" in effect.error.what for effect in failed)
    assert len(network.nodes) == network.tree.size


def test_pieces_that_do_not_fit_fail_the_wave_at_the_root() -> None:
    network = Network(kary(4, 2), 0, lambda rank, _value: {"x": np.zeros((1, rank))})
    network.start()
    network.open_stream(1, {"x": "concat"})
    network.broadcast(1, None)
    network.run()
    (failed,) = network.observed(ev.WaveFailed)
    assert "cannot reduce field 'x'" in failed.error.what


def test_open_streams_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "MAX_STREAMS", 2)
    network = Network(flat(1))
    network.start()
    for stream in (1, 2):
        network.open_stream(stream, {})
    with pytest.raises(ProtocolError, match="more than 2 streams"):
        network.open_stream(3, {})


def test_the_same_seed_is_the_same_course_of_events() -> None:
    def course(seed: int) -> list[tuple[int, str]]:
        network = Network(kary(6, 2), seed, answer)
        network.start()
        network.open_stream(1, REDUCE)
        network.broadcast(1, {"factor": 1.0})
        network.run()
        return [(seen.rank, type(seen.effect).__name__) for seen in network.observations]

    assert course(3) == course(3)
    assert course(3) != course(4)


@pytest.mark.slow
def test_a_place_imports_no_numpy() -> None:
    """Each agent has a place: what it imports, all of them have."""
    code = "import sys, sapwood.comm.node; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_place_that_never_had_a_group_has_nothing_to_forget() -> None:
    network = Network(flat(2), 1)
    network.start()
    network.post(1, ForgetGroups())
    assert len(network.nodes[1].groups) == 0
