"""Unexpected exceptions: the log, the error that callers get, and threads."""

from __future__ import annotations

import contextlib
import threading

import pytest

from sapwood.core.errors import DataError, InternalError, SapwoodError, invariant
from sapwood.core.failures import as_error, fail, failing, log_failure, start_thread

TIMEOUT = 30.0


class OddError(Exception):
    """Does something else when it is printed or looked at."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


class OdderError(OddError):
    """Ends the process when it is printed."""

    def __str__(self) -> str:
        raise SystemExit(3)


@pytest.mark.parametrize("kind", [OddError, OdderError])
def test_whatever_an_exception_does_when_printed_it_is_an_error_and_in_the_log(
    kind: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    try:
        raise kind
    except kind as exception:
        error = as_error(exception, "a wave")
        log_failure("a wave", exception)
    assert isinstance(error, InternalError)
    assert (error.what, error.where) == (f"{kind.__name__}: (its text cannot be made)", "a wave")
    assert "test_whatever_an_exception_does" in error.details["traceback"]
    assert "a wave failed" in caplog.text
    assert kind.__name__ in caplog.text


def test_an_error_of_sapwood_stays_what_it_is() -> None:
    error = DataError("no rows")
    assert as_error(error, "reading") is error


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, OddError])
def test_a_thread_fails_its_waiters_whatever_it_raises(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    failed: list[SapwoodError] = []
    over = threading.Event()

    def work(what: str) -> None:
        raise kind(what)

    def tell(error: SapwoodError) -> None:
        failed.append(error)
        over.set()

    start_thread("test-thread", work, "no", failed=tell).join()
    assert over.wait(TIMEOUT)
    assert failed[0].what.startswith(kind.__name__)
    assert "thread 'test-thread' failed" in caplog.text
    assert capfd.readouterr() == ("", "")


def test_who_fails_the_waiters_may_fail_too(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_error: SapwoodError) -> None:
        raise ValueError("no")

    fail("a request", broken, SapwoodError("lost"))
    assert "the handler of the failure of a request failed" in caplog.text


@pytest.mark.parametrize(
    ("raised", "code", "is_logged"),
    [(SapwoodError("lost"), "SW000", False), (KeyError("x"), "SW900", True)],
)
def test_what_is_raised_is_given_to_who_waits(
    raised: Exception, code: str, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[SapwoodError] = []

    def work() -> None:
        raise raised

    with failing("request 'ping'", errors.append):
        work()
    assert [error.code for error in errors] == [code]
    assert ("request 'ping' failed" in caplog.text) is is_logged


def test_an_interrupt_is_not_an_answer() -> None:
    errors: list[SapwoodError] = []
    with contextlib.suppress(KeyboardInterrupt), failing("request 'ping'", errors.append):
        raise KeyboardInterrupt
    assert errors == []


def test_what_must_hold_is_an_error_of_sapwood_itself() -> None:
    invariant([1], "there is one")
    with pytest.raises(InternalError, match="violated: there is one"):
        invariant([], "there is one")
