"""What becomes of the waves of a stream when a place is lost: replace, partial, fail."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sapwood
from sapwood.core.errors import (
    AgentLostError,
)
from sapwood_simulation.local_session_server import root_of

ROOTS = ("embedded", pytest.param("attached", marks=pytest.mark.nightly))

TIMEOUT = 60.0
MakeCluster = Callable[..., sapwood.Cluster]
Until = Callable[[Callable[[], object]], None]


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> sapwood.Cluster:
    """Four agents below two junctions."""
    return make_cluster(4, fanout=2)


def kill(cluster: sapwood.Cluster, rank: int) -> None:
    os.kill(root_of(cluster).supervisor.processes[rank].pid, signal.SIGKILL)


def total(stream: sapwood.Stream, value: Any = None) -> Any:
    return stream.broadcast(value).result(TIMEOUT).total


def wait_for_it(folder: str) -> int:
    """Say in a folder, if there is one, that it has begun, and wait until ``go`` is there."""
    if folder:
        Path(folder, f"begun-{os.getpid()}").touch()
    while folder and not Path(folder, "go").exists():
        time.sleep(0.002)
    return 1


@pytest.mark.row("D-2")
@pytest.mark.parametrize("lost", [2, 5], ids=["agent", "junction"])
def test_a_wave_goes_on_without_who_is_lost(
    cluster: sapwood.Cluster, until: Until, lost: int, tmp_path: Path
) -> None:
    gone = (
        [lost] if cluster.session.tree.is_agent(lost) else []
    )  # agents below a lost junction survive
    with cluster.stream(wait_for_it, reduce="sum", on_loss="partial") as stream:
        assert total(stream, "") == 4
        wave = stream.broadcast(str(tmp_path))
        until(lambda: len(list(tmp_path.glob("begun-*"))) == 4)
        kill(cluster, lost)
        (tmp_path / "go").touch()
        result = wave.result(TIMEOUT)
        assert result.missing_agents == gone
        assert result.total == 4 - len(gone)
        until(lambda: stream.broadcast("").result(TIMEOUT).total == 4)


@pytest.mark.row("D-2")
def test_a_wave_fails_and_names_who_is_lost(
    cluster: sapwood.Cluster, until: Until, tmp_path: Path
) -> None:
    named: list[str] = []

    def works() -> bool:
        try:
            return bool(total(stream, "") == 4)
        except AgentLostError as error:
            named.append(str(error))
            return False

    with cluster.stream(wait_for_it, reduce="sum", on_loss="fail") as stream:
        assert total(stream, "") == 4
        wave = stream.broadcast(str(tmp_path))
        kill(cluster, 2)
        (tmp_path / "go").touch()
        with pytest.raises(AgentLostError, match="agent 2"):
            wave.result(TIMEOUT)
        until(works)
    assert all("agent 2" in text for text in named)


@pytest.mark.row("D-2")
@pytest.mark.parametrize("sync", ["all", "none"])
def test_a_wave_waits_for_the_replacement(
    cluster: sapwood.Cluster, tmp_path: Path, sync: Any
) -> None:
    with cluster.stream(wait_for_it, reduce="sum", sync=sync) as stream:
        stream.broadcast("").result(TIMEOUT)
        wave = stream.broadcast(str(tmp_path))
        kill(cluster, 2)
        (tmp_path / "go").touch()
        result = wave.result(TIMEOUT)
        assert (result.agents, result.missing_agents) == ([1, 2, 3, 4], [])


def push_four(folder: str) -> Iterator[tuple[int, int]]:
    """Push four values, the last one when ``go`` is there."""
    for number in range(4):
        while number == 3 and not Path(folder, "go").exists():
            time.sleep(0.002)
        yield sapwood.here().rank, number


@pytest.mark.row("D-2")
def test_a_generator_is_not_started_again_in_another_process(
    cluster: sapwood.Cluster, until: Until, tmp_path: Path
) -> None:
    agents = cluster.session.tree.agent_ranks
    with cluster.stream(push_four, sync="none") as stream:
        wave = stream.broadcast(str(tmp_path))
        values = stream.waves(TIMEOUT)
        seen = [next(values).total for _ in range(3 * len(agents))]
        kill(cluster, 2)
        with pytest.raises(AgentLostError, match="agent 2 ended while its generator pushed values"):
            wave.result(TIMEOUT)
        (tmp_path / "go").touch()
        seen += [next(values).total for _ in agents[1:]]
        until(lambda: cluster.session.processes([2])[0].is_ready)
        again = stream.broadcast(str(tmp_path))  # by the new process, too, and from the start
        seen += [next(values).total for _ in range(4 * len(agents))]
        assert again.result(TIMEOUT).agents == list(agents)
    once, twice = [0, 1, 2, 3], [0, 1, 2, 3, 0, 1, 2, 3]
    wanted = {rank: [*once[:3], *once] if rank == 2 else twice for rank in agents}
    assert {rank: [n for of, n in seen if of == rank] for rank in agents} == wanted
