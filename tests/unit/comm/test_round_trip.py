"""The estimate of round trips: smoothed, and not to be led astray."""

from __future__ import annotations

import math

import pytest

from sapwood.comm.link import Link
from sapwood.comm.messages import Heartbeat
from sapwood.comm.round_trip import LONGEST, RoundTrip


def test_a_steady_round_trip_is_found_from_a_bad_start() -> None:
    trip = RoundTrip()
    trip.add(1.0)
    for _ in range(100):
        trip.add(0.05)
    assert trip.smoothed == pytest.approx(0.05, rel=0.01)
    assert trip.variation < 0.01
    assert (trip.least, trip.samples) == (0.05, 101)


@pytest.mark.parametrize("sample", [-0.1, LONGEST + 1, math.nan, math.inf])
def test_a_sample_that_cannot_be_is_left_out(sample: float) -> None:
    trip = RoundTrip()
    trip.add(sample)
    assert trip.samples == 0


def test_both_ends_of_a_link_measure_whatever_their_clocks_say() -> None:
    """One way takes 0.2 s, the other 0.1 s; the clocks are 1000 s apart, the peer waits 0.5 s."""
    mine, theirs = Link(1, initiator=True, now=10.0), Link(1, initiator=False, now=1010.0)
    first = mine.beat(10.0)
    theirs.heard(1010.2)
    theirs.beaten(first)
    second = theirs.beat(1010.7)
    mine.heard(10.8)
    mine.beaten(second)
    assert mine.round_trip is not None
    assert mine.round_trip.smoothed == pytest.approx(0.3)
    third = mine.beat(11.0)
    theirs.heard(1011.2)
    theirs.beaten(third)
    assert theirs.round_trip is not None
    assert theirs.round_trip.smoothed == pytest.approx(0.3)


def test_a_heartbeat_is_echoed_once() -> None:
    link = Link(1, initiator=True, now=1.0)
    link.heard(2.0)
    link.beaten(Heartbeat(5.0))
    assert link.beat(2.5) == Heartbeat(2.5, 5.0, 0.5)
    assert link.beat(3.0) == Heartbeat(3.0)


def test_an_old_peer_that_says_no_time_is_not_measured() -> None:
    link = Link(1, initiator=True, now=1.0)
    link.beaten(Heartbeat())
    assert link.round_trip is None
    assert link.beat(2.0) == Heartbeat(2.0)
