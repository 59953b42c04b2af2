import contextlib
import threading
from collections.abc import Iterator

import pytest

from sapwood.core.errors import ClosedError, SapwoodError
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


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
def test_the_loop_continues_after_whatever_a_callback_raises(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    thread = LoopThread("test-loop")
    thread.start()

    def fail() -> None:
        raise kind("no")

    failed: list[SapwoodError] = []
    thread.post(fail)
    thread.post_for(failed.append, fail)
    assert thread.call(lambda: 1) == 1
    thread.stop()
    assert caplog.text.count(f"{kind.__name__}: no") == 2
    assert "in fail" in caplog.text
    (error,) = failed
    assert (error.code, error.what) == ("SW900", f"{kind.__name__}: no")
    assert "in fail" in error.details["traceback"]
    assert capfd.readouterr() == ("", "")


def test_a_handler_of_a_failure_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    thread = LoopThread("test-loop")
    thread.start()

    def fail(*_args: object) -> None:
        raise ValueError("no")

    thread.post_for(fail, fail)
    assert thread.call(lambda: 1) == 1
    thread.stop()
    assert "the handler of the failure of a callback of 'test-loop' failed" in caplog.text


def test_a_loop_that_cannot_continue_refuses_what_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A caller does not wait for a thread that has ended."""
    failures: list[SapwoodError] = []
    thread = LoopThread("test-loop", failures.append)
    thread.start()

    def broken() -> float:
        raise OSError("no such descriptor")

    thread.call(setattr, thread.loop, "_patience", broken)
    with contextlib.suppress(ClosedError):
        while True:  # until the thread has noticed
            thread.call(lambda: 1)
    thread.stop()
    assert "the event loop of 'test-loop' failed" in caplog.text
    (failure,) = failures
    assert (failure.code, failure.what) == ("SW900", "OSError: no such descriptor")
