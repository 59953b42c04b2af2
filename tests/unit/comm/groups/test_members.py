from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sapwood.comm import events as ev
from sapwood.comm.groups import events as gev
from sapwood.comm.groups.members import GroupMemberships
from sapwood.comm.messages.groups import LEAVE, MAX_ROUNDS, NO_GROUP, GroupCall
from sapwood.comm.payload import Payload
from sapwood.core.errors import AgentLostError, ClosedError, GroupError, SapwoodError

KEY = (((1, 3),), "")
NUMBER = (0, 1, 1)
BARRIER = GroupCall("barrier")


class Timer:
    def __init__(self, function: Callable[..., None], *args: Any) -> None:
        self.function, self.args = function, args
        self.cancelled = False

    def fire(self) -> None:
        self.function(*self.args)

    def cancel(self) -> None:
        self.cancelled = True


class Place:
    """Collects what is posted, and what members hear."""

    def __init__(self) -> None:
        self.posted: list[Any] = []
        self.timers: list[Timer] = []
        self.heard: list[Any] = []
        self.members = GroupMemberships(1, self.posted.append, self.later)

    def later(self, _seconds: float, function: Callable[..., None], *args: Any) -> Timer:
        self.timers.append(Timer(function, *args))
        return self.timers[-1]

    def does(self, effect: ev.Effect) -> None:
        self.members.handlers[type(effect)](effect)

    def enter(self, timeout: float | None = None) -> None:
        self.members.enter(KEY, timeout, self.heard.append, self.heard.append)

    def entered(self) -> None:
        self.enter()
        self.does(gev.GroupEntered(*KEY, NUMBER))
        self.posted.clear()

    def call(self, number: int, timeout: float | None = None) -> None:
        event = gev.CallGroup(NUMBER, number, BARRIER, number - 1, b"", None)
        self.members.call(
            event, timeout, lambda body, _: self.heard.append(body), self.heard.append
        )


def test_who_enters_hears_the_number_and_who_calls_the_result() -> None:
    place = Place()
    place.enter(5.0)
    place.does(gev.GroupEntered(*KEY, NUMBER))
    place.call(1, 5.0)
    place.does(gev.GroupFinished(NUMBER, 1, b"result", None))
    assert place.heard == [NUMBER, b"result"]
    assert [type(event) for event in place.posted] == [gev.EnterGroup, gev.CallGroup]
    assert all(timer.cancelled for timer in place.timers)


def test_time_outs_become_errors_that_say_what_was_waited_for() -> None:
    place = Place()
    place.enter(5.0)
    place.timers[0].fire()
    assert place.posted[-1].group == NO_GROUP
    assert "5 s for all to enter" in place.posted[-1].error.what
    place.does(gev.GroupBroken(NO_GROUP, *KEY, place.posted[-1].error))
    assert isinstance(place.heard[-1], GroupError)
    place.entered()
    place.call(1, 2.0)
    place.timers[-1].fire()
    assert (place.posted[-1].group, place.posted[-1].round) == (NUMBER, 1)
    assert "2 s in barrier() (round 1" in place.posted[-1].error.what


def test_a_broken_group_fails_what_waits_and_all_that_comes() -> None:
    place = Place()
    place.entered()
    place.call(1)
    place.does(gev.GroupBroken(NUMBER, *KEY, AgentLostError("agent 2 is gone").to_record()))
    place.call(2)
    assert [type(error) for error in place.heard[1:]] == [AgentLostError, AgentLostError]
    place.posted.clear()
    place.members.leave(NUMBER)
    assert place.posted == []


def test_leaving_is_the_last_call_and_fails_those_that_wait() -> None:
    place = Place()
    place.entered()
    place.call(1)
    place.members.leave(NUMBER)
    assert isinstance(place.heard[-1], ClosedError)
    assert (place.posted[-1].call, place.posted[-1].round) == (LEAVE, 2)
    place.members.leave(NUMBER)
    assert len(place.posted) == 2
    place.call(3)
    assert isinstance(place.heard[-1], GroupError)


def test_who_gave_up_leaves_a_group_that_is_made_all_the_same() -> None:
    place = Place()
    place.enter()
    place.members.give_up(KEY)
    place.does(gev.GroupBroken(NO_GROUP, *KEY, place.posted[-1].error))
    place.does(gev.GroupEntered(*KEY, NUMBER))
    assert place.posted[-1].call == LEAVE


def test_calls_out_of_order_and_entering_twice_are_errors() -> None:
    place = Place()
    place.entered()
    place.call(2)
    assert isinstance(place.heard[-1], GroupError)
    place.enter()
    place.enter()
    assert "already" in place.heard[-1].what


def test_the_end_of_the_place_fails_everything() -> None:
    place = Place()
    place.entered()
    place.call(1)
    place.enter()
    place.members.abandon(ClosedError("the cluster was closed"))
    assert [type(error) for error in place.heard[1:]] == [ClosedError, ClosedError]


class Owner:
    closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("left", [True, False])
def test_memory_is_closed_once(left: bool) -> None:
    place, owner = Place(), Owner()
    place.entered()
    payload = Payload(b"12345678", owner=owner)
    if left:
        place.members.leave(NUMBER)
    event = gev.CallGroup(NUMBER, 1, BARRIER, 0, b"", payload)
    errors: list[SapwoodError] = []
    place.members.call(event, None, lambda *_: None, errors.append)
    place.does(gev.Discarded(payload))
    assert owner.closed == 1
    assert len(errors) == left


def test_so_many_rounds_may_be_under_way_and_no_more() -> None:
    place = Place()
    place.entered()
    for number in range(1, MAX_ROUNDS):
        place.call(number)
    assert place.heard == [NUMBER]
    place.call(MAX_ROUNDS)
    assert f"with {MAX_ROUNDS - 1} rounds under way" in place.heard[-1].what
    place.does(gev.GroupFinished(NUMBER, 1, b"result", None))
    place.call(MAX_ROUNDS)
    assert place.heard[-1] == b"result"
    place.call(MAX_ROUNDS + 2)
    assert f"was called after round {MAX_ROUNDS}" in place.heard[-1].what


def test_an_unexpected_exception_of_a_waiter_is_its_error() -> None:
    place = Place()

    def fail(*_result: Any) -> None:
        raise ZeroDivisionError("no")

    place.members.enter(KEY, None, fail, place.heard.append)
    place.does(gev.GroupEntered(*KEY, NUMBER))
    event = gev.CallGroup(NUMBER, 1, BARRIER, 0, b"", None)
    place.members.call(event, None, fail, place.heard.append)
    place.does(gev.GroupFinished(NUMBER, 1, b"", None))
    assert [error.what for error in place.heard] == ["ZeroDivisionError: no"] * 2
    place.call(2)  # the group itself is as it was
    place.does(gev.GroupFinished(NUMBER, 2, b"x", None))
    assert place.heard[2:] == [b"x"]


def test_an_effect_that_cannot_be_performed_fails_what_waits_for_it() -> None:
    place, error = Place(), SapwoodError("no memory")

    def fail(effect: ev.Effect) -> None:
        place.members.failure_handlers[type(effect)](effect, error)

    place.enter()
    fail(gev.GroupEntered(*KEY, NUMBER))
    assert place.heard == [error]
    place.entered()
    place.heard.clear()
    place.call(1)
    place.call(2)
    fail(gev.GroupFinished(NUMBER, 1, b"", None))
    assert place.heard == [error]
    fail(gev.GroupBroken(NUMBER, *KEY, GroupError("it ended").to_record()))
    assert place.heard == [error, error]


def test_all_members_that_wait_are_failed_also_after_one_that_raises() -> None:
    place = Place()
    place.entered()

    def fail(_error: SapwoodError) -> None:
        raise ZeroDivisionError

    event = gev.CallGroup(NUMBER, 1, BARRIER, 0, b"", None)
    place.members.call(event, None, lambda *_: None, fail)
    place.call(2)
    place.does(gev.GroupBroken(NUMBER, *KEY, GroupError("it ended").to_record()))
    assert [error.what for error in place.heard[1:]] == ["it ended"]
