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


def entering(gate: ByteLimiter, nbytes: int, failures: list[Exception]) -> threading.Thread:
    def enter() -> None:
        try:
            gate.enter(nbytes)
        except ClosedError as error:
            failures.append(error)

    thread = threading.Thread(target=enter, daemon=True)
    thread.start()
    return thread


@pytest.fixture
def gate() -> Iterator[ByteLimiter]:
    thread = LoopThread("none")
    yield ByteLimiter(LIMIT, thread)
    thread.stop()


def test_one_is_always_let_in(gate: ByteLimiter) -> None:
    gate.enter(100 * LIMIT)
    assert gate.inside == 100 * LIMIT + ENTRY_COST


def test_who_comes_over_the_limit_waits_until_others_have_left(gate: ByteLimiter) -> None:
    gate.enter(LIMIT // 2)
    thread = entering(gate, LIMIT // 2, [])
    until(lambda: gate.waiting == 1)
    assert gate.inside == LIMIT // 2 + ENTRY_COST
    gate.leave(LIMIT // 2)
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert gate.inside == LIMIT // 2 + ENTRY_COST


def test_those_who_wait_fail_when_it_closes(gate: ByteLimiter) -> None:
    gate.enter(LIMIT)
    failures: list[Exception] = []
    threads = [entering(gate, 1, failures) for _ in range(3)]
    until(lambda: gate.waiting == 3)
    gate.close(ClosedError("over"))
    for thread in threads:
        thread.join(PATIENCE)
    assert len(failures) == 3
    assert gate.inside == LIMIT + ENTRY_COST


def test_many_threads_never_hold_more_than_the_limit(gate: ByteLimiter) -> None:
    seen: list[int] = []

    def work() -> None:
        for _ in range(200):
            gate.enter(2 * ENTRY_COST)
            seen.append(gate.inside)
            gate.leave(2 * ENTRY_COST)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert max(seen) <= LIMIT
    assert gate.inside == gate.waiting == 0


def test_the_loops_own_thread_never_waits() -> None:
    thread = LoopThread("loop")
    thread.start()
    gate = ByteLimiter(LIMIT, thread)
    gate.enter(LIMIT)
    thread.call(gate.enter, LIMIT)
    assert gate.inside == 2 * (LIMIT + ENTRY_COST)
    thread.stop()
