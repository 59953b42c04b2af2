"""Ctrl-C and SIGTERM: noted while a run is followed, never raised while a lock is held."""

import signal
from queue import SimpleQueue

import pytest

from sapwood.cli.interrupts import (
    answered_quits,
    forwarded_interrupts,
    noted_interrupts,
    termination_interrupts,
)

SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_is_noted_and_the_second_raises(number: signal.Signals) -> None:
    with noted_interrupts() as interrupted:
        assert not interrupted()
        signal.raise_signal(number)
        assert interrupted()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)


def test_the_handlers_are_given_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with noted_interrupts():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before
    with termination_interrupts():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_what_is_ignored_stays_ignored() -> None:
    """A command that a shell put into the background does not end at another one's Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with noted_interrupts() as interrupted:
            signal.raise_signal(signal.SIGINT)
            assert not interrupted()
    finally:
        signal.signal(signal.SIGINT, before)


def test_sigterm_interrupts() -> None:
    with termination_interrupts(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_is_forwarded_and_the_second_raises(number: signal.Signals) -> None:
    heard: SimpleQueue[int] = SimpleQueue()
    before = [signal.getsignal(one) for one in SIGNALS]
    with forwarded_interrupts(heard.put):
        signal.raise_signal(number)
        assert heard.get(timeout=30) == number
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert heard.empty()
    assert [signal.getsignal(one) for one in SIGNALS] == before


def test_a_block_that_continues_after_sigterm_is_interrupted() -> None:
    heard: SimpleQueue[int] = SimpleQueue()
    forever: SimpleQueue[None] = SimpleQueue()

    def wait_after_sigterm() -> None:
        with forwarded_interrupts(heard.put, grace=0.01):
            signal.raise_signal(signal.SIGTERM)
            forever.get(timeout=30)

    with pytest.raises(KeyboardInterrupt):
        wait_after_sigterm()
    assert heard.get(timeout=30) == signal.SIGTERM


def test_a_block_that_ends_after_sigterm_is_not_interrupted() -> None:
    heard: SimpleQueue[int] = SimpleQueue()
    with forwarded_interrupts(heard.put, grace=60.0):
        signal.raise_signal(signal.SIGTERM)
        assert heard.get(timeout=30) == signal.SIGTERM


def test_each_quit_is_answered_and_ends_nothing() -> None:
    heard: SimpleQueue[str] = SimpleQueue()
    before = signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # ignored where a shell began the tests
    try:
        with answered_quits(lambda: heard.put("stacks")):
            for _ in range(3):
                signal.raise_signal(signal.SIGQUIT)
                assert heard.get(timeout=30) == "stacks"
        assert signal.getsignal(signal.SIGQUIT) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGQUIT, before)
    assert heard.empty()


def test_a_quit_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    try:
        with answered_quits(lambda: 1 / 0):
            signal.raise_signal(signal.SIGQUIT)
            assert signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGQUIT, before)
