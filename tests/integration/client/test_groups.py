"""Groups with real processes: user code on agents, and the client."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import (
    AgentLostError,
    ConfigurationError,
    DataMissingError,
    ExecutionError,
    GroupError,
    ProgramError,
)
from sapwood.environment.settings import RestartSettings
from sapwood_simulation.local_session_server import root_of

ROOTS = ("embedded", "attached")

TIMEOUT = 60.0
TREE = (5, 2)
MakeCluster = Callable[..., sapwood.Cluster]


def everything(members: list[int], nbytes: int) -> dict[str, Any]:
    here = sapwood.here()
    mine = np.arange(nbytes // 8) * (here.rank + 1)
    parts = [mine[: 1 + rank] for rank in members] if here.rank == members[0] else None
    with here.group(members, timeout=TIMEOUT) as group:
        group.barrier()
        return {
            "sum": group.allreduce(mine),
            "sum again": group.allreduce(mine, "sum:reproducible"),
            "max at root": group.reduce(mine, "max", root=members[-1]),
            "gathered": group.gather({"rank": here.rank}),
            "all": group.allgather(mine[: here.rank]),
            "part": group.scatter(parts),
            "told": group.broadcast(mine if here.rank == members[-1] else None, root=members[-1]),
        }


@pytest.mark.row("C2-GROUP")
@pytest.mark.parametrize("nbytes", [80, 1 << 20], ids=["in the message", "in shared memory"])
def test_functions_on_agents_do_all_operations_together(
    standing: sapwood.Cluster, nbytes: int
) -> None:
    do_all_operations(standing, nbytes)


@pytest.mark.row("C2-GROUP")
def test_without_junctions_they_do_too(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(5)
    for nbytes in (80, 1 << 20):
        do_all_operations(cluster, nbytes)
    start_operations(cluster)


def do_all_operations(cluster: sapwood.Cluster, nbytes: int) -> None:
    members = [1, 3, 4, 5]
    results = [
        one.result(TIMEOUT) for one in cluster.group(members).call(everything, members, nbytes)
    ]
    base = np.arange(nbytes // 8)
    arrays = {rank: base * (rank + 1) for rank in members}
    for rank, result in zip(members, results, strict=True):
        np.testing.assert_array_equal(result["sum"], sum(arrays.values()))
        np.testing.assert_array_equal(result["sum again"], sum(arrays.values()))
        np.testing.assert_equal(result["max at root"], arrays[5] if rank == 5 else None)
        gathered = [{"rank": one} for one in members] if rank == 1 else None
        assert result["gathered"] == gathered
        np.testing.assert_equal(result["all"], [arrays[one][:one] for one in members])
        np.testing.assert_array_equal(result["part"], arrays[1][: 1 + rank])
        np.testing.assert_array_equal(result["told"], arrays[5])


def many_rounds(members: list[int], name: str) -> bool:
    here = sapwood.here()
    good = True
    with here.group(members, name=name) as group:
        for turn in range(30):
            total = group.allreduce(np.full(20_000, float(turn * here.rank)))
            good &= bool((total == turn * sum(members)).all())
    return good


@pytest.mark.row("C2-GROUP")
def test_results_stay_what_they_are_when_memory_goes_round(standing: sapwood.Cluster) -> None:
    cluster = standing
    futures = cluster.group([1, 2]).call(many_rounds, [1, 2], "a")
    futures += cluster.group([3, 4]).call(many_rounds, [3, 4], "b")
    futures += cluster.group([1, 4]).call(many_rounds, [1, 4], "c")
    assert all(future.result(TIMEOUT) for future in futures)


def in_pieces(nbytes: int) -> tuple[bool, bool]:
    here = sapwood.here()
    mine = np.random.default_rng(here.rank).normal(size=nbytes // 8)
    with (
        here.group(here.agents) as whole,
        here.group(here.agents, name="pieces", piece_bytes=100_000) as pieces,
    ):
        expected = whole.allreduce(mine, "sum:reproducible")
        found = pieces.allreduce(mine, "sum:reproducible")
        at_root = pieces.reduce(mine, "sum:reproducible", root=2)
        here_too = here.rank == 2 and bool((at_root == expected).all())
        return bool((found == expected).all()), here_too == (at_root is not None)


@pytest.mark.row("C2-GROUP")
def test_large_arrays_reduce_in_pieces_to_the_same_bits(standing: sapwood.Cluster) -> None:
    futures = standing.group().call(in_pieces, 2_000_000)
    assert [future.result(TIMEOUT) for future in futures] == [(True, True)] * 5


def in_two_groups() -> tuple[int, int]:
    here = sapwood.here()
    with here.group(here.agents) as every, here.group([here.rank]) as alone:
        first = every.allreduce(here.rank, wait=False)
        second = alone.allreduce(here.rank)
        return first.result(), second


def test_a_member_can_be_in_several_groups_and_wait_later(standing: sapwood.Cluster) -> None:
    results = [future.result(TIMEOUT) for future in standing.group().call(in_two_groups)]
    assert results == [(15, rank) for rank in range(1, 6)]


def mistaken(mistake: str) -> Any:
    here = sapwood.here()
    with here.group(here.agents) as group:
        group.barrier()
        if here.rank == 2 and mistake == "left":
            return None
        if here.rank == 2 and mistake == "raised":
            raise ValueError("my own mistake")
        if here.rank == 2 and mistake == "died":
            os.kill(os.getpid(), signal.SIGKILL)
        if here.rank == 2 and mistake == "late":
            here.receive(0)  # which comes when the others have given up
        if here.rank == 2 and mistake == "operation":
            return group.barrier()
        shape = 4 if here.rank == 2 and mistake == "shape" else 3
        return group.allreduce(np.ones(shape), timeout=0.5 if mistake == "late" else None)


@pytest.mark.row("C2-GROUP")
@pytest.mark.parametrize(
    ("mistake", "kind", "text"),
    [
        ("left", GroupError, "member 2 left"),
        ("raised", GroupError, "member 2 left"),
        ("died", GroupError, "member 2 left"),
        ("late", GroupError, "2"),
        ("operation", GroupError, "barrier()"),
        ("shape", ExecutionError, "(4,)"),
    ],
)
def test_what_one_member_does_wrong_every_member_hears(
    standing: sapwood.Cluster, mistake: str, kind: type[Exception], text: str
) -> None:
    cluster = standing
    futures = cluster.group().call(mistaken, mistake)
    for rank, future in enumerate(futures, start=1):
        if rank != 2:
            with pytest.raises(kind) as caught:
                future.result(TIMEOUT)
            assert text in str(caught.value)
    if mistake == "late":
        cluster.send(2, "continue")
    assert cluster.group().call(many_rounds, [1, 2, 3], "after")[0].result(TIMEOUT)


@pytest.mark.row("C2-GROUP")
def test_a_lost_agent_is_an_error_at_the_others(
    make_cluster: MakeCluster, until: Callable[[Callable[[], object]], None]
) -> None:
    cluster = make_cluster(3)
    group = cluster.group()
    group.barrier()
    victim = cluster.agents[1].pid

    def waits_for_ever() -> None:
        here = sapwood.here()
        with here.group([0, *here.agents]) as together:
            together.barrier()
            if here.rank == 2:
                threading.Event().wait()
            together.barrier()

    futures = group.call(waits_for_ever)
    front = group.join()
    front.barrier()
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(AgentLostError, match="agent 2"):
        front.barrier()
    for future in (futures[0], futures[2]):
        with pytest.raises(AgentLostError):
            future.result(TIMEOUT)
    until(lambda: all(agent.state == "ready" for agent in cluster.agents))
    group.barrier(timeout=TIMEOUT)


def test_nobody_waits_for_an_agent_that_is_lost_for_good(
    make_cluster: MakeCluster, until: Callable[[Callable[[], object]], None]
) -> None:
    cluster = make_cluster(3, restart=RestartSettings(limit=0))
    os.kill(cluster.agents[1].pid, signal.SIGKILL)
    until(lambda: cluster.session.failure is not None)
    with pytest.raises(AgentLostError, match="rank 2"):
        cluster.group().barrier()
    cluster.group([1, 3]).barrier(timeout=TIMEOUT)


def test_a_group_has_members_that_are_agents(standing: sapwood.Cluster) -> None:
    with pytest.raises(ConfigurationError, match="at least one"):
        standing.group([])
    with pytest.raises(ConfigurationError, match="not an agent"):
        standing.submit_to(0, abs, 1)


LARGE = 60_000
"""Items of arrays that do not travel in the message."""


def through_it_all(rounds: int) -> list[int]:
    here = sapwood.here()
    large = np.full(LARGE, here.rank)
    with here.group([0, *here.agents]) as group:
        found = []
        for number in range(rounds):
            group.barrier()
            total = group.allreduce(large + number)
            found.append(int(total[0]))
            if (total != total[0]).any():  # an ``assert`` would have each runner import pytest
                raise ValueError(total)
        return found


@pytest.mark.row("C2-GROUP")
@pytest.mark.row("D-2")
def test_a_group_goes_on_when_junctions_die(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(8, 2)  # three levels of junctions above the agents
    pids = {agent.pid for agent in cluster.agents}
    places, junctions = (
        root_of(cluster).supervisor.processes,
        list(cluster.session.tree.junctions),
    )
    rounds = 20
    futures = cluster.group().call(through_it_all, rounds)
    with cluster.group().join() as front:
        nothing = np.zeros(LARGE, int)
        for number in range(rounds):
            front.barrier(timeout=TIMEOUT)
            if number % 4 == 2:
                os.kill(places[junctions[number // 4]].pid, signal.SIGKILL)
            total = front.allreduce(nothing + number, timeout=TIMEOUT)
            assert int(total[0]) == sum(range(1, 9)) + 9 * number
    expected = [sum(range(1, 9)) + 9 * number for number in range(rounds)]
    assert [future.result(TIMEOUT) for future in futures] == [expected] * 8
    assert {agent.pid for agent in cluster.agents} == pids, "no agent was to be replaced"


@pytest.mark.row("C2-GROUP")
def test_the_client_starts_operations_on_values_that_agents_keep(
    standing: sapwood.Cluster,
) -> None:
    start_operations(standing)


def start_operations(cluster: sapwood.Cluster) -> None:
    group = cluster.group([2, 3, 5])
    group.barrier()
    group.broadcast("x", np.arange(20_000))
    group.scatter("part", [np.ones(1), np.ones(2), "text"])
    np.testing.assert_array_equal(group.reduce("x"), 3 * np.arange(20_000))
    np.testing.assert_equal(group.gather("part"), [np.ones(1), np.ones(2), "text"])
    np.testing.assert_equal(group.allgather("part", into="parts"), group.gather("part"))
    assert [len(one) for one in group.gather("parts")] == [3, 3, 3]
    group.allreduce("x", "max", into="most")
    assert [int(one[-1]) for one in group.gather("most")] == [19_999] * 3
    requests = [group.reduce("x", wait=False) for _ in range(3)]
    assert [int(one.result(TIMEOUT)[1]) for one in requests] == [3, 3, 3]
    found = group.call(lambda: int(sapwood.here().values["x"].sum()))
    assert [one.result(TIMEOUT) for one in found] == [199_990_000] * 3


def test_mistakes_at_the_client_are_told_at_once(standing: sapwood.Cluster) -> None:
    cluster = standing
    group = cluster.group()
    with pytest.raises(DataMissingError, match="keeps no value 'y'"):
        group.gather("y")
    with pytest.raises(ProgramError, match="not a reduction"):
        group.reduce("y", "sun")
    with pytest.raises(ConfigurationError, match="one for each agent"):
        group.scatter("y", [1])
    with pytest.raises(ConfigurationError, match="unknown agent 6"):
        cluster.group([6])
    with pytest.raises(ConfigurationError, match="twice"):
        cluster.group([1, 1])
    with pytest.raises(ConfigurationError, match="anyway"):
        cluster.group([0, 1])
    for wrong in (3, "ab", [1.0]):
        with pytest.raises(ConfigurationError, match="not members"):
            cluster.group(wrong)  # type: ignore[arg-type]  # that is the test
    group.barrier(timeout=TIMEOUT)


def test_an_agent_that_is_busy_is_waited_for_as_long_as_is_said(
    standing: sapwood.Cluster,
) -> None:
    cluster = standing
    (busy,) = cluster.group([2]).call(lambda: sapwood.here().receive(0).value)
    with pytest.raises(GroupError, match="member 0 waited"):
        cluster.group().barrier(timeout=0.2)
    cluster.send(2, "enough")
    cluster.group().barrier(timeout=TIMEOUT)
    assert busy.result(TIMEOUT) == "enough"
