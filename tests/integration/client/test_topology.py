"""C2-ROUTE: several trees over the same agents at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import (
    ClosedError,
    ConfigurationError,
    RunnerCrashError,
    SapwoodError,
    UserCodeError,
)
from sapwood.environment.settings import CommSettings
from sapwood.session.embedded import embedded

TIMEOUT = 60.0
TREE = (4, 0)
SILENCE = CommSettings(heartbeat=0.5, failure_after=4.0)
"""A busy machine keeps a living place from a sign of life for less."""
MakeCluster = Callable[..., sapwood.Cluster]
Programs = Callable[..., sapwood.Program]
Until = Callable[[Callable[[], object]], None]


def process_of(_value: Any) -> int:
    """Return which process this is."""
    return os.getpid()


def twice(value: float) -> float:
    """Return twice the value."""
    return 2 * value


def end_itself(_value: Any) -> None:
    """Crash."""
    os.kill(os.getpid(), signal.SIGSEGV)


def total(stream: sapwood.Stream, value: Any) -> Any:
    """Broadcast a value and return what comes back."""
    return stream.broadcast(value).result(TIMEOUT).total


def test_a_tree_without_an_agent_that_was_removed_says_so(
    make_cluster: MakeCluster, until: Until
) -> None:
    cluster = make_cluster(3)
    with cluster.topology(2) as deep:
        stream = deep.stream(twice, reduce="sum")
        assert total(stream, 1.0) == 6.0
        cluster.contract([2])
        until(lambda: deep.session.failure is not None)
        with pytest.raises(SapwoodError, match="removed"):
            until(lambda: total(stream, 1.0) is None)
    with pytest.raises(ConfigurationError, match="cluster started"):
        cluster.topology(2)


@pytest.mark.row("C2-ROUTE")
def test_trees_of_several_shapes_work_at_once(standing: sapwood.Cluster) -> None:
    cluster = standing
    with cluster.topology(2) as deep, cluster.topology(3) as wide:
        trees: list[Any] = [cluster, deep, wide]
        assert [len(tree.session.tree.junctions) for tree in trees] == [0, 2, 2]
        streams = [tree.stream(twice, reduce="sum") for tree in trees]
        waves = [
            (number, stream.broadcast(float(number))) for number in range(20) for stream in streams
        ]
        assert all(wave.result(TIMEOUT).total == 8.0 * number for number, wave in waves)


@pytest.mark.row("C2-ROUTE")
def test_all_trees_use_the_same_runners(standing: sapwood.Cluster) -> None:
    cluster = standing
    with cluster.topology(2) as deep:
        here = total(cluster.stream(process_of), 0)
        there = total(deep.stream(process_of), 0)
        assert set(here) == set(there)
        assert len(here) == 4


def test_runs_over_both_trees_at_the_same_time(
    standing: sapwood.Cluster, program: Programs
) -> None:
    cluster = standing
    with cluster.topology(2) as deep:
        runs = [tree.run(program("Steps", steps=60), np.ones(8)) for tree in (cluster, deep)]
        assert [run.result(TIMEOUT) for run in runs] == [8.0 * sum(range(1, 61))] * 2


def test_own_filters_run_in_its_junctions(standing: sapwood.Cluster) -> None:
    with standing.topology(2) as deep, deep.stream("echo", reduce=max) as stream:
        assert total(stream, 3) == 3


@pytest.mark.parametrize("victim", ["agent", "junction", "zygote"])
def test_what_is_lost_is_replaced_in_both_trees(
    make_cluster: MakeCluster, program: Programs, until: Until, victim: str, tmp_path: Path
) -> None:
    cluster = make_cluster(4)
    lasting = program("Lasting", folder=str(tmp_path))
    with cluster.topology(2) as deep:
        runs = [tree.run(lasting, np.ones(8)) for tree in (cluster, deep)]
        until(lambda: all(run.progress.iteration >= 5 for run in runs))
        places = embedded(deep.session).supervisor.processes
        lost, pid = {
            "agent": ([2], cluster.agents[1].pid),
            "junction": ([5], places[5].pid),
            "zygote": ([1, 2, 3, 4, 5, 6], embedded(cluster.session).supervisor.zygote_pid),
        }[victim]
        os.kill(pid, signal.SIGKILL)
        until(lambda: all(places[rank].incarnation >= 2 for rank in lost))
        until(lambda: all(record.is_ready for record in places))
        reached = [run.progress.iteration for run in runs]
        until(lambda: all(r.progress.iteration > n + 2 for r, n in zip(runs, reached, strict=True)))
        (tmp_path / "end").touch()
        for run in runs:
            assert run.result(TIMEOUT) == 8.0 * sum(range(1, run.statistics.iterations + 1))
        assert total(deep.stream(twice, reduce="sum"), 1.0) == 8.0


def test_a_runner_that_crashes_for_one_tree_serves_the_other_again(
    standing: sapwood.Cluster,
) -> None:
    cluster = standing
    with cluster.topology(0) as other:
        good, bad = cluster.stream(twice, reduce="sum"), other.stream(end_itself)
        assert total(good, 1.0) == 8.0
        with pytest.raises(RunnerCrashError, match="end_itself"):
            bad.broadcast(0).result(TIMEOUT)
        assert total(good, 2.0) == 16.0


def test_an_agent_that_hangs_is_replaced_in_both_trees(
    make_cluster: MakeCluster, until: Until
) -> None:
    cluster = make_cluster(4, comm=SILENCE)
    with cluster.topology(2) as deep:
        streams = [tree.stream(twice, reduce="sum") for tree in (cluster, deep)]
        assert [total(stream, 1.0) for stream in streams] == [8.0, 8.0]
        former = cluster.agents[0].pid
        os.kill(former, signal.SIGSTOP)
        assert [total(stream, 1.0) for stream in streams] == [8.0, 8.0]
        assert cluster.agents[0].pid != former


def test_a_closed_topology_leaves_the_cluster_as_it_was(standing: sapwood.Cluster) -> None:
    cluster = standing
    agents = cluster.agents
    deep = cluster.topology(2)
    stream = deep.stream(twice, reduce="sum")
    assert total(stream, 1.0) == 8.0
    assert repr(deep) == "<Topology: 4 of 4 agents ready, 2 junctions, 0 runs>"
    deep.close()
    deep.close()
    assert repr(deep) == "<Topology: closed>"
    with pytest.raises(ClosedError, match="closed"):
        deep.stream(twice)
    with pytest.raises(ClosedError):
        total(stream, 1.0)
    assert cluster.agents == agents
    assert total(cluster.stream(twice, reduce="sum"), 1.0) == 8.0


def test_topologies_that_are_closed_leave_nothing_in_the_agents(
    make_cluster: MakeCluster, until: Until
) -> None:
    cluster = make_cluster(3)

    def files() -> int:
        return sum(len(list(Path(f"/proc/{agent.pid}/fd").iterdir())) for agent in cluster.agents)

    def use(fanout: int) -> None:
        with cluster.topology(fanout) as tree:
            assert total(tree.stream(twice, reduce="sum"), 2.0) == 12.0

    with cluster.stream(twice, reduce="sum") as stream:
        assert total(stream, 2.0) == 12.0  # now the runners are there
        before = files()  # no topology was, whose end agents may hear of later
        for fanout in (0, 2, 3, 2):
            use(fanout)
        until(lambda: files() == before)


def test_it_ends_with_its_cluster(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    deep = cluster.topology(0)
    wave = deep.stream(twice, reduce="sum").broadcast(1.0)
    assert wave.result(TIMEOUT).total == 4.0
    cluster.close()
    assert deep.closed


def test_an_error_in_one_tree_is_none_in_the_other(standing: sapwood.Cluster) -> None:
    cluster = standing
    with cluster.topology(2) as deep:
        good, bad = cluster.stream(twice, reduce="sum"), deep.stream(int, reduce="sum")
        failing = bad.broadcast("no number")
        assert total(good, 1.0) == 8.0
        with pytest.raises(UserCodeError, match="no number"):
            failing.result(TIMEOUT)


@pytest.mark.parametrize("fanout", [-1, 1])
def test_what_can_be_no_tree_is_refused(standing: sapwood.Cluster, fanout: int) -> None:
    with pytest.raises(ConfigurationError, match="children"):
        standing.topology(fanout)
