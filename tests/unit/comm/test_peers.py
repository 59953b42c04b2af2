"""The messages that a place accepts from each peer, and its reaction to silence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.attachment import RETRY_PAUSE
from sapwood.comm.epochs import tree_message
from sapwood.comm.link import Identity, LinkTiming
from sapwood.comm.messages import PROTOCOL_VERSION, StreamSpec, messaging
from sapwood.comm.node import Node
from sapwood.comm.place_keys import PlaceKeys
from sapwood.comm.reduction import gathering
from sapwood.core.errors import ErrorRecord, ProtocolError
from sapwood.core.rankset import from_ranges
from sapwood.core.topology import ROOT, Tree, flat, kary
from sapwood_simulation.network import Network

TIMING = LinkTiming(heartbeat=1.0, failure_after=5.0)
ME = Identity("cluster", ROOT, 1, 100, "here", PlaceKeys(b"secret"))
KIDS = Identity("cluster", 1, 1, 101, "here", PlaceKeys(b"secret"))

# --- who may say what ----------------------------------------------------------------------------

SPEC = StreamSpec(1, "test", ((1, 3),), {"x": "sum"})
RECORD = ErrorRecord(code="SW200", what="no")


@pytest.mark.parametrize(
    "message",
    [
        msg.Open(SPEC),
        msg.Close(1),
        msg.Down(1, 1, 0, b""),
        msg.Hello(PROTOCOL_VERSION, "cluster", 1, 1, 1, "here"),
        msg.Welcome(PROTOCOL_VERSION, 1, 1, "here"),
        msg.Refused("no"),
        msg.Detached(3, 1, 1, "gone"),
        msg.Detached(0, 1, 1, "gone"),
        msg.Detached(2**60, 1, 1, "gone"),
        msg.Attached((msg.Placed(2, 2, 1, 1, 1),)),
        msg.Attached((msg.Placed(0, 2, 1, 1, 1),)),
        msg.Attached((msg.Placed(1, 1, 2, 1, 3),)),
        msg.Attached((), anew=2),
        msg.Release(2, 9, 9),
        msg.Return(2),
        msg.OpenStreams(()),
        msg.Failed(1, 1, 0, 2, RECORD),
        msg.Up(1, 1, 0, ((2, 3),), 1.0, b"\xc0"),
        msg.Up(1, 1, 0, ((1, 3),), 1.0, b"\xc0"),
        msg.Up(1, 1, 0, (), 1.0, b"\xc0"),
        msg.Up(1, 1, 0, ((1, 2**60),), 1.0, b"\xc0"),
        msg.Up(1, 1, 0, ((2**60, 1), (1, 2**60)), 1.0, b"\xc0"),
        messaging.MembershipNotice(((2, 1),)),
    ],
    ids=str,
)
def test_an_agent_that_says_what_it_may_not_say_is_cut_off(message: msg.AnyMessage) -> None:
    network = Network(flat(3))
    network.start()
    network.open_stream(1, {"x": "sum"})
    network.broadcast(1, {"x": 1})
    network.pause(1)
    network.send(1, ROOT, message)
    network.run()
    assert len(network.problems) == 1
    (lost,) = network.observed(ev.PlacesLost)
    assert from_ranges(lost.ranks) == {1}


@pytest.mark.parametrize(
    "message",
    [
        msg.Up(1, 1, 0, ((1, 2),), 1.0, b"\xc0"),
        msg.Failed(1, 1, 0, 1, RECORD),
        msg.Attached((msg.Placed(1, 2, 1, 1, 5),)),
        msg.Detached(1, 1, 1, "gone"),
        msg.Welcome(PROTOCOL_VERSION, 0, 1, "here"),
    ],
    ids=str,
)
def test_a_parent_that_says_what_it_may_not_say_is_cut_off(message: msg.AnyMessage) -> None:
    network = Network(kary(4, 2))
    network.start()
    network.open_stream(1, {"x": "sum"})
    network.send(ROOT, 5, message)
    network.run()
    if not isinstance(message, msg.Up):  # an answer to a wave that is not open is dropped
        assert len(network.problems) == 1
    assert network.observed(ev.WaveCompleted) == []


@pytest.mark.parametrize(
    "places",
    [
        [(1, 1)],
        [(13, 13)],
        [(13, 9)],
        [(9, 1)],
        [(9, 10), (10, 9)],
        [(1, 2), (2, 1)],
        [(9, 13), (13, 1)],
    ],
    ids=str,
)
@pytest.mark.parametrize("spares", [False, True], ids=["", "spares"])
def test_a_child_that_says_a_way_goes_round_in_a_circle_is_cut_off(
    places: list[tuple[int, int]], *, spares: bool
) -> None:
    """Whoever followed such a way would never come to its end."""
    network = Network(kary(8, 2, spares=spares))
    network.start()
    told = tuple(msg.Placed(rank, 2, 1, 100 + rank, parent) for rank, parent in places)
    network.pause(13)
    network.send(13, ROOT, msg.Attached(told))
    network.run()
    (problem,) = network.problems
    assert "attaches rank" in problem
    (lost,) = network.observed(ev.PlacesLost)
    assert 13 in from_ranges(lost.ranks)


def greeted_node(tree: Tree, identity: Identity = ME) -> Node:
    return Node(identity, tree, TIMING, gathering())


def say(node: Node, message: msg.AnyMessage, link: int = 1) -> list[ev.Effect]:
    return node.step(0.0, ev.Received(link, message, None))


@pytest.mark.parametrize(
    "change",
    [
        {"credential": b"wrong"},
        {"credential": b""},
        {"version": PROTOCOL_VERSION + 1},
        {"cluster": "other"},
        {"rank": 9, "credential": b"wrong"},
        {"rank": 0},
        {"rank": -1},
    ],
    ids=str,
)
def test_a_stranger_is_told_why_and_sent_away(change: dict[str, Any]) -> None:
    node = greeted_node(flat(2))
    node.step(0.0, ev.LinkOpened(1, initiator=False))
    effects = say(node, msgspec.structs.replace(KIDS.hello(), **change))
    refused, disconnect = effects
    assert isinstance(refused, ev.Transmit)
    assert isinstance(refused.message, msg.Refused)
    assert isinstance(disconnect, ev.Disconnect)
    with pytest.raises(ProtocolError, match="before the handshake"):
        say(node, msg.Heartbeat())


@pytest.mark.parametrize("change", [{"rank": 9}, {"epoch": 1}, {"epoch": 1, "attachment": 3}])
def test_who_knows_of_a_later_epoch_is_to_ask_again(change: dict[str, Any]) -> None:
    """It may be new, and whom it asks has not heard of it yet: it must not end for that."""
    node = greeted_node(flat(2))
    node.step(0.0, ev.LinkOpened(1, initiator=False))
    (disconnect,) = say(node, msgspec.structs.replace(KIDS.hello(), **change))
    assert isinstance(disconnect, ev.Disconnect)
    assert not node.router.everybody()


def test_who_hears_of_an_epoch_while_it_asks_asks_again() -> None:
    """Its parent told it; the place that takes it may not know who was added."""
    tree = kary(4, 2)
    home, above = tree.above(1)
    node = greeted_node(tree, KIDS)
    node.step(0.0, ev.Begin())
    node.step(0.0, ev.LinkOpened(1, initiator=True))
    say(node, msg.Welcome(PROTOCOL_VERSION, home, 1, "here"))
    silent = [effect for now in range(7) for effect in node.step(float(now), ev.Tick())]
    assert ev.Connect(above) in silent
    for link, epoch in ((2, 0), (3, 1)):
        (asked,) = node.step(6.0, ev.LinkOpened(link, initiator=True))
        assert isinstance(asked, ev.Transmit)
        assert isinstance(asked.message, msg.Hello)
        assert asked.message.epoch == epoch
        say(node, tree_message(tree.with_agents({7: home})))
        effects = say(node, msg.Welcome(PROTOCOL_VERSION, above, 1, "here"), link)
        assert (ev.ParentUp() in effects) == (epoch == 1)
        if epoch == 0:
            (disconnect,) = effects
            assert isinstance(disconnect, ev.Disconnect)
            assert disconnect.link == link
            node.step(6.0, ev.LinkClosed(link, disconnect.reason))
            assert node.router.parent == home
            assert ev.Connect(above) in node.step(20.0, ev.Tick()) + node.step(21.0, ev.Tick())
    assert node.router.parent == above


def test_only_a_newer_process_takes_the_place_of_another() -> None:
    node = greeted_node(flat(2))
    for link, incarnation in ((1, 2), (2, 2), (3, 1), (4, 3)):
        node.step(0.0, ev.LinkOpened(link, initiator=False))
        effects = say(node, msgspec.structs.replace(KIDS.hello(), incarnation=incarnation), link)
        admitted = any(isinstance(effect, ev.PlaceJoined) for effect in effects)
        assert admitted == (link in {1, 4})
    assert [number for number, link in node.links.items() if link.usable] == [1, 4]
    # The end of the older one's link does not count as a loss any more.
    assert node.step(0.0, ev.LinkClosed(1, "closed")) == []


def test_who_was_below_a_process_is_not_below_the_next_one_at_its_place() -> None:
    """Else the place is asked for them for ever, as fast as it can answer that they are not there.

    The new process is at its home again, the former one was attached to the root meanwhile.
    """
    tree = kary(8, 2)
    agent, junction = 1, tree.parents[1]
    above = tree.parents[junction]
    node = greeted_node(tree)
    for link, rank in enumerate((junction, above), start=1):
        node.step(0.0, ev.LinkOpened(link, initiator=False))
        say(node, msgspec.structs.replace(KIDS.hello(), rank=rank), link)
    say(node, msg.Attached((msg.Placed(agent, 1, 1, 1, junction),), agent), 1)
    assert node.router.is_below(agent)
    effects = say(node, msg.Attached((msg.Placed(junction, 2, 1, 2, above),)), 2)
    assert not node.router.is_below(agent)
    assert [from_ranges(one.ranks) for one in effects if isinstance(one, ev.PlacesLost)] == [
        {agent}
    ]
    say(node, msg.Attached((msg.Placed(agent, 1, 2, 1, junction),), agent), 2)
    assert node.router.is_below(agent)


@pytest.mark.parametrize(
    "message",
    [
        msg.Open(SPEC),
        msg.Up(1, 1, 0, ((1, 2),), 1.0, b""),
        messaging.RoutedMessage(1, 0, 0, 1 << 32, 0, 1, 0, 1, 1, "x"),
        msg.Heartbeat(),
        msg.Goodbye(),
        msg.Welcome(PROTOCOL_VERSION, 1, 1, "here"),
    ],
    ids=str,
)
def test_nothing_is_heard_before_the_greeting(message: msg.AnyMessage) -> None:
    node = greeted_node(flat(2))
    node.step(0.0, ev.LinkOpened(1, initiator=False))
    with pytest.raises(ProtocolError, match="before the handshake"):
        say(node, message)


@pytest.mark.parametrize("initiator", [False, True])
def test_who_does_not_greet_in_time_is_cut_off(initiator: bool) -> None:
    node = greeted_node(flat(2), KIDS if initiator else ME)
    if initiator:
        node.step(0.0, ev.Begin())
    node.step(0.0, ev.LinkOpened(1, initiator=initiator))
    effects = [effect for now in range(7) for effect in node.step(float(now), ev.Tick())]
    (disconnect,) = effects
    assert isinstance(disconnect, ev.Disconnect)
    after = node.step(6.0, ev.LinkClosed(1, disconnect.reason))
    assert after == ([ev.Connect(ROOT, RETRY_PAUSE)] if initiator else [])


def test_a_parent_that_is_somebody_else_is_refused() -> None:
    node = greeted_node(flat(2), KIDS)
    assert node.step(0.0, ev.Begin()) == [ev.Connect(ROOT)]
    node.step(0.0, ev.LinkOpened(1, initiator=True))
    with pytest.raises(ProtocolError, match="expected rank 0, met 2"):
        say(node, msg.Welcome(PROTOCOL_VERSION, 2, 1, "here"))


def test_who_is_refused_ends() -> None:
    node = greeted_node(flat(2), KIDS)
    node.step(0.0, ev.LinkOpened(1, initiator=True))
    effects = say(node, msg.Refused("wrong credential"))
    assert ev.ParentLost("wrong credential") in effects


# --- time ----------------------------------------------------------------------------------------


def test_idle_neighbours_that_beat_are_not_suspected() -> None:
    network = Network(kary(4, 2), timing=TIMING)
    network.start()
    network.advance(60.0)
    assert network.observed(ev.PlaceSilent) == []


def test_a_stopped_neighbour_is_noticed_once_by_those_around_it() -> None:
    tree = kary(4, 2)
    network = Network(tree, timing=TIMING)
    network.start()
    network.pause(5)
    network.advance(20.0)
    silent = [
        (seen.rank, seen.effect.rank)
        for seen in network.observations
        if isinstance(seen.effect, ev.PlaceSilent)
    ]
    assert sorted(silent) == [(0, 5), (1, 5), (2, 5)]
    assert all(effect.seconds > TIMING.failure_after for effect in network.observed(ev.PlaceSilent))


def test_a_process_that_was_stopped_itself_does_not_blame_its_neighbours() -> None:
    network = Network(kary(4, 2), timing=TIMING)
    network.start()
    network.advance(3.0)
    network.pause(ROOT)
    network.advance(30.0)
    network.resume(ROOT)
    before = len(network.observed(ev.PlaceSilent, ROOT))
    network.post(ROOT, ev.Tick())  # before it reads what came meanwhile
    network.advance(30.0)
    assert len(network.observed(ev.PlaceSilent, ROOT)) == before == 0


def test_a_stopped_place_is_condemned_and_ends_when_it_wakes() -> None:
    tree = kary(4, 2)
    network = Network(tree, timing=TIMING)
    network.start()
    network.pause(5)
    network.advance(20.0)
    (lost,) = [one for one in network.observed(ev.PlacesLost) if one.condemned]
    assert lost.top == 5
    assert [network.nodes[rank].router.parent for rank in (1, 2)] == [ROOT, ROOT]
    news = len(network.observed(ev.PlaceJoined))
    network.resume(5)
    network.advance(20.0)
    assert sorted(network.nodes) == [0, 1, 2, 3, 4, 6]
    assert [network.nodes[rank].router.parent for rank in (1, 2)] == [ROOT, ROOT]
    assert len(network.observed(ev.PlaceJoined)) == news  # no place was disturbed
    assert network.problems == []


def test_leaving_ends_what_is_below() -> None:
    network = Network(kary(4, 2))
    network.start()
    network.post(ROOT, ev.Leave("done"))
    network.run()
    assert list(network.nodes) == [ROOT]


# --- who comes late ------------------------------------------------------------------------------


def admitted(node: Node, link: int, rank: int, machine: str) -> list[ev.Effect]:
    node.step(0.0, ev.LinkOpened(link, initiator=False))
    who = Identity("cluster", rank, 1, 100 + rank, machine, PlaceKeys(b"secret"))
    return node.step(0.0, ev.Received(link, who.hello(2**20, link, 2, ROOT), None))


def sent_home(effects: list[ev.Effect]) -> list[int]:
    return [
        effect.message.parent
        for effect in effects
        if isinstance(effect, ev.Transmit) and isinstance(effect.message, msg.Return)
    ]


@pytest.mark.parametrize(("machine", "told"), [("there", [5]), ("here", [])])
def test_a_place_that_comes_after_its_home_is_back_is_told_so(
    machine: str, told: list[int]
) -> None:
    """It was on its way from another machine, and would stay where it is for ever."""
    node = Node(ME, kary(4, 2), TIMING)
    assert sent_home(admitted(node, 1, 5, machine)) == []
    assert sent_home(admitted(node, 2, 1, machine)) == told
    assert sent_home(admitted(node, 3, 3, machine)) == []  # its home, 6, is not there
