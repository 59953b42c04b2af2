"""Clusters that grow while tasks wait and shrink when agents have nothing to do."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import sapwood
from sapwood.core.errors import ClosedError, ConfigurationError
from sapwood.types import Autoscaling

MakeCluster = Callable[..., sapwood.Cluster]
PATIENCE = 60.0
IDLE = 0.2

pytestmark = pytest.mark.row("D-16")


def held(path: str, number: int) -> int:
    """Return the number when the test has opened the file."""
    with Path(path).open("rb") as file:
        file.read()
    return number


def keep(value: int) -> None:
    sapwood.here().values["kept"] = value


def kept() -> object:
    return sapwood.here().values.get("kept")


class Gate:
    """A named pipe at which tasks wait until the test opens it for all."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        os.mkfifo(path)

    def open(self) -> None:
        """Let all in: those that wait find a writer, and those that come later a file."""
        opened = self.path + ".opened"
        Path(opened).touch()
        writer = os.open(self.path, os.O_RDWR)
        Path(opened).replace(self.path)
        os.close(writer)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, what
        pause.wait(0.02)


def has(cluster: sapwood.Cluster, agents: int) -> Callable[[], bool]:
    return lambda: len(cluster.agents) == agents


def test_it_grows_while_tasks_wait_and_shrinks_when_they_are_done(
    make_cluster: MakeCluster, gate: Gate
) -> None:
    cluster = make_cluster(1)
    with cluster.autoscale(1, 3, idle=IDLE) as scaling:
        calls = [cluster.submit(held, gate.path, number) for number in range(8)]
        until(has(cluster, 3), "it does not grow")
        until(lambda: sum(one.running() for one in calls) >= 3, "the new agents get no tasks")
        gate.open()
        assert [one.result(PATIENCE) for one in calls] == list(range(8))
        until(has(cluster, 1), "it does not shrink")
        assert scaling.problem == ""
    assert cluster.submit(pow, 2, 5).result(PATIENCE) == 32
    assert scaling.stopped


def test_the_minimum_is_started(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1)
    with cluster.autoscale(3, 4):
        until(has(cluster, 3), "it does not grow")


def test_an_agent_with_state_of_a_function_stays(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3)
    cluster.submit_to(2, keep, 7).result(PATIENCE)
    with cluster.autoscale(1, 4, idle=IDLE):
        until(has(cluster, 1), "it does not shrink")
        (left,) = cluster.agents
        assert left.rank == 2
        assert cluster.submit_to(2, kept).result(PATIENCE) == 7


def test_agents_of_streams_topologies_and_persistent_data_stay(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3)
    with cluster.autoscale(1, 4, idle=IDLE):
        for needs in (
            lambda: cluster.stream("echo", reduce="sum"),
            cluster.topology,
            lambda: cluster.persist([1.0, 2.0, 3.0]),
        ):
            with needs():
                assert cluster._must_keep_agents()
        with cluster.stream("echo", reduce="sum", follow=True) as stream:
            until(has(cluster, 1), "it does not shrink")
            assert stream.broadcast(5).result(timeout=PATIENCE).total == 5
        assert not cluster._must_keep_agents()


def test_killed_agents_cost_no_task(make_cluster: MakeCluster, gate: Gate) -> None:
    cluster = make_cluster(1)
    with cluster.autoscale(1, 3, idle=IDLE):
        calls = [cluster.submit(held, gate.path, number) for number in range(8)]
        until(has(cluster, 3), "it does not grow")
        until(lambda: all(one.state == "ready" for one in cluster.agents), "they do not start")
        last = cluster.agents[-1]
        assert last.pid
        os.kill(last.pid, signal.SIGKILL)
        until(lambda: cluster.agents[-1].pid not in {0, last.pid}, "it is not replaced")
        gate.open()
        assert [one.result(PATIENCE) for one in calls] == list(range(8))
        until(has(cluster, 1), "it does not shrink")


def test_it_ends_with_the_cluster(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1)
    scaling = cluster.autoscale(8, 8)
    cluster.close()
    assert scaling.stopped
    with pytest.raises(ClosedError):
        cluster.autoscale(1, 2)


def test_a_second_call_takes_the_place_of_the_first(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1)
    first = cluster.autoscale(1, 2)
    second = cluster.autoscale(1, 3)
    assert isinstance(second, Autoscaling)
    assert (first.stopped, second.stopped) == (True, False)
    assert second.bounds.maximum == 3


def test_bounds_must_be_bounds(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1)
    with pytest.raises(ConfigurationError, match="minimum is 4 and maximum is 2"):
        cluster.autoscale(4, 2)
    with pytest.raises(ConfigurationError, match="limit"):
        cluster.autoscale(1, 10**6)
    with pytest.raises(ConfigurationError, match="idle"):
        cluster.autoscale(1, 2, idle=-1)
