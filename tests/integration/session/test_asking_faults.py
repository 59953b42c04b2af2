"""Requests whose answers callers take themselves, when something strikes in a bad moment."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
import pytest

from sapwood.comm.link import LinkTiming
from sapwood.core.errors import ClosedError
from sapwood.session import question, questions
from sapwood.session.express import asking, library
from sapwood.session.express.library import READY
from sapwood.session.session import Session

MakeSession = Callable[..., Session]
Until = Callable[[Callable[[], object]], None]
FlowTo = Callable[[Session, int], None]
Begin = Callable[[Session, Any], Future[Any]]

TIMEOUT = 60.0
LAZY = LinkTiming(heartbeat=600.0, failure_after=6000.0)
"""No tick helps who waits."""
STRUCK = {module.__file__ for module in (asking, library, question, questions)}
"""Where Ctrl-C strikes."""
STANDING = {"agents": 1, "exchanges": True, "awake": 0.001, "timing": LAZY}
BYTECODES = 550
"""Executed there for a request, about."""


@pytest.fixture
def begin(flow_to: FlowTo, until: Until) -> Begin:
    """Ask an agent, which is stopped; who waits is to take the answer."""

    def begun(session: Session, value: Any) -> Future[Any]:
        asked: list[Future[Any]] = []

        def begins() -> bool:
            flow_to(session, 1)
            until(partial(is_ready, session))
            stop(session)
            asked.append(session.ask(1, "ping", value))
            if not asked[-1]._take:  # type: ignore[attr-defined]  # it went the common way
                go_on(session)
                asked[-1].result(TIMEOUT)
            return bool(asked[-1]._take)  # type: ignore[attr-defined]

        until(begins)
        return asked[-1]

    return begun


def is_ready(session: Session) -> bool:
    """Whether the next request can be exchanged; where not, ask one."""
    assert session.express._library is not None
    if session.express._library.memory.state == READY:
        return True
    return session.ask(1, "ping", None).result(TIMEOUT) is not None


def stop(session: Session) -> None:
    os.kill(session.keeper.places[1].pid, signal.SIGSTOP)


def go_on(session: Session) -> None:
    os.kill(session.keeper.places[1].pid, signal.SIGCONT)


def test_an_answer_is_not_read_where_the_next_one_arrives(
    standing: Session, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = standing
    mine, others = begin(session, "mine"), list[Future[Any]]()
    go_on(session)
    library = session.express._library
    assert library is not None
    wait = library.wait

    def waited(owner: int, milliseconds: int) -> int:
        count = wait(owner, milliseconds)
        monkeypatch.setattr(library, "wait", wait)
        # Another thread makes the event loop take the answer, and asks something else.
        other = threading.Thread(target=lambda: others.append(begin(session, "other")))
        other.start()
        other.join(TIMEOUT)
        return count

    monkeypatch.setattr(library, "wait", waited)
    assert mine.result(TIMEOUT) == "mine"
    go_on(session)
    assert others[0].result(TIMEOUT) == "other"


def test_requests_of_a_callback_keep_their_order(
    standing: Session, flow_to: FlowTo, until: Until
) -> None:
    session = standing
    for _ in range(5):
        flow_to(session, 1)
        done: list[int] = []
        future = session.ask(1, "ping", 0)
        future.add_done_callback(partial(_ask_more, session, done))
        future.result(TIMEOUT)
        until(lambda done=done: len(done) == 3)  # type: ignore[misc]
        assert done == [0, 1, 2]


def _ask_more(session: Session, done: list[int], _answer: Future[Any]) -> None:
    for at, value in enumerate((np.zeros(3000), 1, 2)):  # the first one goes the common way
        session.ask(1, "ping", value).add_done_callback(partial(_note, done, at))


def _note(done: list[int], at: int, _answer: Future[Any]) -> None:
    done.append(at)


def test_arrays_that_do_not_travel_in_the_message_are_shared(
    make: MakeSession, flow_to: FlowTo, until: Until
) -> None:
    session = make(1, inline_limit=16)
    for number in range(5):
        flow_to(session, 1)
        until(partial(is_ready, session))
        stop(session)
        future = session.ask(1, "ping", np.full(100, number))
        session.on_loop(int)  # the event loop takes over what is under way
        go_on(session)
        assert (future.result(TIMEOUT) == number).all()


@pytest.mark.parametrize("timeout", [0, -1, -1e300, -math.inf, math.nan])
def test_who_has_no_time_does_not_wait(standing: Session, begin: Begin, timeout: float) -> None:
    session = standing
    future = begin(session, 3)
    with pytest.raises(TimeoutError):
        future.result(timeout)
    go_on(session)
    assert future.result(TIMEOUT) == 3


def test_who_has_much_time_waits(standing: Session, begin: Begin) -> None:
    session = standing
    for timeout in (1e300, math.inf):
        future = begin(session, 3)
        go_on(session)
        assert future.result(timeout) == 3


def test_who_asks_while_the_loop_ends_hears_of_it(make: MakeSession) -> None:
    session, asked = make(1), list[Future[Any]]()

    def ask_and_stop() -> None:
        asking = threading.Thread(target=lambda: asked.append(session.ask(1, "ping", 1)))
        asking.start()
        asking.join()
        session._thread.loop.stop()

    closed = session.keeper.close

    def close() -> None:
        closed()
        session.on_loop(ask_and_stop)

    session.keeper.close = close  # type: ignore[method-assign]
    session.close()
    with pytest.raises(ClosedError):
        asked[0].result(TIMEOUT)


def test_ctrl_c_may_strike_anywhere(make: MakeSession, flow_to: FlowTo, until: Until) -> None:
    session = make(1, timing=LinkTiming(heartbeat=0.05))
    strikes = 0
    for number in range(0, BYTECODES, 17):
        flow_to(session, 1)
        until(partial(is_ready, session))
        future = None
        sys.settrace(partial(_strike, [number]))
        try:
            future = session.ask(1, "ping", number)
            future.result(TIMEOUT)
        except KeyboardInterrupt:
            strikes += 1
        finally:
            sys.settrace(None)
        assert future is None or future.result(TIMEOUT) == number
        assert session.ask(1, "ping", "more").result(TIMEOUT) == "more"
    assert strikes > 10
    flow_to(session, 1)
    until(lambda: not session.express.asking._begun)


def _strike(left: list[int], frame: FrameType, event: str, _what: Any) -> Any:
    """Trace what runs; raise KeyboardInterrupt after so many bytecodes."""
    if frame.f_code.co_filename not in STRUCK:
        return None
    frame.f_trace_opcodes = True
    if event == "opcode":
        left[0] -= 1
        if left[0] < 0:
            sys.settrace(None)
            raise KeyboardInterrupt
    return partial(_strike, left)
