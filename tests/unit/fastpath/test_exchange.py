"""Whoever waits for the last answers looks for them before sleeping."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from .conftest import BUSY, OWNER, Front, gather, up

LONG = 60.0
"""Seconds after which nothing is looked for any more in a test that goes well."""


def keep_awake(front: Front, seconds: float, spare: int = 3) -> None:
    front.library.memory.awake, front.library.memory.spare = seconds, spare


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
