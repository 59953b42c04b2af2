"""The event loop of agents: what it calls, when, and when it stops."""

import contextlib
import os
import socket
from collections.abc import Iterator

import pytest

from sapwood.comm.reactor import MANY_CANCELLED, Reactor


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    reactor = Reactor()
    yield reactor
    reactor.close()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.settimeout(0)
    theirs.settimeout(0)
    yield ours, theirs
    ours.close()
    theirs.close()


def test_timers_are_called_in_the_order_of_their_times(
    reactor: Reactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    with monkeypatch.context() as stopped:
        stopped.setattr("sapwood.comm.reactor.monotonic", lambda: 0.0)
        reactor.call_later(0.004, called.append, "late")
        reactor.call_later(0.002, called.append, "early")
        reactor.call_later(0.002, called.append, "as early, but later asked for")
        reactor.call_later(0.006, reactor.stop)
    reactor.run()
    assert called == ["early", "as early, but later asked for", "late"]


def test_timers_of_one_time_are_called_in_their_order(
    reactor: Reactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[int] = []
    with monkeypatch.context() as stopped:
        stopped.setattr("sapwood.comm.reactor.monotonic", lambda: 0.0)
        for number in range(4):
            reactor.call_later(0.5, called.append, number)
        reactor.call_later(0.5, reactor.stop)
    reactor.run()
    assert called == [0, 1, 2, 3]


def test_a_cancelled_timer_is_not_called(reactor: Reactor) -> None:
    called: list[int] = []
    reactor.call_later(0.001, called.append, 1).cancel()
    reactor.call_later(0.002, called.append, 2)
    reactor.call_later(0.003, reactor.stop)
    reactor.run()
    assert called == [2]


def test_a_timer_is_not_early(reactor: Reactor) -> None:
    begin = reactor.time()
    reactor.call_later(0.01, reactor.stop)
    reactor.run()
    assert reactor.time() - begin >= 0.01


def test_what_is_wanted_soon_comes_after_what_is_being_done(reactor: Reactor) -> None:
    called: list[str] = []

    def first() -> None:
        reactor.call_soon(called.append, "soon")
        reactor.call_soon(reactor.stop)
        called.append("now")

    reactor.call_soon(first)
    reactor.run()
    assert called == ["now", "soon"]


def test_a_reader_is_called_while_there_is_something_to_read(
    reactor: Reactor, ends: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = ends
    read: list[bytes] = []

    def readable() -> None:
        read.append(ours.recv(2))
        if len(read) == 2:
            reactor.stop()

    reactor.add_reader(ours.fileno(), readable)
    theirs.send(b"abc")
    reactor.run()
    assert read == [b"ab", b"c"]


def test_a_reader_hears_of_the_end(
    reactor: Reactor, ends: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = ends
    reactor.add_reader(ours.fileno(), reactor.stop)
    theirs.close()
    reactor.run()
    assert ours.recv(1) == b""


def test_a_writer_is_called_when_there_is_room(
    reactor: Reactor, ends: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = ends
    with contextlib.suppress(BlockingIOError):
        while ours.send(b"x" * 65536):
            pass
    written: list[int] = []

    def writable() -> None:
        written.append(ours.send(b"x"))
        reactor.remove_writer(ours.fileno())
        reactor.stop()

    def readable() -> None:
        theirs.recv(1 << 20)

    reactor.add_writer(ours.fileno(), writable)
    reactor.add_reader(theirs.fileno(), readable)
    reactor.run()
    assert written == [1]


def test_reader_and_writer_of_one_descriptor_are_independent(
    reactor: Reactor, ends: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = ends
    called: list[str] = []

    def writable() -> None:
        called.append("write")
        assert reactor.remove_writer(ours.fileno())
        theirs.send(b"x")

    def readable() -> None:
        called.append("read")
        reactor.stop()

    reactor.add_reader(ours.fileno(), readable)
    reactor.add_writer(ours.fileno(), writable)
    reactor.run()
    assert called == ["write", "read"]
    assert reactor.remove_reader(ours.fileno())
    assert not reactor.remove_reader(ours.fileno())


def test_a_descriptor_that_a_callback_gave_up_is_not_called_any_more(reactor: Reactor) -> None:
    pairs = [os.pipe() for _ in range(2)]
    called: list[int] = []

    def readable(number: int) -> None:
        called.append(number)
        for read, _ in pairs:
            reactor.remove_reader(read)
        reactor.call_later(0.001, reactor.stop)

    for number, (read, write) in enumerate(pairs):
        reactor.add_reader(read, lambda number=number: readable(number))  # type: ignore[misc]  # mypy infers no type for lambdas with defaults
        os.write(write, b"x")
    reactor.run()
    assert len(called) == 1
    for pair in pairs:
        for fd in pair:
            os.close(fd)


def test_a_loop_that_was_stopped_can_run_again(reactor: Reactor) -> None:
    called: list[int] = []
    for number in range(2):
        reactor.call_later(0.001, called.append, number)
        reactor.call_later(0.002, reactor.stop)
        reactor.run()
    assert called == [0, 1]


def test_what_a_callback_raises_ends_the_loop(reactor: Reactor) -> None:
    def fail() -> None:
        raise ValueError("a mistake")

    reactor.call_soon(fail)
    with pytest.raises(ValueError, match="a mistake"):
        reactor.run()


def test_what_a_callback_raises_ends_that_callback_only() -> None:
    errors: list[BaseException] = []
    reactor = Reactor(errors.append)
    called: list[str] = []

    def fail(what: str) -> None:
        raise ValueError(what)

    pairs = [socket.socketpair() for _ in range(2)]
    for number, (ours, theirs) in enumerate(pairs):  # both are ready, in one batch
        theirs.send(b"x")

        def read(ours: socket.socket = ours, number: int = number) -> None:
            ours.recv(1)
            called.append(f"read {number}")
            fail(f"reader {number}")

        reactor.add_reader(ours.fileno(), read)
    reactor.call_later(0.0, fail, "timer")
    reactor.call_soon(fail, "soon")
    reactor.call_later(0.001, reactor.stop)
    reactor.run()
    for ours, theirs in pairs:
        reactor.remove_reader(ours.fileno())
        ours.close()
        theirs.close()
    reactor.close()
    assert sorted(called) == ["read 0", "read 1"]
    assert sorted(map(str, errors)) == ["reader 0", "reader 1", "soon", "timer"]


def test_without_a_handler_of_errors_they_end_the_loop(reactor: Reactor) -> None:
    def fail() -> None:
        raise ValueError("no")

    reactor.call_soon(fail)
    reactor.call_soon(reactor.stop)
    with pytest.raises(ValueError, match="no"):
        reactor.run()
    reactor.run()


def test_a_hook_that_fails_is_used_no_more() -> None:
    errors: list[BaseException] = []
    reactor = Reactor(errors.append)

    def broken(_seconds: float) -> list[tuple[int, int]]:
        raise ValueError("no")

    reactor.idle_hook = broken
    reactor.call_later(0.001, reactor.stop)
    reactor.run()
    reactor.close()
    assert [str(error) for error in errors] == ["no"]
    assert reactor.idle_hook is None


def test_cancelled_timers_do_not_stay() -> None:
    """A time-out of minutes that is cancelled a thousand times a second is not kept for minutes."""
    reactor = Reactor()
    called: list[int] = []
    for number in range(100):
        reactor.call_later(0.001 + number * 1e-6, called.append, number)
    for _ in range(10_000):
        reactor.call_later(600.0, called.append, -1).cancel()
        assert reactor.timers < 100 + 2 * MANY_CANCELLED
    reactor.call_later(0.002, reactor.stop)
    reactor.run()
    reactor.close()
    assert called == list(range(100))


@pytest.mark.slow
def test_a_million_cancelled_timers_take_no_memory() -> None:
    reactor = Reactor()
    most = 0
    for _ in range(1_000_000):
        reactor.call_later(600.0, print).cancel()
        most = max(most, reactor.timers)
    reactor.close()
    assert most <= MANY_CANCELLED


def test_timers_may_be_cancelled_while_others_are_due(reactor: Reactor) -> None:
    called: list[int] = []
    others = [reactor.call_later(600.0, called.append, -1) for _ in range(2 * MANY_CANCELLED)]

    def cancel_all() -> None:
        for timer in others:
            timer.cancel()
            timer.cancel()  # a second time counts for nothing

    reactor.call_later(0.0, cancel_all)
    reactor.call_later(0.0, called.append, 1)
    reactor.call_later(0.001, reactor.stop)
    reactor.run()
    assert called == [1]
    assert reactor.timers < MANY_CANCELLED


def test_a_time_beyond_what_the_system_can_wait_for(reactor: Reactor) -> None:
    reactor.call_later(1e9, pytest.fail, "too early")
    reactor.add_reader(bell := os.eventfd(1), reactor.stop)
    reactor.run()
    os.close(bell)
