"""Calls of programs that never return: interrupted, or left alone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from sapwood.core.errors import TimeLimitError
from sapwood_lizard import patience
from sapwood_lizard.patience import left_alone, noted, overseen

SOON = 0.05
PATIENCE = 30.0


def for_ever() -> None:
    with noted("update_global_state"):
        while True:
            with contextlib.suppress(Exception):  # as careless programs do
                sum(range(100))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(patience, "LOOK", 0.01)
    monkeypatch.setattr(patience, "GIVEN_UP_AFTER", SOON)
    yield
    assert not left_alone()


def test_what_returns_is_returned_and_what_is_raised_is_raised(quick: None) -> None:
    del quick
    assert overseen(lambda: 3, lambda: SOON) == 3
    with pytest.raises(ZeroDivisionError):
        overseen(lambda: 1 // 0, lambda: SOON)


def test_only_calls_of_programs_are_limited(quick: None) -> None:
    del quick
    waited = threading.Event()
    timer = threading.Timer(3 * SOON, waited.set)
    timer.start()
    assert overseen(lambda: waited.wait(PATIENCE), lambda: SOON)
    timer.join()


def test_a_loop_is_interrupted_though_the_program_catches_all_exceptions(quick: None) -> None:
    del quick
    with pytest.raises(TimeLimitError, match=r"update_global_state did not return within 0\.05 s"):
        overseen(for_ever, lambda: SOON)


def test_a_call_in_another_thread_counts_too(quick: None) -> None:
    del quick

    def begin() -> None:
        thread = threading.Thread(target=looping)
        thread.start()
        thread.join()
        raise ended[0]

    ended: list[BaseException] = []

    def looping() -> None:
        try:
            for_ever()
        except BaseException as error:  # noqa: BLE001 - what a run does with it
            ended.append(error)

    with pytest.raises(TimeLimitError, match="update_global_state"):
        overseen(begin, lambda: SOON)


def test_what_does_not_notice_is_left_alone_and_nobody_waits_for_it(quick: None) -> None:
    del quick
    go, over = threading.Event(), threading.Event()

    def waits() -> None:
        with noted("aggregate"):
            go.wait(PATIENCE)  # in C: nothing interrupts it
        over.set()  # not reached: the exception is raised when it comes back

    with pytest.raises(TimeLimitError, match="aggregate did not return"):
        overseen(waits, lambda: SOON)
    assert left_alone()
    assert overseen(lambda: 4, lambda: SOON) == 4, "and the next one is done"
    go.set()
    for thread in threading.enumerate():
        if thread.name == "sapwood-overseen":
            thread.join(PATIENCE)
    assert not over.is_set()
