"""C3-SESS-2: a cluster whose agents come and go while it works."""

from __future__ import annotations

import operator
import random
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


def rank_of(_value: Any) -> int:
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
        with pytest.raises(ConfigurationError, match="agent 1 does not exist"):
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
    endless = program("Steps", steps=1_000_000)
    run = cluster.run(endless, np.ones(6), on_agent_loss="fail")
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


@pytest.mark.row("C3-SESS-2")
@pytest.mark.parametrize("fanout", [0, 2])
def test_a_run_goes_on_while_its_agents_leave(
    make_cluster: MakeCluster, program: Programs, until: Until, fanout: int
) -> None:
    """Those that are there do the slices of those that left: each item counts once a wave."""
    cluster = make_cluster(4, fanout)
    run = cluster.run(program("Steps", steps=400), np.ones(12))
    for leaving in ([2], [1, 4]):
        seen = run.progress.iteration
        until(lambda seen=seen: run.progress.iteration > seen + 3)  # type: ignore[misc]
        cluster.contract(leaving)
    assert run.result(TIMEOUT) == 12.0 * sum(range(1, 401))
    assert run.statistics.iterations == 400
    (last,) = [one for one in run.statistics.agents if one.agent == 3]
    assert (last.start, last.stop, last.calls) == (0, 12, 400)


@pytest.mark.row("C3-SESS-2")
@pytest.mark.parametrize(
    ("changes", "seed"), [(12, 1), pytest.param(100, 2, marks=pytest.mark.nightly)]
)
def test_agents_come_and_go_at_random_under_waves_and_a_run(
    make_cluster: MakeCluster, program: Programs, tmp_path: Path, changes: int, seed: int
) -> None:
    """Every wave names its ranks, and none is lost or doubled; the run is what it would be."""
    chance = random.Random(seed)  # noqa: S311 - which changes there are
    cluster = make_cluster(4, 2)
    run = cluster.run(program("Lasting", folder=str(tmp_path)), np.ones(30))
    over = threading.Event()
    waves: list[Any] = []

    with cluster.stream(rank_of, follow=True) as stream:

        def flow() -> None:
            while not over.is_set():
                several = [stream.broadcast() for _ in range(3)]
                waves.extend(wave.result(TIMEOUT) for wave in several)

        thread = threading.Thread(target=flow)
        thread.start()
        try:
            for _ in range(changes):
                there = agents(cluster)
                if len(there) < 3 or (len(there) < 7 and chance.random() < 0.5):
                    cluster.expand(chance.randint(1, 2))
                else:
                    cluster.contract(chance.sample(there, chance.randint(1, len(there) - 1)))
                now = stream.broadcast().result(TIMEOUT)
                assert now.agents == sorted(now.total) == agents(cluster)
        finally:
            over.set()
            thread.join(TIMEOUT)
    assert len(waves) >= 3
    for wave in waves:
        assert sorted(wave.total) == wave.agents
        assert wave.missing_agents == []
    numbers = [wave.wave for wave in waves]
    assert numbers == sorted(set(numbers))
    (tmp_path / "end").touch()
    total = run.result(TIMEOUT)
    steps = run.statistics.iterations
    assert total == 30.0 * sum(range(1, steps + 1))
    assert steps >= 2
