"""Large arrays between places that share no memory: in pieces, and behind what came before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sapwood.comm import events as ev
from sapwood.comm.link import LinkTiming
from sapwood.comm.messages import StreamSpec
from sapwood.comm.messages.pieces import Announced, Draw, Offer, Piece
from sapwood.comm.reduction import WHOLE
from sapwood.comm.streams.fetch import WINDOW_PIECES
from sapwood.core.errors import ExecutionError
from sapwood.core.topology import ROOT, plan
from sapwood_simulation.network import Network

PIECE = 64
ARRAY = np.arange(1000.0)


def apart(seed: int, answer: Any = lambda rank, value: value * rank) -> Network:
    """Return four agents below two junctions, none of which maps another one's memory."""
    network = Network(plan(4, 2), seed, answer, LinkTiming(piece=PIECE))
    network.apart = True
    network.start()
    return network


def opened(network: Network, **what: Any) -> None:
    spec = StreamSpec(1, "test", ((1, 5),), what.pop("reduce", {WHOLE: "sum"}), **what)
    network.post(ROOT, ev.OpenStream(spec))


def on_their_way(network: Network) -> int:
    return sum(len(node.large) for node in network.nodes.values())


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("reduce", ["sum", "max", "concat", "sum:reproducible"])
@pytest.mark.slow
def test_large_values_go_down_and_up(reduce: str, *, counted: bool) -> None:
    for seed in range(5):
        network = apart(seed)
        opened(network, reduce={WHOLE: reduce}, counted=counted)
        network.broadcast(1, ARRAY)
        network.run()
        (wave,) = network.observed(ev.WaveCompleted)
        expected = {
            "max": ARRAY * 4,
            "concat": np.concatenate([ARRAY * rank for rank in range(1, 5)]),
        }
        np.testing.assert_array_equal(wave.total, expected.get(reduce, ARRAY * 10))
        assert on_their_way(network) == 0
        assert network.problems == []


@pytest.mark.parametrize("reduce", ["sum", "concat"])
def test_junctions_put_large_arrays_together_that_the_client_can_map(reduce: str) -> None:
    """Agents share no memory with their junctions, which share it with the client."""
    network = Network(plan(4, 2), 1, lambda rank, value: value * rank, LinkTiming(piece=PIECE))
    network.apart = range(1, 5)
    network.start()
    opened(network, reduce={WHOLE: reduce})
    network.broadcast(1, ARRAY)
    network.run()
    (wave,) = network.observed(ev.WaveCompleted)
    whole = np.concatenate([ARRAY * rank for rank in range(1, 5)])
    np.testing.assert_array_equal(wave.total, ARRAY * 10 if reduce == "sum" else whole)
    assert [seen.rank for seen in network.observations if seen.effect is wave] == [ROOT]
    assert on_their_way(network) == 0


@pytest.mark.slow
def test_a_flush_comes_back_behind_large_arrays() -> None:
    for seed in range(20):
        network = apart(seed)
        opened(network)
        network.broadcast(1, ARRAY)
        network.run(seed * 10)
        network.post(ROOT, ev.SweepStream(1, 1, "flush"))
        network.run()
        kinds = [(type(seen.effect), seen.rank) for seen in network.observations]
        end = kinds.index((ev.SweepDone, ROOT))
        assert all(kinds.index((ev.WaveArrived, rank)) < end for rank in range(1, 5))


@pytest.mark.slow
def test_a_wave_that_fails_leaves_nothing_on_its_way() -> None:
    def answer(rank: int, value: Any) -> Any:
        if rank == 3:
            raise ExecutionError("no")
        return value

    for seed in range(10):
        network = apart(seed, answer)
        opened(network)
        network.broadcast(1, ARRAY)
        network.run()
        assert len(network.observed(ev.WaveFailed)) == 1
        assert on_their_way(network) == 0
        network.broadcast(1, 1)
        network.run()
        network.post(ROOT, ev.CloseStream(1))
        network.run()
        assert on_their_way(network) == 0


def test_a_large_answer_of_a_stream_that_does_not_wait_arrives() -> None:
    from sapwood.comm.messages import Synchronisation  # noqa: PLC0415 - only here

    network = apart(3)
    opened(network, reduce={}, sync=Synchronisation("none"))
    network.broadcast(1, ARRAY)
    network.run()
    assert len(network.observed(ev.Contributed)) == 4
    assert all(one.payload is not None for one in network.observed(ev.Contributed))
    assert on_their_way(network) == 0


WRONG = [
    (5, 0, Draw(1, 1, (), 1, 0, 10**9, PIECE)),
    (5, 0, Draw(1, 1, (), 1, 0, 100, 7)),
    (5, 0, Draw(1, 1, (), 1, 0, (WINDOW_PIECES + 1) * PIECE, PIECE)),
    (0, 5, Draw(1, 1, ((1, 3),), 99, 64, 128, PIECE)),
    (5, 0, Offer(1, 1, 0, ((3, 4),), 1.0, b"\xc0", 100)),
    (5, 0, Offer(1, 1, 0, ((1, 3),), 1.0, b"\xc0", -1)),
    (5, 0, Announced(1, 1, 0, b"\xc0", 0, (), 0, 100)),
]


@pytest.mark.parametrize(("source", "to", "message"), WRONG)
def test_a_neighbour_that_draws_or_offers_what_cannot_be_is_cut_off(
    source: int, to: int, message: Any
) -> None:
    network = apart(1)
    opened(network)
    network.broadcast(1, ARRAY)
    if source == ROOT:
        streams = network.nodes[5].streams
        while 1 not in streams or 1 not in streams[1].kept:
            assert network.step()
    else:
        network.run(5)
    network.send(source, to, message)
    network.run(400)
    assert len(network.problems) == 1


def test_pieces_that_nobody_asked_for_are_dropped() -> None:
    network = apart(1)
    opened(network)
    network.broadcast(1, ARRAY)
    network.send(5, ROOT, Piece(1, 1, 12345, 0))
    network.run()
    assert len(network.observed(ev.WaveCompleted)) == 1
    assert network.problems == []


def test_what_is_offered_while_others_are_fetched_is_fetched_with_them() -> None:
    network = apart(1)
    opened(network)
    network.broadcast(1, ARRAY)
    root = network.nodes[ROOT]
    while not root.streams or not root.streams[1].waves or not root.streams[1].waves[1].fetching:
        assert network.step()
    stream = root.streams[1]
    wave: Any = stream.waves[1]
    fetching = wave.fetching
    assert root.large.contributions.reduce(stream, wave) == []
    assert wave.fetching is fetching
    fetching.sources = wave.offers[:1]  # as if the second had come since
    effects: Any = root.large.contributions.reduce(stream, wave)
    assert len(effects) == 2
    assert wave.fetching is not fetching
    assert wave.fetching.sources == wave.offers


@pytest.mark.slow
def test_large_arrays_that_cannot_be_added_in_pieces_are_fetched_as_a_whole() -> None:
    for seed in range(5):
        network = apart(seed, lambda rank, value: value < rank)  # a sum of booleans counts
        opened(network)
        network.broadcast(1, ARRAY)
        network.run()
        (wave,) = network.observed(ev.WaveCompleted)
        np.testing.assert_array_equal(
            wave.total, sum((rank > ARRAY).astype(int) for rank in range(1, 5))
        )
        assert on_their_way(network) == 0
        assert network.problems == []
