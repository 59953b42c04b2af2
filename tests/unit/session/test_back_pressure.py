from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from sapwood.core.errors import ClosedError
from sapwood.session.back_pressure import ENTRY_COST, ByteLimiter
from sapwood.session.loop_thread import LoopThread

LIMIT = 10 * ENTRY_COST
PATIENCE = 60.0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def entering(limiter: ByteLimiter, nbytes: int, failures: list[Exception]) -> threading.Thread:
    def enter() -> None:
        try:
            limiter.enter(nbytes)
        except ClosedError as error:
            failures.append(error)

    thread = threading.Thread(target=enter, daemon=True)
    thread.start()
    return thread


@pytest.fixture
def limiter() -> Iterator[ByteLimiter]:
    thread = LoopThread("none")
    yield ByteLimiter(LIMIT, thread)
    thread.stop()


def test_one_is_always_let_in(limiter: ByteLimiter) -> None:
    limiter.enter(100 * LIMIT)
    assert limiter.inside == 100 * LIMIT + ENTRY_COST


def test_who_comes_over_the_limit_waits_until_others_have_left(limiter: ByteLimiter) -> None:
    limiter.enter(LIMIT // 2)
    thread = entering(limiter, LIMIT // 2, [])
    until(lambda: limiter.waiting == 1)
    assert limiter.inside == LIMIT // 2 + ENTRY_COST
    limiter.leave(LIMIT // 2)
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert limiter.inside == LIMIT // 2 + ENTRY_COST


def test_those_who_wait_fail_when_it_closes(limiter: ByteLimiter) -> None:
    limiter.enter(LIMIT)
    failures: list[Exception] = []
    threads = [entering(limiter, 1, failures) for _ in range(3)]
    until(lambda: limiter.waiting == 3)
    limiter.close(ClosedError("over"))
    for thread in threads:
        thread.join(PATIENCE)
    assert len(failures) == 3
    assert limiter.inside == LIMIT + ENTRY_COST


def test_many_threads_never_hold_more_than_the_limit(limiter: ByteLimiter) -> None:
    seen: list[int] = []

    def work() -> None:
        for _ in range(200):
            limiter.enter(2 * ENTRY_COST)
            seen.append(limiter.inside)
            limiter.leave(2 * ENTRY_COST)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert max(seen) <= LIMIT
    assert limiter.inside == limiter.waiting == 0


def test_the_loops_own_thread_never_waits() -> None:
    thread = LoopThread("loop")
    thread.start()
    limiter = ByteLimiter(LIMIT, thread)
    limiter.enter(LIMIT)
    thread.call(limiter.enter, LIMIT)
    assert limiter.inside == 2 * (LIMIT + ENTRY_COST)
    thread.stop()


def test_a_large_value_is_not_overtaken_by_small_ones(limiter: ByteLimiter) -> None:
    limiter.enter(4 * ENTRY_COST)
    large = entering(limiter, 8 * ENTRY_COST, [])
    until(lambda: limiter.waiting == 1)
    small = [entering(limiter, ENTRY_COST, []) for _ in range(3)]  # there is room for these
    until(lambda: limiter.waiting == 4)
    limiter.leave(4 * ENTRY_COST)
    large.join(PATIENCE)
    assert limiter.inside == 9 * ENTRY_COST
    assert limiter.waiting == 3
    limiter.leave(8 * ENTRY_COST)
    for thread in small:
        thread.join(PATIENCE)
    assert limiter.inside == 3 * 2 * ENTRY_COST
    assert not limiter.waiting
