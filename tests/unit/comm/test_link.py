"""Links: handshake and heartbeat; flow control and resuming as laws over any course of events."""

from __future__ import annotations

import itertools
import random
from collections import deque
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.comm.framing import Buffers
from sapwood.comm.link import (
    CHANNEL_TRANSITIONS,
    MESSAGE_COST,
    TRANSITIONS,
    Channel,
    ChannelEvent,
    ChannelState,
    Identity,
    Link,
    LinkEvent,
    LinkState,
    holds_back,
)
from sapwood.comm.place_keys import PlaceKeys
from sapwood.core.errors import InternalError, ProtocolError

ME = Identity("cluster", 0, 1, 100, "machine", PlaceKeys(b"secret"))
PEER = Identity("cluster", 3, 2, 300, "machine", PlaceKeys(b"secret"))


def link_in(state: LinkState) -> Link:
    link = Link(7, initiator=False, now=0.0)
    link.state = state
    return link


@pytest.mark.parametrize(("state", "event"), TRANSITIONS, ids=str)
def test_the_table_is_what_happens(state: LinkState, event: LinkEvent) -> None:
    link = link_in(state)
    link.advance(event)
    assert link.state is TRANSITIONS[state, event]


@pytest.mark.parametrize(
    ("state", "event"),
    [pair for pair in itertools.product(LinkState, LinkEvent) if pair not in TRANSITIONS],
    ids=str,
)
def test_every_pair_outside_the_table_is_a_mistake(state: LinkState, event: LinkEvent) -> None:
    link = link_in(state)
    with pytest.raises(InternalError, match=f"{event.value} while {state.value}"):
        link.advance(event)
    assert link.state is state


def test_a_link_can_be_closed_in_every_state_and_nothing_follows() -> None:
    for state in LinkState:
        if state is not LinkState.CLOSED:
            assert TRANSITIONS[state, LinkEvent.CLOSED] is LinkState.CLOSED
        assert (LinkState.CLOSED, LinkEvent.OPENED) not in TRANSITIONS


def greeted() -> Link:
    link = Link(7, initiator=False, now=0.0)
    link.advance(LinkEvent.OPENED)
    link.greet(PEER.hello(), ME)
    return link


def test_a_greeting_tells_who_is_there() -> None:
    link = greeted()
    assert (link.rank, link.incarnation, link.pid) == (3, 2, 300)
    assert link.same_machine
    assert link.usable


def test_only_processes_of_one_machine_share_memory() -> None:
    link = Link(7, initiator=False, now=0.0)
    link.advance(LinkEvent.OPENED)
    link.greet(msgspec.structs.replace(PEER, machine="elsewhere").hello(), ME)
    assert not link.same_machine


@pytest.mark.parametrize("change", [{"version": 99}, {"version": 0}, {"cluster": "other"}])
def test_a_greeting_of_another_version_or_cluster_is_refused(change: dict[str, Any]) -> None:
    link = Link(7, initiator=False, now=0.0)
    link.advance(LinkEvent.OPENED)
    with pytest.raises(ProtocolError):
        link.greet(msgspec.structs.replace(PEER.hello(), **change), ME)
    assert not link.usable


def test_a_welcome_of_another_version_is_refused() -> None:
    link = Link(7, initiator=True, now=0.0)
    link.advance(LinkEvent.OPENED)
    with pytest.raises(ProtocolError, match="version 9"):
        link.greet(msgspec.structs.replace(PEER.welcome(), version=9), ME)


def test_a_suspect_neighbour_that_is_heard_is_trusted_again() -> None:
    link = greeted()
    link.advance(LinkEvent.SILENT)
    assert link.usable
    link.heard(5.0)
    assert link.state is LinkState.UP
    assert link.last_heard == 5.0


def test_a_link_says_what_it_is() -> None:
    assert repr(greeted()) == "Link(7, up, rank 3, pid 300)"


# --- flow control and retransmission -------------------------------------------------------------

WINDOW = 4 * MESSAGE_COST


def channel_of(*, initiator: bool = True, window: int = WINDOW) -> Channel:
    return Channel(Link(7, initiator=initiator, now=0.0), window)


def channel_opened(
    *, window: int = WINDOW, initiator: bool = True
) -> tuple[Channel, list[Buffers]]:
    written: list[Buffers] = []
    channel = channel_of(initiator=initiator, window=window)
    channel.greeted(window, 1, written.append)
    return channel, written


def text_of(number: int) -> Buffers:
    return [str(number).encode()]


# --- the table -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "event"), CHANNEL_TRANSITIONS, ids=str)
def test_the_table_of_channels_is_what_happens(state: ChannelState, event: ChannelEvent) -> None:
    channel = channel_of()
    channel.state = state
    channel.advance(event)
    assert channel.state is CHANNEL_TRANSITIONS[state, event]


@pytest.mark.parametrize(
    ("state", "event"),
    [
        pair
        for pair in itertools.product(ChannelState, ChannelEvent)
        if pair not in CHANNEL_TRANSITIONS
    ],
    ids=str,
)
def test_every_pair_outside_the_table_of_channels_is_a_mistake(
    state: ChannelState, event: ChannelEvent
) -> None:
    channel = channel_of()
    channel.state = state
    with pytest.raises(InternalError, match=f"{event.value} while {state.value}"):
        channel.advance(event)
    assert channel.state is state


def test_a_channel_can_end_in_every_state_and_nothing_follows() -> None:
    for state in ChannelState:
        if state is not ChannelState.CLOSED:
            assert CHANNEL_TRANSITIONS[state, ChannelEvent.GONE] is ChannelState.CLOSED
        assert (ChannelState.CLOSED, ChannelEvent.GREETED) not in CHANNEL_TRANSITIONS


# --- credit --------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 3 * WINDOW), max_size=30), st.data())
@pytest.mark.slow
def test_what_is_under_way_is_below_the_window_and_one_message(
    sizes: list[int], data: st.DataObject
) -> None:
    channel, written = channel_opened()
    consumed = 0
    for number, size in enumerate(sizes):
        channel.send(text_of(number), size + MESSAGE_COST)
        under_way = [cost + MESSAGE_COST for cost in sizes[consumed : len(written)]]
        assert sum(under_way[:-1]) < WINDOW
        waiting = sizes[len(written) : number + 1]
        assert channel.queued == sum(waiting) + MESSAGE_COST * len(waiting)
        if data.draw(st.booleans()):
            consumed = data.draw(st.integers(consumed, channel.sent))
            channel.credited(consumed)
    while consumed < len(sizes):
        assert channel.sent > consumed, "stuck though everything was consumed"
        consumed = channel.sent
        channel.credited(consumed)
    assert written == [text_of(number) for number in range(len(sizes))]
    assert channel.kept == channel.queued == 0


@pytest.mark.parametrize("consumed", [-1, 0, 4])
def test_credit_that_cannot_be_is_a_breach(consumed: int) -> None:
    channel, _ = channel_opened()
    for number in range(3):
        channel.send(text_of(number), MESSAGE_COST)
    channel.credited(1)
    with pytest.raises(ProtocolError, match="where 1 to 3 can be"):
        channel.credited(consumed)


def test_credit_is_said_once_and_only_for_what_is_dealt_with() -> None:
    channel, _ = channel_opened()
    assert channel.incoming.owed() == 0
    channel.incoming.received = 1
    first = channel.incoming.hold(channel, MESSAGE_COST)
    first.waiting = 2
    channel.incoming.received = 3
    assert channel.incoming.owed() == 0
    assert not channel.incoming.release(first)
    assert channel.incoming.owed() == 0
    assert channel.incoming.release(first)
    assert channel.incoming.owed() == 3
    assert channel.incoming.owed() == 0


def test_a_later_message_waits_for_an_earlier_one_that_is_held() -> None:
    channel, _ = channel_opened()
    holds = []
    for _ in range(3):
        channel.incoming.received += 1
        holds.append(channel.incoming.hold(channel, 1))
        holds[-1].waiting = 1
    assert not channel.incoming.release(holds[1])
    assert not channel.incoming.release(holds[2])
    assert channel.incoming.consumed == 0
    assert channel.incoming.release(holds[0])
    assert channel.incoming.consumed == 3


def test_a_neighbour_that_sends_without_credit_is_found() -> None:
    channel, _ = channel_opened()
    for _ in range(WINDOW // MESSAGE_COST):
        channel.incoming.received += 1
        channel.incoming.hold(channel, MESSAGE_COST)
    assert not channel.incoming.overdrawn
    channel.incoming.received += 1
    channel.incoming.hold(channel, MESSAGE_COST)
    assert channel.incoming.overdrawn


def test_only_answers_upwards_are_not_held_back() -> None:
    parent, child = channel_of(initiator=True), channel_of(initiator=False)
    assert not holds_back(parent, parent)
    assert holds_back(parent, child)
    assert holds_back(child, parent)
    assert holds_back(child, child)


# --- resuming ------------------------------------------------------------------------------------


class Pair:
    """A sender and a receiver; data under way is lost when the connection breaks."""

    def __init__(self, window: int) -> None:
        self.sender, self.receiver = channel_of(window=window), channel_of(initiator=False)
        self.under_way: deque[Buffers] = deque()
        self.arrived: list[Buffers] = []
        self.sender.greeted(window, 1, self.under_way.append)
        self.receiver.greeted(window, 7, lambda _buffers: None)

    def deliver(self) -> None:
        """Let one message arrive."""
        if self.under_way:
            self.arrived.append(self.under_way.popleft())
            self.receiver.incoming.received += 1

    def give_credit(self) -> None:
        """Let credit arrive; it is lost while the connection is broken."""
        consumed = self.receiver.incoming.owed()
        if consumed and self.sender.state is ChannelState.OPEN:
            self.sender.credited(consumed)

    def sever(self) -> None:
        """Break the connection, which perhaps both sides know, perhaps one."""
        if self.sender.state is ChannelState.OPEN:
            self.under_way.clear()
            self.sender.broke(0.0, "broke")

    def resume(self) -> None:
        """Make it anew."""
        if self.sender.state is ChannelState.BROKEN:
            self.sender.reconnected()
            self.receiver.resumed(0, lambda _buffers: None)
            self.sender.resumed(self.receiver.incoming.received, self.under_way.append)


@given(st.integers(0, 2**32), st.sampled_from([1, WINDOW, 10**6]))
def test_every_message_arrives_once_and_in_order_however_often_connections_break(
    seed: int, window: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - chance that can be repeated
    pair = Pair(window)
    for number in range(40):
        pair.sender.send(text_of(number), MESSAGE_COST)
        for _ in range(3):
            chance.choice([pair.deliver, pair.give_credit, pair.sever, pair.resume])()
    pair.resume()
    while len(pair.arrived) < 40:
        before = len(pair.arrived)
        pair.give_credit()
        pair.deliver()
        assert len(pair.arrived) > before, "nothing is under way"
    assert pair.arrived == [text_of(number) for number in range(40)]
    pair.give_credit()
    assert pair.sender.kept == 0


@pytest.mark.parametrize("received", [0, 5])
def test_a_number_of_received_messages_that_cannot_be_is_a_breach(received: int) -> None:
    channel, written = channel_opened()
    for number in range(3):
        channel.send(text_of(number), MESSAGE_COST)
    channel.credited(1)
    channel.broke(0.0, "broke")
    with pytest.raises(ProtocolError, match="where 1 to 3 can be"):
        channel.resumed(received, written.append)


def test_a_channel_that_is_gone_lets_go_of_everything() -> None:
    source, _ = channel_opened(initiator=False)
    source.incoming.received = 1
    hold = source.incoming.hold(source, MESSAGE_COST)
    channel, _ = channel_opened(window=1)
    for number in range(3):
        channel.send(text_of(number), MESSAGE_COST, hold if number else None)
    assert hold.waiting == 2
    assert channel.gone() == [hold, hold]
    assert channel.queued == channel.kept == 0
    assert [source.incoming.release(hold), source.incoming.release(hold)] == [False, True]


def test_a_channel_whose_connection_broke_writes_nothing_and_says_why() -> None:
    channel, written = channel_opened()
    ready = [channel.ready]
    channel.broke(3.0, "broke")
    ready.append(channel.ready)
    assert ready == [True, False]
    assert (channel.broken_at, channel.reason) == (3.0, "broke")
    channel.write(text_of(1))
    channel.reconnected()
    channel.broke(4.0, "broke again")
    assert (channel.broken_at, channel.reason) == (3.0, "broke")
    assert written == []


def test_what_somebody_else_sent_counts_and_is_kept() -> None:
    channel = Channel(Link(1, initiator=True, now=0.0), 1000)
    written: list[Buffers] = []
    channel.greeted(window=1000, peer_link=1, write=written.append)
    channel.passed([([b"sent"], 4 + MESSAGE_COST)], len(b"arrived"))
    assert written == []
    assert (channel.incoming.received, channel.sent, channel.kept) == (1, 1, 1)
    assert channel.incoming.unpaid == len(b"arrived") + MESSAGE_COST
    assert channel.room == 1000 - len(b"sent") - MESSAGE_COST
    channel.broke(1.0, "cut")
    channel.reconnected()
    channel.resumed(0, written.append)
    assert written == [[b"sent"]]
