"""Futures that are cancelled at any moment, and whose callbacks do anything."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, wait
from functools import partial
from typing import Any

import pytest

from sapwood.core import futures
from sapwood.core.errors import SapwoodError
from sapwood.core.futures import CallerFuture, be_loop_thread, when_done
from sapwood.core.request import Request

PATIENCE = 10.0


@pytest.fixture(autouse=True)
def ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(futures, "IDLE", 0.0)


def on_loop(function: Callable[[], Any]) -> Any:
    """Call a function on a thread that counts as the thread of an event loop."""
    answer: Future[Any] = Future()

    def work() -> None:
        be_loop_thread()
        try:
            answer.set_result(function())
        except BaseException as error:  # noqa: BLE001 - for the test
            answer.set_exception(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(PATIENCE)
    return answer.result(0)


@pytest.mark.parametrize("complete", ["set_result", "set_exception"])
def test_a_future_that_was_cancelled_is_completed_without_an_error(complete: str) -> None:
    future: CallerFuture[Any] = CallerFuture()
    assert future.cancel()
    getattr(future, complete)(ValueError("late") if complete == "set_exception" else 7)
    assert wait([future], PATIENCE).done == {future}  # waiting threads are notified
    with pytest.raises(CancelledError):
        future.result()


def test_a_future_is_completed_once() -> None:
    future: CallerFuture[int] = CallerFuture()
    future.set_result(1)
    future.set_exception(ValueError("late"))
    future.set_result(2)
    assert future.result() == 1


@pytest.mark.parametrize("problem", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
@pytest.mark.slow
def test_what_a_callback_raises_ends_nothing(problem: type[BaseException]) -> None:
    future: CallerFuture[int] = CallerFuture()
    called = threading.Event()

    def fail(_future: Any) -> None:
        raise problem

    future.add_done_callback(fail)
    future.add_done_callback(lambda _: called.set())
    on_loop(lambda: future.set_result(1))
    assert called.wait(PATIENCE)
    late: list[int] = []
    future.add_done_callback(fail)  # it is done: called here, and no error either
    future.add_done_callback(lambda done: late.append(done.result()))
    assert late == [1]


def test_a_callback_may_wait_while_the_loop_goes_on() -> None:
    first: CallerFuture[int] = CallerFuture()
    second: CallerFuture[int] = CallerFuture()
    got: Future[int] = Future()
    first.add_done_callback(lambda _: got.set_result(second.result(PATIENCE)))

    def complete() -> None:
        first.set_result(1)
        second.set_result(2)  # the loop is not held up by the callback of the first

    on_loop(complete)
    assert got.result(PATIENCE) == 2


def test_callbacks_come_in_order_on_another_thread_than_the_loop() -> None:
    future: CallerFuture[int] = CallerFuture()
    called: list[tuple[int, str]] = []
    done = threading.Event()

    def note(number: int, _future: Any) -> None:
        called.append((number, threading.current_thread().name))

    for number in range(20):
        future.add_done_callback(partial(note, number))
    future.add_done_callback(lambda _: done.set())
    on_loop(lambda: future.set_result(1))
    assert done.wait(PATIENCE)
    assert called == [(number, "sapwood-callbacks") for number in range(20)]


@pytest.mark.parametrize("blocked", [1, 3])
def test_callbacks_may_wait_for_later_ones(monkeypatch: pytest.MonkeyPatch, blocked: int) -> None:
    monkeypatch.setattr(futures, "BLOCKED", 0.01)
    opened, returned = threading.Event(), threading.Semaphore(0)

    def wait_for_last() -> None:
        assert opened.wait(PATIENCE)
        returned.release()

    def call() -> None:
        for _ in range(blocked):
            futures.dispatch(wait_for_last)
        futures.dispatch(opened.set)

    on_loop(call)
    for _ in range(blocked):
        assert returned.acquire(timeout=PATIENCE)
    called: list[int] = []
    done = threading.Event()

    def call_again() -> None:
        for number in range(20):
            futures.dispatch(called.append, number)
        futures.dispatch(done.set)

    on_loop(call_again)
    assert done.wait(PATIENCE)
    assert called == list(range(20))  # one after the other again


def test_callbacks_that_never_return_take_a_bounded_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(futures, "BLOCKED", 0.001)
    monkeypatch.setattr(futures, "MAX_BLOCKED", 3)
    gate, begun, over = threading.Event(), threading.Semaphore(0), threading.Semaphore(0)

    def block() -> None:
        begun.release()
        assert gate.wait(PATIENCE)
        over.release()

    def call() -> None:
        for _ in range(10):
            futures.dispatch(block)

    on_loop(call)
    for _ in range(4):
        assert begun.acquire(timeout=PATIENCE)
    assert not begun.acquire(timeout=0.1)
    gate.set()
    for _ in range(10):
        assert over.acquire(timeout=PATIENCE)


def test_callbacks_of_sapwood_are_called_where_the_future_is_completed() -> None:
    future: CallerFuture[int] = CallerFuture()
    threads: list[threading.Thread] = []
    when_done(future, lambda _: threads.append(threading.current_thread()))

    def complete() -> threading.Thread:
        future.set_result(1)
        return threading.current_thread()

    thread = on_loop(complete)
    assert threads == [thread]


@pytest.mark.parametrize("ask", ["result", "exception"])
def test_an_event_loop_cannot_wait(ask: str) -> None:
    future: CallerFuture[int] = CallerFuture()
    with pytest.raises(SapwoodError, match="own thread cannot wait"):
        on_loop(getattr(future, ask))
    future.set_result(1)
    on_loop(getattr(future, ask))  # it need not wait


def test_asyncio_waits_for_such_a_future_and_may_give_up() -> None:
    async def main() -> None:
        late: CallerFuture[int] = CallerFuture()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(late), 0.01)
        assert late.cancelled()
        on_loop(lambda: late.set_result(1))
        early: CallerFuture[int] = CallerFuture()
        wrapped = asyncio.wrap_future(early)
        on_loop(lambda: early.set_result(2))
        assert await asyncio.wait_for(wrapped, PATIENCE) == 2

    asyncio.run(main())


def test_what_on_progress_raises_stops_no_message() -> None:
    request = Request()
    seen: list[tuple[int, int]] = []
    done = threading.Event()

    def fail(_arrived: int, _total: int) -> None:
        raise ZeroDivisionError

    request.on_progress(fail)
    request.on_progress(lambda arrived, total: seen.append((arrived, total)))
    request.add_done_callback(lambda _: done.set())

    def move() -> None:
        request.moved(1, 2)
        request.set_result(7)

    on_loop(move)
    assert done.wait(PATIENCE)
    assert (request.result(0), seen) == (7, [(1, 2), (2, 2)])
