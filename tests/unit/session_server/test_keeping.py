"""The detached buffer of a session server."""

from __future__ import annotations

import pytest

from sapwood.comm import events as ev
from sapwood.comm.messages import NO_WAIT, StreamSpec, Synchronisation
from sapwood.environment.settings import DisconnectPolicy
from sapwood.session_server import wire
from sapwood.session_server.keeping import EFFECT_COST, KeptOutput, KeptStreams, ServedStream


def test_the_last_output_of_each_agent_is_kept_and_the_rest_is_counted() -> None:
    kept = KeptOutput(10)
    kept.add(1, b"abcdef")
    kept.add(1, b"ghijkl")
    kept.add(2, b"x" * 25)
    assert (kept.nbytes, kept.dropped) == (16, {1: 6, 2: 15})
    assert list(kept.take(1)) == [
        wire.OutputDropped({1: 6, 2: 15}),
        wire.PlaceWrote(1, b"ghijkl"),
        wire.PlaceWrote(2, b"x" * 10),
    ]
    assert (kept.nbytes, kept.dropped, list(kept.take(1))) == (0, {}, [])


def test_output_that_never_came_there_is_kept_again() -> None:
    kept = KeptOutput(10)
    kept.add(1, b"abcdef")
    assert list(kept.take(7)) == [wire.PlaceWrote(1, b"abcdef")]
    kept.add(1, b"ghijkl")
    kept.given_back(7)
    assert (kept.nbytes, kept.dropped) == (6, {1: 6})
    assert list(kept.take(8)) == [wire.OutputDropped({1: 6}), wire.PlaceWrote(1, b"ghijkl")]
    kept.taken(8)
    kept.given_back(8)
    assert kept.nbytes == 0


def pushed(number: int, rank: int = 1) -> ev.Contributed:
    return ev.Contributed(1, 0, ((rank, rank + 1),), 1.0, bytes([number]), None)


def paced() -> ServedStream:
    spec = StreamSpec(1, "echo", ((1, 3),), sync=Synchronisation(NO_WAIT))
    return ServedStream(9, spec, paced=True)


def read_of(posted: list[ev.Event]) -> int:
    """How many values of agent 1 were reported to the core as read."""
    return sum(one.count for one in posted if isinstance(one, ev.Read) and one.rank == 1)


@pytest.mark.parametrize(("output", "count"), [("buffer", 3), ("drop", 0), ("block", 10)])
def test_agents_are_told_that_each_value_was_read_once(output: str, count: int) -> None:
    """Otherwise the window of a stream becomes smaller with each owner, until it is shut."""
    posted: list[ev.Event] = []
    policy = DisconnectPolicy(output=output, buffer=3 * (EFFECT_COST + 1))  # type: ignore[arg-type]
    kept, stream = KeptStreams(policy, posted.append), paced()
    for number in range(5):
        stream.record(pushed(number))
    assert stream.read(1, 2) == 2  # the client reports that to the core
    kept.take({1: stream})
    assert read_of(posted) == 3, "values in transit to an owner that is gone"
    for number in range(10):
        kept.hear(1, pushed(number))
    told, effects = kept.hand_over()
    assert told.streams[0].dropped == 10 - count
    assert [one.body[0] for one in effects] == list(range(10 - count, 10))
    assert read_of(posted) == (3 if output == "block" else 3 + 10), "or it will never be read"
    kept.taken()
    posted += [ev.Read(9, 1, left)] if (left := stream.read(1, count)) else []
    assert read_of(posted) == 3 + 10
    stream.record(pushed(10))
    assert stream.read(1, 1) == 1, "and from now on as the owner reads"


def test_what_an_owner_never_had_is_for_the_next_one() -> None:
    posted: list[ev.Event] = []
    kept, stream = KeptStreams(DisconnectPolicy(), posted.append), paced()
    kept.take({1: stream})
    kept.hear(1, pushed(1))
    for owner in range(3):
        _, effects = kept.hand_over()
        assert [one.body[0] for one in effects] == list(range(1, owner + 2))
        stream.record(pushed(owner + 2))
        kept.also_deliver(1, pushed(owner + 2))
        kept.take({1: stream})  # it is gone, and has not said that it has it
    assert read_of(posted) == 4
    kept.hand_over()
    kept.was_read(1, 1, 3)
    kept.take({1: stream})
    assert [one.body[0] for one in kept.hand_over()[1]] == [4]
    kept.taken()
    kept.take({1: stream})
    assert kept.hand_over()[1] == []


@pytest.mark.row("C4-POLICY")
def test_another_policy_counts_also_for_what_is_kept() -> None:
    """Waiting agents continue, and values beyond the new limit are left out and counted."""
    posted: list[ev.Event] = []
    kept, stream = KeptStreams(DisconnectPolicy(output="block"), posted.append), paced()
    kept.take({1: stream})
    kept.change(DisconnectPolicy(output="block"))  # nothing is kept yet
    for number in range(10):
        kept.hear(1, pushed(number))
    assert read_of(posted) == 0
    kept.change(DisconnectPolicy(output="buffer", buffer=3 * (EFFECT_COST + 1)))
    assert read_of(posted) == 10, "each was reported once"
    assert kept.dropped == 7
    kept.change(DisconnectPolicy(output="block"))
    kept.hear(1, pushed(10))
    assert read_of(posted) == 10
    kept.change(DisconnectPolicy(output="drop"))
    assert (read_of(posted), kept.nbytes, kept.dropped) == (11, 0, 11)
    assert kept.hand_over()[1] == []


def test_another_bound_counts_also_for_output_that_is_kept() -> None:
    kept = KeptOutput(10)
    kept.add(1, b"0123456789")
    kept.add(2, b"abc")
    kept.change(4)
    assert (kept.nbytes, kept.dropped) == (3, {1: 10})
    kept.change(0)
    assert (kept.nbytes, kept.dropped) == (0, {1: 10, 2: 3})
