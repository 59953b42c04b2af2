"""The information about streams that a place receives when it is attached."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.messages import StreamSpec
from sapwood.comm.routing import Router
from sapwood.comm.streams.filters import Position
from sapwood.comm.streams.opening import Opening
from sapwood.comm.streams.stream import NodeStream, PendingOperation, StreamEvent, StreamState
from sapwood.core.errors import InternalError
from sapwood.core.topology import ROOT, Tree, kary
from sapwood_simulation.network import Network
from sapwood_simulation.simulation import left_behind

JUNCTION = 5
SPEC = StreamSpec(1, "test", ((1, 5),), {"x": "sum"})
REDUCE = {"x": "sum"}

TREE: Tree = kary(8, 2)
UPPER, LOWER, AGENT = 13, 9, 1
"""An agent, and the two junctions above it; the client is above these."""


def opening_with(stream: NodeStream) -> Opening:
    near: Any = SimpleNamespace(rank=ROOT, router=SimpleNamespace(tree=kary(4, 2)), links_to=tuple)
    unused: Any = None
    return Opening(near, {1: stream}, unused, Position(ROOT, 0), unused, unused, unused)


@pytest.mark.parametrize("fresh", [False, True])
def test_a_junction_has_the_streams_before_it_may_tell_others_of_them(*, fresh: bool) -> None:
    unused: Any = None
    stream = NodeStream(SPEC, Router(kary(4, 2), ROOT), unused)
    effects: list[Any] = opening_with(stream).child_came(JUNCTION, fresh=fresh)
    assert [effect.message for effect in effects] == [msg.Open(SPEC), msg.OpenStreams((1,))]


# --- a place that moves to a parent whose news are older than its own ----------------------------


@pytest.fixture
def network() -> Network:
    network = Network(TREE)
    network.start()
    for stream in (1, 2, 3):
        network.open_stream(stream, REDUCE)
    network.run()
    return network


def tell(network: Network, message: msg.OpenStreams) -> None:
    """Have an agent hear this from its parent."""
    network.send(LOWER, AGENT, message)
    network.run()


def test_a_stream_that_the_parent_has_not_heard_of_yet_stays_open(network: Network) -> None:
    tell(network, msg.OpenStreams((1,), newest=2))
    assert sorted(network.nodes[AGENT].streams) == [1, 3]
    assert [effect.stream for effect in network.observed(ev.StreamClosed, AGENT)] == [2]


def test_a_stream_that_the_parent_has_not_heard_of_yet_stays_quiet(network: Network) -> None:
    network.post(ROOT, ev.SweepStream(3, 1, "quiesce"))
    network.run()
    tell(network, msg.OpenStreams((1, 2), newest=2))
    assert network.nodes[AGENT].streams[3].quiet


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.slow
def test_no_open_stream_is_closed_while_places_move(seed: int) -> None:
    """Junctions are lost and come back while a stream starts: it continues at each agent."""
    network = Network(TREE, seed)
    network.start()
    for junction in (UPPER, LOWER):
        network.kill(junction)
    network.run()
    network.begin((UPPER, LOWER))
    network.run(network.chance.randrange(300))  # anything between
    network.open_stream(1, REDUCE)
    network.broadcast(1, {"x": 1})
    network.run()
    assert not network.observed(ev.StreamClosed)
    assert [wave.total for wave in network.observed(ev.WaveCompleted)] == [{"x": TREE.agents}]


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.slow
def test_no_stream_that_ended_stays_open_while_places_move(seed: int) -> None:
    """A place that its new parent does not know to have a stream hears of the stream's end."""
    network = Network(TREE, seed)
    network.start()
    network.kill(LOWER)
    network.run()
    network.begin((LOWER,))
    chance = network.chance.randrange
    network.run(chance(200))
    network.open_stream(1, REDUCE)
    network.run(chance(40))
    network.kill(UPPER)
    network.post(ROOT, ev.CloseStream(1))
    network.run(chance(40))
    network.begin((UPPER,))
    network.open_stream(2, REDUCE)
    network.run()
    assert {tuple(node.streams) for node in network.nodes.values()} == {(2,)}
    network.post(ROOT, ev.CloseStream(2))
    network.run()
    assert not any(left_behind(node) for node in network.nodes.values())


def test_the_root_opens_streams_in_the_order_of_their_numbers(network: Network) -> None:
    for number in (2, 3):
        with pytest.raises(InternalError, match=f"stream {number} is opened after 3"):
            network.open_stream(number, REDUCE)


@pytest.mark.slow
def test_what_a_draining_place_waited_for_came_by_elsewhere_if_its_parent_is_quiet(
    network: Network,
) -> None:
    stream = network.nodes[AGENT].streams[1]
    stream.advance(StreamEvent.QUIESCE)
    stream.sweeps[7] = PendingOperation(msg.Sweep(1, 7, "quiesce"), set())
    tell(network, msg.OpenStreams((1, 2, 3), quiet=(1,), newest=3))
    assert stream.sweeps == {}
    assert stream.state is StreamState.QUIET


@pytest.mark.parametrize("follows", [True, False])
def test_a_stream_does_not_wait_for_who_had_left_before_it_was_opened(*, follows: bool) -> None:
    """A client elsewhere may not have heard of that yet when it opens the stream."""
    network = Network(TREE, answer=lambda _rank, value: value)
    network.start()
    network.change(TREE.without([AGENT]))
    network.run()
    network.open_stream(1, REDUCE, TREE.agent_ranks, follows=follows)
    network.broadcast(1, {"x": 1})
    network.run()
    if follows:
        (wave,) = network.observed(ev.WaveCompleted)
        assert wave.total == {"x": 7}
    else:
        (failed,) = network.observed(ev.WaveFailed)
        assert failed.rank == AGENT
