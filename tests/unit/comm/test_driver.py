"""Places over cut wires and with little credit: the production driver under virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.comm import events as ev
from sapwood.comm import frames, framing
from sapwood.comm import messages as msg
from sapwood.comm.driver import MAX_PAUSE, PAUSE, reconnect
from sapwood.comm.link import MESSAGE_COST, ChannelState, LinkTiming
from sapwood.comm.messages import PROTOCOL_VERSION
from sapwood.comm.messages.messaging import RoutedMessage
from sapwood.comm.shared_memory import SharedBlock
from sapwood.core.clock import VirtualClock
from sapwood.core.errors import CommunicationError
from sapwood.core.rankset import from_ranges
from sapwood.core.topology import ROOT, Tree, flat, kary, plan
from sapwood_simulation.links import ClockLoop
from sapwood_simulation.network import Network

seeds = st.integers(0, 2**16)
shapes = st.builds(plan, st.integers(1, 11), st.sampled_from([0, 2, 3, 4]))


def with_window(window: int) -> LinkTiming:
    return LinkTiming(heartbeat=1.0, failure_after=60.0, grace=5.0, window=window)


def answer(rank: int, value: Any) -> Any:
    return {"x": np.full(40, float(rank)) * value["x"][0]}


def totals_of(network: Network) -> dict[int, Any]:
    waves: list[Any] = network.observed(ev.WaveCompleted)
    return {wave.wave: wave.total["x"][0] for wave in waves}


def requests_between_all(network: Network) -> int:
    """Have every place ask every other one; return how many requests that is."""
    size = network.tree.size
    for source in range(size):
        for destination in range(size):
            if source != destination:
                network.ask(source, destination, destination, {"x": np.ones(40)})
    return size * (size - 1)


@given(shapes, seeds, st.sampled_from([1, 300, 2000]))
@pytest.mark.slow
def test_no_tree_locks_up_however_little_credit_there_is(
    tree: Tree, seed: int, window: int
) -> None:
    network = Network(tree, seed, answer, with_window(window))
    network.start()
    network.open_stream(1, {"x": "sum"})
    for factor in (1.0, 2.0, 3.0):
        network.broadcast(1, {"x": np.full(40, factor)})
    asked = requests_between_all(network)
    network.run()
    assert len(network.observed(ev.Answered)) == asked
    totals = totals_of(network)
    ranks = sum(range(1, tree.agents + 1))
    assert totals == {number: ranks * number for number in (1, 2, 3)}
    assert network.problems == []


@given(shapes, seeds, st.sampled_from([1, 2000, 10**6]))
@pytest.mark.slow
def test_cut_connections_lose_nothing_and_double_nothing(
    tree: Tree, seed: int, window: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - chance that can be repeated
    network = Network(tree, seed, answer, with_window(window))
    network.start()
    network.open_stream(1, {"x": "sum"})
    for factor in (1.0, 2.0, 3.0):
        network.broadcast(1, {"x": np.full(40, factor)})
    asked = requests_between_all(network)
    for _ in range(50):
        network.run(chance.randint(0, 60))
        network.sever(chance.randint(1, tree.size - 1))
    network.run()
    answered = [
        (seen.rank, seen.effect.number)
        for seen in network.observations
        if isinstance(seen.effect, ev.Answered)
    ]
    assert len(answered) == len(set(answered)) == asked
    asked_of = [
        (seen.rank, seen.effect.source)
        for seen in network.observations
        if isinstance(seen.effect, ev.Asked)
    ]
    assert len(asked_of) == len(set(asked_of)) == asked
    totals = totals_of(network)
    ranks = sum(range(1, tree.agents + 1))
    assert totals == {number: ranks * number for number in (1, 2, 3)}
    assert network.observed(ev.PlacesLost) == []
    assert network.problems == []
    assert network.breaks > 0


def test_a_place_lets_go_of_memory_whose_holder_is_gone() -> None:
    network = Network(kary(4, 2))
    network.start()
    blocks = network.places[ROOT].blocks
    with SharedBlock(4096) as block:
        blocks.view(block.ref())
        network.places[ROOT].tick()
        assert len(blocks) == 1
    network.places[ROOT].tick()
    assert len(blocks) == 0


def ask_many(network: Network, destination: int, count: int) -> None:
    for number in range(count):
        network.ask(ROOT, destination, number, {"x": np.ones(100)})


def test_what_waits_for_a_reader_that_stopped_waits_at_the_writer() -> None:
    """A junction passes on what the window allows, and keeps nothing else."""
    tree = kary(4, 2)
    window = 10_000
    network = Network(tree, 0, answer, with_window(window))
    network.start()
    network.pause(1)
    ask_many(network, 1, 500)
    network.run()
    junction = network.places[tree.parents[1]]
    below = next(one for one in junction.channels.values() if one.link.rank == 1)
    above = next(
        one for one in network.places[ROOT].channels.values() if one.link.rank == tree.parents[1]
    )
    largest = 3000
    assert below.queued < window + largest
    assert above.queued > 200 * 1000  # the window of the messages holds back the rest
    assert network.observed(ev.Asked, 1) == []
    network.resume(1)
    network.run()
    assert len(network.observed(ev.Answered)) == 500
    assert [effect.number for effect in network.observed(ev.Asked, 1)] == list(range(500))
    network.advance(2.0)
    assert all(
        one.kept == one.queued == 0
        for place in network.places.values()
        for one in place.channels.values()
    )


def test_a_neighbour_that_takes_nothing_does_not_stop_the_others_of_the_root() -> None:
    network = Network(flat(2), 0, answer, with_window(1000))
    network.start()
    network.pause(1)
    ask_many(network, 1, 50)
    network.run()
    for number in range(1000, 1050):
        network.ask(ROOT, 2, number, {"x": np.ones(100)})
    network.run()
    assert len(network.observed(ev.Answered)) == 50


def test_a_connection_that_is_not_made_again_in_time_is_a_loss() -> None:
    network = Network(flat(2), 0, answer, with_window(1000))
    network.start()
    network.sever(1)
    network.pause(1)
    network.run()
    network.advance(4.0)
    assert network.observed(ev.PlacesLost) == []
    network.advance(3.0)
    (lost,) = network.observed(ev.PlacesLost)
    assert from_ranges(lost.ranks) == {1}
    # The place that comes back late, with the same process, is attached once more.
    network.resume(1)
    network.advance(1.0)
    assert [effect.rank for effect in network.observed(ev.PlaceJoined)][2:] == [1]
    assert 2 in network.nodes


def test_a_process_that_is_known_to_have_ended_is_not_waited_for() -> None:
    network = Network(flat(2), 0, answer, with_window(1000))
    network.start()
    network.kill(1)
    network.run()
    assert [from_ranges(lost.ranks) for lost in network.observed(ev.PlacesLost)] == [{1}]
    assert network.clock.now() == 0.0


def test_a_process_that_ends_while_its_connection_is_broken_is_not_waited_for() -> None:
    network = Network(flat(2), 0, answer, with_window(1000))
    network.start()
    network.sever(1)
    network.pause(1)
    network.run()
    network.kill(1)
    assert [from_ranges(lost.ranks) for lost in network.observed(ev.PlacesLost)] == [{1}]


def test_a_new_process_does_not_go_on_where_the_old_one_was() -> None:
    network = Network(flat(2), 0, answer, with_window(1000))
    network.start()
    network.sever(1)
    network.pause(1)
    network.run()
    channel = next(one for one in network.places[ROOT].channels.values() if one.link.rank == 1)
    assert repr(channel.state) == repr(ChannelState.BROKEN)
    stale = network.places.pop(1), network.nodes.pop(1)
    network.begin([1])
    network.run()
    network.resume(1)
    network.advance(0.1)
    assert stale[0] is not network.places[1]
    assert [
        effect.incarnation for effect in network.observed(ev.PlaceJoined) if effect.rank == 1
    ] == [1, 2]
    assert repr(channel.state) == repr(ChannelState.CLOSED)
    ask_many(network, 1, 3)
    network.run()
    assert len(network.observed(ev.Answered)) == 3


class Wiretap:
    """A connection that remembers what is written to it."""

    peer = ""

    def __init__(self) -> None:
        self.data = b""
        self.open = True

    def write(self, buffers: Any) -> None:
        self.data += b"".join(buffers)

    def close(self) -> None:
        self.open = False

    abort = close

    def said(self) -> list[msg.AnyMessage]:
        return [frame.message for frame in frames.FrameDecoder().feed(self.data)]


def raw(message: msg.AnyMessage) -> bytes:
    return b"".join(frames.encode(message, None, share=False))


def resume_of(network: Network, **changes: Any) -> msg.Resume:
    link = next(iter(network.places[1].channels))
    fields = {
        "version": PROTOCOL_VERSION,
        "cluster": "cluster",
        "rank": 1,
        "incarnation": 1,
        "link": link,
        "received": 0,
        **changes,
    }
    return msg.Resume(**fields)


@pytest.mark.parametrize(
    "changes",
    [{"incarnation": 0}, {"incarnation": 2}, {"link": 99}, {"rank": 7}, {"credential": b"no"}],
    ids=str,
)
def test_a_stranger_cannot_go_on_where_somebody_else_was(changes: dict[str, Any]) -> None:
    network = Network(flat(2), 0, answer)
    network.start()
    place, tap = network.places[ROOT], Wiretap()
    number = place.connection_opened(tap, initiator=False)
    place.bytes_received(number, raw(resume_of(network, **changes)))
    assert [type(message) for message in tap.said()] == [msg.Refused]
    assert not tap.open
    assert network.observed(ev.PlacesLost) == []


@pytest.mark.parametrize("changes", [{"version": 99}, {"cluster": "other"}], ids=str)
def test_a_peer_of_elsewhere_cannot_go_on(changes: dict[str, Any]) -> None:
    network = Network(flat(2), 0, answer)
    network.start()
    place, tap = network.places[ROOT], Wiretap()
    number = place.connection_opened(tap, initiator=False)
    place.bytes_received(number, raw(resume_of(network, **changes)))
    assert not tap.open
    assert len(network.problems) == 1
    assert network.observed(ev.PlacesLost) == []


def test_the_side_that_has_not_noticed_the_break_goes_on_as_well() -> None:
    network = Network(flat(1), 0, answer)
    network.start()
    ask_many(network, 1, 2)
    place, tap = network.places[ROOT], Wiretap()
    number = place.connection_opened(tap, initiator=False)
    place.bytes_received(number, raw(resume_of(network)))
    kinds = [type(message) for message in tap.said()]
    assert kinds == [msg.Resumed, RoutedMessage, RoutedMessage]
    assert network.observed(ev.PlacesLost) == []


@pytest.mark.parametrize(
    "message",
    [msg.Resumed(0), msg.Credit(7), msg.Resume(PROTOCOL_VERSION, "cluster", 1, 1, 1, 0)],
    ids=str,
)
def test_what_a_link_may_not_say_now_cuts_it_off(message: msg.AnyMessage) -> None:
    network = Network(flat(2), 0, answer)
    network.start()
    network.pause(1)
    network.send(1, ROOT, message)
    network.run()
    assert len(network.problems) == 1
    assert [from_ranges(lost.ranks) for lost in network.observed(ev.PlacesLost)] == [{1}]


def test_a_stranger_may_not_send_more_than_a_greeting() -> None:
    network = Network(flat(1), 0, answer)
    network.start()
    place, tap = network.places[ROOT], Wiretap()
    number = place.connection_opened(tap, initiator=False)
    place.bytes_received(number, framing.PREFIX.pack(b"SW", 1, 0, frames.MAX_GREETING + 1, 0))
    assert not tap.open
    assert "over the limit" in network.problems[0]


def test_credit_takes_the_place_of_a_heartbeat() -> None:
    network = Network(flat(1), 0, answer)
    network.start()
    ask_many(network, 1, 1)
    network.run()
    channel = next(iter(network.places[ROOT].channels.values()))
    assert channel.kept == 1
    network.advance(1.0)
    assert channel.kept == 0


def test_a_message_costs_more_than_its_bytes() -> None:
    """Small messages are bounded, too: the memory for each counts."""
    network = Network(flat(1), 0, answer, with_window(100 * MESSAGE_COST))
    network.start()
    network.pause(1)
    for number in range(1000):
        network.post(ROOT, ev.Ask(1, "x", number, b"\xc0", None))
    channel = next(iter(network.places[ROOT].channels.values()))
    assert 50 <= channel.kept <= 100


class Broken:
    """A driver with a broken link, for as long as a test says so."""

    def __init__(self) -> None:
        self.is_broken = True
        self.given_up: list[str] = []
        self.links = SimpleNamespace(is_broken=lambda _link: self.is_broken)
        self.handler = object()

    def resumption(self, link: int) -> object:
        assert link == 7
        return self.handler

    def give_up(self, link: int, reason: str) -> None:
        assert link == 7
        self.given_up.append(reason)


class Tries:
    """Begins to reconnect under virtual time, and notes when it is tried."""

    def __init__(self, attempt: int) -> None:
        self.clock = VirtualClock()
        self.loop = ClockLoop(self.clock)
        self.driver = Broken()
        self.times: list[float] = []
        self.failed: Callable[[CommunicationError], None]
        loop = SimpleNamespace(call_later=self.loop.later)
        reconnect(cast("Any", self.driver), 7, attempt, self._connect, cast("Any", loop))

    def _connect(self, handler: object, failed: Callable[[CommunicationError], None]) -> None:
        assert handler is self.driver.handler
        self.times.append(self.clock.now())
        self.failed = failed

    def fail(self, cause: OSError) -> None:
        error = CommunicationError("cannot connect")
        error.__cause__ = cause
        self.failed(error)

    def advance(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.0025)):
            self.clock.advance(0.0025)
            self.loop.run_due()


def test_whoever_reconnects_waits_a_little_longer_each_time() -> None:
    tries = Tries(0)
    for _ in range(4):
        tries.fail(TimeoutError())
        tries.advance(0.1)
    wanted = [0.0, *(0.1 * turn + PAUSE * (turn + 1) for turn in range(4))]
    assert tries.times == pytest.approx(wanted, abs=0.004)
    tries.fail(TimeoutError())
    tries.driver.is_broken = False
    tries.advance(1.0)
    assert len(tries.times) == 5  # the link continues already


def test_a_link_that_broke_again_and_again_is_not_tried_at_once() -> None:
    tries = Tries(4)
    assert tries.times == []
    tries.advance(4 * PAUSE)
    assert len(tries.times) == 1


def test_the_pause_has_a_bound() -> None:
    tries = Tries(10_000)
    tries.advance(MAX_PAUSE)
    assert len(tries.times) == 1


@pytest.mark.parametrize("cause", [ConnectionRefusedError(), FileNotFoundError()])
def test_a_link_is_given_up_where_nobody_listens(cause: OSError) -> None:
    tries = Tries(0)
    tries.fail(cause)
    tries.advance(1.0)
    assert tries.driver.given_up == ["cannot connect"]
    assert len(tries.times) == 1


def test_a_connection_that_opens_after_the_end_is_aborted() -> None:
    network = Network(flat(2))
    network.start()
    place = network.places[ROOT]
    place.close()
    tap = Wiretap()
    assert place.connection_opened(tap, initiator=False) == -1
    assert not tap.open
    assert not place.channels
