from __future__ import annotations

import pytest

from sapwood.comm import events as ev
from sapwood.comm.link import LinkTiming
from sapwood.comm.messages.messaging import Acknowledgement, Multicast, RoutedMessage
from sapwood.comm.messaging import delivery
from sapwood.comm.messaging import events as mev
from sapwood.comm.messaging.envelope import ANY
from sapwood.comm.messaging.point_to_point import TAGGED
from sapwood.comm.payload import Payload
from sapwood.core.errors import SapwoodError
from sapwood.core.topology import ROOT, flat, kary
from sapwood_simulation.network import Network


def started(network: Network) -> Network:
    network.start()
    for rank in range(network.tree.agents + 1):
        network.post(rank, mev.PostReceive(1, ANY, ANY))
    return network


def routed(**changes: object) -> RoutedMessage:
    fields: dict[str, object] = {
        "source": 1,
        "destination": ROOT,
        "channel": TAGGED,
        "epoch": 1 << 32,
        "peer": 0,
        "number": 1,
        "hops": 0,
        "kind": 10,
        "tag": 5,
    }
    return RoutedMessage(**{**fields, **changes})  # type: ignore[arg-type]  # a test's shorthand


@pytest.mark.row("C2-P2P")
def test_a_message_to_several_places_travels_each_link_once() -> None:
    tree = kary(8, 2)
    network = started(Network(tree))
    payload = Payload(b"x" * 100)
    event = mev.SendTagged(7, tuple(range(1, 9)), 3, b"\x01", payload)
    sent = [one for one in network.nodes[ROOT].step(0.0, event) if isinstance(one, ev.Transmit)]
    assert len(sent) == len(tree.children(ROOT))
    for one in sent:
        assert isinstance(one.message, Multicast)
        assert one.payload is payload  # encoded once
    addresses = [
        address.destination
        for one in sent
        if isinstance(one.message, Multicast)
        for address in one.message.addresses
    ]
    assert sorted(addresses) == list(range(1, 9))


@pytest.mark.row("C2-P2P")
@pytest.mark.parametrize("source", [ROOT, 1, 5])
def test_a_message_to_several_places_reaches_each_once(source: int) -> None:
    network = started(Network(kary(8, 2)))
    destinations = (1, 2, 6, 8, ROOT)
    network.post(source, mev.SendTagged(7, destinations, 3, b"\x01", None))
    network.run()
    arrived = [
        seen.rank for seen in network.observations if isinstance(seen.effect, mev.TaggedArrived)
    ]
    assert sorted(arrived) == sorted(destinations)
    ended = network.observed(mev.SendEnded, source)
    assert sorted(one.destination for one in ended) == sorted(destinations)
    assert all(one.error is None for one in ended)


@pytest.mark.row("C2-ROUTE")
def test_a_message_that_goes_in_a_circle_ends() -> None:
    network = started(Network(kary(4, 2)))
    junction = network.nodes[5]
    link = next(one.number for one in junction.links.values() if one.rank == 1)
    there = junction.step(0.0, ev.Received(link, routed(destination=4), None))
    (passed_on,) = [one.message for one in there if isinstance(one, ev.Transmit)]
    assert isinstance(passed_on, RoutedMessage)
    assert passed_on.hops == 1
    tired = routed(destination=4, hops=delivery.MAX_HOPS)
    assert junction.step(0.0, ev.Received(link, tired, None)) == []
    back = routed(destination=1)  # it would go back to where it came from
    assert junction.step(0.0, ev.Received(link, back, None)) == []
    many = Multicast(tired, ())
    assert junction.step(0.0, ev.Received(link, many, None)) == []


def test_a_message_for_another_process_of_this_place_is_not_taken() -> None:
    network = started(Network(flat(2)))
    root = network.nodes[ROOT]
    link = next(one.number for one in root.links.values() if one.rank == 1)
    effects = root.step(0.0, ev.Received(link, routed(peer=9), None))
    (answer,) = [one.message for one in effects if isinstance(one, ev.Transmit)]
    assert isinstance(answer, Acknowledgement)
    assert (answer.incarnation, answer.upto) == (1, 0)
    assert network.observed(mev.TaggedArrived) == []


def from_process(network: Network, incarnation: int, number: int = 1) -> list[ev.Effect]:
    """Have the client get a message that a process of agent 1 has sent."""
    root = network.nodes[ROOT]
    link = next(one.number for one in root.links.values() if one.rank == 1)
    epoch = incarnation << 32
    return root.step(0.0, ev.Received(link, routed(epoch=epoch, number=number), None))


@pytest.mark.row("C2-ORDER")
def test_a_message_of_a_process_that_was_replaced_is_dropped() -> None:
    network = started(Network(flat(2)))
    assert any(isinstance(one, mev.TaggedArrived) for one in from_process(network, 3))
    network.post(ROOT, mev.PostReceive(2, ANY, ANY))
    assert from_process(network, 2) == []
    assert from_process(network, 1) == []
    assert any(isinstance(one, mev.TaggedArrived) for one in from_process(network, 3, 2))


@pytest.mark.row("C2-ORDER")
def test_a_message_of_a_process_that_is_said_to_be_gone_is_dropped() -> None:
    """It was on its way, longer than the news of its sender's end."""
    network = started(Network(flat(2)))
    network.post(ROOT, mev.AnnounceMembership(((1, 2),), (), "killed"))
    assert from_process(network, 1) == []
    assert from_process(network, 2) == []
    assert ROOT not in {
        seen.rank for seen in network.observations if isinstance(seen.effect, mev.TaggedArrived)
    }
    assert any(isinstance(one, mev.TaggedArrived) for one in from_process(network, 3))
    assert network.nodes[ROOT].delivery.why_not(1) is None


@pytest.mark.row("C2-ORDER")
def test_a_new_process_ends_what_was_with_the_old_one() -> None:
    network = started(Network(flat(2)))
    network.pause(2)
    network.post(1, mev.SendTagged(7, (2,), 3, b"\x01", None))
    network.post(1, ev.Ask(2, "test", 8, b"\xc0", None))
    network.run()
    network.kill(2)
    network.run()
    network.post(ROOT, mev.AnnounceMembership(((2, 1),), (), "killed"))
    network.run()
    (ended,) = network.observed(mev.SendEnded, 1)
    (answered,) = network.observed(ev.Answered, 1)
    for error in (ended.error, answered.error):
        assert error is not None
        assert str(SapwoodError.from_record(error)) == "agent 2 is gone: killed"
    network.post(1, mev.SendTagged(9, (2,), 3, b"\x01", None))  # at once, while it is gone
    assert len(network.observed(mev.SendEnded, 1)) == 2
    network.begin([2])
    network.run()
    network.post(2, mev.PostReceive(1, ANY, ANY))
    network.post(ROOT, mev.AnnounceMembership((), (2,)))
    network.run()
    network.post(1, mev.SendTagged(10, (2,), 3, b"\x02", None))
    network.run()
    (arrived,) = network.observed(mev.TaggedArrived, 2)
    assert arrived.body == b"\x02"


@pytest.mark.slow
def test_silence_ends_nothing() -> None:
    """A place that says nothing for long is waited for; only the client says that it is gone."""
    timing = LinkTiming(heartbeat=1.0, failure_after=1e9)
    network = started(Network(flat(2), timing=timing))
    network.pause(2)
    network.post(1, mev.SendTagged(7, (2,), 3, b"\x01", None))
    network.advance(2000.0)
    assert network.observed(mev.SendEnded, 1) == []
    network.resume(2)
    network.advance(20.0)
    (ended,) = network.observed(mev.SendEnded, 1)
    assert ended.error is None
    (arrived,) = network.observed(mev.TaggedArrived, 2)
    assert arrived.body == b"\x01"


def test_places_that_do_not_exist_cannot_be_written_to() -> None:
    network = started(Network(flat(2)))
    for destination in (-5, 99):
        network.post(1, mev.SendTagged(7, (destination,), 3, b"", None))
    assert all(one.error is not None for one in network.observed(mev.SendEnded, 1))
    assert len(network.observed(mev.SendEnded, 1)) == 2
