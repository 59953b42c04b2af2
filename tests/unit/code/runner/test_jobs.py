"""Calls that wait for a runner: what they need first, and how they are taken back."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from sapwood.code.runner.jobs import Preparation
from sapwood.comm import plain
from sapwood.core.errors import (
    CancelledError,
    RunnerCrashError,
    SapwoodError,
)

if TYPE_CHECKING:
    from asyncio import Future


MakeBench = Callable[..., Any]


def spin() -> None:
    while True:
        pass


# --- preparations --------------------------------------------------------------------------------


def note(value: int) -> None:
    noted: list[int] = sys.__dict__.setdefault("_noted", [])
    noted.append(value)


def notes() -> list[int]:
    noted: list[int] = sys.__dict__.get("_noted", [])
    return noted


def test_a_preparation_happens_once_in_each_runner(
    bench: Any, preparation_of: Callable[..., Preparation]
) -> None:
    bench.host.prepare("run", preparation_of(note, 5))
    assert bench.call(notes, needs="run") == [5]
    assert bench.call(notes, needs="run") == [5]
    bench.error(os.abort)
    assert bench.call(notes, needs="run") == [5]
    assert bench.call(notes) == [5]


def test_a_preparation_that_fails_fails_the_call_that_needs_it(
    bench: Any, preparation_of: Callable[..., Preparation]
) -> None:
    def fail() -> None:
        raise ValueError("not ready")

    bench.host.prepare("run", preparation_of(fail))
    for _ in range(2):
        assert bench.error(pow, 2, 2, needs="run").what == "ValueError: not ready"
    assert bench.call(pow, 2, 2) == 4


def test_a_preparation_that_crashes_fails_the_call_that_needs_it(
    bench: Any, preparation_of: Callable[..., Preparation]
) -> None:
    bench.host.prepare("run", preparation_of(os.abort))
    error = bench.error(pow, 2, 2, needs="run")
    assert isinstance(error, RunnerCrashError)
    assert "SIGABRT in the preparation" in error.what
    assert bench.call(pow, 2, 2) == 4


def test_what_was_forgotten_is_not_prepared(
    bench: Any, preparation_of: Callable[..., Preparation]
) -> None:
    bench.host.prepare("run", preparation_of(note, 5))
    bench.host.forget("run")
    assert isinstance(bench.error(pow, 2, 2, needs="run"), CancelledError)


def test_any_number_of_calls_may_wait_for_what_is_forgotten(bench: Any) -> None:
    first = bench.submit(pow, 2, 2)
    waiting = [bench.submit(pow, 2, 2, needs="run") for _ in range(2 * sys.getrecursionlimit())]
    bench.wait(first)
    assert set(codes(bench, waiting)) == {"SW205"}
    assert bench.call(pow, 2, 3) == 8


# --- cancellation --------------------------------------------------------------------------------


def codes(bench: Any, futures: list[Future[Any]]) -> list[str]:
    bench.until(lambda: all(future.done() for future in futures))
    errors = [future.exception() for future in futures]
    return [error.code if isinstance(error, SapwoodError) else "" for error in errors]


def test_cancelling_ends_what_runs_and_what_waits_and_nothing_else(bench: Any) -> None:
    bench.call(pow, 2, 2)
    futures = [
        bench.submit(spin, context="a"),
        bench.submit(pow, 2, 2, context="a"),
        bench.submit(pow, 2, 2, context="b"),
    ]
    bench.host.cancel("a")
    assert codes(bench, futures) == ["SW205", "SW205", ""]


def test_cancelling_a_context_that_only_waits_spares_what_runs(bench: Any) -> None:
    futures = [bench.submit(os.getpid, context="a"), bench.submit(pow, 2, 2, context="b")]
    bench.host.cancel("b")
    assert codes(bench, futures) == ["", "SW205"]
    assert bench.host.crashes == 0


def test_cancelling_before_the_runner_is_there_ends_it(bench: Any) -> None:
    future = bench.submit(spin, context="a")
    bench.host.cancel("a")
    assert codes(bench, [future]) == ["SW205"]
    assert bench.call(pow, 2, 2) == 4


def test_a_runner_that_is_not_needed_goes_away(make_bench: MakeBench) -> None:
    bench = make_bench(idle=0.05)
    first = int(bench.call(os.getpid))
    bench.until(lambda: bench.host.state.value == "none")
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    assert int(bench.call(os.getpid)) != first
    assert bench.host.crashes == 0


def test_a_runner_that_holds_something_open_or_works_stays(make_bench: MakeBench) -> None:
    bench = make_bench(idle=0.02)
    bench.host.prepare("run", Preparation("ready", plain.encode(None), None))
    first = bench.call(os.getpid)
    assert bench.call(_sleep, 0.2) is None
    bench.loop.run_until_complete(asyncio.sleep(0.1))
    assert bench.call(os.getpid) == first
    bench.host.forget("run")
    bench.until(lambda: bench.host.state.value == "none")


def _sleep(seconds: float) -> None:
    import time  # noqa: PLC0415 - it runs in the runner

    time.sleep(seconds)
