from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.comm import events as ev
from sapwood.comm.streams.filters import Outbox


def effect(number: int) -> ev.Effect:
    return ev.Disconnect(number, "")


@given(st.lists(st.booleans(), max_size=12), st.randoms(use_true_random=False))
@pytest.mark.slow
def test_effects_leave_in_the_order_in_which_they_were_meant_to(
    kinds: list[bool], chance: random.Random
) -> None:
    outbox = Outbox()
    left: list[ev.Effect] = []
    tickets: list[tuple[int, int]] = []
    for number, is_filtered in enumerate(kinds):
        if is_filtered:
            tickets.append((outbox.reserve(), number))
        else:
            left += outbox.put([effect(number)])
    chance.shuffle(tickets)
    for ticket, number in tickets:
        left += outbox.fill(ticket, [effect(number)])
    assert left == [effect(number) for number in range(len(kinds))]
    assert len(outbox) == 0


def test_a_ticket_is_filled_once() -> None:
    outbox = Outbox()
    ticket = outbox.reserve()
    assert outbox.fill(ticket, [effect(1)]) == [effect(1)]
    assert outbox.fill(ticket, [effect(2)]) == []
