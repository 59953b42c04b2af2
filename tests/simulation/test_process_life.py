"""Random events in a simulated world of machines: invariants, and that all processes settle.

The world has machines that fail, return or are given up, starters that carry out orders after a
while, connections that are lost, and reports that arrive late or twice. Two detectors race: a
process that ends is reported by its starter and by its lost connection, in either order.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

import pytest

from sapwood.comm import events as ev
from sapwood.contexts import orders as reports
from sapwood.core.errors import ConfigurationError
from sapwood.core.topology import ROOT, Tree, flat, kary
from sapwood.environment.settings import RestartSettings
from sapwood.lifecycle import events as lev
from sapwood.lifecycle.core import LifecyclePolicy, ProcessLifecycle
from sapwood.lifecycle.processes import ProcessState
from sapwood.lifecycle.starters import OnHost, StarterKey

STEPS = 120
REST = 10_000.0
"""Seconds of virtual time in which everything must have come to rest."""


class World:
    """Machines, starters and connections, in virtual time."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)  # noqa: S311 - chance that can be repeated
        tree = chance.choice([flat(4), kary(4, 2), kary(6, 3)])
        several = chance.random() < 0.7
        hosts = tuple(chance.randint(0, 3) for _ in range(tree.size)) if several else ()
        self.life = ProcessLifecycle(
            tree,
            (0, *hosts[1:]) if hosts else (),
            LifecyclePolicy(
                RestartSettings(limit=chance.choice([3, 1000]), window=50.0, backoff=0.5),
                attach=5.0,
                join=4.0,
                join_polls=5,
                lost_nodes=chance.choice(["fail", "leave", "move"]),
            ),
        )
        self.now = 0.0
        self.due: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.pids = itertools.count(100)
        self.running: dict[int, tuple[int, int, StarterKey]] = {}  # pid: rank, incarnation, starter
        self.started: set[tuple[int, int]] = set()
        self.down: set[int] = set()  # machines that have failed
        self.gone: set[int] = set()  # machines that were given up
        self.failures: list[BaseException] = []
        self.trees: list[Tree] = [tree]

    # --- the world -------------------------------------------------------------------------------

    def later(self, mean: float, call: Callable[[], None]) -> None:
        at = self.now + self.chance.expovariate(1 / mean)
        heapq.heappush(self.due, (at, next(self.order), call))

    def post(self, event: lev.Event) -> None:
        for order in self.life.step(self.now, event):
            self.perform(order)
        self.life.check()

    def perform(self, order: lev.Order) -> None:
        if isinstance(order, lev.Start):
            for rank, incarnation in order.processes:
                assert (rank, incarnation) not in self.started, "a process is started twice"
                self.started.add((rank, incarnation))
                assert rank in self.life.tree, "a rank is started that has left the tree"
                self.later(0.1, lambda one=(rank, incarnation), key=order.key: self.fork(one, key))  # type: ignore[misc]
        elif isinstance(order, lev.EndProcess):
            self.later(0.1, lambda: self.end(order.pid, "killed"))
        elif isinstance(order, lev.WakeAt):
            heapq.heappush(
                self.due,
                (order.at, next(self.order), lambda: self.post(lev.WakeUp(order.at))),
            )
        elif isinstance(order, lev.NewTree):
            assert order.tree.epoch == self.trees[-1].epoch + 1, "an epoch is left out"
            self.trees.append(order.tree)
        elif isinstance(order, lev.ReportFailure):
            self.failures.append(order.error)

    def fork(self, one: tuple[int, int], key: StarterKey) -> None:
        rank, incarnation = one
        if isinstance(key, OnHost) and key.host in self.down:
            self.later(1.0, lambda: self.cannot_fork(one, key))
            return
        pid = next(self.pids)
        self.running[pid] = (rank, incarnation, key)
        self.post(reports.Spawned(rank, incarnation, pid))
        if self.chance.random() < 0.9:  # the others hang
            self.later(0.2, lambda: self.join(pid))

    def cannot_fork(self, one: tuple[int, int], key: OnHost) -> None:
        """Wait for the machine, or report that it was given up."""
        if key.host not in self.down:
            self.fork(one, key)
        elif key.host in self.gone:
            failed = reports.SpawnFailed(*one, "given up", machine_gone=True)
            ready = {1, 2, 3} - self.down
            self.post(lev.MachineGone(failed, tuple(sorted(ready))))
        else:
            self.later(1.0, lambda: self.cannot_fork(one, key))

    def join(self, pid: int) -> None:
        if pid in self.running:
            rank, incarnation, _ = self.running[pid]
            if rank in self.life.tree:
                self.post(ev.PlaceJoined(rank, incarnation, pid))

    def end(self, pid: int, reason: str) -> None:
        """A process ends: its exit and its lost connection are reported in either order."""
        if pid not in self.running:
            return
        rank, incarnation, _ = self.running.pop(pid)
        told = reports.Exited(rank, incarnation, pid, -9, reason)
        self.later(0.2, lambda: self.post(told))
        if self.chance.random() < 0.1:
            self.later(2.0, lambda: self.post(told))  # twice
        self.later(0.2, lambda: self.lose(rank, pid))

    def lose(self, rank: int, pid: int = 0) -> None:
        record = self.life.processes[rank]
        if rank not in self.life.tree or (pid and record.pid != pid):
            return
        below = tuple((one, one + 1) for one in sorted(self.life.tree.subtree(rank)))
        condemned = self.chance.random() < 0.2
        self.post(ev.PlacesLost(below, "the connection was closed", rank, condemned))
        for one in self.life.tree.subtree(rank):
            for other, (at, _, _) in list(self.running.items()):
                if at == one:
                    self.later(1.0, lambda other=other: self.join(other))  # type: ignore[misc]

    def poll(self) -> None:
        self.post(lev.Poll())
        self.later(1.0, self.poll)

    # --- faults ----------------------------------------------------------------------------------

    def crash(self) -> None:
        if self.running:
            self.end(self.chance.choice(list(self.running)), "it crashed")

    def cut(self) -> None:
        ranks = [rank for rank in self.life.tree.subtree(ROOT) if rank]
        if ranks:
            self.lose(self.chance.choice(ranks))

    def end_starter(self) -> None:
        keys = {key for _, _, key in self.running.values()}
        if keys:
            self.lose_starter(self.chance.choice(sorted(keys, key=str)), "the starter ended")

    def lose_starter(self, key: StarterKey, reason: str) -> None:
        for pid, (_, _, at) in list(self.running.items()):
            if at == key:
                del self.running[pid]
        self.post(lev.StarterEnded(key, reason))

    def fail_machine(self) -> None:
        host = self.chance.randint(1, 3)
        if host in self.down:
            return
        self.down.add(host)
        self.lose_starter(OnHost(host), "the node is gone")
        if self.chance.random() < 0.5:
            self.later(3.0, lambda: self.gone.add(host))
        else:
            self.later(3.0, lambda: self.down.discard(host))

    def expand(self) -> None:
        homes = [ROOT, *(one for one in self.life.tree.junctions if one in self.life.tree)]
        rank = self.life.tree.size
        host = self.chance.randint(0, 3) if self.life.hosts else 0
        self.post(lev.Expand({rank: self.chance.choice(homes)}, {rank: host}))

    def contract(self) -> None:
        agents = [one for one in self.life.tree.agent_ranks if one in self.life.tree]
        if len(agents) > 1:
            rank = self.chance.choice(agents)
            self.post(lev.Drain((rank,)))
            self.later(1.0, lambda: self.post(lev.Remove((rank,), "enough")))

    def restart(self) -> None:
        rank = self.chance.choice(list(range(1, self.life.tree.size)))
        self.post(lev.Restart(rank, self.life.processes[rank].incarnation, "asked again"))

    def wrong(self) -> None:
        before = self.life.tree
        with pytest.raises(ConfigurationError):
            self.post(lev.Drain((10_000,)))
        assert self.life.tree is before

    # --- the course ------------------------------------------------------------------------------

    def run_until(self, end: float, rest: Callable[[], bool]) -> None:
        while self.due and self.due[0][0] <= end and not rest():
            at, _, call = heapq.heappop(self.due)
            self.now = max(self.now, at)
            call()

    def at_rest(self) -> bool:
        """Whether each rank is ready or given up, and no process runs that has no rank."""
        if any(len(found) > 1 for found in self.by_rank().values()):
            return False
        settled = {ProcessState.READY, ProcessState.GIVEN_UP}
        return all(record.state in settled for record in self.life.processes)

    def by_rank(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for pid, (rank, _, _) in self.running.items():
            found.setdefault(rank, []).append(pid)
        return found

    def run(self) -> None:
        faults = [
            *(self.crash, self.crash, self.cut, self.end_starter, self.expand, self.contract),
            *(self.restart, self.wrong),
            *([self.fail_machine] if self.life.hosts else []),
        ]
        self.post(lev.StartAll())
        self.later(1.0, self.poll)
        for _ in range(STEPS):
            self.run_until(self.now + self.chance.expovariate(2.0), lambda: False)
            self.chance.choice(faults)()
        self.down -= self.down - self.gone  # machines that were not given up return
        end = self.now + REST
        self.run_until(end, lambda: self.at_rest() or bool(self.failures))
        if not self.failures:
            assert self.at_rest(), list(self.life.processes)
            ready = [one for one in self.life.processes if one.state is ProcessState.READY]
            for record in ready:
                assert self.running[record.pid][0] == record.rank, "a ready process does not run"


@pytest.mark.parametrize(
    "block", [0, 1, *(pytest.param(one, marks=pytest.mark.nightly) for one in range(2, 10))]
)
@pytest.mark.slow
def test_whatever_happens_it_comes_to_rest(block: int) -> None:
    for seed in range(30 * block, 30 * block + 30):
        try:
            World(seed).run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
