"""What generators send without being asked arrives once, whatever is killed on its way."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sapwood
from sapwood_simulation.local_session_server import root_of

ROOTS = ("embedded", pytest.param("attached", marks=pytest.mark.nightly))

TIMEOUT = 60.0
MakeCluster = Callable[..., sapwood.Cluster]
Until = Callable[[Callable[[], object]], None]


def kill(cluster: sapwood.Cluster, rank: int) -> None:
    os.kill(root_of(cluster).supervisor.processes[rank].pid, signal.SIGKILL)


def many_events(folder: str) -> Iterator[int]:
    """Send 50 numbers, most of them after a file is there, and say when they are sent."""
    place = Path(folder)
    yield 0
    while not (place / "go").exists():
        time.sleep(0.002)
    yield from range(1, 50)
    (place / f"sent-{sapwood.here().rank}").touch()
    while True:
        time.sleep(0.05)


def numbered(count: int) -> Iterator[int]:
    for number in range(count):
        time.sleep(0.001)
        yield number


def by_agent(events: list[Any]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for event in events:
        found.setdefault(event.agents[0], []).append(event.total)
    return found


@pytest.mark.row("C3-STREAM")
@pytest.mark.row("D-2")
def test_what_generators_send_arrives_once_and_in_order_though_junctions_are_killed(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(4, fanout=2)
    count = 400
    with cluster.stream(numbered, sync="none") as stream:
        stream.broadcast(count)
        events: list[Any] = []
        for event in stream.waves(TIMEOUT):
            events.append(event)
            if len(events) in {100, 900}:
                kill(cluster, 5)
            if len(events) == 500:
                kill(cluster, 6)
            if len(events) == 4 * count:
                break
        assert stream.query().dropped == 0
    assert by_agent(events) == {rank: list(range(count)) for rank in (1, 2, 3, 4)}


@pytest.mark.row("C3-STREAM")
def test_what_was_sent_arrives_before_the_cluster_ends(
    make_cluster: MakeCluster, until: Until, tmp_path: Path
) -> None:
    cluster = make_cluster(4, fanout=2)
    stream = cluster.stream(many_events, agents=[1, 2], sync="none")
    stream.broadcast(str(tmp_path))
    events = stream.waves()
    found = [next(events).total, next(events).total]
    (tmp_path / "go").touch()
    until(lambda: len(list(tmp_path.glob("sent-*"))) == 2)
    kill(cluster, 5)
    cluster.close()
    found += [event.total for event in events]
    assert sorted(found) == sorted([*range(50), *range(50)])
