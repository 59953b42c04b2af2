"""Calls in, requests to agents out: the pool of tasks without processes."""

from __future__ import annotations

import concurrent.futures
import pickle
import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from typing import Any, cast

import msgspec
import pytest

from sapwood.activity import agent_requests, tasks
from sapwood.activity.tasks import AHEAD, MAX_ATTEMPTS, TaskCall, TaskPool
from sapwood.comm import values
from sapwood.core.errors import (
    AgentLostError,
    CancelledError,
    ClosedError,
    DataValueError,
    ResourceError,
    RunnerCrashError,
    SapwoodError,
    TimeLimitError,
    UserCodeError,
)
from sapwood.core.topology import flat
from sapwood.session.embedded import EmbeddedSession
from sapwood.session.interface import ProcessState, ProcessView
from sapwood.session.options import PlacesChanged
from sapwood.session.requests import RequestFuture

TIMEOUT = 30.0


class Agents:
    """A session whose agents answer when the test says so."""

    def __init__(self, count: int) -> None:
        self.tree = flat(count)
        self.failure: SapwoodError | None = None
        self.closed = False
        self.asked: list[tuple[int, str, RequestFuture]] = []
        self.wanted_back: list[tuple[int, str]] = []
        self.withdrawn: list[str] = []
        self.questions = self
        self.names = queue.SimpleQueue[str]()
        self._replies: list[RequestFuture] = []
        self.listeners: list[Callable[[PlacesChanged], None]] = []
        self.joined: set[int] = set()

    def processes(self, ranks: Iterable[int]) -> list[ProcessView]:
        return [ProcessView(rank, 1, ProcessState.READY, 1, rank in self.joined) for rank in ranks]

    def subscribe(self, listener: Callable[[PlacesChanged], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def ask(self, rank: int, handler: str, number: int) -> RequestFuture:
        assert handler == agent_requests.GIVE_BACK_TASK
        self.wanted_back.append((rank, self.asked[number - 1][1]))
        self._replies.append(RequestFuture())
        return self._replies[-1]

    def withdraw(self, answer: RequestFuture) -> None:
        _, name, _ = self.asked[answer.number - 1]
        self.withdrawn.append(name)
        answer.set_exception(CancelledError("the request was cancelled"))

    def give_back(self, name: str) -> None:
        self.fail(name, CancelledError("given back", details={agent_requests.GIVEN_BACK: name}))
        self._replies[-1].set_result(True)

    def keep(self, name: str) -> None:
        assert name == self.wanted_back[-1][1]
        self._replies[-1].set_result(False)

    def ask_encoded(
        self,
        rank: int,
        handler: str,
        body: bytes,
        _arrays: Any,
        future: RequestFuture | None = None,
    ) -> RequestFuture:
        if self.closed:
            raise ClosedError("the cluster is closed")
        assert handler == agent_requests.CALL_TASK
        order = msgspec.msgpack.decode(body, type=agent_requests.CallTask)
        self.asked.append((rank, order.function, future or RequestFuture()))
        self.asked[-1][2].number = len(self.asked)
        self.names.put(order.function)
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

    def fail(self, name: str, error: SapwoodError) -> None:
        next(
            future for _, asked, future in self.asked if asked == name and not future.done()
        ).set_exception(error)

    def lose(self, rank: int) -> None:
        self.change(rank, back=False)
        for place, _, future in list(self.asked):
            if place == rank and not future.done():
                future.set_exception(AgentLostError(f"agent {rank} is gone"))


def call(name: str) -> TaskCall:
    return TaskCall("call", name, values.encode({"arguments": name}))


def pool_of(count: int) -> tuple[Agents, TaskPool]:
    agents = Agents(count)
    return agents, TaskPool(cast("EmbeddedSession", agents))


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
    _, *waiting = [pool.submit(call(str(number))) for number in range(AHEAD + 2)]
    assert waiting[-2].cancel()
    assert agents.withdrawn == []
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


def test_an_idle_agent_gets_the_task_that_waits_behind_another() -> None:
    agents, pool = pool_of(2)
    futures = [pool.submit(call(name)) for name in "abcd"]
    assert agents.under_way() == [(1, "a"), (2, "b"), (1, "c"), (2, "d")]
    agents.answer("b", "b")
    assert agents.wanted_back == []  # its agent still has one
    agents.answer("d", "d")
    assert agents.wanted_back == [(1, "c")]
    agents.give_back("c")
    assert agents.under_way() == [(1, "a"), (2, "c")]
    agents.answer("c", "c")
    agents.answer("a", "a")
    assert [future.result(0) for future in futures] == list("abcd")


def test_a_task_that_has_begun_stays_where_it_is() -> None:
    agents, pool = pool_of(2)
    futures = [pool.submit(call(name)) for name in "abcd"]
    for name in "bd":
        agents.answer(name, name)
    agents.keep("c")
    assert agents.under_way() == [(1, "a"), (1, "c")]
    for name in "ac":
        agents.answer(name, name)
    assert [future.result(0) for future in futures] == list("abcd")
    assert agents.wanted_back == [(1, "c")]


def test_tasks_of_one_agent_are_not_taken_back() -> None:
    agents, pool = pool_of(2)
    pool.submit_at([1], call("a"))
    pool.submit_at([1], call("b"))
    pool.submit(call("c"))
    agents.answer("c", 0)
    assert agents.wanted_back == []


def test_a_task_that_runs_can_be_cancelled() -> None:
    agents, pool = pool_of(1)
    first, second = pool.submit(call("a")), pool.submit(call("b"))
    assert first.running()
    assert first.cancel()
    assert first.cancel()
    assert agents.withdrawn == ["a"]
    assert wait([first], 0).done == {first}
    with pytest.raises(CancelledError, match=r"cancelled \(a\)"):
        first.result(0)
    with pytest.raises(concurrent.futures.CancelledError):
        first.exception(0)
    agents.answer("b", 1)
    assert second.result(0) == 1
    assert not second.cancel()


@pytest.mark.parametrize("error", [UserCodeError, RunnerCrashError, TimeLimitError])
def test_a_task_that_fails_is_tried_again(error: type[SapwoodError]) -> None:
    agents, pool = pool_of(1)
    good, bad = pool.submit(call("good"), retries=2), pool.submit(call("bad"), retries=1)
    for name in ("good", "bad", "good", "bad"):
        agents.fail(name, error("again"))
    agents.answer("good", 1)
    assert good.result(0) == 1
    with pytest.raises(error, match="again"):
        bad.result(0)
    assert [name for _, name, _ in agents.asked] == ["good", "bad", "good", "bad", "good"]


class WatchedLock:
    """A lock that calls a function each time that it is about to be released."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._function = function

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_exception: object) -> None:
        self._function()
        self._lock.release()


@pytest.mark.parametrize("error", [AgentLostError, UserCodeError])
def test_wait_sees_a_task_that_is_tried_again_at_any_moment(error: type[SapwoodError]) -> None:
    agents, pool = pool_of(1)
    future = pool.submit(call("a"), retries=1)
    known: list[bool] = []

    def look() -> None:
        given = [task for tasks in pool._given.values() for task in tasks]
        known.append(any(task.future is future for task in (*pool._queue, *given)))

    pool._lock = cast("threading.Lock", WatchedLock(look))
    agents.fail("a", error("again"))
    assert known
    assert all(known)
    agents.answer("a", 1)
    assert future.result(0) == 1


@pytest.mark.parametrize("error", [CancelledError, DataValueError])
def test_what_would_fail_again_is_not_tried_again(error: type[SapwoodError]) -> None:
    agents, pool = pool_of(1)
    future = pool.submit(call("a"), retries=5)
    agents.fail("a", error("no"))
    assert isinstance(future.exception(0), error)


def test_a_task_waits_for_what_it_needs() -> None:
    agents, pool = pool_of(1)
    first, second = pool.submit(call("a")), Future[int]()
    third = pool.submit_later([first, second], lambda: call(f"{first.result()}"), function="c")
    agents.answer("a", "made")
    assert repr(third) == "<Future of c: waiting>"
    second.set_result(1)
    assert [agents.names.get(timeout=TIMEOUT) for _ in range(2)] == ["a", "made"]
    agents.answer("made", 3)
    assert third.result(0) == 3
    pool.close()


def test_a_task_fails_with_what_it_needs() -> None:
    agents, pool = pool_of(1)
    first = pool.submit(call("a"))
    second = pool.submit_later([first], first.result)
    third = pool.submit_later([Future()], lambda: call("never"))
    agents.fail("a", UserCodeError("no"))
    assert second.exception(TIMEOUT) is first.exception(0)
    pool.close()
    assert isinstance(third.exception(0), ClosedError)


def test_a_pool_that_refuses_ends_what_it_has() -> None:
    agents, pool = pool_of(1)
    futures = [pool.submit(call(str(number))) for number in range(AHEAD + 1)]
    pool.refuse()
    with pytest.raises(ClosedError, match="shut down"):
        pool.submit(call("late"))
    for number in range(AHEAD + 1):
        agents.answer(str(number), number)
    pool.wait()
    assert [future.result(0) for future in futures] == list(range(AHEAD + 1))


def test_a_pool_that_refuses_may_cancel_what_has_not_begun() -> None:
    agents, pool = pool_of(1)
    futures = [pool.submit(call(str(number))) for number in range(AHEAD + 2)]
    pool.refuse(cancel=True)
    assert [future.cancelled() for future in futures] == [False] * AHEAD + [True] * 2
    for number in range(AHEAD):
        agents.answer(str(number), number)
    pool.wait()
    assert agents.under_way() == []


OPENED: list[str] = []


class Witness:
    """Notes where its pickle is opened, as code of an agent would."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return _opened, ("opened",)


def _opened(what: str) -> None:
    OPENED.append(what)


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("direct", [False, True])
def test_no_pickle_of_an_agent_that_joined_is_opened(direct: bool, joined: bool) -> None:
    agents, pool = pool_of(1)
    agents.joined = {1} if joined else set()
    OPENED.clear()

    def submit(name: str) -> Future[Any]:
        wanted = msgspec.structs.replace(call(name), pickles=True)
        return pool.ask([1], wanted)[1] if direct else pool.submit(wanted)

    result, failure = submit("result"), submit("failure")
    data = pickle.dumps(Witness())
    agents.answer("result", values.Pickled(data))
    error = UserCodeError("no")
    error.exception = pickle.dumps((data, b"", {}))
    agents.fail("failure", error)
    assert isinstance(failure.exception(0), UserCodeError)
    if joined:
        with pytest.raises(DataValueError, match="has joined by an invitation"):
            result.result(0)
        assert not OPENED
    else:
        result.result(0)
        assert OPENED == ["opened"] * 2
