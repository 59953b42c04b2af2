"""One wave: each agent is in, asked for, or missing, and in one of the three only."""

from __future__ import annotations

import pytest

from sapwood.comm import events as ev
from sapwood.comm.messages import StreamSpec, Synchronisation, Up
from sapwood.comm.messages.pieces import Offer
from sapwood.comm.reduction import gathering
from sapwood.comm.streams.wave import Wave, WaveValue
from sapwood.core.errors import ProtocolError
from sapwood.core.rankset import from_ranges, to_ranges
from sapwood.core.topology import ROOT, kary
from sapwood_simulation.network import Network

CHILD, OTHER = 10, 11


def wave(*missing: int) -> Wave:
    return Wave(1, 0, WaveValue(b"", None), {}, set(missing), gathering()({"": "sum"}))


def up(attempt: int, *ranks: int) -> Up:
    return Up(1, 1, attempt, to_ranges(ranks), float(len(ranks)), b"\x01" if ranks else b"")


def test_an_answer_is_taken_from_the_first_attempt_on_that_was_asked_for() -> None:
    asked = wave(1, 2, 3)
    assert not asked.accepts(CHILD, 1)
    first, second = asked.ask(CHILD, {1}), asked.ask(CHILD, {2})
    assert (first.attempt, second.attempt) == (1, 2)
    assert [asked.accepts(CHILD, attempt) for attempt in (0, 1, 2, 3)] == [False, True, True, True]
    assert not asked.accepts(OTHER, 1)
    assert not asked.add(CHILD, up(1, 1), None)
    assert [asked.accepts(CHILD, attempt) for attempt in (1, 2)] == [False, True]
    assert asked.add(CHILD, up(2, 2), None)
    assert from_ranges(asked.ranks) == {1, 2}
    assert asked.missing == {3}


def test_whom_an_answer_lacks_is_missing() -> None:
    asked = wave(1, 2, 3)
    asked.ask(CHILD, {1, 2, 3})
    assert asked.add(CHILD, up(1, 1, 2), None)
    assert (asked.missing, asked.lacking) == ({3}, {3})


@pytest.mark.parametrize(
    "message",
    [up(1, 1, 2, 4), up(1, 4), Up(1, 1, 1, ((1, 1),), 0.0, b""), Up(1, 1, 1, (), 0.0, b"\x01")],
    ids=["one more", "another", "empty range", "value of no rank"],
)
def test_an_answer_for_others_is_refused(message: Up) -> None:
    asked = wave(1, 2, 3)
    asked.ask(CHILD, {1, 2, 3})
    with pytest.raises(ProtocolError, match="contributes for"):
        asked.add(CHILD, message, None)


def test_a_child_that_was_given_up_and_answers_late_owes_nothing_more() -> None:
    late = wave(1, 2, 3)
    late.ask(CHILD, {1, 2})
    late.ask(OTHER, {3})
    assert late.owed_by(CHILD, 1, {1}) == {1}
    assert (late.missing, late.lacking) == ({1, 2}, {2})
    assert not late.concerns(CHILD)  # it has answered: the next that it says is asked for anew
    assert late.concerns(OTHER)
    assert late.unanswered() == {1, 2, 3}
    late.missing -= {1}
    assert late.owed_by(CHILD, 1, {1}) == set()
    assert late.missing == {2}


def offered(asked: Wave, child: int, *ranks: int) -> None:
    asked.ask(child, set(ranks))
    attempt = asked.waiting[child][-1].attempt
    asked.offered(child, Offer(1, 1, attempt, to_ranges(ranks), 1.0, b"\x01", 1000))


def test_whose_offer_is_taken_back_is_missing_again() -> None:
    asked = wave(1, 2, 3)
    offered(asked, CHILD, 1, 2)
    offered(asked, OTHER, 3)
    assert asked.missing == set()
    assert not asked.withdraw(CHILD, ((1, 2),))  # it has offered others
    assert asked.withdraw(CHILD, ((1, 3),))
    assert asked.missing == {1, 2}
    assert [offer.child for offer in asked.offers] == [OTHER]
    assert not asked.withdraw(CHILD)
    assert asked.scope() == {1, 2, 3}


def test_who_is_dropped_is_missing_whatever_it_had_offered() -> None:
    asked = wave(1, 2, 3)
    offered(asked, CHILD, 1)
    asked.ask(CHILD, {2})
    assert asked.drop(CHILD) == {1, 2}
    assert asked.missing == {1, 2, 3}
    assert not asked.concerns(CHILD)


def test_who_is_given_up_is_not_waited_for() -> None:
    asked = wave(1, 2, 3, 4)
    asked.ask(CHILD, {1, 2})
    asked.ask(OTHER, {3})
    assert asked.give_up({2, 3, 9}) == {2, 3}
    assert asked.asked_for({2, 3}) == {CHILD: {2}, OTHER: {3}}
    assert asked.without({3, 4}) == {OTHER: {3}}
    assert (asked.missing, set(asked.waiting)) == (set(), {CHILD})


def test_an_answer_to_an_earlier_part_of_a_wave_is_none_to_a_later_one() -> None:
    """The numbers restarted, and a place that answered late for others was cut off."""
    network = Network(kary(4, 2), 0, lambda rank, _value: rank)
    network.start()
    spec = StreamSpec(1, "test", ((1, 5),), {"": "sum"}, sync=Synchronisation("time-out", 1.0))
    network.post(ROOT, ev.OpenStream(spec))
    network.run()
    stream = network.nodes[ROOT].streams[1]
    earlier = stream.begin_part(1, 0, b"", None, {1, 2})
    late = earlier.ask(CHILD, {1, 2})
    part = stream.begin_part(1, 0, b"", None, {2})
    now = part.ask(CHILD, {2})
    assert not part.accepts(CHILD, late.attempt)
    assert part.accepts(CHILD, now.attempt)


def test_a_late_contribution_counts_with_its_weight_and_is_named_as_late() -> None:
    begun = wave(1)
    begun.add_late(up(1, 2, 3), None)
    begun.add_late(up(1, 4), None)
    assert begun.late == ((2, 5),)
    assert begun.ranks == ()
    assert begun.weight == 3.0
