"""Ended processes leave nothing mapped or open in others that adds up."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.environment.settings import CommSettings, RestartSettings, Settings
from sapwood.session.embedded import embedded

AGENTS, FANOUT, ROUNDS = 4, 2, 5
SIZE = 400_000
"""Numbers in a result: 3 MiB, more than a message carries, and huge pages."""

DESCRIPTORS = 40
"""More than any of these processes has open at rest."""

PATIENCE = 60.0

Until = Callable[[Callable[[], object]], None]


class Held:
    """What a process holds.

    Args:
        pid: Its id.

    Attributes:
        mapped: Inodes of the blocks that it maps.
        blocks: Inodes of the blocks that it has open, which are not freed therefore.
        descriptors: How many files it has open.
    """

    def __init__(self, pid: int) -> None:
        lines = os.fsdecode(Path(f"/proc/{pid}/maps").read_bytes()).splitlines()
        self.mapped = {int(line.split()[4]) for line in lines if "memfd:sapwood" in line}
        self.blocks: set[int] = set()
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
        self.descriptors = len(descriptors)
        for one in descriptors:
            with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                self.blocks.add(one.stat().st_ino)


class Large(sapwood.Program):
    """Makes a large result in each iteration."""

    reduce = {"x": "sum"}  # noqa: RUF012 - as users write it

    def init(self, data: Any) -> dict[str, Any]:
        return {"turn": 0, "sum": 0.0}

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as in Program
        import numpy  # noqa: PLC0415, ICN001 - runs in a runner

        return {"x": numpy.ones(400_000)}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        return {"turn": state["turn"] + 1, "sum": state["sum"] + float(total["x"][0])}

    def done(self, state: dict[str, Any]) -> bool:
        return bool(state["turn"] == 3)


class Grove:
    """A cluster whose processes are killed; it reports what the survivors hold."""

    def __init__(self, cluster: sapwood.Cluster, until: Until) -> None:
        self.cluster = cluster
        self.supervisor = embedded(cluster.session).supervisor
        self._until = until
        here = Held(os.getpid())
        self._earlier = here.mapped  # by earlier tests, whose values still exist
        self._most = max(
            DESCRIPTORS, here.descriptors + 10
        )  # fixtures of this process may have some

    def kill(self, pid: int) -> None:
        """Kill a process and wait until the tree is whole again."""
        ended = {place.rank for place in self.supervisor.processes if place.pid == pid}
        if pid == self.supervisor.zygote_pid:
            ended = {place.rank for place in self.supervisor.processes if place.rank}
        before = {rank: self.supervisor.processes[rank].pid for rank in ended}
        os.kill(pid, signal.SIGKILL)
        self._until(lambda: all(self.pid(rank) not in {0, before[rank]} for rank in ended))
        self._until(self.supervisor.processes.all_ready)

    def end_runner(self) -> None:
        with pytest.raises(sapwood.SapwoodError):
            self.cluster.submit(os._exit, 3).result(PATIENCE)

    def pid(self, rank: int) -> int:
        return self.supervisor.processes[rank].pid

    def holds_only_the_living(self) -> bool:
        """Whether each mapped block is open in a process, and no process has many open."""
        held = [Held(pid) for pid in (os.getpid(), *(one.pid for one in self.supervisor.processes))]
        there = self._earlier.union(*(one.blocks for one in held))
        return all(one.mapped <= there and one.descriptors <= self._most for one in held)


@pytest.fixture
def grove(until: Until) -> Iterator[Grove]:
    settings = Settings(
        comm=CommSettings(heartbeat=0.5, failure_after=10.0),
        restart=RestartSettings(limit=1000, backoff=0.01, backoff_max=0.05),
    )
    with sapwood.local(AGENTS, fanout=FANOUT, settings=settings) as cluster:
        yield Grove(cluster, until)


def use(grove: Grove) -> None:
    """Have each agent give a large result, by tasks, a stream and a run."""
    cluster = grove.cluster
    for future in [cluster.submit(np.ones, SIZE) for _ in range(2 * AGENTS)]:
        assert future.result(PATIENCE).sum() == SIZE
    with cluster.stream(np.ones, reduce="sum") as stream:
        for _ in range(3):
            assert stream.exchange(SIZE, timeout=PATIENCE).total[0] == AGENTS
    assert cluster.run(Large(), np.arange(AGENTS)).result(PATIENCE)["sum"] == 3 * AGENTS


@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", ["runner", "agent", "junction", "zygote"])
def test_what_is_mapped_and_open_does_not_grow_with_those_that_ended(
    grove: Grove, until: Until, what: str
) -> None:
    junction = grove.cluster.session.tree.parents[1]
    victims: dict[str, Callable[[], int]] = {
        "agent": lambda: grove.pid(1),
        "junction": lambda: grove.pid(junction),
        "zygote": lambda: grove.supervisor.zygote_pid,
    }
    for _ in range(ROUNDS):
        use(grove)
        if what == "runner":
            grove.end_runner()
        else:
            grove.kill(victims[what]())
        until(grove.holds_only_the_living)


def test_an_array_outlives_the_process_that_made_it(grove: Grove, until: Until) -> None:
    """What the user holds is the user's own."""
    result = grove.cluster.submit(np.ones, SIZE).result(PATIENCE)
    grove.kill(grove.supervisor.zygote_pid)
    until(grove.holds_only_the_living)
    assert result.sum() == SIZE
