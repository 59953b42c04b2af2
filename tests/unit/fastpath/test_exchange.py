"""A thread that waits for the last answers polls for them before it sleeps."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.comm import messages
from sapwood.comm import messages as msg
from sapwood.comm.link import MESSAGE_COST
from sapwood.fastpath.exchange_library import READY

from .conftest import BUSY, OWNER, Front, encoded, gather, up

LONG = 60.0
"""Seconds after which nothing is looked for any more in a test that goes well."""


def keep_awake(front: Front, seconds: float, spare: int = 3) -> None:
    front.library.memory.spin, front.library.memory.spare = seconds, spare


def test_it_looks_once_and_then_sleeps(front: Front) -> None:
    keep_awake(front, 0.01)
    front.begin()
    assert front.library.wait(OWNER, -1) == 0
    assert front.library.wait(OWNER, 20) == -1


def test_it_sleeps_at_once_when_it_is_not_to_look(front: Front) -> None:
    keep_awake(front, 0.0)
    front.begin()
    assert front.library.wait(OWNER, 20) == -1


def test_what_it_sees_it_takes(front: Front) -> None:
    keep_awake(front, LONG)
    for _ in range(20):
        front.begin()
        front.answer(up(1), up(2), up(3))
        assert gather(front.library) == 3
        assert front.library.commit(OWNER)
        front.library.take_back()
        front.ticket = front.arm()


def test_it_looks_anew_when_something_has_come(front: Front) -> None:
    keep_awake(front, 0.01)
    front.begin()
    for number in range(2):
        assert front.library.wait(OWNER, -1) == 0
        front.children[number].sendall(up(number + 1))
        assert front.library.wait(OWNER, -1) == 1
    assert front.library.wait(OWNER, -1) == 0


def test_it_does_not_while_more_are_missing_than_there_are_other_cores(front: Front) -> None:
    keep_awake(front, LONG, spare=1)
    front.begin()
    front.children[0].sendall(up(1))
    assert front.library.wait(OWNER, -1) == 1
    assert front.library.wait(OWNER, 20) == -1


def test_time_is_up_while_it_looks(front: Front) -> None:
    keep_awake(front, LONG)
    front.begin()
    assert front.library.wait(OWNER, 20) == 0
    assert front.library.wait(OWNER, 0) == -1


def test_it_does_not_look_where_nothing_is_to_be_waited_for(front: Front) -> None:
    keep_awake(front, LONG)
    front.begin()
    assert front.library.wait(OWNER, 0) == -1


def test_the_bell_is_heard_while_it_looks(front: Front) -> None:
    keep_awake(front, LONG)
    front.begin()
    os.eventfd_write(front.bell, 1)
    assert front.library.wait(OWNER, -1) == -1


@pytest.mark.slow
def test_a_signal_that_comes_while_it_looks_is_dealt_with(front: Front) -> None:
    class StruckError(Exception):
        pass

    def struck(_number: int, _frame: object) -> None:
        raise StruckError

    main, memory = threading.get_ident(), front.library.memory

    def strike() -> None:
        while not (memory.state == BUSY and memory.looked):
            time.sleep(0)
        signal.pthread_kill(main, signal.SIGUSR1)

    keep_awake(front, 0.2)
    former, thread = signal.signal(signal.SIGUSR1, struck), threading.Thread(target=strike)
    try:
        front.begin()
        thread.start()
        with pytest.raises(StruckError):
            gather(front.library)
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, former)


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
@pytest.mark.slow
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
