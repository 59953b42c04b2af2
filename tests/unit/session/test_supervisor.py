"""Events in, orders and news out: the supervisor without processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

import pytest

from sapwood.comm import events as ev
from sapwood.contexts import orders
from sapwood.contexts.heartbeat import HeartbeatMonitor
from sapwood.contexts.orders import ProcessSpec
from sapwood.contexts.plan import ZygotePlan
from sapwood.core.errors import AgentLostError, NodeLostError, ResourceError
from sapwood.core.topology import Tree, flat, kary
from sapwood.environment.settings import RestartSettings
from sapwood.session.places import PlaceState
from sapwood.session.supervisor import (
    JOINED_AGENTS,
    OnHost,
    PlaceChange,
    ProcessSetup,
    ProcessStarters,
    ProcessSupervisor,
    StarterKey,
    SupervisionTimeouts,
    starter_keys,
)

PATIENCE = 20.0
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
            self.now, function, args = first
            function(*args)
        self.now = end


class Zygote:
    """Notes what a supervisor wants of its zygote."""

    pid = 99

    def __init__(self) -> None:
        self.spawned: list[tuple[int, int]] = []
        self.killed: list[int] = []
        self.closed = self.stopped = self.ended = False
        self.pulse = HeartbeatMonitor()

    def start(self) -> None:
        pass

    def listen(self, loop: Loop) -> None:
        pass

    def detach(self) -> None:
        pass

    def reconfigure(self, configuration: bytes) -> None:
        pass

    def spawn(self, specs: Sequence[orders.ProcessSpec]) -> None:
        self.spawned += [(spec.rank, spec.incarnation) for spec in specs]

    def kill(self, pid: int) -> None:
        self.killed.append(pid)

    def is_silent(self, looks: int, first: int) -> bool:
        assert first >= looks
        self.pulse.look()
        if not self.stopped:
            self.pulse.heard()
        return self.pulse.missed >= looks

    def end(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.closed = True


class House:
    """A supervisor, and what it does."""

    def __init__(
        self, tree: Tree, monkeypatch: pytest.MonkeyPatch, restart: RestartSettings
    ) -> None:
        self.zygotes: list[Zygote] = []
        monkeypatch.setattr(
            ProcessSupervisor, "_new_spawner", lambda _supervisor: self._new_zygote()
        )
        self.changes: list[tuple[tuple[int, ...], str]] = []
        self.loop = Loop()
        self.tree = tree
        configure = orders.ConfigureProcesses("", b"")
        self.supervisor = ProcessSupervisor(
            tree,
            ProcessSetup("tree", lambda _: "a:b", configure, ZygotePlan(())),
            restart,
            SupervisionTimeouts(attach=PATIENCE, join=JOIN, heartbeat=HEARTBEAT, silence=SILENCE),
            self._changed,
        )
        self.supervisor.start()
        self.supervisor.listen(cast("Any", self.loop))

    def _new_zygote(self) -> Zygote:
        self.zygotes.append(Zygote())
        return self.zygotes[-1]

    def _changed(self, change: PlaceChange) -> None:
        assert change.reason or change.back
        kind = "attached" if change.disconnected else "replaced"
        gone = "cut off" if change.disconnected else "lost"
        self.changes.append((change.ranks, kind if change.back else gone))

    def pid(self, rank: int) -> int:
        return 100 * self.supervisor.places[rank].incarnation + rank

    def fork(self, rank: int) -> None:
        incarnation = self.supervisor.places[rank].incarnation
        self.supervisor._reported(orders.Spawned(rank, incarnation, self.pid(rank)))

    def join(self, rank: int) -> None:
        incarnation = self.supervisor.places[rank].incarnation
        self.supervisor.joined(ev.PlaceJoined(rank, incarnation, self.pid(rank)))

    def exit(self, rank: int, status: int = -9) -> None:
        incarnation = self.supervisor.places[rank].incarnation
        self.supervisor._reported(orders.Exited(rank, incarnation, self.pid(rank), status))

    def lose(self, rank: int, *, condemned: bool = False) -> None:
        ranks = tuple((place, place + 1) for place in sorted(self.tree.subtree(rank)))
        reason = "the connection was closed"
        self.supervisor.lost(ev.PlacesLost(ranks, reason, rank, condemned))

    def settle(self) -> None:
        """Let every ordered process start and join."""
        for rank in self.tree.subtree(0)[1:]:
            if self.supervisor.places[rank].state is PlaceState.STARTING:
                self.fork(rank)
                self.join(rank)

    def spawned(self) -> list[tuple[int, int]]:
        """Return and forget what was ordered."""
        ordered, self.zygotes[-1].spawned = self.zygotes[-1].spawned, []
        return ordered

    def killed(self) -> list[int]:
        """Return and forget who was killed."""
        ordered, self.zygotes[-1].killed = self.zygotes[-1].killed, []
        return ordered


Build = Callable[..., House]


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Build:
    def make(tree: Tree | None = None, **policy: Any) -> House:
        house = House(tree or kary(4, 2), monkeypatch, RestartSettings(**policy))
        assert house.spawned() == [(rank, 1) for rank in house.tree.subtree(0)[1:]]
        return house

    return make


def test_it_is_ready_when_everybody_is(build: Build) -> None:
    house = build()
    for rank in (5, 6, 1, 2, 3):
        house.fork(rank)
        house.join(rank)
    with pytest.raises(ResourceError, match="1 of 6 processes are not ready") as caught:
        house.supervisor.wait_ready(0.0)
    assert caught.value.where == "rank 4"
    house.join(4)
    house.supervisor.wait_ready(0.0)


def test_an_agent_that_ended_is_replaced(build: Build) -> None:
    house = build()
    house.settle()
    house.lose(2)
    assert house.killed() == []  # the link may be all that is gone
    assert house.changes == [((2,), "cut off")]
    house.exit(2)
    house.loop.advance(0.1)
    assert house.spawned() == [(2, 2)]
    house.settle()
    assert house.changes[1:] == [((2,), "lost"), ((2,), "replaced")]
    assert house.supervisor.restarts == 1


def test_of_whom_a_loss_was_told_while_all_start_the_return_is_told(build: Build) -> None:
    """Else requests to it would be refused for ever: it counts as gone."""
    house = build()
    house.fork(1)
    house.exit(1)
    house.loop.advance(0.1)
    assert house.changes == [((1,), "lost")]
    house.fork(2)
    house.join(2)
    house.lose(2)
    house.join(2)
    assert house.changes[1:] == [((2,), "cut off"), ((2,), "attached")]
    house.settle()
    assert house.changes[3:] == [((1,), "replaced")]


def test_the_order_of_the_news_does_not_matter(build: Build) -> None:
    house = build()
    house.settle()
    house.exit(2)
    house.lose(2)
    house.loop.advance(0.1)
    assert house.spawned() == [(2, 2)]
    assert house.changes == [((2,), "lost")]


def test_of_a_junction_that_ended_only_the_junction_is_replaced(build: Build) -> None:
    house = build()
    house.settle()
    house.exit(5)
    house.lose(5)
    assert house.killed() == []
    assert house.changes == [((5,), "lost"), ((1, 2), "cut off")]
    for rank in (1, 2):
        assert house.supervisor.places[rank].state is PlaceState.DISCONNECTED
        house.join(rank)
    house.loop.advance(0.1)
    assert house.spawned() == [(5, 2)]
    house.settle()
    assert house.changes[2:] == [((1,), "attached"), ((2,), "attached"), ((5,), "replaced")]
    assert house.supervisor.restarts == 1


def test_who_is_attached_nowhere_in_time_is_replaced(build: Build) -> None:
    house = build()
    house.settle()
    house.lose(5)
    house.join(1)
    house.loop.advance(3 * PATIENCE)  # rank 2 and its junction: two and three levels below the root
    assert sorted(house.killed()) == [house.pid(2), house.pid(5)]
    house.exit(5)
    house.exit(2)
    house.loop.advance(1.0)
    assert sorted(house.spawned()) == [(2, 2), (5, 2)]


def test_who_was_attached_again_is_judged_by_its_last_loss(build: Build) -> None:
    house = build(flat(2))
    house.settle()
    house.lose(2)
    house.join(2)
    house.loop.advance(PATIENCE)
    house.lose(2)
    house.loop.advance(PATIENCE)  # the time of the first loss is up, the second one's is not
    assert house.killed() == []
    house.loop.advance(PATIENCE)
    assert house.killed() == [house.pid(2)]


def test_an_agent_that_leaves_by_itself_is_replaced(build: Build) -> None:
    house = build(flat(2))
    house.settle()
    house.exit(2, status=0)
    house.lose(2)
    house.loop.advance(0.1)
    assert house.spawned() == [(2, 2)]


def test_several_that_end_at_once_are_replaced_each(build: Build) -> None:
    house = build()
    house.settle()
    for rank in (1, 5, 6):
        house.exit(rank)
    house.loop.advance(1.0)
    assert sorted(house.spawned()) == [(1, 2), (5, 2), (6, 2)]


def test_a_process_that_was_given_up_while_it_was_forked_is_ended(build: Build) -> None:
    house = build()
    house.settle()
    house.exit(1)
    house.loop.advance(0.1)
    house.supervisor._starter_ended()  # with it rank 1, whose second process is not reported yet
    house.loop.advance(1.0)
    late = orders.Spawned(1, 2, 777)
    house.supervisor._reported(late)
    assert 777 in house.killed()


def test_news_of_an_older_process_change_nothing(build: Build) -> None:
    house = build()
    house.settle()
    house.exit(1)
    house.loop.advance(0.1)
    house.settle()
    house.changes.clear()
    house.supervisor._reported(orders.Exited(1, 1, 101, -9))
    house.supervisor.joined(ev.PlaceJoined(1, 1, 101))
    assert house.changes == []
    assert house.supervisor.places[1].state is PlaceState.READY


def test_a_place_that_its_parent_took_for_dead_is_ended_and_replaced(build: Build) -> None:
    house = build()
    house.settle()
    house.lose(3, condemned=True)
    assert house.killed() == [house.pid(3)]
    house.exit(3)
    house.loop.advance(0.1)
    assert house.spawned() == [(3, 2)]


def test_a_zygote_that_ends_is_replaced_with_everybody(build: Build) -> None:
    house = build()
    house.settle()
    house.supervisor._starter_ended()
    assert house.zygotes[0].closed
    house.loop.advance(0.1)
    assert sorted(house.spawned()) == [(rank, 2) for rank in range(1, 7)]
    assert house.killed() == []
    house.settle()
    assert [change for change in house.changes if change[1] == "lost"] == [
        (tuple(house.tree.subtree(0)[1:]), "lost")
    ]
    assert len([change for change in house.changes if change[1] == "replaced"]) == 6


def test_a_process_that_does_not_join_in_time_is_ended_and_replaced(build: Build) -> None:
    house = build(flat(2))
    house.settle()
    house.exit(1)
    house.loop.advance(0.1)
    assert house.spawned() == [(1, 2)]
    house.fork(1)
    house.loop.advance(JOIN - HEARTBEAT)
    assert house.killed() == []
    house.loop.advance(3 * HEARTBEAT)
    assert house.killed() == [house.pid(1)]
    house.exit(1)
    house.loop.advance(0.1)
    assert house.spawned() == [(1, 3)]
    house.fork(1)
    house.join(1)
    assert house.changes == [((1,), "lost"), ((1,), "lost"), ((1,), "replaced")]
    house.loop.advance(3 * JOIN)
    assert house.killed() == []


def test_the_time_to_join_begins_with_the_fork(build: Build) -> None:
    house = build(flat(2))
    house.settle()
    house.exit(1)
    house.loop.advance(3 * JOIN)  # the zygote has much to do
    house.fork(1)
    house.loop.advance(JOIN - HEARTBEAT)
    assert house.killed() == []
    house.join(1)
    assert house.supervisor.places[1].state is PlaceState.READY


def test_who_never_joins_is_given_up_however_slowly_that_goes(build: Build) -> None:
    house = build(flat(2), limit=2, window=1.0)  # the window forgets each restart in time
    house.settle()
    house.exit(1)
    for _ in range(3):
        house.loop.advance(0.1)
        house.fork(1)
        house.loop.advance(3 * JOIN)
        house.exit(1)
    failure = house.supervisor.failure
    assert isinstance(failure, AgentLostError)
    assert "rank 1 end again and again: it did not join the tree within 4 s" in failure.what
    assert "cluster.join_timeout" in failure.what
    assert house.supervisor.places[1].state is PlaceState.LOST


def test_joining_once_makes_good_for_earlier_failures(build: Build) -> None:
    house = build(flat(1), limit=2, window=1.0)
    house.settle()
    house.exit(1)
    for _ in range(4):
        house.loop.advance(0.1)
        house.fork(1)
        house.loop.advance(3 * JOIN)
        house.exit(1)
        house.loop.advance(2.0)
        house.settle()
        house.exit(1)
    assert house.supervisor.failure is None


def test_a_place_that_may_take_for_ever_is_waited_for(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "JOIN", 0.0)
    house = build(flat(1))
    house.fork(1)
    house.loop.advance(10_000.0)
    assert house.killed() == []


def test_a_zygote_that_gives_no_sign_of_life_is_killed_and_replaced(build: Build) -> None:
    house = build()
    house.settle()
    house.zygotes[0].stopped = True
    house.loop.advance(SILENCE - HEARTBEAT)
    assert len(house.zygotes) == 1
    house.loop.advance(4 * HEARTBEAT)
    assert len(house.zygotes) == 2
    assert house.zygotes[0].ended
    assert sorted(house.spawned()) == [(rank, 2) for rank in range(1, 7)]
    house.settle()
    assert all(record.is_ready for record in house.supervisor.places)


def test_a_zygote_that_goes_on_in_time_is_left_alone(build: Build) -> None:
    house = build()
    house.settle()
    for _ in range(5):
        house.zygotes[0].stopped = True
        house.loop.advance(SILENCE - HEARTBEAT)
        house.zygotes[0].stopped = False
        house.loop.advance(2 * HEARTBEAT)
    assert not house.zygotes[0].ended
    assert house.changes == []


def test_zygotes_that_hang_again_and_again_are_given_up(build: Build) -> None:
    house = build(flat(1), limit=2, window=1.0)
    house.settle()
    for _ in range(4):
        house.zygotes[-1].stopped = True
        house.loop.advance(3 * SILENCE)
    failure = house.supervisor.failure
    assert isinstance(failure, AgentLostError)
    assert "the zygote gave no sign of life for 6 s" in failure.what


def test_pauses_between_restarts_double_up_to_a_longest(build: Build) -> None:
    house = build(flat(1), limit=5, backoff=1.0, backoff_max=3.0)
    house.settle()
    for pause in (1.0, 2.0, 3.0, 3.0):
        house.exit(1)
        house.loop.advance(pause - 0.1)
        assert house.spawned() == []
        house.loop.advance(0.1)
        assert len(house.spawned()) == 1
        house.settle()


def test_too_many_restarts_end_in_a_clear_error(build: Build) -> None:
    house = build(flat(2), limit=2, backoff=0.0)
    house.settle()
    for _ in range(3):
        house.exit(1, status=3)
        house.loop.advance(0.1)
        house.settle()
    failure = house.supervisor.failure
    assert isinstance(failure, AgentLostError)
    assert "rank 1 end again and again: exited with code 3" in failure.what
    assert "restart.limit" in failure.hint
    assert house.changes[-1] == ((1,), "lost")
    assert house.supervisor.places[1].state is PlaceState.LOST


def test_each_place_has_restarts_of_its_own(build: Build) -> None:
    """Many places that end once are not one place that ends again and again."""
    house = build(flat(8), limit=1, backoff=0.5)
    house.settle()
    for rank in range(1, 9):
        house.exit(rank)
    house.loop.advance(0.5)
    assert sorted(house.spawned()) == [(rank, 2) for rank in range(1, 9)]
    house.settle()
    failure = house.supervisor.failure
    assert failure is None
    house.exit(3)
    failure = house.supervisor.failure
    assert isinstance(failure, AgentLostError)
    assert "rank 3 end again and again" in failure.what


def test_restarts_of_long_ago_do_not_count(build: Build) -> None:
    house = build(flat(1), limit=1, window=60.0)
    house.settle()
    for _ in range(5):
        house.exit(1)
        house.loop.advance(61.0)
        house.settle()
    assert house.supervisor.failure is None


def test_an_agent_that_never_gets_ready_fails_the_start(build: Build) -> None:
    house = build(flat(2), limit=2, backoff=0.0)
    for _ in range(3):
        house.fork(1)
        house.exit(1, status=1)
        house.loop.advance(0.1)
    with pytest.raises(AgentLostError, match="exited with code 1"):
        house.supervisor.wait_ready(0.0)


def test_a_process_that_cannot_be_forked_fails_the_start(build: Build) -> None:
    house = build()
    house.supervisor._reported(orders.SpawnFailed(3, 1, "Resource temporarily unavailable"))
    with pytest.raises(ResourceError, match="rank 3: Resource temporarily unavailable"):
        house.supervisor.wait_ready(0.0)


def test_nothing_is_started_after_the_end(build: Build) -> None:
    house = build()
    house.settle()
    house.exit(1)
    house.supervisor.detach()
    house.loop.advance(10.0)
    assert house.spawned() == []


# --- zygotes: orders reach the one of the interpreter that a place runs on ---


ARM = ("qemu", "python3")


class Spawner:
    """Records its calls."""

    def __init__(self, command: StarterKey) -> None:
        self.command = command
        self.told: list[Any] = []

    def start(self) -> None:
        self.told.append("start")

    def listen(self, loop: Any) -> None:
        self.told.append(("listen", loop))

    def spawn(self, specs: Sequence[ProcessSpec]) -> None:
        self.told.append([spec.rank for spec in specs])

    def kill(self, pid: int) -> None:
        self.told.append(("kill", pid))

    def close(self) -> None:
        self.told.append("close")


class Made:
    """ProcessStarters whose spawners are notes."""

    def __init__(self, interpreters: dict[int, StarterKey]) -> None:
        self.spawners: list[Spawner] = []
        self.zygotes = ProcessStarters(self._make, interpreters)

    def _make(self, command: StarterKey) -> Any:
        self.spawners.append(Spawner(command))
        return self.spawners[-1]


ZYGOTE_SPECS = [ProcessSpec("a:b", rank, 1) for rank in range(1, 5)]


def test_each_interpreter_has_one_zygote() -> None:
    made = Made({2: ARM, 4: ARM})
    assert [spawner.command for spawner in made.spawners] == [(), ARM]
    made.zygotes.start(ZYGOTE_SPECS)
    assert [spawner.told for spawner in made.spawners] == [["start", [1, 3]], ["start", [2, 4]]]
    made.zygotes.kill(4, 77)
    assert made.spawners[1].told[-1] == ("kill", 77)
    assert [made.zygotes.runs_on(rank, ARM) for rank in (1, 2)] == [False, True]


def test_only_the_zygote_that_ended_is_replaced() -> None:
    made = Made({2: ARM})
    made.zygotes.start(ZYGOTE_SPECS)
    loop = cast("Any", object())
    made.zygotes.replace(ARM, loop)
    default, old, new = made.spawners
    assert (old.told[-1], new.command, new.told) == ("close", ARM, ["start", ("listen", loop)])
    assert "close" not in default.told
    assert made.zygotes.of(2) is cast("Any", new)
    assert made.zygotes.main is cast("Any", default)


def test_zygotes_that_hang_are_waited_for_at_once() -> None:
    made = Made({2: ARM, 3: ("/other/python",)})
    together = threading.Barrier(3, timeout=10.0)
    for spawner in made.spawners:
        spawner.close = together.wait  # type: ignore[method-assign, assignment]
    made.zygotes.close()  # one after the other, the first would wait for ever
    assert not together.broken


def test_a_zygote_that_cannot_be_ended_is_an_error_and_the_others_are_ended() -> None:
    made = Made({2: ARM})

    def fail() -> None:
        raise ResourceError("no such process")

    made.spawners[1].close = fail  # type: ignore[method-assign]
    with pytest.raises(ResourceError, match="no such process"):
        made.zygotes.close()
    assert made.spawners[0].told == ["close"]


def test_without_other_interpreters_there_is_one() -> None:
    made = Made({})
    made.zygotes.start(ZYGOTE_SPECS)
    assert [spawner.told for spawner in made.spawners] == [["start", [1, 2, 3, 4]]]


class Node(Zygote):
    """A node that can begin nothing: whatever it is asked for ends."""

    def __init__(self, ended: Callable[[str], None]) -> None:
        super().__init__()
        self.tell_end = ended


class Nodes:
    """Simulated machines of a session."""

    def __init__(self, trouble: str = "") -> None:
        self.made: list[Node] = []
        self.looked_at: list[Collection[int]] = []
        self._trouble = trouble

    hint = "look at the nodes"

    def trouble(self, hosts: Collection[int]) -> str:
        self.looked_at.append(hosts)
        return self._trouble

    def starter(
        self,
        _host: int,
        _setup: ProcessSetup,
        _on_report: Callable[[orders.Report], None],
        on_end: Callable[[str], None],
    ) -> Node:
        self.made.append(Node(on_end))
        return self.made[-1]


def supervisor_over(nodes: Nodes) -> ProcessSupervisor:
    """Return the supervisor of two agents on another machine."""
    return ProcessSupervisor(
        flat(2),
        ProcessSetup(
            "tree",
            lambda _: "a:b",
            orders.ConfigureProcesses("", b""),
            ZygotePlan(()),
            hosts={0: 0, 1: 1, 2: 1},
            nodes=cast("Any", nodes),
            zygote=False,
        ),
        RestartSettings(limit=3),
        SupervisionTimeouts(attach=PATIENCE, join=JOIN, heartbeat=HEARTBEAT, silence=SILENCE),
        lambda _change: None,
    )


def test_processes_that_are_not_ready_name_a_head_that_does_not_answer() -> None:
    nodes = Nodes("the head did not answer within 2 s")
    supervisor = supervisor_over(nodes)
    supervisor.start()
    with pytest.raises(NodeLostError, match="not ready after 0 s: the head did not answer") as told:
        supervisor.wait_ready(0.0)
    assert (told.value.where, told.value.exit_code) == ("rank[1-2]", 6)
    assert nodes.looked_at == [{1}]
    assert "fewer agents" not in told.value.hint


def test_a_node_that_can_begin_nothing_is_not_asked_for_ever() -> None:
    nodes, loop = Nodes(), Loop()
    supervisor = supervisor_over(nodes)
    supervisor.start()
    supervisor.listen(cast("Any", loop))
    for _ in range(20):
        count = len(nodes.made)
        nodes.made[-1].tell_end("its disk is full")
        if len(nodes.made) == count:
            break
    assert len(nodes.made) <= 4
    assert supervisor.failure is not None
    assert "its disk is full" in str(supervisor.failure)


# --- the tree changes -----------------------------------------------------------------------------


class Changing:
    """A supervisor of a tree that changes, on machines that are none."""

    def __init__(self) -> None:
        self.nodes, self.loop = Nodes(), Loop()
        self.changes: list[PlaceChange] = []
        self.tree = flat(0)
        self.hosts: dict[int, int] = {}
        self.lost: list[tuple[int, str]] = []
        self.supervisor = ProcessSupervisor(
            self.tree,
            self._setup(),
            RestartSettings(limit=3, backoff=0.5, backoff_max=0.5),
            SupervisionTimeouts(attach=PATIENCE, join=JOIN, heartbeat=HEARTBEAT, silence=SILENCE),
            self.changes.append,
            on_joined_lost=lambda rank, reason: self.lost.append((rank, reason)),
        )
        self.supervisor.start()
        self.supervisor.wait_ready(0.0)
        self.supervisor.listen(cast("Any", self.loop))

    def _setup(self) -> ProcessSetup:
        return ProcessSetup(
            "tree",
            lambda _: "a:b",
            orders.ConfigureProcesses("", b""),
            ZygotePlan(()),
            hosts=self.hosts,
            nodes=cast("Any", self.nodes),
            zygote=False,
        )

    def expand(self, host: int) -> int:
        rank = self.tree.size
        self.tree = self.tree.with_agents({rank: 0})
        self.hosts[rank] = host
        key = OnHost(host) if host > 0 else JOINED_AGENTS
        self.supervisor.expand(self.tree, self._setup(), {rank: key})
        return rank

    def join(self, rank: int, incarnation: int = 1) -> None:
        pid = 100 * incarnation + rank
        self.supervisor._reported(orders.Spawned(rank, incarnation, pid))
        self.supervisor.joined(ev.PlaceJoined(rank, incarnation, pid))

    def drain(self, rank: int) -> None:
        self.tree = self.tree.without([rank])
        self.supervisor.drain(self.tree, self._setup())


def test_an_added_place_is_begun_by_its_starter_and_told_once_it_is_there() -> None:
    one = Changing()
    assert [one.expand(4), one.expand(4), one.expand(7)] == [1, 2, 3]
    assert [node.spawned for node in one.nodes.made] == [[(1, 1), (2, 1)], [(3, 1)]]
    assert one.changes == []
    one.join(2)
    (change,) = one.changes
    assert (change.ranks, change.back, change.added) == ((2,), True, True)
    assert not one.supervisor.places.all_ready()


def test_a_process_of_an_added_place_that_ends_is_replaced() -> None:
    one = Changing()
    rank = one.expand(1)
    one.supervisor._reported(orders.Spawned(rank, 1, 101))
    one.supervisor._reported(orders.Exited(rank, 1, 101, 1))
    one.loop.advance(1.0)
    assert one.nodes.made[0].spawned == [(rank, 1), (rank, 2)]
    one.join(rank, 2)
    assert one.changes[-1].added  # the first one never was there


def test_a_place_that_leaves_is_not_begun_again_and_its_starter_ends() -> None:
    one = Changing()
    for host in (1, 2):
        one.join(one.expand(host))
    one.drain(2)
    assert one.nodes.made[1].killed == []  # it may have something to finish
    one.supervisor.contract([2], "enough")
    change = one.changes[-1]
    assert (change.ranks, change.removed, change.for_good) == ((2,), True, True)
    assert (change.back, change.reason) == (False, "enough")
    assert one.nodes.made[1].killed == [102]
    one.supervisor.close()
    assert one.nodes.made[1].closed
    one.supervisor._reported(orders.Exited(2, 1, 102, -9))
    one.supervisor._reported(orders.SpawnFailed(2, 1, "no"))
    one.supervisor._reported(orders.Spawned(2, 1, 102))
    one.supervisor.joined(ev.PlaceJoined(2, 1, 102))
    one.loop.advance(100.0)
    assert one.changes[-1] is change
    assert [record.rank for record in one.supervisor.places] == [1]
    assert one.supervisor.places.all_ready()
    assert one.expand(2) == 3


@pytest.mark.parametrize("how", ["exited", "lost"])
def test_a_place_that_ends_while_it_finishes_has_left(how: str) -> None:
    one = Changing()
    one.join(one.expand(1))
    one.drain(1)
    if how == "exited":
        one.supervisor._reported(orders.Exited(1, 1, 101, -9))
    else:
        one.supervisor.lost(ev.PlacesLost(((1, 2),), "its link is gone", 1))
        one.loop.advance(10 * PATIENCE)
    assert one.changes[-1].removed
    assert one.nodes.made[0].spawned == [(1, 1)]
    told = len(one.changes)
    one.supervisor.contract([1], "enough")
    assert len(one.changes) == told


@pytest.mark.row("C3-AGENT")
@pytest.mark.parametrize("condemned", [False, True])
def test_an_agent_that_somebody_else_started_is_not_replaced(*, condemned: bool) -> None:
    one = Changing()
    rank, other = one.expand(-1), one.expand(7)
    assert starter_keys(one.tree, one._setup()) == {rank: JOINED_AGENTS, other: OnHost(7)}
    assert one.supervisor.has_joined(rank)
    assert not one.supervisor.has_joined(other)
    one.loop.advance(10 * JOIN)  # how long its process takes is unknown here
    assert one.lost == []
    one.supervisor.joined(ev.PlaceJoined(rank, 1, 4711))
    assert one.supervisor.places[rank].pid == 4711
    one.supervisor.lost(ev.PlacesLost(((rank, rank + 1),), "it is silent", rank, condemned))
    assert set(one.lost) == {(rank, "it is silent")}
    one.drain(rank)
    one.supervisor.contract([rank], "it is silent")
    one.loop.advance(10 * PATIENCE)
    assert [node.spawned for node in one.nodes.made] == [[(other, 1)]]
    assert one.changes[-1].removed
    assert not one.supervisor.has_joined(rank)
