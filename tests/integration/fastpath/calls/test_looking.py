"""A runner looks for the next call before it sleeps, where the last one came as soon."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.code.test_native_map import Slice
from tests.integration.fastpath.calls.serving import PATIENCE, Served

SOURCE = """
// @array weights[k]
// @array sums[k]
void f(const double *weights, long k, double *sums) {
  for (long c = 0; c < k; c++) sums[c] = weights[c];
}
"""
CALLS = 20
"""Of which most are made without Python."""

Serve = Callable[[float], Served]


@pytest.fixture
def serve(opened: Any) -> Iterator[Serve]:
    """Return a function that has a runner serve calls, one after the other so far."""
    running: list[Served] = []

    def start(spin: float) -> Served:
        program = opened(SOURCE, map="native('f')", inputs=(), reduce={"sums": "sum"})
        running.append(Served(program, Slice(0, 1, {}), spin=spin))
        for number in range(CALLS):
            ask(running[-1], number + 1)
        assert running[-1].by_python < CALLS
        return running[-1]

    yield start
    for served in running:
        assert served.end() == 0


def ask(served: Served, number: int) -> None:
    assert served.ask({"weights": np.array([number, 0.5])})["sums"].tolist() == [number, 0.5]


def sleeps(served: Served) -> bool:
    return Path(f"/proc/{served.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def wait_for_sleep(served: Served) -> float:
    """Wait until it sleeps; return the seconds that it has been at work in all."""
    deadline = time.monotonic() + PATIENCE
    while not sleeps(served):
        assert time.monotonic() < deadline
    return int(Path(f"/proc/{served.pid}/schedstat").read_text().split()[0]) / 1e9


def test_it_is_awake_while_it_looks(serve: Serve) -> None:
    served = serve(3600.0)
    assert not any(sleeps(served) for _ in range(1000))
    ask(served, 100)


def test_it_sleeps_when_it_has_looked_for_long_enough(serve: Serve) -> None:
    served = serve(0.05)
    wait_for_sleep(served)
    ask(served, 100)


def test_it_sleeps_at_once_when_the_last_call_came_late(serve: Serve) -> None:
    served = serve(0.5)
    answered = time.monotonic()
    before = wait_for_sleep(served)
    while time.monotonic() - answered < 0.5:  # it did not look: a call of ours came late before
        time.sleep(0.002)
    ask(served, 100)
    assert wait_for_sleep(served) - before < 0.25


def test_it_sleeps_at_once_when_it_is_not_to_look(serve: Serve) -> None:
    served = serve(0.0)
    before = wait_for_sleep(served)
    for number in range(CALLS):
        ask(served, number)
        wait_for_sleep(served)
    assert wait_for_sleep(served) - before < 0.25
