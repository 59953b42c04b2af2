"""Speculative execution: requests to other agents, which end with their wave."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from sapwood.activity.agent_requests import HELP, PULSE, OpenRun, Pulse
from sapwood.activity.delegation import DelegationOptions
from sapwood.activity.run_record import LateChunk, RunRecorder
from sapwood.activity.run_watch import RunWatch
from sapwood.activity.speculation import WatchedCut

GIVEN = {rank: range(rank * 10 - 10, rank * 10) for rank in (1, 2, 3)}
TIMEOUT = 20.0


class Session:
    """A session whose agents 2 and 3 are idle; they never answer when they are to help."""

    closed = False

    def __init__(self) -> None:
        self.helpers: dict[int, Future[Any]] = {}
        self.withdrawn: list[Future[Any]] = []
        self.when_helped: Callable[[], None] = lambda: None
        self.asked_thrice = threading.Event()
        self._pulses = 0

    def ask(self, rank: int, handler: str, _value: Any) -> Future[Any]:
        assert handler == PULSE
        self._pulses += rank == 1
        if self._pulses > 2:
            self.asked_thrice.set()
        future: Future[Any] = Future()
        future.set_result({"wave": 1, "busy": 5.0 if rank == 1 else -1.0})
        return future

    def ask_encoded(self, rank: int, handler: str, _body: bytes, _value: Any) -> Future[Any]:
        assert handler == HELP
        self.helpers[rank] = Future()
        self.when_helped()
        return self.helpers[rank]

    def withdraw(self, future: Future[Any]) -> None:
        self.withdrawn.append(future)

    def subscribe(self, _listener: Any) -> Callable[[], None]:
        return lambda: None


class Recorder(RunRecorder):
    """Says when it has heard of late items."""

    def __init__(self) -> None:
        super().__init__("test-1", "test", began=0.0, items=30)
        self.heard = threading.Event()

    def late(self, chunk: LateChunk) -> int:
        number = super().late(chunk)
        self.heard.set()
        return number


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def watch_with(session: Session, recorder: Recorder) -> Iterator[Callable[..., RunWatch]]:
    made: list[RunWatch] = []

    def make(state: Any, *, own: bool = False) -> RunWatch:
        options = DelegationOptions(how="measured", late_after=0.01)
        watch = RunWatch(
            session,  # type: ignore[arg-type]  # the test's own
            recorder,
            time.perf_counter(),
            options,
            {"n": "sum"},
            own=own,
            helped=True,
        )
        made.append(watch)
        for rank in GIVEN:
            watch.rates.note(rank, items=10, seconds=0.01)
        watch.begin(WatchedCut(run="test-1", given=GIVEN, order=_order))
        watch.speculation.wave_begins(1, state, time.perf_counter() - 5.0)
        watch.heard(2, Pulse(1, -1.0))
        return watch

    yield make
    for watch in made:
        watch.end()


def _order(_rank: int, items: range) -> OpenRun:
    return OpenRun("test-1", b"", b"", items.start, items.stop, "map")


def test_what_several_can_do_for_a_late_agent_they_do(
    watch_with: Callable[..., RunWatch], session: Session, recorder: Recorder
) -> None:
    both = threading.Event()
    session.when_helped = lambda: both.set() if len(session.helpers) == 2 else None
    watch = watch_with({"x": 1})
    assert both.wait(TIMEOUT)
    watch.end()
    assert sorted(map(id, session.withdrawn)) == sorted(map(id, session.helpers.values()))
    assert {one.outcome for one in recorder.record(1.0).late} == {"late"}


def test_one_alone_helps_where_a_filter_of_the_program_counts_results(
    watch_with: Callable[..., RunWatch], recorder: Recorder
) -> None:
    """What two of them answer would be put together by names that do not hold here."""
    watch = watch_with({"x": 1}, own=True)
    assert recorder.heard.wait(TIMEOUT)
    watch.end()
    assert [(one.start, one.stop) for one in recorder.record(1.0).late] == [(0, 10)]


def test_nobody_goes_on_helping_in_a_wave_that_ends_as_they_are_asked(
    watch_with: Callable[..., RunWatch], session: Session, recorder: Recorder
) -> None:
    over = threading.Event()

    def total_comes() -> None:
        if not over.is_set():
            watch.speculation.wave_over()
            over.set()

    session.when_helped = total_comes
    watch = watch_with({"x": 1})
    assert over.wait(TIMEOUT)
    watch.end()
    assert session.helpers
    assert sorted(map(id, session.withdrawn)) == sorted(map(id, session.helpers.values()))
    assert "running" not in {one.outcome for one in recorder.record(1.0).late}


def test_a_state_that_changes_as_it_is_read_ends_no_watch(
    watch_with: Callable[..., RunWatch], session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(_state: Any) -> None:
        raise RuntimeError("dictionary changed size during iteration")

    monkeypatch.setattr("sapwood.activity.speculation.values.encode", changed)
    watch_with({"x": 1})
    assert session.asked_thrice.wait(TIMEOUT)
