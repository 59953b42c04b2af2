"""Requests whose answers callers take themselves: the same answers, whatever comes between."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, as_completed, wait
from functools import partial
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.comm.letters.active import Active
from sapwood.comm.link import LinkTiming
from sapwood.core.errors import (
    AgentLostError,
    CancelledError,
    ClosedError,
    ProtocolError,
    UserCodeError,
)
from sapwood.session.session import Session

from .mischief import Mischief

MakeSession = Callable[..., Session]
Until = Callable[[Callable[[], object]], None]
Interrupted = Callable[[Callable[[], object], float], None]
FlowTo = Callable[[Session, int], None]

TIMEOUT = 60.0
STANDING = {"agents": 2, "exchanges": True, "awake": 0.001}
HASTY = LinkTiming(heartbeat=0.01)
"""Each place has something to say a hundred times in a second."""
LAZY = LinkTiming(heartbeat=600.0, failure_after=6000.0)
"""No tick helps who waits."""


def ping(session: Session, value: Any, rank: int = 1) -> Any:
    return session.ask(rank, "ping", value).result(TIMEOUT)


def passed(session: Session) -> int:
    return session.express.asking.passed


@pytest.mark.parametrize(("agents", "fanout"), [(1, 0), (5, 2)])
def test_they_give_what_requests_give(make: MakeSession, agents: int, fanout: int) -> None:
    session = make(agents, fanout)
    for number in range(240):
        rank = agents if number < 160 else 1
        size = 40_000 if number % 40 == 7 else 1 + 4 * number
        sent = {"x": np.full(size, float(number)), "text": "é" * (number % 9), "none": None}
        value = sent if number % 3 == 0 else number
        answer = ping(session, value, rank)
        if number % 3:
            assert answer == number
        else:
            assert (answer["x"] == number).all()
            assert answer["x"].size == size
            answer["x"][:] = 1  # it is the caller's own
            assert (answer["text"], answer["none"]) == (sent["text"], None)
    assert passed(session) > 20


def test_more_than_a_window_of_requests_pass(make: MakeSession, flow_to: FlowTo) -> None:
    session = make(1, timing=LAZY)  # receipts come of requests alone
    flow_to(session, 1)
    for number in range(4 * Active.window):
        assert ping(session, number) == number
    assert passed(session) > 100
    counted = session._place.node.letters._outboxes[0, 1]
    assert len(counted) < 2 * Active.window


def test_errors_are_told_as_always(standing: Session, flow_to: FlowTo) -> None:
    session = standing
    flow_to(session, 1)
    for number in range(50):
        with pytest.raises(ProtocolError, match="no request handler 'nobody'"):
            session.ask(1, "nobody", number).result(TIMEOUT)
        assert ping(session, number) == number
    with pytest.raises(AgentLostError, match="there is no rank 9"):
        ping(session, 1, 9)


def test_futures_are_futures(make: MakeSession, flow_to: FlowTo, until: Until) -> None:
    session = make(1, timing=LAZY)
    for number in range(20):
        flow_to(session, 1)
        future = session.ask(1, "ping", number)
        called = list[Future[Any]]()
        if number % 4 == 0:
            future.add_done_callback(called.append)
            until(partial(len, called))
        elif number % 4 == 1:
            assert wait([future], TIMEOUT).done == {future}
        elif number % 4 == 2:
            assert list(as_completed([future], TIMEOUT)) == [future]
        else:
            until(future.done)
        assert future.result(TIMEOUT) == future.result(0) == number
        assert future.exception() is None


def test_one_answer_may_be_awaited_by_several(standing: Session, flow_to: FlowTo) -> None:
    session = standing
    for number in range(15):
        flow_to(session, 1)
        future = session.ask(1, "ping", number)
        got: list[object] = []

        def take(future: Future[Any] = future, got: list[object] = got) -> None:
            got.append(future.result(TIMEOUT))

        threads = [threading.Thread(target=take) for _ in range(3)]
        for thread in threads:
            thread.start()
        take()
        for thread in threads:
            thread.join()
        assert got == [number] * 4


def test_threads_do_not_get_each_others_answers(make: MakeSession) -> None:
    session = make(2, timing=HASTY)
    stream = session.open_stream("echo", {"x": "sum"})
    wrong: list[object] = []

    def ask(start: int, rank: int) -> None:
        for number in range(start, start + 300):
            answer = ping(session, number, rank)
            if answer != number:
                wrong.append((number, answer))
            if (
                number % 60 == 0
                and stream.exchange({"x": number}, TIMEOUT).total["x"] != 2 * number
            ):
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=(1000 * at, 1 + at % 2)) for at in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_requests_of_a_thread_keep_their_order(
    standing: Session, flow_to: FlowTo, until: Until
) -> None:
    session = standing
    flow_to(session, 1)
    large = np.zeros(3000)  # goes the common way
    for number in range(80):
        asked = [session.ask(1, "ping", value) for value in (large, number, "last")]
        done: list[int] = []
        for at, future in enumerate(asked):
            future.add_done_callback(partial(_note, done, at))
        assert asked[2].result(TIMEOUT) == "last"
        assert asked[1].result(TIMEOUT) == number
        until(lambda done=done: len(done) == 3)  # type: ignore[misc]  # who waits is woken first
        assert done == [0, 1, 2]
        ping(session, 1)


def _note(done: list[int], at: int, _future: Future[Any]) -> None:
    done.append(at)


def test_what_takes_too_long_is_answered_later(standing: Session, flow_to: FlowTo) -> None:
    session = standing
    flow_to(session, 1)
    pid = session.keeper.places[1].pid
    for number in range(5):
        os.kill(pid, signal.SIGSTOP)
        future = session.ask(1, "ping", number)
        with pytest.raises(TimeoutError):
            future.result(0.02)
        with pytest.raises(TimeoutError):
            future.exception(0)
        os.kill(pid, signal.SIGCONT)
        assert future.result(TIMEOUT) == number


def test_an_interrupt_leaves_the_answer_to_the_loop(
    standing: Session, flow_to: FlowTo, interrupted: Interrupted
) -> None:
    session = standing
    pid = session.keeper.places[1].pid
    for turn in range(0, 20, 2):
        flow_to(session, 1)
        os.kill(pid, signal.SIGSTOP)
        future = session.ask(1, "ping", turn)
        with pytest.raises(KeyboardInterrupt):
            interrupted(partial(future.result, TIMEOUT), 0.001 * turn)
        os.kill(pid, signal.SIGCONT)
        assert future.result(TIMEOUT) == turn
        assert ping(session, turn) == turn


def test_closing_wakes_who_waits(make: MakeSession, flow_to: FlowTo) -> None:
    session = make(1)
    flow_to(session, 1)
    os.kill(session.keeper.places[1].pid, signal.SIGSTOP)
    future = session.ask(1, "ping", 1)
    closing = threading.Thread(target=session.close)
    closing.start()
    with pytest.raises(ClosedError):
        future.result(TIMEOUT)
    closing.join(TIMEOUT)
    with pytest.raises(ClosedError):
        ping(session, 1)


def test_what_was_taken_back_has_no_answer(standing: Session, flow_to: FlowTo) -> None:
    session = standing
    flow_to(session, 1)
    os.kill(session.keeper.places[1].pid, signal.SIGSTOP)
    future = session.ask(1, "ping", 1)
    session.questions.withdraw(future)
    with pytest.raises(CancelledError):
        future.result(TIMEOUT)
    os.kill(session.keeper.places[1].pid, signal.SIGCONT)
    assert ping(session, 2) == 2


class AskedMischief(Mischief):
    """What happens to a session that is asked: its agents have waves, too."""

    def __init__(self, session: Session, seed: int) -> None:
        super().__init__(session, seed)
        self.stream = session.open_stream("echo", {"x": "sum"})

    def happen(self) -> None:
        """Let something happen."""
        self.rng.choice([self.kill, self.cut, self.pause, self.exchange])()

    def exchange(self) -> None:
        assert self.stream.exchange({"x": 5}, TIMEOUT).total == {"x": 15}


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (2, 3))]
)
def test_whatever_comes_in_whatever_order(make: MakeSession, until: Until, seed: int) -> None:
    session = make(3, 2 * (seed % 2), timing=HASTY)
    mischief = AskedMischief(session, seed)
    open_: list[tuple[Future[Any], int]] = []

    def is_there(rank: int) -> bool:
        return session.ask(rank, "ping", None).exception(TIMEOUT) is None

    for number in range(900):
        rank = 1 + number // 50 % 3
        if mischief.rng.random() < 0.02:
            mischief.happen()
        if mischief.rng.random() < 0.02:
            open_.append((session.ask(rank, "ping", number), number))
        try:
            assert ping(session, number, rank) == number
        except AgentLostError:
            until(partial(is_there, rank))
    for future, number in open_:
        error = future.exception(TIMEOUT)
        assert error is None or isinstance(error, AgentLostError)
        assert error is not None or future.result() == number
    session.on_loop(lambda: None)
    until(lambda: not session.express.asking._begun)
    assert passed(session) > 20


def test_requests_of_a_cluster_flow(until: Until) -> None:
    with sapwood.local(agents=2) as cluster:

        def passes() -> bool:
            for number in range(40):
                assert cluster.submit_to(2, abs, -number).result(TIMEOUT) == number
            return cluster.session.express.asking.passed > 20

        until(passes)
        assert cluster.query("ping", 5).answers == {1: 5, 2: 5}
        with pytest.raises(UserCodeError, match="ZeroDivisionError"):
            cluster.submit_to(2, divmod, 1, 0).result(TIMEOUT)
