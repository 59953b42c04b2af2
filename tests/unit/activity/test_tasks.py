"""Calls in, requests to agents out: the pool of tasks without processes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import msgspec
import pytest

from sapwood.activity import orders, tasks
from sapwood.activity.tasks import AHEAD, MAX_ATTEMPTS, Call, TaskPool, can_travel
from sapwood.core.errors import (
    AgentLostError,
    ClosedError,
    DataValueError,
    ResourceError,
    SapwoodError,
    UserCodeError,
)
from sapwood.core.topology import flat
from sapwood.session.options import PlacesChanged
from sapwood.session.session import Session


class Agents:
    """A session whose agents answer when the test says so."""

    def __init__(self, count: int) -> None:
        self.tree = flat(count)
        self.failure: SapwoodError | None = None
        self.closed = False
        self.asked: list[tuple[int, str, Future[Any]]] = []
        self.listeners: list[Callable[[PlacesChanged], None]] = []

    def subscribe(self, listener: Callable[[PlacesChanged], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def ask_encoded(self, rank: int, handler: str, body: bytes, _arrays: Any) -> Future[Any]:
        if self.closed:
            raise ClosedError("the cluster is closed")
        assert handler == orders.CALL_TASK
        order = msgspec.msgpack.decode(body, type=orders.CallTask)
        self.asked.append((rank, order.function, Future()))
        return self.asked[-1][2]

    def change(self, *agents: int, back: bool) -> None:
        for listener in tuple(self.listeners):
            listener(PlacesChanged(agents, agents, back, "test"))

    def under_way(self) -> list[tuple[int, str]]:
        return [(rank, name) for rank, name, future in self.asked if not future.done()]

    def answer(self, name: str, value: Any) -> None:
        for _, asked, future in self.asked:
            if asked == name and not future.done():
                future.set_result(value)
                return
        raise AssertionError(f"{name} was not asked")

    def lose(self, rank: int) -> None:
        self.change(rank, back=False)
        for place, _, future in list(self.asked):
            if place == rank and not future.done():
                future.set_exception(AgentLostError(f"agent {rank} is gone"))


def call(name: str) -> Call:
    return Call("call", name, {"arguments": name})


def pool_of(count: int) -> tuple[Agents, TaskPool]:
    agents = Agents(count)
    return agents, TaskPool(cast("Session", agents))


def test_tasks_are_spread_and_no_agent_has_more_than_its_share() -> None:
    agents, pool = pool_of(3)
    for number in range(10):
        pool.submit(call(str(number)))
    ranks = [rank for rank, _ in agents.under_way()]
    assert ranks[:3] == [1, 2, 3]
    assert sorted(ranks) == sorted([1, 2, 3] * AHEAD)


def test_the_next_task_goes_to_whoever_has_answered() -> None:
    agents, pool = pool_of(2)
    futures = [pool.submit(call(str(number))) for number in range(2 * AHEAD + 1)]
    rank = {name: rank for rank, name in agents.under_way()}["1"]
    agents.answer("1", "answer")
    assert futures[1].result(0) == "answer"
    assert agents.under_way()[-1] == (rank, str(2 * AHEAD))


def test_all_tasks_are_done_in_the_end() -> None:
    agents, pool = pool_of(3)
    futures = [pool.submit(call(str(number))) for number in range(50)]
    while agents.under_way():
        _, name = agents.under_way()[0]
        agents.answer(name, int(name))
    assert [future.result(0) for future in futures] == list(range(50))


def test_an_error_is_the_answer_of_its_task_only() -> None:
    agents, pool = pool_of(1)
    bad, good = pool.submit(call("bad")), pool.submit(call("good"))
    agents.asked[0][2].set_exception(UserCodeError("no"))
    agents.answer("good", 1)
    with pytest.raises(UserCodeError, match="no"):
        bad.result(0)
    assert good.result(0) == 1


def test_tasks_of_a_lost_agent_go_to_another() -> None:
    agents, pool = pool_of(2)
    futures = [pool.submit(call(str(number))) for number in range(4)]
    agents.lose(1)
    while agents.under_way():
        rank, name = agents.under_way()[0]
        assert rank == 2
        agents.answer(name, name)
    assert [future.result(0) for future in futures] == ["0", "1", "2", "3"]


def test_a_task_that_loses_every_agent_it_is_on_fails() -> None:
    agents, pool = pool_of(1)
    future = pool.submit(call("deadly"))
    for _ in range(MAX_ATTEMPTS):
        assert not future.done()
        agents.lose(1)
        agents.change(1, back=True)
    with pytest.raises(AgentLostError):
        future.result(0)
    assert len(agents.asked) == MAX_ATTEMPTS


def test_an_agent_that_is_back_gets_tasks_again() -> None:
    agents, pool = pool_of(1)
    agents.change(1, back=False)
    pool.submit(call("a"))
    assert agents.under_way() == []
    agents.change(1, back=True)
    assert agents.under_way() == [(1, "a")]


def test_a_task_that_waits_can_be_cancelled() -> None:
    agents, pool = pool_of(1)
    running, *waiting = [pool.submit(call(str(number))) for number in range(AHEAD + 2)]
    assert not running.cancel()
    assert waiting[-2].cancel()
    agents.answer("0", 0)
    assert [name for _, name in agents.under_way()] == [
        *map(str, range(1, AHEAD)),
        str(AHEAD + 1),
    ]


def test_waiting_tasks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MAX_QUEUED_TASKS", 1)
    _, pool = pool_of(1)
    for number in range(AHEAD + 1):
        pool.submit(call(str(number)))
    with pytest.raises(ResourceError, match="more than 1 tasks wait"):
        pool.submit(call("one too many"))


def test_closing_fails_what_waits_and_what_comes() -> None:
    agents, pool = pool_of(1)
    futures = [pool.submit(call(str(number))) for number in range(AHEAD + 2)]
    pool.close()
    for future in futures[AHEAD:]:
        assert isinstance(future.exception(0), ClosedError)
    agents.answer("0", 0)
    assert futures[0].result(0) == 0
    with pytest.raises(ClosedError):
        pool.submit(call("late"))
    assert agents.listeners == []


def test_closing_fails_a_task_that_waits_for_its_second_attempt() -> None:
    agents, pool = pool_of(1)
    future = pool.submit(call("a"))
    agents.lose(1)
    assert not future.done()
    pool.close()
    assert isinstance(future.exception(0), ClosedError)


def test_tasks_fail_when_all_agents_are_gone_for_good() -> None:
    agents, pool = pool_of(2)
    futures = [pool.submit(call(str(number))) for number in range(6)]
    agents.lose(1)
    agents.failure = AgentLostError("they end again and again")
    agents.lose(2)
    assert [type(future.exception(0)) for future in futures] == [AgentLostError] * 6
    with pytest.raises(AgentLostError, match="again and again"):
        pool.submit(call("late"))
    pool.close()


def test_a_session_that_closes_meanwhile_fails_the_task() -> None:
    agents, pool = pool_of(1)
    agents.closed = True
    assert isinstance(pool.submit(call("a")).exception(0), ClosedError)


def test_arguments_that_cannot_travel_are_refused_at_once() -> None:
    _, pool = pool_of(1)
    with pytest.raises(DataValueError):
        pool.submit(Call("call", "f", {"arguments": print}))
    assert can_travel({"a": [1, (2.0, "x")]})
    assert not can_travel([print])
