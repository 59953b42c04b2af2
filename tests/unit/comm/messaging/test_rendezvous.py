from __future__ import annotations

import mmap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.comm import events as ev
from sapwood.comm import frames
from sapwood.comm.link import Identity
from sapwood.comm.messages.messaging import RoutedMessage
from sapwood.comm.messaging import events as mev
from sapwood.comm.messaging.delivery import OutgoingMessage
from sapwood.comm.messaging.envelope import ANY
from sapwood.comm.messaging.point_to_point import TAGGED
from sapwood.comm.messaging.rendezvous import (
    PIECE,
    TRANSITIONS,
    WINDOW,
    OutgoingTransfer,
    TransferEvent,
    TransferState,
    in_memory,
)
from sapwood.comm.node import Node
from sapwood.comm.payload import Payload
from sapwood.core.errors import InternalError, ResourceError, SapwoodError
from sapwood.core.rankset import from_ranges
from sapwood.core.topology import ROOT, flat
from sapwood_simulation.network import Network


class Pair:
    """Two places that share no memory; data on its way is counted."""

    def __init__(self) -> None:
        tree = flat(1)
        self.nodes = [Node(Identity("c", rank, 1, rank, f"m{rank}"), tree) for rank in (0, 1)]
        self.queue: list[tuple[int, ev.Transmit]] = []
        self.seen: list[tuple[int, ev.Effect]] = []
        self.most = 0
        self.post(0, ev.LinkOpened(1, initiator=False))
        self.post(1, ev.Begin())
        self.post(1, ev.LinkOpened(1, initiator=True))
        self.run()

    def post(self, rank: int, event: ev.Event) -> None:
        self._do(rank, self.nodes[rank].step(0.0, event))

    def _do(self, rank: int, effects: list[ev.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ev.Transmit):
                self.queue.append((1 - rank, effect))
            else:
                self.seen.append((rank, effect))
        on_its_way = sum(one.payload.nbytes for _, one in self.queue if one.payload is not None)
        self.most = max(self.most, on_its_way)

    def run(self, steps: int = 100_000) -> None:
        for _ in range(steps):
            if not self.queue:
                return
            rank, effect = self.queue.pop(0)
            self._do(rank, self.nodes[rank].receive(0.0, 1, effect.message, effect.payload))

    def of(self, kind: type[ev.Effect], rank: int) -> list[ev.Effect]:
        return [effect for place, effect in self.seen if place == rank and isinstance(effect, kind)]


def content(nbytes: int) -> bytes:
    return bytes(range(256)) * (nbytes // 256) + bytes(nbytes % 256)


@pytest.mark.row("C2-AM")
@settings(deadline=None)  # other processes share the machine
@given(st.integers(0, 3 * PIECE), st.integers(1, 3))
@pytest.mark.slow
def test_what_is_large_comes_in_pieces_of_which_few_are_on_their_way(
    nbytes: int, count: int
) -> None:
    pair = Pair()
    data = content(nbytes)
    for number in range(count):
        pair.post(0, mev.SendTagged(number, (1,), number, b"\x01", Payload(data)))
        pair.post(1, mev.PostReceive(number, 0, number))
    pair.run()
    arrived = pair.of(mev.TaggedArrived, 1)
    assert len(arrived) == count
    for one in arrived:
        assert isinstance(one, mev.TaggedArrived)
        assert bytes(one.payload.view if one.payload is not None else b"") == data
    assert len(pair.of(mev.SendEnded, 0)) == count
    assert pair.most <= WINDOW * PIECE
    assert all(len(node.transfers) == 0 for node in pair.nodes)


@pytest.mark.row("C2-AM")
def test_a_large_message_waits_at_its_sender_until_somebody_wants_it() -> None:
    pair = Pair()
    pair.post(0, mev.SendTagged(1, (1,), 5, b"\x01", Payload(content(20 * PIECE))))
    pair.run()
    assert pair.most == 0
    assert pair.of(mev.SendEnded, 0) == []
    pair.post(1, mev.PostReceive(1, ANY, 5))
    pair.run()
    assert len(pair.of(mev.SendEnded, 0)) == 1
    moved = [one for one in pair.of(mev.Progressed, 1) if isinstance(one, mev.Progressed)]
    assert [one.done for one in moved] == [PIECE * (1 + number) for number in range(20)]
    assert {(one.channel, one.number, one.outgoing, one.total) for one in moved} == {
        (TAGGED, 1, False, 20 * PIECE)
    }


@pytest.mark.parametrize("steps", [0, 1, 3, 10])
def test_taken_back_it_was_never_there(steps: int) -> None:
    pair = Pair()
    pair.post(0, mev.SendTagged(1, (1,), 5, b"\x01", Payload(content(40 * PIECE))))
    pair.post(1, mev.PostReceive(1, ANY, 5))
    pair.run(steps)
    pair.post(0, mev.CancelSend(1, 1))
    pair.run()
    (ended,) = pair.of(mev.SendEnded, 0)
    assert isinstance(ended, mev.SendEnded)
    assert ended.error is not None
    assert ended.error.code == "SW205"
    pair.post(0, mev.SendTagged(2, (1,), 5, b"\x02", None))
    pair.run()
    (arrived,) = pair.of(mev.TaggedArrived, 1)
    assert isinstance(arrived, mev.TaggedArrived)
    assert arrived.body == b"\x02"
    assert all(len(node.transfers) == 0 for node in pair.nodes)


def test_no_room_at_the_receiver_is_told_to_both() -> None:
    def refuse(nbytes: int) -> Payload:
        raise ResourceError(f"not {nbytes}")

    pair = Pair()
    pair.nodes[1].point_to_point.allocate = refuse
    pair.post(1, mev.PostReceive(1, ANY, ANY))
    pair.post(0, mev.SendTagged(1, (1,), 5, b"\x01", Payload(content(PIECE))))
    pair.run()
    for kind, rank in ((mev.ReceiveFailed, 1), (mev.SendEnded, 0)):
        (effect,) = pair.of(kind, rank)
        assert isinstance(effect, mev.ReceiveFailed | mev.SendEnded)
        assert effect.error is not None
        assert isinstance(SapwoodError.from_record(effect.error), ResourceError)


def test_what_is_too_large_is_refused_before_room_is_made() -> None:
    pair = Pair()
    pair.nodes[1].delivery.max_payload = PIECE
    pair.post(1, mev.PostReceive(1, ANY, ANY))
    pair.post(0, mev.SendTagged(1, (1,), 5, b"\x01", Payload(content(PIECE + 1))))
    pair.run()
    (ended,) = pair.of(mev.SendEnded, 0)
    assert isinstance(ended, mev.SendEnded)
    assert ended.error is not None
    assert "over the limit" in ended.error.what


@pytest.mark.parametrize("state", TransferState)
@pytest.mark.parametrize("event", TransferEvent)
def test_the_table_is_what_happens(state: TransferState, event: TransferEvent) -> None:
    outgoing = OutgoingTransfer(
        1, OutgoingMessage(1, 1), Node(Identity("c", 0, 1, 1, "m"), flat(1)).point_to_point
    )
    outgoing.state = state
    if (state, event) in TRANSITIONS:
        outgoing.advance(event)
        assert outgoing.state is TRANSITIONS[state, event]
    else:
        with pytest.raises(InternalError, match=f"{event.value} while {state.value}"):
            outgoing.advance(event)


def test_the_size_that_a_peer_names_takes_no_memory() -> None:
    """Only bytes that arrive do: a message of an invited agent may announce anything."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE

    before = resident()
    room = in_memory(2**30)
    assert room.nbytes == 2**30
    assert resident() - before < 2**26
    room.view[2**29] = 7
    assert (room.view[2**29], room.view[2**29 + 1]) == (7, 0)


@pytest.mark.parametrize("size", [-1, -(2**63)])
def test_a_negative_size_cuts_off_the_peer_that_sent_it(size: int) -> None:
    network = Network(flat(2), 1, lambda _rank, _value: None)
    network.start()
    message = RoutedMessage(1, 0, 0, 2**32 + 1, 0, 1, 0, 1, 5, "ping", b"\xc0", size, 7)
    network.places[ROOT].bytes_received(
        link_of(network, 1), b"".join(frames.encode(message, None, share=False))
    )
    (problem,) = network.problems
    assert f"rank 1 sends a message of {size} bytes" in problem
    assert [from_ranges(lost.ranks) for lost in network.observed(ev.PlacesLost)] == [{1}]


def link_of(network: Network, rank: int) -> int:
    """Return the number of the root's connection to a place."""
    connections = network.places[ROOT].links.connections
    return next(number for number, one in connections.items() if one.channel.link.rank == rank)
