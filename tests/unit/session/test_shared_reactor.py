import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from sapwood.core.errors import ClosedError
from sapwood.session.shared_reactor import SharedReactor

PATIENCE = 30.0


@pytest.fixture
def reactor() -> Iterator[SharedReactor]:
    reactor = SharedReactor()
    yield reactor
    reactor.close()


def test_what_was_given_before_the_start_happens(reactor: SharedReactor) -> None:
    seen: list[int] = []
    reactor.call_soon_threadsafe(seen.append, 1)
    reactor.call_soon_threadsafe(reactor.stop)
    reactor.run()
    assert seen == [1]


def test_a_loop_that_sleeps_is_woken(reactor: SharedReactor) -> None:
    thread = threading.Thread(target=reactor.run)
    thread.start()
    for _ in range(200):
        done = threading.Event()
        reactor.call_soon_threadsafe(done.set)
        assert done.wait(PATIENCE)
    reactor.call_soon_threadsafe(reactor.stop)
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_all_threads_are_heard_and_each_in_its_order(reactor: SharedReactor) -> None:
    seen: list[tuple[int, int]] = []
    loop = threading.Thread(target=reactor.run)
    loop.start()

    def give(who: int) -> None:
        for number in range(500):
            reactor.call_soon_threadsafe(seen.append, (who, number))

    givers = [threading.Thread(target=give, args=(who,)) for who in range(4)]
    for giver in givers:
        giver.start()
    for giver in givers:
        giver.join(PATIENCE)
    reactor.call_soon_threadsafe(reactor.stop)
    loop.join(PATIENCE)
    for who in range(4):
        assert [number for giver, number in seen if giver == who] == list(range(500))


def test_what_is_given_by_what_was_given_happens_too(reactor: SharedReactor) -> None:
    seen: list[str] = []

    def first() -> None:
        reactor.call_soon_threadsafe(second)

    def second() -> None:
        seen.append("second")
        reactor.stop()

    reactor.call_soon_threadsafe(first)
    reactor.run()
    assert seen == ["second"]


def test_what_is_given_when_the_loop_ends_happens(reactor: SharedReactor) -> None:
    seen: list[str] = []

    def give_and_stop() -> None:
        giver = threading.Thread(target=reactor.call_soon_threadsafe, args=(seen.append, "x"))
        giver.start()
        giver.join()
        reactor.stop()

    reactor.call_soon_threadsafe(give_and_stop)
    reactor.run()
    reactor.close()
    assert seen == ["x"]


def test_what_is_given_while_the_loop_is_closed_happens(reactor: SharedReactor) -> None:
    seen: list[str] = []

    class Late(deque[Any]):
        """Is given things when the loop was found open and is closed meanwhile."""

        def append(self, given: Any) -> None:
            reactor.close()
            super().append(given)

    reactor._given = Late()
    reactor.call_soon_threadsafe(seen.append, "x")
    assert seen == ["x"]


def test_a_closed_loop_takes_nothing(reactor: SharedReactor) -> None:
    reactor.close()
    reactor.close()
    with pytest.raises(ClosedError):
        reactor.call_soon_threadsafe(print)


def test_what_the_loop_gives_itself_comes_after_what_others_gave(reactor: SharedReactor) -> None:
    seen: list[int] = []

    def give() -> None:
        other = threading.Thread(target=reactor.call_soon_threadsafe, args=(seen.append, 1))
        other.start()
        other.join()
        reactor.call_in_order(seen.append, 2)
        reactor.call_in_order(reactor.stop)

    reactor.call_in_order(give)
    reactor.call_in_order(seen.append, 0)
    reactor.run()
    assert seen == [0, 1, 2]
