"""Machines under faults: the head and a session on them run production code, in virtual time.

The life cycle of machines, the supervisor of daemons, a session's hold on each node and its
supervisor run as they do in a head. The world around them has machines whose daemons crash, that
are cut off from the head, and that join again by their certificates. Their links and the tree
report each loss at random times, in either order. The session's agents move meanwhile, leave, or
wait, as its policy says.

Afterwards all machines are nodes again, each under its own name, and the session's processes run
once each, where the session knows them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sapwood.comm import events as ev
from sapwood.contexts import orders
from sapwood.contexts.plan import ZygotePlan
from sapwood.core.clock import VirtualClock
from sapwood.core.errors import AgentLostError, CommunicationError
from sapwood.core.futures import CallerFuture
from sapwood.core.topology import Tree, flat, kary
from sapwood.environment.settings import RestartSettings
from sapwood.lifecycle import events as lev
from sapwood.lifecycle import machine_events as mev
from sapwood.lifecycle.core import LifecyclePolicy, ProcessLifecycle
from sapwood.lifecycle.machine_core import MachineLifecycle, MachinePolicy
from sapwood.lifecycle.machines import MachineState
from sapwood.lifecycle.processes import ProcessState
from sapwood.nodes import messages
from sapwood.nodes.control_access import SessionsOnNodes
from sapwood.nodes.machines import MachineSupervisor
from sapwood.nodes.processes import SessionNodes, SessionOnNode
from sapwood.nodes.starting import AwaitedDaemon
from sapwood.session.interface import NewAgent
from sapwood.session.options import PlacesChanged
from sapwood.session.starters import ProcessStarter
from sapwood.session.supervisor import ProcessSetup, ProcessSupervisor, SupervisionTimeouts
from sapwood_simulation.processes import VirtualLoop

MACHINES = 3
FAULTS = 25
REST = 5000.0
TIMEOUTS = SupervisionTimeouts(attach=6.0, join=0.0, heartbeat=1.0, silence=4.0)
RESTART = RestartSettings(limit=1000, window=50.0, backoff=0.5, backoff_max=4.0)


class Daemon:
    """A daemon of a machine, with the session's processes that it has started."""

    def __init__(self, machine: Machine, rank: int, incarnation: int) -> None:
        self.machine = machine
        self.rank = rank
        self.incarnation = incarnation
        self.pid = machine.world.new_pid()
        self.life = 0
        self.processes: dict[int, tuple[int, int]] = {}  # rank and incarnation, by process id


class Machine:
    """A machine that is a node, or wants to be one."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.node = ""
        self.cut = False
        self.daemon: Daemon | None = None
        self.asks = 0


class World:
    """A head, its machines, and a session on them."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)  # noqa: S311 - chance that can be repeated
        self.clock = VirtualClock()
        self.loop = cast("Any", VirtualLoop(self.clock))
        self._pids = iter(range(100, 1_000_000))
        # The head.
        self.sessions = SessionsOnNodes()
        self.machines = MachineSupervisor(
            MachineLifecycle((), MachinePolicy(join=10.0)), lambda: self, self.sessions.notify
        )
        self.machines.listen(self.loop)
        self.daemons = ProcessLifecycle(flat(0), (), LifecyclePolicy(RESTART, attach=6.0))
        self.supervisor = self._supervisor(self.daemons, self, self._head_order)
        self.host = self
        self.computers = [Machine(self, f"m{number}") for number in range(MACHINES)]
        self.supervisor.start()
        self.supervisor.listen(self.loop)
        for machine in self.computers:
            self.later(0.1, self.ask, machine, machine.asks)
        self.run_until(30.0, self.all_are_nodes)
        # The session.
        tree = chance.choice([flat(4), kary(6, 3)])
        hosts = (0, *(chance.randint(1, MACHINES) for _ in range(tree.size - 1)))
        policy = LifecyclePolicy(
            RESTART, attach=6.0, lost_nodes=chance.choice(["fail", "leave", "move"])
        )
        self.life = ProcessLifecycle(tree, hosts, policy)
        self.session = self._supervisor(
            self.life, SessionNodes(cast("Any", self), owned=False), self._session_order
        )
        self.moves = 0
        self.session.start()
        self.session.listen(self.loop)
        self.run_until(30.0, self.session_is_ready)

    def _supervisor(
        self, life: ProcessLifecycle, nodes: Any, on_order: Callable[[Any], None]
    ) -> ProcessSupervisor:
        setup = ProcessSetup(
            "session",
            lambda _rank: "none:none",
            orders.ConfigureProcesses("", b""),
            ZygotePlan(()),
            nodes=nodes,
            zygote=False,
            node_patience=20.0,
        )
        return ProcessSupervisor(life, setup, TIMEOUTS, on_order)

    def new_pid(self) -> int:
        return next(self._pids)

    def later(self, mean: float, function: Callable[..., Any], *args: Any) -> None:
        self.loop.call_later(self.chance.expovariate(1 / mean), function, *args)

    def run_until(self, seconds: float, rest: Callable[[], bool]) -> bool:
        end = self.clock.now() + seconds
        while not rest():
            due = self.loop.next_due()
            if due > end:
                self.clock.advance(end - self.clock.now())
                return False
            self.clock.advance(max(0.0, due - self.clock.now()))
            self.loop.run_due()
            self.machines.life.check()
            self.daemons.check()
        return True

    # --- the session of the head, whose agents are the daemons -----------------------------------

    @property
    def tree(self) -> Tree:
        return self.daemons.tree

    def expand(self, places: Sequence[NewAgent]) -> tuple[int, ...]:
        (place,) = places
        self.supervisor.post(lev.Expand({place.host: place.parent}, {place.host: place.host}))
        return (place.host,)

    def begin_contract(self, ranks: Sequence[int]) -> list[Future[Any]]:
        self.supervisor.post(lev.Drain(tuple(ranks)))
        return []

    def contract(self, ranks: Sequence[int], reason: str) -> None:
        self.supervisor.post(lev.Remove(tuple(ranks), reason))

    def configuration_of(self, host: int) -> bytes:
        raise NotImplementedError

    def open_port(self, loop: Any) -> Any:
        raise NotImplementedError

    def starter(
        self, _host: int, _setup: ProcessSetup, on_report: Callable[[orders.Report], None], _e: Any
    ) -> ProcessStarter:
        return AwaitedDaemon(self.machines.expect, on_report)

    def _head_order(self, order: Any) -> None:
        if isinstance(order, lev.Notify):
            change = order.change
            self.machines.places_changed(
                PlacesChanged(
                    change.ranks,
                    change.ranks,
                    change.back,
                    change.reason,
                    change.disconnected,
                    change.for_good,
                    change.added,
                    change.removed,
                    self.tree.epoch,
                )
            )

    # --- the way of the session to the nodes -----------------------------------------------------

    def join(self, session: SessionOnNode) -> None:
        self.sessions.join(session)

    def part(self, session: SessionOnNode) -> None:
        self.sessions.part(session)

    is_away = is_over = False
    hint = ""

    @property
    def nodes(self) -> list[Any]:
        return [SimpleNamespace(host=one.rank) for one in self.machines.life]

    def is_ready(self, host: int) -> bool:
        record = self.machines.life.get(host)
        return record is not None and record.is_ready

    def name_of(self, host: int) -> str:
        return self.machines.life.name_of(host)

    def given_up(self, host: int) -> str:
        record = self.machines.life.get(host)
        return record.given_up if record is not None else ""

    def ask(self, *given: Any) -> Any:
        """Have a machine ask the head, or the head a daemon."""
        if isinstance(given[0], Machine):
            self._ask_to_join(*given)
            return None
        return self._order(*given)

    def _order(self, host: int, handler: str, value: Any) -> Future[Any]:
        """Send an order to the daemon that the head knows; it waits while that is cut off."""
        answer: Future[Any] = CallerFuture()
        self.later(
            0.05, self._take_order, host, self.daemons.processes[host].pid, handler, value, answer
        )
        return answer

    def _take_order(
        self, host: int, pid: int, handler: str, value: Any, answer: Future[Any]
    ) -> None:
        record = self.daemons.processes[host]
        if record.pid != pid or record.state not in {ProcessState.READY, ProcessState.DISCONNECTED}:
            answer.set_exception(AgentLostError("the node is lost"))
            return
        daemon = next(
            (one.daemon for one in self.computers if one.daemon and one.daemon.pid == pid), None
        )
        if daemon is None or daemon.machine.cut:
            self.later(0.5, self._take_order, host, pid, handler, value, answer)
            return
        self._carry_out(daemon, handler, value)
        answer.set_result(None)

    # --- daemons and their processes -------------------------------------------------------------

    def _carry_out(self, daemon: Daemon, handler: str, value: Any) -> None:
        if handler == messages.OPEN:
            daemon.life = messages.from_value(value, messages.OpenProcesses).life
        elif handler == messages.SPAWN:
            for spec in messages.from_value(value, messages.SpawnProcesses).processes:
                self.later(0.1, self._fork, daemon, spec)
        elif handler == messages.KILL:
            self._end_process(daemon, messages.from_value(value, messages.KillProcess).pid)
        elif handler == messages.CLOSE:
            daemon.processes.clear()

    def _fork(self, daemon: Daemon, spec: orders.ProcessSpec) -> None:
        if daemon.machine.daemon is not daemon:
            return
        pid = self.new_pid()
        daemon.processes[pid] = (spec.rank, spec.incarnation)
        self._report(daemon, orders.Spawned(spec.rank, spec.incarnation, pid))
        self.later(0.2, self._join_session, daemon, pid)

    def _join_session(self, daemon: Daemon, pid: int) -> None:
        """A process attaches itself to the tree of the session, if it gets there."""
        found = daemon.processes.get(pid)
        if found is None or daemon.machine.daemon is not daemon:
            return
        if daemon.machine.cut:
            self.later(1.0, self._join_session, daemon, pid)
        elif found[0] in self.life.tree:
            self.session.post(ev.PlaceJoined(found[0], found[1], pid))

    def _end_process(self, daemon: Daemon, pid: int) -> None:
        found = daemon.processes.pop(pid, None)
        if found is not None:
            self._report(daemon, orders.Exited(*found, pid, -9))
            self.later(0.3, self._lose_process, found[0], pid)

    def _report(self, daemon: Daemon, report: orders.Report) -> None:
        """Send a report to the head, which hands it on; it waits while the machine is cut off."""
        told = messages.ProcessesReported("session", daemon.life, report)
        self.later(0.05, self._reported, daemon, messages.to_value(told))

    def _reported(self, daemon: Daemon, value: Any) -> None:
        record = self.daemons.processes[daemon.rank]
        if record.pid != daemon.pid or daemon.machine.daemon is not daemon:
            return  # the head has given this daemon up
        if daemon.machine.cut:
            self.later(0.5, self._reported, daemon, value)
        else:
            self.sessions.reported(daemon.rank, value)

    def _lose_process(self, rank: int, pid: int) -> None:
        """The tree of the session finds that the connection to a process is lost."""
        if rank in self.life.tree and self.life.processes[rank].pid == pid:
            below = tuple((one, one + 1) for one in sorted(self.life.tree.subtree(rank)))
            self.session.post(ev.PlacesLost(below, "the connection was closed", rank))
            for machine in self.computers:
                for other in list(machine.daemon.processes if machine.daemon else ()):
                    self.later(0.5, self._join_session, machine.daemon, other)

    def _session_order(self, order: Any) -> None:
        self.moves += isinstance(order, lev.MoveRanks)

    # --- machines --------------------------------------------------------------------------------

    def _ask_to_join(self, machine: Machine, asks: int) -> None:
        if machine.asks != asks or machine.daemon is not None:
            return
        if machine.cut:
            self.loop.call_later(0.5, self.ask, machine, asks)
            return
        try:
            admitted = self.machines.join(mev.JoinAsked(machine.name, node=machine.node))
        except CommunicationError:
            self.loop.call_later(0.5, self.ask, machine, asks)
            return
        machine.node = machine.node or f"n{admitted.rank}"
        self.machines.post(mev.Certified(admitted.rank, machine.node))
        if self.chance.random() < 0.1:  # the answer gets lost
            self.loop.call_later(1.0, self.ask, machine, asks)
            return
        machine.daemon = Daemon(machine, admitted.rank, admitted.incarnation)
        self.later(0.2, self._attach, machine.daemon)

    def _attach(self, daemon: Daemon) -> None:
        """A daemon takes its place in the tree of the head, or finds that it has none."""
        machine = daemon.machine
        if machine.daemon is not daemon:
            return
        record = self.daemons.processes[daemon.rank]
        if machine.cut:
            self.later(0.5, self._attach, daemon)
        elif record.incarnation != daemon.incarnation or record.state.is_lost:
            self._end_daemon(machine)  # it ends with its processes, and asks again
        elif daemon.rank not in self.tree:
            self._end_daemon(machine)
        else:
            self.supervisor.post(ev.PlaceJoined(daemon.rank, daemon.incarnation, daemon.pid))
            if self.daemons.processes[daemon.rank].is_ready:
                self.machines.daemon_joined(daemon.rank)
            for pid in list(daemon.processes):
                self.later(0.5, self._join_session, daemon, pid)

    def _end_daemon(self, machine: Machine) -> None:
        """The processes of a machine end; two detectors notice that at the head, in some order."""
        daemon, machine.daemon = machine.daemon, None
        machine.asks += 1
        self.later(0.5, self.ask, machine, machine.asks)
        if daemon is None:
            return
        for pid, (rank, _) in daemon.processes.items():
            self.later(0.5, self._lose_process, rank, pid)
        self._detected(daemon, "the connection was closed")

    def _detected(self, daemon: Daemon, reason: str) -> None:
        self.later(0.5, self._link_broke, daemon, reason)
        self.later(0.5, self._tree_lost, daemon, reason)

    def _is_gone(self, daemon: Daemon) -> bool:
        """Whether the head has a link to a daemon that is cut off or has ended."""
        away = daemon.machine.cut or daemon.machine.daemon is not daemon
        record = self.daemons.processes[daemon.rank]
        return away and record.pid == daemon.pid and daemon.rank in self.tree

    def _link_broke(self, daemon: Daemon, reason: str) -> None:
        if self._is_gone(daemon):
            self.machines.post(mev.DaemonLinkChanged(daemon.rank, reason))

    def _tree_lost(self, daemon: Daemon, reason: str) -> None:
        if self._is_gone(daemon):
            ranks = ((daemon.rank, daemon.rank + 1),)
            self.supervisor.post(ev.PlacesLost(ranks, reason, daemon.rank))

    # --- faults ----------------------------------------------------------------------------------

    def crash(self) -> None:
        self._end_daemon(self.chance.choice(self.computers))

    def crash_process(self) -> None:
        daemon = self.chance.choice(self.computers).daemon
        if daemon is not None and daemon.processes:
            self._end_process(daemon, self.chance.choice(list(daemon.processes)))

    def partition(self) -> None:
        """Cut a machine off for a moment, or for so long that it counts as lost."""
        machine = self.chance.choice(self.computers)
        daemon = machine.daemon
        if machine.cut or daemon is None:
            return
        machine.cut = True
        seconds = self.chance.choice([0.5, 5.0, 40.0])
        self.loop.call_later(seconds, self.heal, machine, daemon)
        self.later(0.5, self._link_broke, daemon, "it was silent")
        if seconds > 1.0:
            self.later(2.0, self._tree_lost, daemon, "it was silent")
            for pid, (rank, _) in daemon.processes.items():
                self.later(2.0, self._lose_process, rank, pid)

    def heal(self, machine: Machine, daemon: Daemon) -> None:
        machine.cut = False
        if machine.daemon is not daemon:
            return
        if self.daemons.processes[daemon.rank].is_ready:
            self.machines.post(mev.DaemonLinkChanged(daemon.rank, ""))
        else:
            self._attach(daemon)

    def components_fail(self) -> None:
        rank = self.chance.choice(list(self.machines.life)).rank
        self.machines.post(mev.ComponentsReported(rank, "zygotes: failed"))
        self.later(3.0, self.machines.post, mev.ComponentsReported(rank, ""))

    # --- the end ---------------------------------------------------------------------------------

    def all_are_nodes(self) -> bool:
        present = [one for one in self.machines.life if one.is_present]
        living = {one.daemon.rank for one in self.computers if one.daemon}
        return (
            all(one.state is MachineState.READY and one.is_ready for one in present)
            and {one.rank for one in present} == living
            and {one.name for one in present} == {one.name for one in self.computers}
        )

    def session_is_ready(self) -> bool:
        return self.life.processes.all_ready()

    def at_rest(self) -> bool:
        if not self.all_are_nodes():
            return False
        settled = {ProcessState.READY, ProcessState.GIVEN_UP}
        known = {
            (one.rank, one.incarnation): one.pid for one in self.life.processes if one.is_ready
        }
        running = {
            found: pid
            for machine in self.computers
            for pid, found in (machine.daemon.processes if machine.daemon else {}).items()
        }
        return (
            all(one.state in settled for one in self.life.processes) or bool(self.session.failure)
        ) and known.items() <= running.items()

    def run(self) -> None:
        faults = [
            *(self.crash, self.partition, self.partition, self.crash_process),
            self.components_fail,
        ]
        for _ in range(FAULTS):
            self.run_until(self.chance.expovariate(0.3), lambda: False)
            self.chance.choice(faults)()
        rest = self.run_until(REST, self.at_rest)
        assert rest, (
            list(self.machines.life),
            list(self.daemons.processes),
            list(self.life.processes),
        )


@pytest.mark.parametrize(
    "block", [0, 1, *(pytest.param(one, marks=pytest.mark.nightly) for one in range(2, 10))]
)
@pytest.mark.slow
def test_machines_return_while_agents_move(block: int) -> None:
    moves = 0
    for seed in range(20 * block, 20 * block + 20):
        try:
            world = World(seed)
            world.run()
            moves += world.moves
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert moves, "no agents have moved"
