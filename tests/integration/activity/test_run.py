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

TIMEOUT = 60.0
MakeCluster = Callable[..., sapwood.Cluster]
Programs = Callable[..., sapwood.Program]
Until = Callable[[Callable[[], object]], None]

STEPS = 400
EXPECTED = 8.0 * sum(range(1, STEPS + 1))


def begin(cluster: sapwood.Cluster, program: Programs, until: Until, **options: Any) -> sapwood.Run:
    """Start a run and wait until it is in its middle."""
    run = cluster.run(program("Steps", steps=STEPS), np.ones(8), **options)
    until(lambda: run.progress.iteration >= 5)
    assert not run.done()
    return run


def until_later(run: sapwood.Run, until: Until) -> None:
    """Wait until a run has made some more iterations."""
    reached = run.progress.iteration
    until(lambda: run.progress.iteration > reached + 2)


@pytest.mark.parametrize(
    ("fanout", "victim", "replaced"),
    [(0, "agent", 1), (2, "agent", 1), (2, "junction", 0), (0, "zygote", 4), (2, "zygote", 4)],
)
def test_a_run_goes_on_with_new_processes(
    make_cluster: MakeCluster,
    program: Programs,
    until: Until,
    fanout: int,
    victim: str,
    replaced: int,
) -> None:
    cluster = make_cluster(4, fanout)
    keeper = cluster.session.keeper
    run = begin(cluster, program, until)
    pid = {
        "agent": lambda: cluster.agents[1].pid,
        "junction": lambda: keeper.places[5].pid,
        "zygote": lambda: keeper.zygote_pid,
    }[victim]()
    os.kill(pid, signal.SIGKILL)
    assert run.result(TIMEOUT) == EXPECTED
    assert run.statistics.iterations == STEPS
    assert run.statistics.replaced_agents == replaced
    assert [agent.incarnation for agent in cluster.agents].count(2) == replaced


def test_a_run_survives_one_fault_after_the_other(
    make_cluster: MakeCluster, program: Programs, until: Until
) -> None:
    cluster = make_cluster(4, 2)
    run = cluster.run(program("Steps", steps=2000), np.ones(8))
    for rank in (1, 5, 3, 6, 2):
        until_later(run, until)
        os.kill(cluster.session.keeper.places[rank].pid, signal.SIGKILL)
    assert run.result(TIMEOUT) == 8.0 * sum(range(1, 2001))
    assert run.statistics.replaced_agents == 3  # those of lost junctions go on


def test_an_agent_that_is_stopped_is_replaced(
    make_cluster: MakeCluster, program: Programs, until: Until
) -> None:
    cluster = make_cluster(4, 2, comm=CommSettings(heartbeat=0.5, failure_after=4.0))
    run = begin(cluster, program, until)
    os.kill(cluster.agents[2].pid, signal.SIGSTOP)
    assert run.result(TIMEOUT) == EXPECTED
    assert run.statistics.replaced_agents == 1


def test_a_loss_ends_the_run_where_that_is_wanted(
    make_cluster: MakeCluster, program: Programs, until: Until
) -> None:
    cluster = make_cluster(3)
    run = begin(cluster, program, until, on_agent_loss="fail")
    os.kill(cluster.agents[1].pid, signal.SIGKILL)
    with pytest.raises(AgentLostError, match="agent 2 ended") as caught:
        run.result(TIMEOUT)
    assert 'on_agent_loss="replace"' in caught.value.hint
    assert cluster.run(program("Steps", steps=STEPS), np.ones(8)).result(TIMEOUT) == EXPECTED


def test_too_many_losses_end_the_run_and_those_that_follow(
    make_cluster: MakeCluster, program: Programs, until: Until
) -> None:
    restart = RestartSettings(limit=1, backoff=0.01, backoff_max=0.01)
    cluster = make_cluster(1, restart=restart)
    run = cluster.run(program("Steps", steps=1_000_000), np.ones(8))
    for incarnation in (1, 2):
        assert not run.done()
        until_later(run, until)
        assert cluster.agents[0].incarnation == incarnation
        os.kill(cluster.agents[0].pid, signal.SIGKILL)
        until(lambda: cluster.agents[0].state != "ready")
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


def test_a_runner_that_is_killed_fails_the_run_with_a_reason(
    make_cluster: MakeCluster, program: Programs
) -> None:
    cluster = make_cluster(2)
    error = cluster.run(program("Deadly", how="SIGKILL"), np.ones(4)).exception(TIMEOUT)
    assert isinstance(error, RunnerCrashError)


@pytest.mark.parametrize(
    ("how", "kind", "said"),
    [
        ("SIGSEGV", RunnerCrashError, "SIGSEGV"),
        ("SIGABRT", RunnerCrashError, "SIGABRT"),
        ("SIGFPE", RunnerCrashError, "SIGFPE"),
        ("_exit", RunnerCrashError, "exited with code 3"),
        ("exit", UserCodeError, "sys.exit(3)"),
        ("memory", MemoryLimitError, "memory"),
    ],
)
@pytest.mark.parametrize("fanout", [0, 2])
def test_whatever_the_map_does_the_caller_is_told_and_the_agents_live(
    make_cluster: MakeCluster, program: Programs, how: str, kind: Any, said: str, fanout: int
) -> None:
    cluster = make_cluster(4, fanout)
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


def test_a_map_has_a_time_limit(make_cluster: MakeCluster, program: Programs) -> None:
    cluster = make_cluster(2, limits=LimitSettings(time=30.0))
    run = cluster.run(program("Deadly", how="spin"), np.ones(4), time_limit=0.2)
    error = run.exception(TIMEOUT)
    assert isinstance(error, TimeLimitError)
    assert "Deadly.map ran longer than 0.2 s" in error.what
    assert cluster.run(program("Steps", steps=2), np.ones(4)).result(TIMEOUT) == 12.0


def test_a_crash_in_a_task_is_no_fault_of_a_run(
    make_cluster: MakeCluster, program: Programs, until: Until
) -> None:
    cluster = make_cluster(2)
    run = begin(cluster, program, until)
    futures = [cluster.submit(os.abort) for _ in range(4)]
    assert run.result(TIMEOUT) == EXPECTED
    for future in futures:
        assert isinstance(future.exception(TIMEOUT), RunnerCrashError)
    assert run.statistics.replaced_agents == 0


def test_large_states_and_results_use_no_more_memory_with_every_iteration(
    make_cluster: MakeCluster, program: Programs
) -> None:
    cluster = make_cluster(2)
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
    afterwards = cluster.map(os.sched_getaffinity, [0] * agents)
    assert all(future.result(TIMEOUT) == set(cores) for future in afterwards)
