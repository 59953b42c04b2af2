"""Streams at their limits: values that are too large or too late, and wrong requests."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

import sapwood
from sapwood.core.errors import AgentLostError, ClosedError, ConfigurationError, DataValueError
from sapwood.environment.settings import RestartSettings
from sapwood_simulation.local_session_server import root_of

ROOTS = ("embedded", pytest.param("attached", marks=pytest.mark.nightly))

TIMEOUT = 60.0
TREE = (4, 2)
MakeCluster = Callable[..., sapwood.Cluster]
Until = Callable[[Callable[[], object]], None]


@pytest.fixture
def cluster(standing: sapwood.Cluster) -> sapwood.Cluster:
    """Four agents below two junctions."""
    return standing


def total(stream: sapwood.Stream, value: Any = None) -> Any:
    return stream.broadcast(value).result(TIMEOUT).total


@pytest.mark.row("C2-RED")
def test_a_wave_that_fits_into_no_message_fails_at_the_junction(cluster: sapwood.Cluster) -> None:
    with cluster.stream(lambda count: list(range(10**8, 10**8 + count))) as stream:
        with pytest.raises(DataValueError, match="without its arrays") as caught:
            total(stream, 900_000)
        assert "junction" in caught.value.where
        assert total(stream, 1) == [[10**8]] * 4
    assert [agent.incarnation for agent in cluster.agents] == [1] * 4


@pytest.mark.row("C2-P2P")
def test_long_bytes_travel_in_waves_of_any_size(cluster: sapwood.Cluster) -> None:
    with cluster.stream("echo") as stream:
        assert total(stream, {"x": b"q" * 5_000_000}) == [{"x": b"q" * 5_000_000}] * 4


def test_a_stream_waits_for_no_agent_that_is_lost_for_good(
    make_cluster: MakeCluster, until: Until
) -> None:
    cluster = make_cluster(2, restart=RestartSettings(limit=0))
    os.kill(root_of(cluster).supervisor.processes[2].pid, signal.SIGKILL)
    until(lambda: cluster.session.failure is not None)
    with pytest.raises(AgentLostError, match="rank 2 end again and again"):
        cluster.stream("echo")
    with cluster.stream("echo", on_loss="partial") as stream:
        assert stream.broadcast(7).result(TIMEOUT).missing_agents == [2]
    with cluster.stream("echo", agents=[1]) as stream:
        assert total(stream, 7) == [7]


@pytest.mark.parametrize("limit", ["3", -1.0, float("nan"), float("inf"), True])
def test_a_time_limit_is_a_number_of_seconds(cluster: sapwood.Cluster, limit: Any) -> None:
    with pytest.raises(ConfigurationError, match="time_limit is"):
        cluster.stream("echo", time_limit=limit)


def test_a_stream_that_was_closed_takes_nothing_any_more(cluster: sapwood.Cluster) -> None:
    stream = cluster.stream("echo")
    stream.close()
    assert stream.closed
    with pytest.raises(ClosedError):
        stream.broadcast(1)
