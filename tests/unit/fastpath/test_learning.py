"""What the place wants to send is what was sent: the library's waves, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.comm import messages
from sapwood.comm import messages as msg
from sapwood.comm.link import MESSAGE_COST
from sapwood.fastpath.exchange_library import READY

from .conftest import OWNER, Front, encoded, up

NUMBERS = st.one_of(
    st.integers(1, 2**62), st.sampled_from([1, 127, 128, 255, 256, 2**16 - 1, 2**16, 2**32])
)
SIZES = st.one_of(
    st.integers(0, 40_000), st.sampled_from([0, 1, 31, 32, 255, 256, 2**16 - 1, 2**16])
)


def begin(front: Front, ticket: int, body: bytes, payload: bytes = b"") -> int:
    return front.library.begin_wave(OWNER, ticket, body, len(body), payload, len(payload))


def begun(front: Front, stream: int, wave: int, body: bytes, payload: bytes) -> int:
    front.library.take_back()
    ticket = front.library.arm([own.fileno() for own in front.own], 2**20, 2**20, stream, wave)
    return begin(front, ticket, body, payload)


def sent(stream: int, wave: int, body: bytes, payload: bytes) -> bytes:
    return encoded(msg.Down(stream, wave, 0, body, wave - 1), payload)


@given(NUMBERS, NUMBERS, SIZES, st.integers(0, 9000))
@settings(max_examples=200)
def test_waves_are_sent_as_the_place_sends_them(
    stream: int, wave: int, body: int, payload: int
) -> None:
    front = Front()
    try:
        what = b"b" * body, b"p" * payload
        assert begun(front, stream, wave, *what) == 1
        frame = sent(stream, wave, *what)
        assert front.library.under_way() == frame
        for child in front.children:
            child.setblocking(False)
            assert child.recv(len(frame) + 1) == frame
        memory = front.library.memory
        expected = messages.encode(msg.Up(stream, wave, 0, (), 0.0, b""))
        assert expected.startswith(bytes(memory.head[: memory.head_size]))
        assert memory.head_size == len(expected) - 1 - 9 - 2
    finally:
        front.close()


def test_each_wave_has_the_next_number(front: Front) -> None:
    library = front.library
    assert begun(front, 3, 8, b"first", b"") == 1
    front.answer(up(1, wave=8), up(2, wave=8), up(3, wave=8))
    while library.memory.left:
        assert library.wait(OWNER, -1) > 0
    assert library.commit(OWNER) == 1
    assert begin(front, library.memory.ticket, b"second", b"x") == 1
    assert library.under_way() == sent(3, 9, b"second", b"x")
    front.answer(up(1), up(2), up(3))
    while library.memory.left:
        assert library.wait(OWNER, -1) > 0
    assert library.commit(OWNER) == 2
    assert library.take_back()
    expected = [sent(3, 8, b"first", b""), sent(3, 9, b"second", b"x")]
    assert [passed.frame for passed in library.passed()] == expected


@pytest.mark.parametrize(("body", "payload"), [(80 * 1024, 0), (0, 80 * 1024), (41_000, 41_000)])
def test_what_is_too_large_goes_the_common_way(front: Front, body: int, payload: int) -> None:
    assert begun(front, 3, 8, b"b" * body, b"p" * payload) == 0
    assert front.library.memory.state == READY


def test_who_has_another_ticket_begins_no_wave(front: Front) -> None:
    memory = front.library.memory
    for ticket in (0, memory.ticket - 1, memory.ticket + 1):
        assert begin(front, ticket, b"body") == 0
        assert memory.state == READY
    assert begin(front, memory.ticket, b"body") == 1


@pytest.mark.parametrize(("room", "budget"), [(MESSAGE_COST, 1000), (100_000, 0)])
def test_without_credit_no_wave_begins(front: Front, room: int, budget: int) -> None:
    memory = front.library.memory
    memory.room, memory.budget = room, budget
    assert begin(front, memory.ticket, b"body") == 0
    assert memory.state == READY
