"""What a place knows of one stream: its life, and its counters."""

from __future__ import annotations

import itertools

import pytest

from sapwood.comm.payload import Payload
from sapwood.comm.streams.stream import NOT_COUNTED, TRANSITIONS, Counters, StreamEvent, StreamState
from sapwood.core.errors import InternalError


def test_counters_begin_at_nothing_and_count_bodies_and_arrays() -> None:
    counters = Counters()
    assert [getattr(counters, name) for name in Counters.__slots__] == [0] * 8
    counters.down(b"abc", None)
    counters.down(b"abc", Payload(b"12345"))
    counters.up(b"ab", None)
    counters.up(b"ab", Payload(b"1"))
    counters.offered(b"a", 100)
    assert (counters.messages_down, counters.bytes_down) == (2, 3 + 3 + 5)
    assert (counters.messages_up, counters.bytes_up) == (3, 2 + 2 + 1 + 1 + 100)
    assert (counters.filtered, counters.late, counters.repeated) == (0, 0, 0)


def test_a_stream_that_is_not_counted_counts_nothing() -> None:
    NOT_COUNTED.down(b"abc", None)
    NOT_COUNTED.up(b"abc", Payload(b"1"))
    NOT_COUNTED.offered(b"a", 100)
    NOT_COUNTED.exchanged(1, 1, 1)
    NOT_COUNTED.came_late()
    NOT_COUNTED.came_twice()
    NOT_COUNTED.filter_called(1.0)
    assert [getattr(NOT_COUNTED, name) for name in Counters.__slots__] == [0] * 8
    assert NOT_COUNTED.figures() == {}


@pytest.mark.row("C3-STREAM")
@pytest.mark.parametrize(("state", "event"), list(itertools.product(StreamState, StreamEvent)))
def test_what_is_not_in_the_table_is_an_error(state: StreamState, event: StreamEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert TRANSITIONS.after(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(InternalError, match=state.value):
            TRANSITIONS.after(state, event)


def test_a_closed_stream_stays_closed_and_every_other_one_can_be_closed() -> None:
    assert not any(state is StreamState.CLOSED for state, _ in TRANSITIONS)
    closed = {state for state, event in TRANSITIONS if event is StreamEvent.CLOSE}
    assert closed == set(StreamState) - {StreamState.CLOSED}
