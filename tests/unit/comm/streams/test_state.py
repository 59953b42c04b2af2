from __future__ import annotations

import itertools

import pytest

from sapwood.comm.streams.state import TRANSITIONS, StreamEvent, StreamState
from sapwood.core.errors import ProtocolError


@pytest.mark.row("C3-STREAM")
@pytest.mark.parametrize(("state", "event"), list(itertools.product(StreamState, StreamEvent)))
def test_what_is_not_in_the_table_is_an_error(state: StreamState, event: StreamEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert TRANSITIONS.after(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(ProtocolError, match=state.value):
            TRANSITIONS.after(state, event)


def test_a_closed_stream_stays_closed_and_every_other_one_can_be_closed() -> None:
    assert not any(state is StreamState.CLOSED for state, _ in TRANSITIONS)
    closed = {state for state, event in TRANSITIONS if event is StreamEvent.CLOSE}
    assert closed == set(StreamState) - {StreamState.CLOSED}
