"""Tasks, streams and filters whose runners are killed: what restarts, and what does not."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sapwood
from sapwood.core.errors import ExecutionError, RunnerCrashError
from sapwood.environment.settings import CommSettings
from sapwood_simulation.local_session_server import root_of

ROOTS = ("embedded", pytest.param("attached", marks=pytest.mark.nightly))

TIMEOUT = 60.0
TREE = (4, 2)
Until = Callable[[Callable[[], object]], None]
MakeCluster = Callable[..., sapwood.Cluster]


@pytest.fixture
def cluster(standing: sapwood.Cluster) -> sapwood.Cluster:
    """Four agents below the junctions 5 and 6."""
    return standing


def begin(folder: str) -> int:
    """Say in a folder, if there is one, who has begun, and wait until ``go`` is there."""
    if folder:
        Path(folder, f"begun-{os.getpid()}").touch()
    while folder and not Path(folder, "go").exists():
        time.sleep(0.002)
    return 1


def begun(folder: Path) -> set[int]:
    return {int(path.name.partition("-")[2]) for path in folder.glob("begun-*")}


def kill_one(folder: Path, until: Until, expected: int) -> None:
    """Kill one of the runners, when as many as expected have begun, and wait for another one."""
    until(lambda: len(begun(folder)) == expected)
    os.kill(min(begun(folder)), signal.SIGKILL)


def test_a_task_begins_again(cluster: sapwood.Cluster, until: Until, tmp_path: Path) -> None:
    future = cluster.submit(begin, str(tmp_path))
    kill_one(tmp_path, until, 1)
    until(lambda: len(begun(tmp_path)) == 2)
    (tmp_path / "go").touch()
    assert future.result(TIMEOUT) == 1


def test_all_tasks_of_a_map_are_done(
    cluster: sapwood.Cluster, until: Until, tmp_path: Path
) -> None:
    futures = cluster.submit_each(begin, [str(tmp_path)] * 12)
    until(lambda: len(begun(tmp_path)) == 4)
    for pid in begun(tmp_path):
        os.kill(pid, signal.SIGTERM)
    until(lambda: len(begun(tmp_path)) == 8)
    (tmp_path / "go").touch()
    assert [future.result(TIMEOUT) for future in futures] == [1] * 12


def test_a_task_whose_runners_are_killed_each_time_fails(
    cluster: sapwood.Cluster, until: Until, tmp_path: Path
) -> None:
    future = cluster.submit(begin, str(tmp_path))
    known: set[int] = set()
    for number in range(3):
        until(lambda number=number: len(begun(tmp_path)) == number + 1)  # type: ignore[misc]  # bound now
        (pid,) = begun(tmp_path) - known
        known.add(pid)
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(RunnerCrashError, match="was killed by SIGKILL in begin, 3 times in a row"):
        future.result(TIMEOUT)


def test_a_call_at_one_agent_is_made_once(
    cluster: sapwood.Cluster, until: Until, tmp_path: Path
) -> None:
    future = cluster.submit_to(2, begin, str(tmp_path))
    kill_one(tmp_path, until, 1)
    with pytest.raises(RunnerCrashError, match="was killed by SIGKILL in begin"):
        future.result(TIMEOUT)
    assert len(begun(tmp_path)) == 1


def test_a_wave_of_a_stream_is_complete(
    cluster: sapwood.Cluster, until: Until, tmp_path: Path
) -> None:
    with cluster.stream(begin, reduce="sum") as stream:
        wave = stream.broadcast(str(tmp_path))
        kill_one(tmp_path, until, 4)
        until(lambda: len(begun(tmp_path)) == 5)
        (tmp_path / "go").touch()
        assert wave.result(TIMEOUT).total == 4


def test_a_wave_of_a_stream_that_is_to_fail_fails(
    cluster: sapwood.Cluster, until: Until, tmp_path: Path
) -> None:
    with cluster.stream(begin, reduce="sum", on_loss="fail") as stream:
        wave = stream.broadcast(str(tmp_path))
        kill_one(tmp_path, until, 4)
        with pytest.raises(RunnerCrashError, match="was killed by SIGKILL in begin"):
            wave.result(TIMEOUT)
        (tmp_path / "go").touch()
        assert stream.broadcast("").result(TIMEOUT).total == 4


def test_a_generator_ends_with_its_runner(
    cluster: sapwood.Cluster, until: Until, tmp_path: Path
) -> None:
    def numbers(folder: str) -> Iterator[int]:
        yield 1
        yield begin(folder)

    with cluster.stream(numbers, sync="none", agents=[1]) as stream:
        wave = stream.broadcast(str(tmp_path))
        kill_one(tmp_path, until, 1)
        with pytest.raises(ExecutionError, match=r"was killed by SIGKILL in .*numbers"):
            wave.result(TIMEOUT)
        assert len(begun(tmp_path)) == 1


@pytest.mark.parametrize("place", ["depth 1", "depth 0"], ids=["junctions", "client"])
def test_a_filter_is_called_again(
    cluster: sapwood.Cluster, until: Until, tmp_path: Path, place: str
) -> None:
    folder, count = str(tmp_path), 2 if place == "depth 1" else 1

    def add(left: int, right: int) -> int:
        begin(folder)
        return left + right

    with cluster.stream(abs, up={place: add, "*": lambda left, right: left + right}) as stream:
        wave = stream.broadcast(-1)
        kill_one(tmp_path, until, count)
        until(lambda: len(begun(tmp_path)) == count + 1)
        (tmp_path / "go").touch()
        assert wave.result(TIMEOUT).total == 4


def test_a_map_is_done_although_its_zygote_is_stopped(make_cluster: MakeCluster) -> None:
    """No agent has a runner yet, and none gets one until the zygote is replaced."""
    cluster = make_cluster(2, comm=CommSettings(heartbeat=0.5, failure_after=4.0))
    zygote = root_of(cluster).supervisor.zygote_pid
    os.kill(zygote, signal.SIGSTOP)
    futures = cluster.submit_each(abs, range(-6, 0))
    assert [future.result(TIMEOUT) for future in futures] == [6, 5, 4, 3, 2, 1]
    assert root_of(cluster).supervisor.zygote_pid != zygote
