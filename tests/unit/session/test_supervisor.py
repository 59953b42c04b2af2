"""The supervisor between the life cycle and starters that only record their orders."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

import pytest

from sapwood.comm import events as ev
from sapwood.contexts import orders
from sapwood.contexts.heartbeat import HeartbeatMonitor
from sapwood.contexts.plan import ZygotePlan
from sapwood.core.errors import AgentLostError, ConfigurationError, NodeLostError, ResourceError
from sapwood.core.topology import Tree, flat, kary
from sapwood.environment.settings import RestartSettings
from sapwood.lifecycle import events as lev
from sapwood.lifecycle.core import LifecyclePolicy, ProcessLifecycle
from sapwood.lifecycle.processes import ProcessState
from sapwood.lifecycle.starters import OnHost, StarterKey
from sapwood.session.starters import ProcessStarter
from sapwood.session.supervisor import (
    HostOrder,
    NodeNetwork,
    ProcessSetup,
    ProcessSupervisor,
    SupervisionTimeouts,
)

TIMEOUTS = SupervisionTimeouts(attach=20.0, join=4.0, heartbeat=1.0, silence=6.0)
JOIN, SILENCE, HEARTBEAT = 4.0, 6.0, 1.0


class Loop:
    """Time that only passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.later: list[tuple[float, Callable[..., Any], tuple[Any, ...]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, function: Callable[..., Any], *args: Any) -> None:
        self.later.append((self.now + delay, function, args))

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [entry for entry in self.later if entry[0] <= end]:
            first = min(due, key=lambda entry: entry[0])
            self.later.remove(first)
            at, function, args = first
            self.now = max(self.now, at)
            function(*args)
        self.now = end


class Starter:
    """Records what a supervisor wants of a starter without heartbeats."""

    pid = 99

    def __init__(self, key: StarterKey) -> None:
        self.key = key
        self.spawned: list[tuple[int, int]] = []
        self.killed: list[int] = []
        self.closed = self.detached = False

    def start(self) -> None:
        pass

    def listen(self, loop: Any) -> None:
        pass

    def detach(self) -> None:
        self.detached = True

    def spawn(self, specs: Sequence[orders.ProcessSpec]) -> None:
        self.spawned += [(spec.rank, spec.incarnation) for spec in specs]

    def kill(self, pid: int) -> None:
        self.killed.append(pid)

    def close(self) -> None:
        self.closed = True


class Zygote(Starter):
    """A starter with heartbeats and a configuration."""

    def __init__(self, key: StarterKey) -> None:
        super().__init__(key)
        self.stopped = self.ended = False
        self.pulse = HeartbeatMonitor()
        self.configuration = b""

    def reconfigure(self, configuration: bytes) -> None:
        self.configuration = configuration

    def is_silent(self, looks: int, first: int) -> bool:
        assert first >= looks
        self.pulse.look()
        if not self.stopped:
            self.pulse.heard()
        return self.pulse.missed >= looks

    def end(self) -> None:
        self.ended = True


class Nodes(NodeNetwork):
    """Machines as a session has them; only what the supervisor uses does something."""

    hint = "look at the nodes"

    def __init__(self, trouble: str = "") -> None:
        self.asked: list[Collection[int]] = []
        self._trouble = trouble

    def trouble(self, hosts: Collection[int]) -> str:
        self.asked.append(hosts)
        return self._trouble

    def ready_hosts(self) -> list[int]:
        return [2]


new_nodes: Callable[..., Nodes] = cast("Any", Nodes)


class Supervised(ProcessSupervisor):
    """A supervisor whose starters are records."""

    def __init__(
        self,
        tree: Tree,
        hosts: tuple[int, ...] = (),
        nodes: Nodes | None = None,
        **restart: Any,
    ) -> None:
        self.made: list[Starter] = []
        self.refused: set[StarterKey] = set()
        self.ordered: list[HostOrder] = []
        self.loop = Loop()
        policy = LifecyclePolicy(
            RestartSettings(**restart),
            attach=TIMEOUTS.attach,
            join=TIMEOUTS.join,
            join_polls=TIMEOUTS.polls(TIMEOUTS.join),
            lost_nodes="move",
        )
        setup = ProcessSetup(
            "tree",
            lambda _: "a:b",
            orders.ConfigureProcesses("", b""),
            ZygotePlan(()),
            nodes=cast("Any", nodes),
            zygote=not hosts,
        )
        super().__init__(
            ProcessLifecycle(tree, hosts, policy), setup, TIMEOUTS, self.ordered.append
        )

    def new_starter(self, key: StarterKey) -> ProcessStarter:
        if key in self.refused:
            raise ResourceError("too many processes")
        self.made.append(Starter(key) if isinstance(key, OnHost) else Zygote(key))
        return self.made[-1]

    def begin(self) -> Supervised:
        self.start()
        self.listen(cast("Any", self.loop))
        return self

    def settle(self) -> Supervised:
        for record in self.processes:
            if record.state is ProcessState.STARTING:
                pid = 100 * record.incarnation + record.rank
                self.reported((), orders.Spawned(record.rank, record.incarnation, pid))
                self.post(ev.PlaceJoined(record.rank, record.incarnation, pid))
        return self

    def exit(self, rank: int) -> None:
        record = self.processes[rank]
        self.reported((), orders.Exited(rank, record.incarnation, record.pid, -9))

    @property
    def zygote(self) -> Zygote:
        assert isinstance(self.made[-1], Zygote)
        return self.made[-1]


def test_orders_reach_the_starter_and_the_owner_of_the_tree() -> None:
    one = Supervised(kary(4, 2)).begin().settle()
    assert one.zygote.spawned == [(rank, 1) for rank in (5, 6, 1, 2, 3, 4)]
    one.exit(2)
    one.loop.advance(0.1)
    assert one.zygote.spawned[6:] == [(2, 2)]
    one.post(ev.PlacesLost(((3, 4),), "its link is gone", 3, condemned=True))
    assert one.zygote.killed == [103]
    changes = [order.change for order in one.ordered if isinstance(order, lev.Notify)]
    assert [(change.ranks, change.disconnected) for change in changes] == [
        ((2,), False),
        ((3,), True),
        ((3,), False),
    ]


def test_it_waits_until_all_are_ready() -> None:
    one = Supervised(flat(2)).begin()
    with pytest.raises(ResourceError, match="2 of 2 processes are not ready after 0 s") as caught:
        one.wait_ready(0.0)
    assert caught.value.where == "rank[1-2]"
    one.settle()
    one.wait_ready(0.0)


def test_a_process_that_cannot_be_started_fails_the_start() -> None:
    one = Supervised(flat(2)).begin()
    one.reported((), orders.SpawnFailed(2, 1, "Resource temporarily unavailable"))
    with pytest.raises(ResourceError, match="rank 2: Resource temporarily unavailable"):
        one.wait_ready(0.0)


def test_processes_that_are_not_ready_name_a_head_that_does_not_answer() -> None:
    nodes = new_nodes("the head did not answer within 2 s")
    one = Supervised(flat(2), (0, 1, 1), nodes).begin()
    with pytest.raises(NodeLostError, match="not ready after 0 s: the head did not answer") as told:
        one.wait_ready(0.0)
    assert (told.value.where, told.value.exit_code) == ("rank[1-2]", 6)
    assert nodes.asked == [{1}]
    assert "fewer agents" not in told.value.hint


def test_a_report_that_cannot_be_taken_does_not_stop_the_next() -> None:
    one = Supervised(flat(1)).begin()
    one.reported((), orders.Spawned(77, 1, 5))  # there is no such rank
    one.settle()
    one.wait_ready(0.0)


def test_a_machine_that_is_gone_comes_with_those_that_are_ready() -> None:
    one = Supervised(flat(2), (0, 1, 2), new_nodes()).begin().settle()
    one.ended(OnHost(1), "the node is gone")
    one.loop.advance(0.1)
    failed = orders.SpawnFailed(1, 2, "it was given up", machine_gone=True)
    one.reported(OnHost(1), failed)
    assert [order for order in one.ordered if isinstance(order, lev.MoveRanks)] == [
        lev.MoveRanks((1,), 2, (0, 2, 2))
    ]
    assert one.made[1].spawned == [(2, 1), (1, 3)]
    one.close()
    assert all(starter.closed for starter in one.made)


@pytest.mark.parametrize("restarts", [0, 5])
def test_a_zygote_that_hangs_is_killed_and_replaced(restarts: int) -> None:
    one = Supervised(kary(4, 2), limit=restarts).begin().settle()
    one.zygote.stopped = True
    one.loop.advance(SILENCE - HEARTBEAT)
    assert len(one.made) == 1
    one.loop.advance(4 * HEARTBEAT)
    first, second = one.made
    assert isinstance(first, Zygote)
    assert first.ended
    assert first.closed
    assert len(second.spawned) == (6 if restarts else 0)
    if not restarts:
        assert isinstance(one.failure, AgentLostError)
        assert "the zygote gave no sign of life for 6 s" in one.failure.what


def test_a_zygote_that_continues_in_time_is_left_alone() -> None:
    one = Supervised(kary(4, 2)).begin().settle()
    for _ in range(5):
        one.zygote.stopped = True
        one.loop.advance(SILENCE - HEARTBEAT)
        one.zygote.stopped = False
        one.loop.advance(2 * HEARTBEAT)
    assert not one.zygote.ended
    assert len(one.made) == 1


def test_the_time_to_join_is_counted_in_polls() -> None:
    """A supervisor that was stopped itself does not blame others for the time in between."""
    one = Supervised(flat(1)).begin().settle()
    one.exit(1)
    one.loop.advance(0.1)
    one.reported((), orders.Spawned(1, 2, 201))
    one.loop.now += 1000.0
    one.loop.advance(HEARTBEAT)
    assert one.zygote.killed == []
    one.loop.advance(2 * JOIN)
    assert one.zygote.killed == [201]


def test_a_zygote_that_cannot_be_replaced_fails_the_session_until_it_can() -> None:
    one = Supervised(flat(2)).begin().settle()
    one.refused.add(())
    one.ended()
    assert isinstance(one.failure, ResourceError)
    with pytest.raises(ResourceError, match="the zygote is gone"):
        one.lend()
    one.refused.clear()
    one.loop.advance(1.0)
    assert one.zygote.spawned == [(1, 2), (2, 2)]


def test_nothing_is_started_after_the_end() -> None:
    one = Supervised(flat(1)).begin().settle()
    one.exit(1)
    one.detach()
    one.loop.advance(10.0)
    one.exit(1)
    assert one.zygote.spawned == [(1, 1)]


def test_a_configuration_reaches_the_starters_that_hold_one() -> None:
    one = Supervised(flat(2), (0, 0, 1), new_nodes()).begin()
    setup = ProcessSetup(
        "tree",
        lambda _: "a:b",
        orders.ConfigureProcesses("", b""),
        ZygotePlan(()),
        configuration_of=lambda host: f"host {host}".encode(),
    )
    one.reconfigure(setup)
    (zygote,) = [starter for starter in one.made if isinstance(starter, Zygote)]
    assert zygote.configuration == b"host 0"


def test_a_tree_that_cannot_change_says_so_and_stays() -> None:
    one = Supervised(flat(2)).begin().settle()
    before = one.life.tree
    with pytest.raises(ConfigurationError, match="cannot be removed"):
        one.post(lev.Drain((7,)))
    assert one.life.tree is before
    assert one.ordered == []


def test_reports_of_ready_zygotes_are_kept() -> None:
    one = Supervised(flat(1)).begin()
    ready = orders.Ready(7, 0.1, "x86_64", "glibc 2.36", "3.11.2")
    one.reported(("arm",), ready)
    one.reported((), ready)
    assert one.zygotes == [ready, ready]
