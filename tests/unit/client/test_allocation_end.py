"""For how long machines are there, and what happens before they go."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from sapwood.activity.run import Run
from sapwood.client.allocation_end import AllocationEnd
from sapwood.contexts.launchers.base import LimitedLauncher
from sapwood.contexts.launchers.slurm import time_left
from sapwood.environment.settings import NodeSettings

PATIENCE = 30.0


class Job:
    """A job that says how long it has its machines."""

    name, hosts, concurrency, owns_job = "test", (), 1, True

    def __init__(self, left: float | None) -> None:
        self.left = left

    def seconds_left(self) -> float | None:
        return self.left

    def is_gone(self) -> bool:
        return True

    def fate(self) -> str:
        return "the job is over"


class Drained:
    """A run that records whether it is drained."""

    name = "test-1"

    def __init__(self) -> None:
        self.reason = ""
        self.told = threading.Event()
        self.callbacks: list[Callable[[Any], object]] = []

    def drain(self, reason: str) -> bool:
        self.reason = reason
        self.told.set()
        return True

    def add_done_callback(self, function: Callable[[Any], object]) -> None:
        self.callbacks.append(function)


def end_of(job: Job, **settings: float) -> AllocationEnd:
    return AllocationEnd(cast("LimitedLauncher", job), NodeSettings(**cast("Any", settings)))


def test_a_run_stops_before_the_end() -> None:
    run = Drained()
    end = end_of(Job(100.0), drain=60.0)
    end.add(cast("Run", run))
    assert not run.told.wait(0.05)
    end.close()
    end = end_of(Job(0.0), drain=60.0)
    end.add(cast("Run", run))
    assert not run.told.wait(0.05), "half of nothing is nothing"
    end.close()


def test_the_time_is_asked_again_and_counts_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sapwood.client.allocation_end.LOOK", 0.01)
    run, job = Drained(), Job(1000.0)
    end = end_of(job, drain=60.0, ahead=100.0)
    asked = threading.Event()
    end.add(cast("Run", run))
    end.ask_ahead(cast("Run", run), asked.set)
    assert not asked.wait(0.05)
    job.left = 150.0  # a user has shortened the job
    assert asked.wait(PATIENCE)
    assert not run.told.is_set()
    job.left = 59.0
    assert run.told.wait(PATIENCE)
    assert run.reason == "its machines go in 59 s"
    end.close()


def test_what_was_said_last_counts_while_nobody_says_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The controller of Slurm may not answer for longer than the time that is left."""
    monkeypatch.setattr("sapwood.client.allocation_end.LOOK", 0.01)
    now, run, job = [1000.0], Drained(), Job(500.0)
    settings = NodeSettings(drain=60.0)
    end = AllocationEnd(cast("LimitedLauncher", job), settings, lambda: now[0])
    end.add(cast("Run", run))
    job.left = None
    now[0] += 400.0
    assert end.seconds_left() == 100.0
    assert not run.told.is_set()
    now[0] += 50.0
    assert run.told.wait(PATIENCE)
    assert run.reason == "its machines go in 50 s"
    now[0] += 100.0
    assert end.seconds_left() == 0.0
    job.left = math.inf  # a user has removed the limit
    assert end.seconds_left() is None
    job.left = None
    assert end.seconds_left() is None
    end.close()


def test_a_run_that_is_over_is_not_told() -> None:
    run, job = Drained(), Job(1000.0)
    end = end_of(job, drain=60.0)
    end.add(cast("Run", run))
    for function in run.callbacks:
        function(run)
    assert not end._alarms
    end.close()


def test_the_shorter_time_counts_and_none_is_none() -> None:
    assert end_of(Job(None)).seconds_left() is None
    assert end_of(Job(5.0), allocation_time=900.0).seconds_left() == 5.0
    assert 899 < (end_of(Job(None), allocation_time=900.0).seconds_left() or 0) <= 900
    assert end_of(Job(5.0)).gone() == "the job is over"
    assert AllocationEnd(None, NodeSettings()).gone() == ""


@pytest.mark.parametrize("text", ["", "NOT_SET", "x-1:00", "1-", "-1:00", "1:-2"])
def test_what_slurm_does_not_know_is_no_time(text: str) -> None:
    assert time_left(text) is None
