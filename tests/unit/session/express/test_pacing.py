"""How many agents work on a wave at a time, and that the others get it later."""

from __future__ import annotations

import socket
import threading

import pytest

from sapwood.session.express.pacing import (
    CLEARLY,
    LARGE,
    MAX_TRIALS,
    PER_CORE,
    TRIAL,
    WORSE,
    Pacing,
)

from .conftest import FRAME, HANDED, OWNER, Front, gather, up

CORES = 2
FEW = PER_CORE * CORES


def took(pacing: Pacing, seconds: float, times: int = TRIAL) -> int:
    """Have waves taken some time; return how many agents are to work at a time then."""
    for _ in range(times):
        pacing.took(seconds)
    return pacing.limit


@pytest.mark.parametrize("few", [8.0, 9.0, CLEARLY * 9.0 - 0.1])
def test_what_does_not_take_clearly_more_time_stays(few: float) -> None:
    pacing = Pacing(64, CORES)
    assert pacing.limit == 0
    assert took(pacing, 9.0) == FEW
    assert took(pacing, few) == FEW
    assert took(pacing, WORSE * 9.0, 1000) == FEW


def test_what_does_is_tried_a_few_times() -> None:
    pacing = Pacing(64, CORES)
    limits = [took(pacing, 9.0 if not pacing.limit else CLEARLY * 9.0) for _ in range(1000)]
    assert limits[: 2 * MAX_TRIALS] == [FEW, 0] * MAX_TRIALS
    assert set(limits[2 * MAX_TRIALS :]) == {0}


def test_a_change_is_noticed_and_chance_is_not() -> None:
    pacing = Pacing(64, CORES)
    took(pacing, 9.0)
    took(pacing, 8.0)
    for _ in range(100):
        assert took(pacing, 100.0, TRIAL - 1) == FEW
        assert took(pacing, 8.0, 1) == FEW
    assert took(pacing, 100.0) == 0
    assert took(pacing, 90.0) == FEW


@pytest.mark.parametrize(("children", "enough"), [(FEW, float("inf")), (64, 64 * LARGE)])
def test_it_is_for_many_agents_with_large_results(children: int, enough: float) -> None:
    assert Pacing(children, CORES).enough == enough


def have(front: Front) -> list[bool]:
    """Return which children have the wave now."""
    found = []
    for child in front.children:
        child.setblocking(False)
        try:
            found.append(child.recv(100) == FRAME)
        except BlockingIOError:
            found.append(False)
        child.setblocking(True)
    return found


@pytest.mark.parametrize(
    ("pace", "begun"), [(0, [True] * 3), (1, [True, False, False]), (2, [True, True, False])]
)
def test_the_next_one_begins_when_one_has_answered(
    front: Front, pace: int, begun: list[bool]
) -> None:
    library = front.library
    library.memory.pace = pace
    assert front.begin() == 1
    assert have(front) == begun
    answers = [up(1), up(2), up(3)]
    for number in range(3):
        front.children[number].sendall(answers[number])
        assert library.wait(OWNER, -1) == 1
        assert have(front) == [pace > 0 and each == number + pace for each in range(3)]
    assert library.commit(OWNER)
    assert library.take_back()
    (passed,) = library.passed()
    assert (passed.frame, list(passed.sizes)) == (FRAME, [len(answer) for answer in answers])


def test_all_begin_when_none_answers(front: Front) -> None:
    library = front.library
    library.memory.pace = 1
    assert front.begin() == 1
    came: list[int] = []
    thread = threading.Thread(target=lambda: came.append(gather(library)))
    thread.start()
    for child in front.children:
        child.settimeout(30.0)
        assert child.recv(100) == FRAME
    front.answer(up(1), up(2), up(3))
    thread.join()
    assert came == [3]
    assert library.commit(OWNER)


def test_who_has_not_begun_is_left_to_the_loop(front: Front) -> None:
    library = front.library
    library.memory.pace = 1
    assert front.begin() == 1
    assert library.wait(OWNER, 1) == -1
    assert library.memory.state == HANDED
    assert library.take_back()
    assert library.under_way() == FRAME
    assert [library.memory.peers[number].sent for number in range(3)] == [len(FRAME), 0, 0]
    assert have(front) == [True, False, False]


def test_a_child_that_cannot_take_more_is_left_to_the_loop(front: Front) -> None:
    library = front.library
    library.memory.pace = 1
    assert front.begin() == 1
    front.own[1].shutdown(socket.SHUT_WR)
    front.answer(up(1))
    assert library.wait(OWNER, -1) == -1
    assert library.memory.state == HANDED
    assert have(front) == [True, False, False]
