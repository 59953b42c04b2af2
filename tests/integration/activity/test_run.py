"""Runs whose agents, junctions, zygote and runners end in their middle."""

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
    AgentLostError,
    MemoryLimitError,
    RunnerCrashError,
    SapwoodError,
    TimeLimitError,
    UserCodeError,
)
from sapwood.environment.settings import CommSettings, LimitSettings, RestartSettings
from sapwood_simulation.local_session_server import root_of

ROOTS = ("embedded", pytest.param("attached", marks=pytest.mark.nightly))

TIMEOUT = 60.0
TREE = (4, 2)
MakeCluster = Callable[..., sapwood.Cluster]
Programs = Callable[..., sapwood.Program]
Until = Callable[[Callable[[], object]], None]


class Course:
    """A run that lasts until the test ends it."""

    def __init__(self, run: sapwood.Run, folder: Path, until: Until) -> None:
        self.run = run
        self.folder = folder
        self.until = until

    def goes_on(self) -> None:
        """Wait until it has made some more iterations."""
        reached = self.run.progress.iteration
        self.until(lambda: self.run.progress.iteration > reached + 2)

    def ends_well(self) -> None:
        """End it: each iteration counted once."""
        (self.folder / "end").touch()
        result = self.run.result(TIMEOUT)
        assert result == 8.0 * sum(range(1, self.run.statistics.iterations + 1))


@pytest.fixture
def begin(program: Programs, until: Until, tmp_path: Path) -> Callable[..., Course]:
    """Begin a run and wait until it is in its middle."""

    def begin(cluster: sapwood.Cluster, **options: Any) -> Course:
        run = cluster.run(program("Lasting", folder=str(tmp_path)), np.ones(8), **options)
        course = Course(run, tmp_path, until)
        course.goes_on()
        return course

    return begin


@pytest.mark.parametrize(
    ("fanout", "victim", "lost"),
    [
        (0, "agent", [2]),
        pytest.param(2, "agent", [2], marks=pytest.mark.nightly),
        (2, "junction", [5]),
        pytest.param(0, "zygote", [1, 2, 3, 4], marks=pytest.mark.nightly),
        (2, "zygote", [1, 2, 3, 4, 5, 6]),
    ],
)
def test_a_run_goes_on_with_new_processes(
    make_cluster: MakeCluster,
    begin: Callable[..., Course],
    until: Until,
    fanout: int,
    victim: str,
    lost: list[int],
) -> None:
    cluster = make_cluster(4, fanout)
    supervisor = root_of(cluster).supervisor
    course = begin(cluster)
    os.kill(
        supervisor.zygote_pid if victim == "zygote" else supervisor.processes[lost[0]].pid,
        signal.SIGKILL,
    )
    until(lambda: all(supervisor.processes[rank].incarnation == 2 for rank in lost))
    course.goes_on()
    course.ends_well()
    agents = [rank for rank in lost if cluster.session.tree.is_agent(rank)]
    assert course.run.statistics.replaced_agents == len(agents)
    assert [agent.rank for agent in cluster.agents if agent.incarnation == 2] == agents


def test_a_run_survives_one_fault_after_the_other(
    make_cluster: MakeCluster, begin: Callable[..., Course], until: Until
) -> None:
    cluster = make_cluster(4, 2)
    places = root_of(cluster).supervisor.processes
    course = begin(cluster)
    for rank in (1, 5, 3, 6, 2):
        course.goes_on()
        os.kill(places[rank].pid, signal.SIGKILL)
    until(lambda: all(places[rank].incarnation == 2 for rank in (1, 5, 3, 6, 2)))
    course.goes_on()
    course.ends_well()
    assert course.run.statistics.replaced_agents == 3  # agents of lost junctions continue


def test_an_agent_that_is_stopped_is_replaced(
    make_cluster: MakeCluster, begin: Callable[..., Course], until: Until
) -> None:
    cluster = make_cluster(4, 2, comm=CommSettings(heartbeat=0.5, failure_after=4.0))
    course = begin(cluster)
    os.kill(cluster.agents[2].pid, signal.SIGSTOP)
    until(lambda: cluster.agents[2].incarnation == 2)
    course.goes_on()
    course.ends_well()
    assert course.run.statistics.replaced_agents == 1


def test_a_loss_ends_the_run_where_that_is_wanted(
    make_cluster: MakeCluster, program: Programs, begin: Callable[..., Course]
) -> None:
    cluster = make_cluster(3)
    run = begin(cluster, on_agent_loss="fail").run
    os.kill(cluster.agents[1].pid, signal.SIGKILL)
    with pytest.raises(AgentLostError, match="agent 2 ended") as caught:
        run.result(TIMEOUT)
    assert 'on_agent_loss="replace"' in caught.value.hint
    assert cluster.run(program("Steps", steps=2), np.ones(8)).result(TIMEOUT) == 24.0


def test_too_many_losses_end_the_run_and_those_that_follow(
    make_cluster: MakeCluster, program: Programs, begin: Callable[..., Course], until: Until
) -> None:
    restart = RestartSettings(limit=1, backoff=0.01, backoff_max=0.01)
    cluster = make_cluster(1, restart=restart)
    course = begin(cluster)
    run = course.run
    os.kill(cluster.agents[0].pid, signal.SIGKILL)
    until(lambda: cluster.agents[0].incarnation == 2)
    course.goes_on()
    assert not run.done()
    os.kill(cluster.agents[0].pid, signal.SIGKILL)
    with pytest.raises(AgentLostError, match="again and again"):
        run.result(TIMEOUT)
    with pytest.raises(AgentLostError, match="again and again"):
        cluster.run(program("Steps"), np.ones(8)).result(TIMEOUT)
    with pytest.raises(AgentLostError, match="again and again"):
        cluster.submit(pow, 2, 3).result(TIMEOUT)


def test_an_agent_may_be_lost_while_the_run_is_prepared(
    make_cluster: MakeCluster, program: Programs
) -> None:
    cluster = make_cluster(3)
    for rank in range(3):
        run = cluster.run(program("Steps", steps=3), np.ones(9))
        os.kill(cluster.agents[rank].pid, signal.SIGKILL)
        assert run.result(TIMEOUT) == 9.0 * 6


def runners(cluster: sapwood.Cluster) -> set[int]:
    """Return the runners that live: what the zygote forked besides the places."""
    supervisor = root_of(cluster).supervisor
    path = Path(f"/proc/{supervisor.zygote_pid}/task/{supervisor.zygote_pid}/children")
    return set(map(int, path.read_text().split())) - {record.pid for record in supervisor.processes}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_goes_on_when_somebody_kills_its_runners(
    make_cluster: MakeCluster, begin: Callable[..., Course], until: Until, number: signal.Signals
) -> None:
    cluster = make_cluster(2)
    course = begin(cluster)
    before = {agent.pid for agent in cluster.agents}
    for _ in range(3):
        victims = runners(cluster)
        assert len(victims) == 2
        for pid in victims:
            os.kill(pid, number)
        until(lambda victims=victims: len(runners(cluster) - victims) == 2)  # type: ignore[misc]  # a lambda with a default
        course.goes_on()
    course.ends_well()
    assert {agent.pid for agent in cluster.agents} == before
    assert course.run.statistics.replaced_agents == 0


def test_a_map_whose_runner_is_killed_is_made_again_and_counted(
    cluster: sapwood.Cluster, program: Programs, until: Until, tmp_path: Path
) -> None:
    run = cluster.run(program("Waiting", folder=str(tmp_path)), np.ones(6))
    until(lambda: len(list(tmp_path.glob("begun-*"))) == 3)
    for path in tmp_path.glob("begun-*-0"):
        os.kill(int(path.name.split("-")[1]), signal.SIGKILL)
    until(lambda: len(list(tmp_path.glob("begun-*"))) == 4)
    (tmp_path / "go").touch()
    assert run.result(TIMEOUT) == 6.0
    assert [agent.repeated for agent in run.statistics.agents] == [1, 0, 0]


def test_a_killed_runner_ends_the_run_where_a_lost_agent_would(
    cluster: sapwood.Cluster, program: Programs, until: Until, tmp_path: Path
) -> None:
    run = cluster.run(program("Waiting", folder=str(tmp_path)), np.ones(6), on_agent_loss="fail")
    until(lambda: len(list(tmp_path.glob("begun-*"))) == 3)
    for path in tmp_path.glob("begun-*-0"):
        os.kill(int(path.name.split("-")[1]), signal.SIGKILL)
    error = run.exception(TIMEOUT)
    (tmp_path / "go").touch()
    assert isinstance(error, RunnerCrashError)
    assert "was killed by SIGKILL" in error.what


def test_a_map_that_kills_its_runner_each_time_fails_the_run_with_a_reason(
    standing: sapwood.Cluster, program: Programs
) -> None:
    error = standing.run(program("Deadly", how="SIGKILL"), np.ones(4)).exception(TIMEOUT)
    assert isinstance(error, RunnerCrashError)
    assert "was killed by SIGKILL in Deadly.map, 3 times in a row" in error.what


@pytest.mark.parametrize(
    ("how", "kind", "said"),
    [
        ("SIGSEGV", RunnerCrashError, "SIGSEGV"),
        ("SIGABRT", RunnerCrashError, "SIGABRT"),
        ("SIGFPE", RunnerCrashError, "SIGFPE"),
        ("_exit", RunnerCrashError, "Deadly.map ended its process with status 3"),
        ("_exit_0", RunnerCrashError, "Deadly.map ended its process with status 0"),
        ("exit", UserCodeError, "sys.exit(3)"),
        ("memory", MemoryLimitError, "memory"),
    ],
)
def test_whatever_the_map_does_the_caller_is_told_and_the_agents_live(
    standing: sapwood.Cluster, program: Programs, how: str, kind: Any, said: str
) -> None:
    cluster = standing
    before = [agent.pid for agent in cluster.agents]
    run = cluster.run(program("Deadly", how=how), np.ones(8))
    error = run.exception(TIMEOUT)
    assert isinstance(error, kind)
    assert isinstance(error, SapwoodError)
    assert said in error.what
    assert "agent 1" in error.where
    assert "Deadly.map" in str(error)
    assert "last words" in error.details["output"]
    assert [agent.pid for agent in cluster.agents] == before
    assert cluster.run(program("Steps", steps=2), np.ones(8)).result(TIMEOUT) == 24.0


def test_a_map_has_a_time_limit(standing: sapwood.Cluster, program: Programs) -> None:
    cluster = standing
    run = cluster.run(program("Deadly", how="spin"), np.ones(4), time_limit=0.2)
    error = run.exception(TIMEOUT)
    assert isinstance(error, TimeLimitError)
    assert "Deadly.map ran longer than 0.2 s" in error.what
    assert cluster.run(program("Steps", steps=2), np.ones(4)).result(TIMEOUT) == 12.0


def test_a_crash_in_a_task_is_no_fault_of_a_run(
    standing: sapwood.Cluster, begin: Callable[..., Course]
) -> None:
    cluster = standing
    course = begin(cluster)
    futures = [cluster.submit(os.abort) for _ in range(4)]
    for future in futures:
        assert isinstance(future.exception(TIMEOUT), RunnerCrashError)
    course.goes_on()
    course.ends_well()
    assert course.run.statistics.replaced_agents == 0


def test_large_states_and_results_use_no_more_memory_with_every_iteration(
    standing: sapwood.Cluster, program: Programs
) -> None:
    cluster = standing
    data = np.random.default_rng(1).normal(size=(4, 200_000))
    cluster.run(program("Moments"), data).result(TIMEOUT)
    before = shared_memory(os.getpid())
    for _ in range(5):
        cluster.run(program("Moments"), data).result(TIMEOUT)
    assert shared_memory(os.getpid()) <= before + 2


def shared_memory(pid: int) -> int:
    """Return how many pieces of shared memory a process maps."""
    return Path(f"/proc/{pid}/maps").read_text().count("/memfd:sapwood")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this process may use one core only")
@pytest.mark.parametrize("bind", [True, False])
def test_agents_stay_on_their_cores_during_a_run_only(
    make_cluster: MakeCluster, program: Programs, bind: bool
) -> None:
    cores = sorted(os.sched_getaffinity(0))
    agents = 2 * len(cores)
    cluster = make_cluster(agents, limits=LimitSettings(bind=bind))
    found = cluster.run(program("Cores"), np.ones(agents)).result(TIMEOUT)
    one_each = [[1, core] for core in cores for _ in range(2)]
    assert sorted(found["cores"].tolist()) == (
        one_each if bind else [[len(cores), cores[0]]] * agents
    )
    afterwards = cluster.submit_each(os.sched_getaffinity, [0] * agents)
    assert all(future.result(TIMEOUT) == set(cores) for future in afterwards)
