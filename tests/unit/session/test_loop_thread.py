import threading
from collections.abc import Iterator

import pytest

from sapwood.core.errors import ClosedError
from sapwood.session.loop_thread import LoopThread


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread("test-loop")
    thread.start()
    yield thread
    thread.stop()


def test_functions_run_on_the_loops_thread(thread: LoopThread) -> None:
    name = thread.call(lambda: threading.current_thread().name)
    assert name == "test-loop"
    assert thread.started


def test_what_is_posted_runs_in_order(thread: LoopThread) -> None:
    seen: list[int] = []
    for number in range(100):
        thread.post(seen.append, number)
    assert thread.call(lambda: list(seen)) == list(range(100))


def test_errors_come_back_to_the_caller(thread: LoopThread) -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        thread.call(fail)


def test_a_thread_that_has_ended_takes_nothing() -> None:
    thread = LoopThread("test-loop")
    thread.start()
    thread.stop()
    thread.stop()
    with pytest.raises(ClosedError):
        thread.post(print)
    assert not thread.started


def test_a_later_thread_is_not_taken_for_one_that_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = LoopThread("test-loop")
    thread.start()
    ident = thread.call(threading.get_ident)
    thread.stop()
    monkeypatch.setattr(threading, "get_ident", lambda: ident)  # systems give it away again
    with pytest.raises(ClosedError):
        thread.post(print)
    with pytest.raises(ClosedError):
        thread.call(print)
    assert not thread.is_current


def test_a_thread_that_never_started_leaves_nothing() -> None:
    LoopThread("test-loop").stop()


def test_the_loop_goes_on_after_a_mistake() -> None:
    thread = LoopThread("test-loop")
    problems: list[Exception] = []
    thread.on_error = problems.append
    thread.start()

    def fail() -> None:
        raise ValueError("no")

    thread.post(fail)
    assert thread.call(lambda: 1) == 1
    assert [str(problem) for problem in problems] == ["no"]
    thread.stop()
