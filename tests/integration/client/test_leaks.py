"""What processes that end leave mapped or open at those that go on: nothing that adds up."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import sapwood
from sapwood.environment.settings import CommSettings, RestartSettings, Settings
from sapwood.session.embedded import embedded

AGENTS, FANOUT, ROUNDS = 4, 2, 5
SIZE = 400_000
"""Numbers in a result: 3 MiB, more than a message carries, and huge pages."""

BLOCK = 4 * 2**20
"""Bytes of the block that it is in."""

DESCRIPTORS = 40
"""More than any of these processes has open at rest."""

PATIENCE = 60.0

Until = Callable[[Callable[[], object]], None]


class Held(msgspec.Struct, frozen=True):
    """What a process holds of others' memory: bytes that it maps, and open descriptors."""

    mapped: int
    descriptors: int

    @classmethod
    def by(cls, pid: int) -> Held:
        mapped = 0
        for line in Path(f"/proc/{pid}/maps").read_text("utf-8").splitlines():
            if "memfd:sapwood" in line:
                start, stop = (int(one, 16) for one in line.split()[0].split("-"))
                mapped += stop - start
        return cls(mapped, len(os.listdir(f"/proc/{pid}/fd")))  # noqa: PTH208 - only counted


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
    """A cluster whose processes are killed; it says what those hold that go on."""

    def __init__(self, cluster: sapwood.Cluster, until: Until) -> None:
        self.cluster = cluster
        self.keeper = embedded(cluster.session).keeper
        self._until = until

    def kill(self, pid: int) -> None:
        """Kill a process and wait until the tree is whole again."""
        ended = {place.rank for place in self.keeper.places if place.pid == pid}
        if pid == self.keeper.zygote_pid:
            ended = {place.rank for place in self.keeper.places if place.rank}
        before = {rank: self.keeper.places[rank].pid for rank in ended}
        os.kill(pid, signal.SIGKILL)
        self._until(lambda: all(self.pid(rank) not in {0, before[rank]} for rank in ended))
        self._until(self.keeper.places.all_ready)

    def end_runner(self) -> None:
        with pytest.raises(sapwood.SapwoodError):
            self.cluster.submit(os._exit, 3).result(PATIENCE)

    def pid(self, rank: int) -> int:
        return self.keeper.places[rank].pid

    def held(self) -> list[Held]:
        """What the front end and all places hold."""
        return [Held.by(pid) for pid in (os.getpid(), *(one.pid for one in self.keeper.places))]

    def end_with(self, blocks: int) -> None:
        """Wait until no process maps more than some blocks, or has much open."""
        most = Held(blocks * BLOCK, DESCRIPTORS)
        self._until(
            lambda: all(
                one.mapped <= most.mapped and one.descriptors <= most.descriptors
                for one in self.held()
            )
        )


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
    grove: Grove, what: str
) -> None:
    junction = grove.cluster.session.tree.parents[1]
    victims: dict[str, Callable[[], int]] = {
        "agent": lambda: grove.pid(1),
        "junction": lambda: grove.pid(junction),
        "zygote": lambda: grove.keeper.zygote_pid,
    }
    for _ in range(ROUNDS):
        use(grove)
        if what == "runner":
            grove.end_runner()
        else:
            grove.kill(victims[what]())
    # Of those that live the last tasks and waves may stay mapped.
    grove.end_with(0 if what == "zygote" else 2 * AGENTS + FANOUT)


def test_an_array_outlives_the_cluster_that_made_it(grove: Grove) -> None:
    """What the user holds is the user's own."""
    result = grove.cluster.submit(np.ones, SIZE).result(PATIENCE)
    grove.kill(grove.keeper.zygote_pid)
    grove.end_with(0)
    assert result.sum() == SIZE
