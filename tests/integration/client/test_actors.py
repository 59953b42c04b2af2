"""Actors: state between calls, order, shapes, errors, restarts after real kills."""

import asyncio
import functools
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import sapwood
from sapwood.errors import (
    ActorLostError,
    ClosedError,
    ConfigurationError,
    DataValueError,
    RunnerCrashError,
)

TREE = (2, 0)
PATIENCE = 30.0


class Counter:
    """Counts, and remembers in which order."""

    def __init__(self, start: int = 0) -> None:
        if start < 0:
            raise ValueError(f"start is {start}")
        self.total = start
        self.seen: list[int] = []

    def add(self, number: int) -> int:
        self.seen.append(number)
        self.total += number
        return self.total

    async def add_later(self, number: int) -> int:
        await asyncio.sleep(0)
        return self.add(number)

    def order(self) -> list[int]:
        return self.seen

    def fail(self) -> None:
        raise KeyError("missing")

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def die_once(self, path: Path) -> str:
        if not path.exists():
            path.touch()
            self.die()
        return "done"


def kill(cluster: sapwood.Cluster, rank: int) -> None:
    os.kill(next(one.pid for one in cluster.agents if one.rank == rank), signal.SIGKILL)


@pytest.mark.row("D-18")
def test_state_and_order(standing: sapwood.Cluster) -> None:
    with standing.actor(Counter, 10) as counter:
        assert counter.add(1).result(PATIENCE) == 11
        assert counter.add_later(2).result(PATIENCE) == 13
        futures = [counter.add(number) for number in range(300)]
        assert futures[-1].result(PATIENCE) == 13 + sum(range(300))
        assert counter.order().result(PATIENCE) == [1, 2, *range(300)]

    later = counter.add(1)
    with pytest.raises(ActorLostError, match="was closed"):
        later.result(PATIENCE)


def test_calls_can_be_awaited(standing: sapwood.Cluster) -> None:
    async def count(counter: sapwood.types.Actor) -> list[int]:
        return [await counter.add(1) for _ in range(3)]

    with standing.actor(Counter) as counter:
        assert asyncio.run(count(counter)) == [1, 2, 3]


def test_exceptions_leave_the_state(standing: sapwood.Cluster) -> None:
    with standing.actor(functools.partial(Counter, start=4)) as counter:
        with pytest.raises(KeyError, match="missing") as caught:
            counter.fail().result(PATIENCE)
        assert "in fail" in str(getattr(caught.value, "details", {}).get("traceback"))
        assert counter.add(1).result(PATIENCE) == 5


@pytest.mark.row("D-18")
def test_dimensions_and_slices(standing: sapwood.Cluster) -> None:
    with standing.actors(Counter, shape={"host": 2, "gpu": 3}) as grid:
        assert [actor.agent for actor in grid] == [1, 1, 1, 2, 2, 2]
        assert [one.result(PATIENCE) for one in grid.slice(host=1).add(2)] == [2, 2, 2]
        assert grid[1, -1].add(1).result(PATIENCE) == 3
        some = grid.slice(gpu=slice(1, None))
        assert some.shape == {"host": 2, "gpu": 2}
        assert [one.result(PATIENCE) for one in some.add(1)] == [1, 1, 3, 4]
        assert len(grid.slice(host=0, gpu=0)) == 1
        with pytest.raises(ConfigurationError, match="no dimension 'rack'"):
            grid.slice(rack=0)
        with pytest.raises(ConfigurationError, match="gpu is 3"):
            grid.slice(gpu=3)
        with pytest.raises(IndexError):
            grid[2, 0]
        with pytest.raises(ConfigurationError, match="2 dimensions"):
            grid[0]


def test_bad_input(standing: sapwood.Cluster) -> None:
    cluster = standing
    with pytest.raises(ValueError, match="start is -1"):
        cluster.actor(Counter, -1)
    with pytest.raises(ConfigurationError, match="restarts is -1"):
        cluster.actor(Counter, restarts=-1)
    with pytest.raises(ConfigurationError, match="length 0"):
        cluster.actors(Counter, shape={"host": 0})
    with pytest.raises(ConfigurationError, match="shape is"):
        cluster.actors(Counter, shape={})
    with pytest.raises(ConfigurationError, match="more than 100000"):
        cluster.actors(Counter, shape={"host": 1000, "gpu": 1000})
    with pytest.raises(ConfigurationError):
        cluster.actor(Counter, agent=9)
    with cluster.actor(Counter) as counter:
        with pytest.raises(AttributeError, match="Counter has no method 'ad'"):
            counter.ad(1)
        with pytest.raises(DataValueError):
            counter.add(threading.Lock())
        with pytest.raises(DataValueError, match="cannot be sent to an agent"):
            counter.add(counter)
        assert counter.add(1).result(PATIENCE) == 1


@pytest.mark.row("D-18")
def test_a_killed_runner_loses_the_state(make_cluster: Callable[..., sapwood.Cluster]) -> None:
    counter = make_cluster(1).actor(Counter)
    futures = [counter.add(1), counter.die(), counter.add(1)]
    assert futures[0].result(PATIENCE) == 1
    assert isinstance(futures[1].exception(PATIENCE), RunnerCrashError)
    for lost in (futures[2], counter.add(1)):
        with pytest.raises(ActorLostError, match="state is gone"):
            lost.result(PATIENCE)


@pytest.mark.row("D-18")
def test_restarts(make_cluster: Callable[..., sapwood.Cluster]) -> None:
    counter = make_cluster(1).actor(Counter, 5, restarts=1)
    futures = [counter.add(1), counter.die(), counter.add(1), counter.add(1)]
    assert isinstance(futures[1].exception(PATIENCE), RunnerCrashError)
    assert [futures[index].result(PATIENCE) for index in (0, 2, 3)] == [6, 6, 7]
    assert isinstance(counter.die().exception(PATIENCE), RunnerCrashError)
    assert isinstance(counter.add(1).exception(PATIENCE), ActorLostError)


def test_retry(make_cluster: Callable[..., sapwood.Cluster], tmp_path: Path) -> None:
    counter = make_cluster(1).actor(Counter, restarts=1, retry=True)
    assert counter.die_once(tmp_path / "died").result(PATIENCE) == "done"


def test_a_killed_agent(make_cluster: Callable[..., sapwood.Cluster]) -> None:
    cluster = make_cluster(2)
    counter = cluster.actor(Counter, restarts=3, retry=True)
    assert counter.add(1).result(PATIENCE) == 1
    kill(cluster, counter.agent)
    end = time.monotonic() + PATIENCE
    while counter.add(1).result(PATIENCE) != 1:  # until the kill has arrived
        assert time.monotonic() < end


def test_full_queue(standing: sapwood.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sapwood.client.actors.MAX_WAITING", 1)
    monkeypatch.setattr("sapwood.client.actors.ROOM_SECONDS", 0.01)
    with standing.actor(threading.Event) as event:
        waiting = event.wait(3600)
        with pytest.raises(sapwood.errors.ResourceError, match="1 calls of an actor"):
            event.is_set()
        waiting.cancel()


def test_a_closed_cluster(make_cluster: Callable[..., sapwood.Cluster]) -> None:
    cluster = make_cluster(1)
    counter = cluster.actor(Counter, restarts=1)
    cluster.close()
    with pytest.raises(ClosedError):
        counter.add(1)
    counter.close()


def test_in_process() -> None:
    with sapwood.local(agents=1, in_process=True) as cluster, cluster.actor(Counter) as counter:
        counter.add(1)
        assert counter.add(1).result(PATIENCE) == 2
