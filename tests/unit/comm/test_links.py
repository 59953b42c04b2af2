"""The link protocol alone: two link tables and lists of bytes, no loop, no clock, no driver."""

from __future__ import annotations

import ast
import importlib
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from sapwood.comm import events as ev
from sapwood.comm import frames
from sapwood.comm import messages as msg
from sapwood.comm.link import MESSAGE_COST, ChannelState, Identity, LinkTiming
from sapwood.comm.links import LinkTable
from sapwood.comm.messaging import events
from sapwood.comm.node import Node
from sapwood.comm.repeated_failures import LONGEST_PAUSE
from sapwood.comm.shared_memory import MappedBlocks
from sapwood.core.errors import InternalError, ProtocolError
from sapwood.core.topology import ROOT, flat

TREE = flat(1)
GRACE = 5.0


class Pipe:
    """A connection: the writes of each side stay in a list until the test delivers them."""

    peer = ""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.open = True

    def write(self, buffers: Iterable[bytes | memoryview]) -> None:
        if self.open:
            self.written.append(b"".join(buffers))

    def close(self) -> None:
        self.open = False

    abort = close

    def said(self) -> list[msg.AnyMessage]:
        found = frames.FrameDecoder().feed(b"".join(self.written))
        return [frame.message for frame in found]


class Side:
    """One place: its link table and what that has done, as plain lists."""

    def __init__(self, rank: int, window: int = msg.WINDOW) -> None:
        identity = Identity("cluster", rank, 1, 100 + rank, "here")
        timing = LinkTiming(grace=GRACE, window=window)
        self.node = Node(identity, TREE, timing)
        self.blocks = MappedBlocks()
        self.now = 0.0
        self.seen: list[ev.Effect] = []
        self.on_effect: Callable[[ev.Effect], object] = lambda _effect: None
        handlers = dict.fromkeys(ev.Effect.__subclasses__(), self.take)
        self.links = LinkTable(self.node, handlers, self, self.blocks, reconnects=rank != ROOT)
        self.reconnects: list[tuple[int, int]] = []
        self.watched: list[tuple[int, int]] = []
        self.problems: list[str] = []
        self.failures: list[tuple[str, str, ev.Effect | None]] = []

    def take(self, effect: ev.Effect) -> None:
        self.seen.append(effect)
        self.on_effect(effect)

    def reconnect(self, link: int, attempt: int) -> None:
        self.reconnects.append((link, attempt))

    def watch(self, link: int, pid: int) -> Callable[[], None]:
        self.watched.append((link, pid))
        return lambda: None

    def problem(self, text: str) -> None:
        self.problems.append(text)

    def failed(self, doing: str, exception: BaseException, effect: ev.Effect | None) -> None:
        self.failures.append((doing, str(exception), effect))

    def asked(self) -> list[int]:
        return [effect.number for effect in self.seen if isinstance(effect, ev.Asked)]


class Pair:
    """A root and its agent, with a connection between them."""

    def __init__(self, window: int = msg.WINDOW) -> None:
        self.root, self.agent = Side(ROOT, window), Side(1, window)
        self.agent.links.step(0.0, ev.Begin())
        self.down, self.up = Pipe(), Pipe()
        self.root_number = self.root.links.opened(0.0, self.down, initiator=False)
        self.agent_number = self.agent.links.opened(0.0, self.up, initiator=True)
        self.link = self.agent_number
        self.deliver()

    def deliver(self) -> None:
        """Deliver each write separately, until neither side writes any more."""
        while self.down.written or self.up.written:
            for pipe, side, number in (
                (self.up, self.root, self.root_number),
                (self.down, self.agent, self.agent_number),
            ):
                written, pipe.written = pipe.written, []
                for data in written:
                    side.links.receive(side.now, number, data)

    def break_connection(self) -> None:
        """End the connection; undelivered writes are lost."""
        self.down, self.up = Pipe(), Pipe()
        self.root.links.closed(0.0, self.root_number, "cut")
        self.agent.links.closed(0.0, self.agent_number, "cut")

    def reconnect(self) -> None:
        self.root_number = self.root.links.opened(0.0, self.down, initiator=False)
        self.agent_number = self.agent.links.reconnected(self.link, self.up)

    def ask(self, *numbers: int) -> None:
        for number in numbers:
            self.root.links.step(0.0, ev.Ask(1, "x", number, b"\xc0", None))


def test_a_greeting_makes_a_link_of_two_connections() -> None:
    pair = Pair()
    (channel,) = pair.root.links.channels.values()
    assert (channel.state, channel.link.rank, channel.peer_link) == (ChannelState.OPEN, 1, 1)
    assert any(isinstance(effect, ev.PlaceJoined) for effect in pair.root.seen)
    assert any(isinstance(effect, ev.ParentUp) for effect in pair.agent.seen)


def test_what_was_lost_with_a_connection_is_sent_again_once() -> None:
    pair = Pair()
    pair.ask(1)
    pair.deliver()
    pair.ask(2, 3)
    pair.break_connection()  # 2 and 3 are lost with it
    pair.ask(4)  # and this one waits
    assert pair.agent.reconnects == [(pair.link, 0)]
    assert pair.root.watched == [(1, 101)]
    pair.reconnect()
    assert [type(message) for message in pair.up.said()] == [msg.Resume]
    pair.deliver()
    assert pair.agent.asked() == [1, 2, 3, 4]
    assert pair.root.problems == pair.agent.problems == []
    assert not any(isinstance(effect, ev.PlacesLost) for effect in pair.root.seen)


def test_a_link_says_when_it_has_no_connection_and_when_it_continues() -> None:
    pair = Pair()

    def said(side: Side) -> list[tuple[int, str]]:
        found = [one for one in side.seen if isinstance(one, ev.LinkChanged)]
        return [(one.rank, one.reason) for one in found]

    pair.break_connection()
    assert (said(pair.root), said(pair.agent)) == ([(1, "cut")], [(ROOT, "cut")])
    pair.reconnect()
    pair.deliver()
    assert said(pair.root) == [(1, "cut"), (1, "")]
    assert said(pair.agent) == [(ROOT, "cut"), (ROOT, "")]


def test_what_exceeds_the_window_waits_for_credit() -> None:
    pair = Pair(window=2 * MESSAGE_COST)
    (channel,) = pair.root.links.channels.values()
    pair.ask(*range(10))
    assert channel.queued > 0
    assert len(pair.down.written) < 10
    for _ in range(10):
        pair.deliver()
        pair.agent.links.tick(0.0)  # gives the credit that is due
    assert pair.agent.asked() == list(range(10))


def test_a_link_that_stays_broken_for_the_grace_time_is_over() -> None:
    pair = Pair()
    pair.break_connection()
    pair.root.links.tick(GRACE)
    assert not any(isinstance(effect, ev.PlacesLost) for effect in pair.root.seen)
    pair.root.links.tick(GRACE + 0.1)
    assert any(isinstance(effect, ev.PlacesLost) for effect in pair.root.seen)
    assert pair.root.links.channels == {}


def test_a_broken_link_is_over_once_its_process_has_ended() -> None:
    pair = Pair()
    pair.root.links.process_ended(0.0, 1)  # it is not broken: this has no effect
    assert len(pair.root.links.channels) == 1
    pair.break_connection()
    pair.root.links.process_ended(0.0, 1)
    assert any(isinstance(effect, ev.PlacesLost) for effect in pair.root.seen)


@pytest.mark.parametrize(
    ("rank", "incarnation", "over"), [(1, 0, 0), (1, 1, 1), (1, 2, 1), (2, 1, 0)]
)
def test_a_broken_link_is_over_once_its_process_or_a_later_one_greets_anew(
    rank: int, incarnation: int, over: int
) -> None:
    pair = Pair()
    pair.break_connection()
    (former,) = pair.root.links.channels
    hello = msg.Hello(msg.PROTOCOL_VERSION, "cluster", rank, incarnation, 200, "here")
    number = pair.root.links.opened(0.0, Pipe(), initiator=False)
    pair.root.links.receive(0.0, number, b"".join(frames.encode(hello, None, share=False)))
    assert (former not in pair.root.links.channels) == over


def test_a_peer_that_breaks_the_protocol_is_cut_off() -> None:
    pair = Pair()
    bad = b"".join(frames.encode(msg.Credit(7), None, share=False))
    pair.root.links.receive(0.0, pair.root_number, bad)
    (problem,) = pair.root.problems
    assert "credit for 7 messages" in problem
    assert not pair.down.open
    assert not pair.root.links.connections
    assert not pair.root.links.channels


@pytest.mark.parametrize("kind", [ValueError, ProtocolError, InternalError, SystemExit])
def test_what_a_handler_raises_is_about_its_effect_only(kind: type[BaseException]) -> None:
    """The neighbour that passed the message on is not to blame, and the next ones are performed."""
    pair = Pair()

    def fail_once(effect: ev.Effect) -> None:
        if isinstance(effect, ev.Asked) and effect.number == 2:
            raise kind("no")

    pair.agent.on_effect = fail_once
    pair.ask(1, 2, 3)
    pair.deliver()
    assert pair.agent.asked() == [1, 2, 3]
    ((doing, text, effect),) = pair.agent.failures
    assert (doing, text) == ("effect Asked", "no")
    assert isinstance(effect, ev.Asked)
    assert effect.number == 2
    assert pair.agent.problems == []
    pair.ask(4)
    pair.deliver()
    assert pair.agent.asked() == [1, 2, 3, 4]


def test_effects_after_one_that_fails_are_performed_in_order() -> None:
    """Effects that another handler caused in the same call are performed, too."""
    pair = Pair()
    done: list[int] = []

    def nested(effect: ev.Effect) -> None:
        if isinstance(effect, ev.Answered):
            done.append(effect.number)
            if effect.number == 1:  # both are answered at once, as the place is gone
                pair.root.links.step(0.0, ev.Ask(1, "x", 3, b"\xc0", None))
                raise ValueError("no")

    pair.root.on_effect = nested
    pair.ask(1, 2)
    gone = events.AnnounceMembership(((1, 1),), (), "it ended")
    pair.root.links.step(0.0, gone)
    assert done == [1, 2, 3]
    assert [text for _, text, _ in pair.root.failures] == ["no"]


def test_what_is_unexpected_in_the_node_ends_that_link_without_blame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Pair()

    def broken(*_args: object) -> list[ev.Effect]:
        raise IndexError("list index out of range")

    pair.root.links.step(0.0, ev.Ask(1, "x", 1, b"\xc0", None))
    with monkeypatch.context() as patched:
        patched.setattr(pair.agent.node, "receive", broken)
        pair.deliver()
    ((doing, text, effect),) = pair.agent.failures
    assert doing.startswith("a message on Link(")
    assert (text, effect) == ("list index out of range", None)
    assert pair.agent.problems == []
    assert not pair.agent.links.connections


def test_a_failure_that_repeats_on_each_new_link_is_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message is sent again on each link, and fails again: 20 times in 70 s, not 800 in one."""
    pair = Pair()

    def fail(*_args: object) -> list[ev.Effect]:
        raise IndexError("list index out of range")

    failures: list[float] = []
    now, step = 0.0, 0.1
    for _ in range(700):
        now += step
        pair.root.now = pair.agent.now = now
        if pair.agent_number not in pair.agent.links.channels:
            pair.root.links.closed(now, pair.root_number, "it was cut off")
            pair.down, pair.up = Pipe(), Pipe()
            pair.root_number = pair.root.links.opened(now, pair.down, initiator=False)
            pair.agent_number = pair.agent.links.opened(now, pair.up, initiator=True)
            pair.deliver()
        pair.root.links.step(now, ev.Ask(1, "x", 1, b"\xc0", None))
        with monkeypatch.context() as patched:
            patched.setattr(pair.agent.node, "receive", fail)
            pair.deliver()
        failures += [now] * (len(pair.agent.failures) - len(failures))
        pair.agent.links.tick(now)
        pair.root.links.tick(now)
        pair.deliver()
    assert len(failures) == 20
    assert not any(isinstance(effect, ev.PlacesLost) for effect in pair.agent.seen)
    pauses = [later - earlier for earlier, later in itertools.pairwise(failures)]
    assert max(pauses) <= LONGEST_PAUSE + 3 * step


def test_a_link_that_is_kept_after_a_failure_ends_with_its_connection() -> None:
    pair = Pair()
    pair.agent.links._failures.pause(ROOT, 0.0)
    bad = b"".join(frames.encode(msg.Credit(7), None, share=False))
    pair.agent.links.receive(0.0, pair.agent_number, bad)
    assert pair.up.open
    pair.ask(1)
    pair.deliver()
    assert pair.agent.asked() == []  # it is not read any more
    pair.agent.links.closed(0.0, pair.agent_number, "cut")
    assert not pair.agent.links.channels
    assert pair.agent.reconnects == []


def test_a_message_that_cannot_be_sent_ends_the_links_it_was_for() -> None:
    """Its receiver would wait for it for ever, and count what follows wrong."""
    pair = Pair()
    too_large: Any = 2**64
    pair.root.links.step(0.0, ev.Ask(1, "x", too_large, b"\xc0", None))
    ((doing, _, effect),) = pair.root.failures
    assert doing == "sending RoutedMessage"
    assert isinstance(effect, ev.Transmit)
    assert not pair.root.links.connections


def test_a_link_says_what_went_over_it() -> None:
    """Both ends count the same messages and bytes, whatever was sent twice."""
    pair = Pair()
    pair.ask(1)
    pair.deliver()
    pair.ask(2, 3)
    pair.break_connection()
    (broken,) = pair.root.links.figures(1.0)
    assert (broken.state, broken.connection) == ("broken", None)
    pair.reconnect()
    pair.deliver()
    for _ in range(3):
        pair.root.links.tick(0.0)
        pair.agent.links.tick(0.0)
        pair.deliver()
    (above,), (below,) = pair.root.links.figures(1.0), pair.agent.links.figures(1.0)
    assert (above.rank, below.rank, above.state) == (1, ROOT, "up")
    assert above.messages_sent == below.messages_received >= 3
    assert above.bytes_sent == below.bytes_received > 100
    assert above.bytes_received == below.bytes_sent
    assert (above.resumptions, below.resumptions) == (1, 1)
    assert above.unacknowledged == above.waiting == above.queued == above.dropped == 0


def test_what_waits_for_credit_is_counted_and_then_dropped_with_the_link() -> None:
    pair = Pair(window=2 * MESSAGE_COST)
    pair.ask(*range(10))
    (link,) = pair.root.links.figures(2.0)
    assert link.waiting > 0
    assert link.queued > 0
    assert link.silent == 2.0
    pair.root.links.cut(0.0, pair.link, "test")
    assert pair.root.links.figures(2.0) == []
    assert pair.root.links.dropped == {1: link.waiting}


@pytest.mark.parametrize("between_machines", [False, True])
def test_a_link_that_is_never_quiet_is_measured_between_machines_only(
    between_machines: bool,
) -> None:
    pair = Pair()
    (channel,) = pair.root.links.channels.values()
    channel.link.same_machine = not between_machines
    beats = 0
    for half_seconds in range(1, 21):
        now = pair.root.now = half_seconds / 2
        channel.link.last_sent = channel.link.last_heard = now  # as if something was said
        pair.down.written = []
        pair.root.links.tick(now)
        beats += any(isinstance(one, msg.Heartbeat) for one in pair.down.said())
    assert beats == (5 if between_machines else 0)


@pytest.mark.parametrize(
    "name", ["attachment", "link", "links", "node", "peers", "round_trip", "routing"]
)
def test_the_core_has_neither_input_nor_output_nor_a_clock(name: str) -> None:
    impure = {"asyncio", "os", "random", "select", "selectors", "socket", "threading", "time"}
    impure |= {"sapwood.comm.driver", "sapwood.comm.loop", "sapwood.comm.reactor"}
    module = importlib.import_module(f"sapwood.comm.{name}")
    tree = ast.parse(Path(str(module.__file__)).read_text())
    imported = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module))
    assert not imported & impure
