"""C3-SESS-2: a cluster whose agents come and go while it works."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import AgentLostError, ConfigurationError

ROOTS = ("embedded", pytest.param("attached", marks=pytest.mark.nightly))

TIMEOUT = 60.0
MakeCluster = Callable[..., sapwood.Cluster]
Programs = Callable[..., sapwood.Program]
Until = Callable[[Callable[[], object]], None]


def rank() -> int:
    return sapwood.here().rank


def touch(folder: str, number: int) -> int:
    Path(folder, str(number)).touch()
    return number


def agents(cluster: sapwood.Cluster) -> list[int]:
    return [agent.rank for agent in cluster.agents]


@pytest.mark.row("C3-SESS-2")
@pytest.mark.parametrize("fanout", [0, 2])
def test_a_run_is_on_the_agents_that_there_are(
    make_cluster: MakeCluster, program: Programs, fanout: int
) -> None:
    cluster = make_cluster(4, fanout)
    data = np.random.default_rng(1).normal(size=(60, 3))
    moments = program("Moments")

    def check() -> None:
        result = cluster.run(moments, data).result(TIMEOUT)
        np.testing.assert_allclose(result["sum"], data.sum(axis=0))
        assert result["agents"] == len(cluster.agents)

    check()
    new = cluster.expand(2)
    check()
    cluster.contract([1, new[0]])
    assert agents(cluster) == [2, 3, 4, new[1]]
    check()


def test_a_stream_that_follows_has_those_that_there_are(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3)
    with (
        cluster.stream(abs, reduce=operator.add, follow=True) as follows,
        cluster.stream(abs, reduce=operator.add, on_loss="partial") as partial,
    ):
        assert cluster.expand() == (4,)
        assert follows.broadcast(-1).result(TIMEOUT).agents == [1, 2, 3, 4]
        cluster.contract([2])
        after = follows.broadcast(-1).result(TIMEOUT)
        assert (after.total, after.agents, after.missing_agents) == (3, [1, 3, 4], [])
        without = partial.broadcast(-1).result(TIMEOUT)
        assert (without.total, without.agents, without.missing_agents) == (2, [1, 3], [2])


def test_tasks_calls_and_groups_go_to_those_that_there_are(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    cluster.contract([1])
    new = cluster.expand(2)
    assert set(cluster.query(rank, timeout=TIMEOUT).answers) == {2, *new}
    assert {cluster.submit(rank).result(TIMEOUT) for _ in range(20)} <= {2, *new}
    assert cluster.group().agents == (2, *new)
    assert [one.result(TIMEOUT) for one in cluster.group().call(rank)] == [2, *new]
    for wrong in (lambda: cluster.query(rank, agents=[1]), lambda: cluster.group([1])):
        with pytest.raises(ConfigurationError, match="no agent 1"):
            wrong()


def test_tasks_of_an_agent_that_is_removed_are_done(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster(2)
    tasks = [cluster.submit(touch, str(tmp_path), number) for number in range(30)]
    cluster.contract([1])
    assert [task.result(TIMEOUT) for task in tasks] == list(range(30))


def test_a_run_whose_agent_is_removed_says_so(
    make_cluster: MakeCluster, program: Programs, until: Until
) -> None:
    cluster = make_cluster(3)
    run = cluster.run(program("Steps", steps=1_000_000), np.ones(6))
    until(lambda: run.progress.iteration > 2)
    cluster.contract([2], timeout=1.0)
    with pytest.raises(AgentLostError, match="agent 2 left"):
        run.result(TIMEOUT)


def test_agents_come_from_several_threads_at_once(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1)
    found: list[tuple[int, ...]] = []
    threads = [threading.Thread(target=lambda: found.append(cluster.expand(2))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert sorted(one for ranks in found for one in ranks) == [2, 3, 4, 5, 6, 7]
    assert agents(cluster) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "two", 10**9])
def test_what_is_no_number_of_agents_is_refused(cluster: sapwood.Cluster, wrong: Any) -> None:
    with pytest.raises(ConfigurationError):
        cluster.expand(wrong)


def test_what_is_no_agent_cannot_be_removed(cluster: sapwood.Cluster) -> None:
    for wrong in ([9], [0, 9], []):
        with pytest.raises(ConfigurationError):
            cluster.contract(wrong)


def test_a_stream_to_some_agents_follows_nobody(cluster: sapwood.Cluster) -> None:
    with pytest.raises(ConfigurationError, match="cannot follow"):
        cluster.stream(abs, agents=[1], follow=True)
