"""Contributions that come after the time of their wave: each counts once, wherever it is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.link import LinkTiming
from sapwood.comm.messages import StreamSpec, Synchronisation
from sapwood.comm.reduction import WHOLE
from sapwood.core.errors import ExecutionError
from sapwood.core.rankset import from_ranges
from sapwood.core.topology import ROOT, kary
from sapwood_simulation.network import Network

LATE = Synchronisation("time-out", 0.2, "next")


def opened(network: Network, **what: Any) -> None:
    network.start()
    network.post(ROOT, ev.OpenStream(StreamSpec(1, "test", ((1, 5),), {WHOLE: "sum"}, **what)))


def wave_without(network: Network, *late: int) -> None:
    """Have a wave whose time is over before some agents have answered, which then do."""
    for rank in late:
        network.pause(rank)
    network.broadcast(1, None)
    network.run()
    let_pass(network, 1.0)


def let_pass(network: Network, seconds: float) -> None:
    for _ in range(round(seconds / 0.01)):
        network.clock.advance(0.01)
        network.clock_loop.run_due()
        network.run()


def one_more(network: Network) -> None:
    network.broadcast(1, None)
    network.run()
    let_pass(network, 1.0)


@pytest.mark.row("C2-RED")
@pytest.mark.parametrize("lost", [5, 6], ids=["its parent", "another junction"])
def test_what_is_late_is_not_lost_with_a_junction(lost: int) -> None:
    network = Network(kary(4, 2), 3, lambda rank, _value: rank)
    opened(network, sync=LATE)
    wave_without(network, 1)
    network.resume(1)
    network.kill(lost)
    network.run()
    let_pass(network, 1.0)
    one_more(network)
    first, second = network.observed(ev.WaveCompleted)
    assert (first.total, from_ranges(first.ranks)) == (9, {2, 3, 4})
    assert (second.total, from_ranges(second.late)) == (11, {1})
    assert network.problems == []


def test_late_arrays_are_drawn_where_no_memory_is_shared() -> None:
    network = Network(kary(4, 2), 1, lambda rank, _value: np.full(900, rank), LinkTiming(piece=64))
    network.apart = True
    opened(network, sync=LATE)
    wave_without(network, 4)
    network.resume(4)
    network.run()
    one_more(network)
    _first, second = network.observed(ev.WaveCompleted)
    np.testing.assert_array_equal(second.total, np.full(900, 14))
    assert [len(node.large) for node in network.nodes.values()] == [0] * 7


def test_who_cannot_contribute_and_is_late_fails_a_later_wave() -> None:
    def answer(rank: int, _value: Any) -> Any:
        if rank == 2 and len(network.observed(ev.WaveCompleted)) == 1:
            raise ExecutionError("no")
        return rank

    network = Network(kary(4, 2), 3, answer)
    opened(network, sync=LATE)
    wave_without(network, 2)
    network.resume(2)
    network.run()
    network.answer = lambda rank, _value: rank
    for _ in range(2):
        one_more(network)
    (failed,) = network.observed(ev.WaveFailed)
    assert (failed.wave, failed.rank, failed.error.what) == (2, 2, "no")
    assert [wave.total for wave in network.observed(ev.WaveCompleted)] == [8, 10]


def test_a_value_is_kept_for_those_who_are_late() -> None:
    """A process that takes the place of a late one is given the wave, too."""
    network = Network(kary(4, 2), 3, lambda rank, value: rank * value[0])
    opened(network, sync=LATE)
    network.pause(3)
    network.broadcast(1, np.full(70_000, 2.0))
    network.run()
    let_pass(network, 1.0)
    assert not network.observed(ev.Released)
    network.kill(3)
    network.begin([3])
    network.run()
    let_pass(network, 1.0)
    network.broadcast(1, np.full(70_000, 2.0))
    network.run()
    first, second = network.observed(ev.WaveCompleted)
    assert (first.total, second.total) == (14, 26)


def test_what_is_late_behind_a_late_failure_counts_in_the_wave_after_it() -> None:
    """The failure ends the wave that it is added to; the others are not lost with it."""

    def answer(rank: int, _value: Any) -> Any:
        if rank == 2 and not fine:
            raise ExecutionError("no")
        return 10**rank

    fine = False
    network = Network(kary(4, 2), 1, answer)
    opened(network, sync=LATE)
    wave_without(network, 2, 3, 4)
    for rank in (2, 3, 4):  # the failure comes first
        network.resume(rank)
        network.run()
        fine = True
    for _ in range(2):
        network.broadcast(1, None)
        network.run()
        let_pass(network, 1.0)
    (failed,) = network.observed(ev.WaveFailed)
    assert (failed.wave, failed.rank) == (2, 2)
    first, third = network.observed(ev.WaveCompleted)
    assert first.total == 10
    assert (third.wave, from_ranges(third.late)) == (3, {3, 4})
    assert third.total == 11110 + 11000


def test_a_place_that_is_asked_for_some_gives_nothing_of_others() -> None:
    """What is kept of a late wave is given to who asks for all of it, else what comes is."""
    tree = kary(9, 3)
    network = Network(tree, 1, lambda rank, _value: 10**rank)
    network.start()
    network.post(ROOT, ev.OpenStream(StreamSpec(1, "test", ((1, 10),), {WHOLE: "sum"}, sync=LATE)))
    wave_without(network, 1, 3)
    top = tree.parents[1]
    junction = network.nodes[top]
    assert [set(kept.ranks) for kept in junction.streams[1].kept[1]] == [{2}]
    (link,) = [one.number for one in junction.links.values() if one.rank == ROOT]
    asked = msg.Down(1, 1, 9, b"", ranks=((1, 2), (3, 4)))
    effects = junction.step(network.clock.now(), ev.Received(link, asked, None))
    given = [
        one.message
        for one in effects
        if isinstance(one, ev.Transmit) and isinstance(one.message, msg.Up)
    ]
    assert [(one.attempt, one.ranks) for one in given] == [(9, ())]
    asked = msg.Down(1, 1, 10, b"", ranks=((1, 4),))
    effects = junction.step(network.clock.now(), ev.Received(link, asked, None))
    given = [
        one.message
        for one in effects
        if isinstance(one, ev.Transmit) and isinstance(one.message, msg.Up)
    ]
    assert [(one.attempt, one.ranks) for one in given] == [(10, ((2, 3),))]
