"""How a place finds a parent: whom it asks next, and when it gives up."""

from __future__ import annotations

import itertools

import pytest

from sapwood.comm import events as ev
from sapwood.comm.attachment import (
    RETRY_PAUSE,
    TRANSITIONS,
    Attachment,
    AttachmentEvent,
    AttachmentState,
)
from sapwood.comm.link import LinkTiming
from sapwood.core.errors import InternalError

TIMING = LinkTiming(heartbeat=1.0, failure_after=3.0, give_up_after=20.0)
HOME, ABOVE, TOP = 7, 9, 0


def seeking() -> Attachment:
    """Return a place that stands and asks its home to be its parent."""
    attachment = Attachment((HOME, ABOVE, TOP), TIMING)
    assert attachment.begin(0.0, ev.Begin()) == [ev.Connect(HOME, 0.0)]
    attachment.asked(1, 0)
    return attachment


def attached() -> Attachment:
    attachment = seeking()
    attachment.welcomed()
    return attachment


@pytest.mark.parametrize(
    ("state", "event"), list(itertools.product(AttachmentState, AttachmentEvent))
)
def test_what_is_not_in_the_table_is_an_error(
    state: AttachmentState, event: AttachmentEvent
) -> None:
    attachment = seeking()
    attachment.state = state
    if (state, event) in TRANSITIONS:
        attachment.advance(event)
        assert attachment.state is TRANSITIONS[state, event]
    else:
        with pytest.raises(InternalError, match=state.value):
            attachment.advance(event)


def test_news_of_places_that_are_not_sought_change_nothing() -> None:
    attachment = seeking()
    for rank in (ABOVE, TOP, 99, -1):
        assert attachment.unreachable(1.0, rank, -1) == []
        assert (attachment.sought, attachment.link) == (HOME, 1)
    attachment.welcomed()
    assert attachment.unreachable(1.0, -1, HOME) == []  # no place is sought now
    assert attachment.unreachable(1.0, HOME, HOME) == []
    assert attachment.state is AttachmentState.ATTACHED


def test_before_the_first_attachment_home_is_tried_again_for_a_while() -> None:
    attachment = seeking()
    assert attachment.unreachable(2.9, HOME, -1) == [ev.Connect(HOME, RETRY_PAUSE)]
    assert attachment.unreachable(3.0, HOME, -1) == [ev.Connect(ABOVE, 0.0)]
    assert attachment.unreachable(3.1, ABOVE, -1) == [ev.Connect(TOP, 0.0)]
    assert attachment.unreachable(3.2, TOP, -1) == [ev.Connect(HOME, RETRY_PAUSE)]
    attachment.unreachable(20.0, HOME, -1)
    attachment.unreachable(20.0, ABOVE, -1)
    assert attachment.unreachable(20.0, TOP, -1) == [ev.Connect(HOME, RETRY_PAUSE)]
    attachment.unreachable(20.1, HOME, -1)
    attachment.unreachable(20.1, ABOVE, -1)
    (ended,) = attachment.unreachable(20.1, TOP, -1)
    assert isinstance(ended, ev.ParentLost)
    assert attachment.state is AttachmentState.ENDED


def test_nobody_waits_for_a_machine_that_does_not_answer() -> None:
    attachment = seeking()
    assert attachment.unreachable(0.1, HOME, -1, absent=True) == [ev.Connect(ABOVE, 0.0)]
    assert attachment.unreachable(0.2, ABOVE, -1) == [ev.Connect(ABOVE, RETRY_PAUSE)]
    attachment.asked(2, 0)
    attachment.welcomed()
    assert attachment.called(HOME, ABOVE) == [ev.Connect(HOME, 0.0)]
    assert attachment.unreachable(9.0, HOME, ABOVE, absent=True) == []
    assert attachment.state is AttachmentState.ATTACHED


def test_a_place_that_was_attached_goes_up_at_once() -> None:
    attachment = attached()
    assert attachment.lost(5.0) == [ev.Connect(HOME, 0.0)]
    assert attachment.unreachable(5.0, HOME, -1) == [ev.Connect(ABOVE, 0.0)]


def test_while_the_parent_is_silent_those_above_are_asked_and_no_one_below() -> None:
    attachment = attached()
    assert attachment.silent(HOME) == [ev.Connect(ABOVE, 0.0)]
    assert attachment.silent(HOME) == []  # it asks already
    assert attachment.unreachable(9.0, ABOVE, HOME) == [ev.Connect(TOP, 0.0)]
    assert attachment.unreachable(9.1, TOP, HOME) == []  # no place above: it stays
    assert (attachment.state, attachment.sought) == (AttachmentState.ATTACHED, -1)


def test_who_is_called_home_asks_only_who_is_nearer() -> None:
    attachment = attached()
    assert attachment.called(ABOVE, HOME) == []
    assert attachment.called(99, ABOVE) == []
    assert attachment.called(ABOVE, ABOVE) == []
    assert attachment.called(HOME, ABOVE) == [ev.Connect(HOME, 0.0)]
    assert attachment.unreachable(9.0, HOME, ABOVE) == []  # it stays where it is
    assert attachment.state is AttachmentState.ATTACHED


def test_a_loss_while_others_are_asked_goes_on_asking_them() -> None:
    attachment = attached()
    attachment.silent(HOME)
    assert attachment.lost(4.0) == []
    assert (attachment.state, attachment.sought) == (AttachmentState.SEEKING, ABOVE)
    attachment.refused("stale")
    assert attachment.lost(4.0) == []
