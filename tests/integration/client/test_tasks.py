"""Single calls through the public API, with the semantics of ``concurrent.futures``."""

from __future__ import annotations

import concurrent.futures
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import (
    ConfigurationError,
    DataValueError,
    RunnerCrashError,
    SapwoodError,
    TimeLimitError,
    UserCodeError,
)
from sapwood.environment.settings import LimitSettings

TIMEOUT = 60.0
TREE = (3, 0)
MakeCluster = Callable[..., sapwood.Cluster]
Until = Callable[[Callable[[], object]], None]


@pytest.fixture
def cluster(standing: sapwood.Cluster) -> sapwood.Cluster:
    """Three agents."""
    return standing


def test_results_come_back_in_order(cluster: sapwood.Cluster) -> None:
    futures = cluster.map(lambda number: number**2, range(100))
    assert [future.result(TIMEOUT) for future in futures] == [n**2 for n in range(100)]


def test_arguments_and_results_are_what_values_may_be(cluster: sapwood.Cluster) -> None:
    def same(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    array = np.arange(100_000, dtype=">f4").reshape(1000, 100)
    (first, second), rest = cluster.submit(
        same, array, {"a": (1, {2, 3}), "b": None}, text="x" * 100_000, number=1 + 2j
    ).result(TIMEOUT)
    np.testing.assert_array_equal(first, array)
    assert first.dtype == array.dtype
    assert second == {"a": (1, {2, 3}), "b": None}
    assert rest == {"text": "x" * 100_000, "number": 1 + 2j}


def test_closures_and_their_arguments_travel(cluster: sapwood.Cluster) -> None:
    factor = 7

    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

    def scaled(point: Point) -> int:
        return point.x * factor

    assert cluster.submit(scaled, Point(3)).result(TIMEOUT) == 21
    assert [f.result(TIMEOUT) for f in cluster.map(scaled, [Point(1), Point(2)])] == [7, 14]


def test_tasks_use_all_agents_and_share_nothing_with_the_caller(
    cluster: sapwood.Cluster, tmp_path: Path
) -> None:
    agents = len(cluster.agents)

    def meet(number: int, folder: str, count: int) -> int:
        import time  # noqa: PLC0415 - in the runner

        Path(folder, f"meet-{number}").touch()
        while len(list(Path(folder).glob("meet-*"))) < count:
            time.sleep(0.001)
        return os.getpid()

    futures = [cluster.submit(meet, number, str(tmp_path), agents) for number in range(agents)]
    pids = {future.result(TIMEOUT) for future in futures}
    assert len(pids) == agents
    assert os.getpid() not in pids


def test_results_belong_to_the_caller(cluster: sapwood.Cluster) -> None:
    futures = [cluster.submit(np.full, 50_000, float(number)) for number in range(12)]
    arrays = [future.result(TIMEOUT) for future in futures]
    for number, array in enumerate(arrays):
        np.testing.assert_array_equal(array, np.full(50_000, float(number)))
        assert array.flags.writeable
        assert array.base is None or not any(array.base is other.base for other in arrays[:number])


def test_futures_are_those_of_the_standard_library(cluster: sapwood.Cluster) -> None:
    futures = cluster.map(abs, range(-5, 0))
    done, waiting = concurrent.futures.wait(futures, TIMEOUT)
    assert len(done) == 5
    assert not waiting
    assert {f.result() for f in concurrent.futures.as_completed(futures)} == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("kind", [ValueError, KeyError, ZeroDivisionError, UnicodeDecodeError])
def test_an_exception_keeps_its_builtin_type(cluster: sapwood.Cluster, kind: type) -> None:
    def fail(name: str) -> None:
        print("trying")  # noqa: T201 - printing is what is tested
        wrong: dict[str, Callable[[], Any]] = {
            "UnicodeDecodeError": b"\xff".decode,
            "KeyError": lambda: wrong["missing"],
            "ZeroDivisionError": lambda: 1 / 0,
            "ValueError": lambda: int("x"),
        }
        wrong[name]()

    future = cluster.submit(fail, kind.__name__)
    error = future.exception(TIMEOUT)
    assert isinstance(error, UserCodeError)
    assert isinstance(error, kind)
    assert "in fail" in error.details["traceback"]
    assert error.details["output"] == "trying\n"


def test_an_own_exception_is_told_by_name(cluster: sapwood.Cluster) -> None:
    class OwnError(Exception):
        pass

    def fail() -> None:
        raise OwnError("mine")

    error = cluster.submit(fail).exception(TIMEOUT)
    assert isinstance(error, UserCodeError)
    assert error.what.endswith("OwnError: mine")


@pytest.mark.parametrize(
    "value", [object, lambda: None, 2**70], ids=["class", "function", "number"]
)
def test_a_result_that_cannot_travel_is_a_clear_error(cluster: sapwood.Cluster, value: Any) -> None:
    error = cluster.submit(lambda: value).exception(TIMEOUT)
    assert isinstance(error, DataValueError)
    assert "cannot travel" in error.what


def test_what_cannot_be_pickled_is_a_clear_error(cluster: sapwood.Cluster) -> None:
    lock = threading.Lock()
    with pytest.raises(DataValueError, match="lock"):
        cluster.submit(lambda: lock)
    with pytest.raises(DataValueError, match="lock"):
        cluster.submit(id, lock)


def test_what_cannot_be_called_is_refused(cluster: sapwood.Cluster) -> None:
    with pytest.raises(ConfigurationError, match="5 cannot be called"):
        cluster.submit(5)  # type: ignore[arg-type]  # that is the test


def test_a_crash_fails_its_task_only(cluster: sapwood.Cluster) -> None:
    futures = [cluster.submit(os.abort), *cluster.map(abs, range(10))]
    error = futures[0].exception(TIMEOUT)
    assert isinstance(error, RunnerCrashError)
    assert "SIGABRT" in error.what
    assert [future.result(TIMEOUT) for future in futures[1:]] == list(range(10))


def test_the_error_of_a_task_names_function_and_agent(cluster: sapwood.Cluster) -> None:
    def rec() -> None:
        raise RecursionError("the recursion is too deep")

    assert cluster.submit_to(2, rec).exception(TIMEOUT).where == f"{rec.__qualname__}, agent 2"  # type: ignore[union-attr]  # it is a SapwoodError
    crash = cluster.submit_to(1, os.abort).exception(TIMEOUT)
    assert isinstance(crash, RunnerCrashError)
    assert crash.what.endswith("in abort")
    assert crash.where == "agent 1"


def test_a_task_has_a_time_limit(make_cluster: MakeCluster) -> None:
    def rest() -> None:
        import signal  # noqa: PLC0415 - in the runner

        print("resting", flush=True)  # noqa: T201 - to see it in the error
        while True:
            signal.pause()

    cluster = make_cluster(1, limits=LimitSettings(time=3.0))
    error = cluster.submit(rest).exception(TIMEOUT)
    assert isinstance(error, TimeLimitError)
    assert error.details["output"] == "resting\n"
    assert cluster.submit(pow, 2, 3).result(TIMEOUT) == 8


def test_tasks_survive_the_end_of_their_agent(
    make_cluster: MakeCluster, until: Until, tmp_path: Path
) -> None:
    def slow(number: int, folder: str) -> int:
        import time  # noqa: PLC0415 - in the runner

        Path(folder, f"begun-{number}").touch()
        while not Path(folder, "go").exists():
            time.sleep(0.001)
        return number

    cluster = make_cluster(2)
    futures = [cluster.submit(slow, number, str(tmp_path)) for number in range(6)]
    until(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
    os.kill(cluster.agents[0].pid, signal.SIGKILL)
    until(lambda: cluster.agents[0].incarnation == 2)
    (tmp_path / "go").touch()
    assert [future.result(TIMEOUT) for future in futures] == list(range(6))


def test_waiting_tasks_can_be_cancelled(cluster: sapwood.Cluster, tmp_path: Path) -> None:
    def wait(folder: str) -> None:
        import time  # noqa: PLC0415 - in the runner

        while not Path(folder, "go").exists():
            time.sleep(0.001)

    futures = [cluster.submit(wait, str(tmp_path)) for _ in range(7)]
    assert futures[6].cancel()
    assert not futures[0].cancel()
    (tmp_path / "go").touch()
    for future in futures[:6]:
        future.result(TIMEOUT)
    with pytest.raises(concurrent.futures.CancelledError):
        futures[6].result(TIMEOUT)


def test_tasks_that_wait_fail_when_the_cluster_closes(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    def wait(folder: str) -> None:
        while not Path(folder, "go").exists():
            pass

    cluster = make_cluster(1)
    futures = [cluster.submit(wait, str(tmp_path)) for _ in range(5)]
    cluster.close()
    for future in futures:
        assert isinstance(future.exception(TIMEOUT), SapwoodError)


def test_what_tasks_print_is_shown_with_its_agent(
    cluster: sapwood.Cluster, capsys: pytest.CaptureFixture[str], until: Until
) -> None:
    said: list[str] = []

    def all_said() -> bool:
        said.append(capsys.readouterr().err)
        return "".join(said).count("hello") == 4

    cluster.submit(print, "hello\nhello").result(TIMEOUT)
    cluster.submit(os.write, 2, b"hello\nhello\n").result(TIMEOUT)
    until(all_said)
    lines = "".join(said).splitlines()
    assert all(line.startswith("agent ") and line.endswith(": hello") for line in lines)


def test_functions_see_the_usual_interpreter(cluster: sapwood.Cluster) -> None:
    def look() -> Any:
        import multiprocessing  # noqa: PLC0415 - in the runner

        return [sys.flags.no_site, sys.executable, multiprocessing.current_process().name]

    assert cluster.submit(look).result(TIMEOUT)[1] == sys.executable


def test_random_numbers_differ_between_agents(cluster: sapwood.Cluster) -> None:
    def draw() -> Any:
        import random  # noqa: PLC0415 - in the runner

        return [random.random(), float(np.random.random())]  # noqa: NPY002, S311 - what users do

    drawn = [tuple(future.result(TIMEOUT)) for future in [cluster.submit(draw) for _ in range(8)]]
    assert len(set(drawn)) == 8


def _faults_of_copies() -> list[int]:
    array, faults = np.ones(4 << 20), []
    for _ in range(6):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        copied = array.copy()
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        del copied
    return faults


def test_the_memory_of_large_arrays_is_used_again(
    cluster: sapwood.Cluster, make_cluster: MakeCluster
) -> None:
    for one, kept in ((cluster, True), (make_cluster(1, limits=LimitSettings(keep=0)), False)):
        faults = one.submit(_faults_of_copies).result(TIMEOUT)
        assert (min(faults[2:]) < 8) == kept  # 32 MiB are 16 huge pages, or 8192 others


def test_agents_and_runners_interrupt_nobody_when_they_wake(cluster: sapwood.Cluster) -> None:
    own = os.sched_getscheduler(0)
    wanted = os.SCHED_BATCH if own == os.SCHED_OTHER else own
    agents = [os.sched_getscheduler(agent.pid) for agent in cluster.agents]
    runners = [cluster.submit_to(agent.rank, os.sched_getscheduler, 0) for agent in cluster.agents]
    assert agents == [runner.result(TIMEOUT) for runner in runners] == [wanted] * TREE[0]
