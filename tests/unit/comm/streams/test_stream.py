"""What a place knows of one stream: its life, and its counters."""

from __future__ import annotations

import itertools

import pytest

from sapwood.comm.messages import NO_WAIT, PARTIAL, TIME_OUT, StreamSpec, Synchronisation
from sapwood.comm.payload import Payload
from sapwood.comm.reduction import gathering
from sapwood.comm.routing import Router
from sapwood.comm.streams.stream import (
    NOT_COUNTED,
    TRANSITIONS,
    Counters,
    NodeStream,
    StreamEvent,
    StreamState,
)
from sapwood.comm.streams.wave import Kept
from sapwood.core.errors import InternalError
from sapwood.core.topology import ROOT, flat


def test_counters_begin_at_nothing_and_count_bodies_and_arrays() -> None:
    counters = Counters()
    assert [getattr(counters, name) for name in Counters.__slots__] == [0] * len(Counters.__slots__)
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
    assert [getattr(NOT_COUNTED, name) for name in Counters.__slots__] == [0] * len(
        Counters.__slots__
    )
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


def test_memory_is_given_back_when_its_wave_is_confirmed() -> None:
    spec = StreamSpec(1, "echo", ((1, 3),))
    stream = NodeStream(spec, Router(flat(2), ROOT), gathering())
    memory = [Payload(b"%d" % number) for number in range(6)]
    stream.loaned = [(1, memory[0]), (2, memory[1]), (3, memory[2])]
    for number in (1, 2, 3):
        stream.keep(number, Kept(frozenset({1}), ((1, 2),), 1.0, b"", memory[number + 2]))
    assert stream.release(2) == [memory[3], memory[4], memory[0], memory[1]]
    assert stream.loaned == [(3, memory[2])]
    assert list(stream.kept) == [3]
    assert stream.confirmed_to == 2


@pytest.mark.parametrize(
    ("spec", "passes", "chunked"),
    [
        (StreamSpec(1, "echo", ((1, 3),)), True, False),
        (StreamSpec(1, "echo", ((1, 3),), {"x": "sum"}), True, True),
        (StreamSpec(1, "echo", ((1, 3),), {"x": "concat"}), True, False),
        (StreamSpec(1, "echo", ((1, 3),), {"x": "sum"}, on_loss=PARTIAL), False, True),
        (
            StreamSpec(1, "echo", ((1, 3),), {"x": "sum"}, sync=Synchronisation(NO_WAIT)),
            False,
            False,
        ),
        (
            StreamSpec(1, "echo", ((1, 3),), {"x": "sum"}, sync=Synchronisation(TIME_OUT, 1.0)),
            False,
            False,
        ),
    ],
)
def test_the_kind_of_a_stream(spec: StreamSpec, *, passes: bool, chunked: bool) -> None:
    stream = NodeStream(spec, Router(flat(2), ROOT), gathering())
    assert (stream.passes, stream.chunked, stream.at_rest) == (passes, chunked, passes)


def test_a_stream_with_work_under_way_is_not_at_rest() -> None:
    stream = NodeStream(StreamSpec(1, "echo", ((1, 3),)), Router(flat(2), ROOT), gathering())
    seen = [stream.at_rest]
    stream.agent.pending[1] = 0
    seen.append(stream.at_rest)
    stream.agent.pending.clear()
    stream.advance(StreamEvent.QUIESCE)
    seen.append(stream.at_rest)
    assert seen == [True, False, False]
