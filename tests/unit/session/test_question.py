"""The answer to a request: who takes it, and that it is there once."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from typing import Any

import pytest

from sapwood.comm import values
from sapwood.core.errors import ProtocolError, SapwoodError
from sapwood.session.question import Answer, Question


def question() -> Question:
    nothing = values.encode(None)
    return Question(1, "ping", 7, nothing.body, nothing, Answer())


def test_who_waits_takes_it() -> None:
    answer, waited = Answer(), list[float | None]()

    def take(timeout: float | None) -> None:
        waited.append(timeout)
        answer.set_result(5)

    answer.taken_by(take)
    before = answer.awaited
    assert answer.result(3.0) == 5
    assert answer.exception() is None
    assert (before, answer.awaited) == (False, True)
    assert waited == [3.0]


def test_what_is_not_taken_is_waited_for_as_long_as_is_left() -> None:
    answer = Answer()
    answer.taken_by(lambda timeout: threading.Event().wait(timeout))
    with pytest.raises(TimeoutError):
        answer.result(0.01)
    with pytest.raises(TimeoutError):  # taken once only
        answer.exception(0.01)


def test_who_wants_to_be_called_does_not_take_it() -> None:
    answer, called = Answer(), list[Future[Any]]()
    answer.taken_by(lambda _: pytest.fail("taken"))
    answer.add_done_callback(called.append)
    other = threading.Timer(0.0, answer.set_result, [5])
    other.start()
    assert answer.result(60.0) == 5
    other.join()  # it wakes who waits before it calls
    assert called == [answer]


def test_whoever_waits_for_several_leaves_them_to_the_loop() -> None:
    answer = Answer()
    answer.taken_by(lambda _: pytest.fail("taken"))
    threading.Timer(0.0, answer.set_result, [5]).start()
    assert wait([answer], 60.0).done == {answer}
    assert not answer.awaited


def test_a_question_is_answered_once() -> None:
    asked = question()
    encoded = values.encode({"x": 3})
    asked.answered(encoded.body, None, None)()
    asked.answered(values.encode(4).body, None, None)()
    asked.end(None, SapwoodError("too late"))
    assert asked.future.result() == {"x": 3}


def test_an_error_is_told_as_what_it_was() -> None:
    asked = question()
    asked.answered(b"", None, ProtocolError("no such thing", hint="look").to_record())()
    error = asked.future.exception()
    assert isinstance(error, ProtocolError)
    assert (error.what, error.hint) == ("no such thing", "look")


def test_what_cannot_be_read_is_an_error() -> None:
    asked = question()
    asked.answered(b"\xc1", None, None)()
    assert isinstance(asked.future.exception(), SapwoodError)
