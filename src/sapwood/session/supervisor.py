"""The supervisor of a session: it connects the life cycle of processes with the world.

:class:`~sapwood.lifecycle.core.ProcessLifecycle` decides which processes of a tree start, are
replaced or end. The supervisor gives it the events of starters (``starters.py``), of the tree's
root and of the clock, and carries out its orders.
"""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import msgspec

from sapwood.comm.transport.base import ConnectionHandler
from sapwood.contexts import orders
from sapwood.contexts.plan import ZygotePlan
from sapwood.contexts.process import describe_status
from sapwood.contexts.runner_factory import RunnerFactory
from sapwood.contexts.spawner import Spawner
from sapwood.core.errors import (
    InternalError,
    NodeLostError,
    ResourceError,
    SapwoodError,
)
from sapwood.core.failures import log_failure
from sapwood.core.rankset import fold
from sapwood.environment.logs import logger
from sapwood.lifecycle import events as lev
from sapwood.lifecycle.core import ProcessLifecycle
from sapwood.lifecycle.processes import ProcessState, ProcessTable
from sapwood.lifecycle.starters import JOINED_AGENTS, OnHost, SharedAgentsKey, StarterKey
from sapwood.session.shared_reactor import SharedReactor
from sapwood.session.starters import ProcessStarter, Starters

_log = logger("session")

SHORTEST_INTERVAL = 0.01
"""Seconds between two polls, at least."""


class AgentSource(Protocol):
    """What a supervisor has of another session, whose agents are the leaves of its tree."""

    def agents(self, on_report: Callable[[orders.Report], None]) -> ProcessStarter:
        """Return what begins and ends the places of agents."""

    def lend(self) -> socket.socket:
        """Return a control socket of a zygote, for the junctions."""


class TreePort(Protocol):
    """Where other machines reach the root of a session.

    Attributes:
        address: What they connect to.
    """

    @property
    def address(self) -> str:
        """What they connect to."""

    def serve(self, tree: str, handler: ConnectionHandler) -> None:
        """Give the links of a tree to whoever has its root; on the loop's thread."""

    def close(self) -> None:
        """Listen no more; on the loop's thread."""


class NodeSource(Protocol):
    """What begins the processes of a session on other machines."""

    def open_port(self, loop: SharedReactor) -> TreePort:
        """Return where those machines reach the root; it works once its loop runs."""

    def starter(
        self,
        host: int,
        setup: ProcessSetup,
        on_report: Callable[[orders.Report], None],
        on_end: Callable[[str], None],
    ) -> ProcessStarter:
        """Return what begins and ends processes on a machine.

        Args:
            host: Number of the machine.
            setup: How the processes begin.
            on_report: Receives their state changes, on the session's loop.
            on_end: Receives the reason why all of them are gone, on the session's loop.
        """


@runtime_checkable
class NodeNetwork(NodeSource, Protocol):
    """Nodes that a session shares with others: each may get processes, and be below others."""

    def close(self) -> None:
        """Note that the session is over."""

    def listen(self, host: int, where: str) -> Future[str]:
        """Have a machine listen for others, and return the address at which they reach it.

        Args:
            host: Number of the machine.
            where: ``host:port``; port 0 takes a free one.
        """

    def name_of(self, host: int) -> str:
        """Return what users call a machine."""

    def note_detour(self, session: str, host: int, rank: int, home: int, at: int) -> None:
        """Send a machine the attachment of one of its places.

        Args:
            session: Name of the session.
            host: Number of the machine.
            rank: The place.
            home: The machine at which it is to be attached.
            at: The machine at which it is.
        """

    def ready_hosts(self) -> list[int]:
        """Return the numbers of the machines on which processes can begin now."""

    @property
    def hint(self) -> str:
        """What users can do when nothing can begin on machines."""

    def trouble(self, hosts: Collection[int]) -> str:
        """Return why nothing can begin on some of these machines; empty if nothing is known.

        It may wait some seconds for an answer; not for the loop's thread.
        """


def _no_configuration(_host: int) -> bytes:
    return b""


def _nothing_to_do(_host: int) -> None:
    pass


@dataclass(frozen=True)
class ProcessSetup:
    """How the processes of a tree begin.

    Attributes:
        session: Name of the session.
        entry: What the process of a rank runs, as ``module:function``.
        configure: What all processes get.
        plan: What their zygote imports and forks.
        agent_source: Another session, where the agents belong to that.
        nodes: What begins processes on those machines.
        zygote: Whether there is a zygote on this machine though no place is there.
        configuration_of: Returns the configuration of the places of a machine: it has secrets of
            its own.
        node_patience: Seconds for which places wait for a machine that may come back; 0 for ever.
        node_opened: Told of a machine on which processes can begin now, on the session's loop.
    """

    session: str
    entry: Callable[[int], str]
    configure: orders.ConfigureProcesses
    plan: ZygotePlan
    agent_source: AgentSource | None = None
    nodes: NodeSource | None = None
    zygote: bool = True
    configuration_of: Callable[[int], bytes] = _no_configuration
    node_patience: float = 0.0
    node_opened: Callable[[int], None] = _nothing_to_do


class SupervisionTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long a supervisor waits; in seconds.

    Attributes:
        attach: Until a disconnected place must be attached again, for each level of the tree.
        join: Until a process that was forked must have its place in the tree; 0 for ever.
        heartbeat: Between two polls.
        silence: Until a zygote that gives no sign of life is taken for dead.
    """

    attach: float
    join: float
    heartbeat: float
    silence: float

    @property
    def interval(self) -> float:
        """Seconds between two polls."""
        shortest = min(self.heartbeat, self.silence / 4, self.join / 4 or math.inf)
        return max(shortest, SHORTEST_INTERVAL)

    def polls(self, seconds: float) -> int:
        """Return after how many polls a time has passed for certain."""
        return math.ceil(seconds / self.interval) + 1


HostOrder = lev.NewTree | lev.MoveRanks | lev.Notify
"""Orders that the owner of the tree's root carries out."""


def _ignored(_report: orders.ProcessReport) -> None:
    pass


class ProcessSupervisor:
    """Supervises the processes of a tree; its methods run on the loop's thread.

    Args:
        life: Decides what happens to the processes.
        setup: How processes start.
        timeouts: How long it waits for what.
        on_order: Carries out the orders that concern the root of the tree.
        on_report: Receives the reports on processes of ranks that have not left.
    """

    def __init__(
        self,
        life: ProcessLifecycle,
        setup: ProcessSetup,
        timeouts: SupervisionTimeouts,
        on_order: Callable[[HostOrder], None],
        on_report: Callable[[orders.ProcessReport], None] = _ignored,
    ) -> None:
        self.life = life
        self._setup = setup
        self._timeouts = timeouts
        self._on_report = on_report
        self._starters = Starters(self.new_starter)
        self._loop: SharedReactor | None = None
        self._detached = False
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._zygotes: dict[StarterKey, orders.Ready] = {}
        self._performers: dict[type[Any], Callable[[Any], None]] = {
            lev.Start: self._start_processes,
            lev.EndProcess: self._kill,
            lev.ReplaceStarter: self._replace,
            lev.CloseStarter: lambda order: self._starters.close_one(order.key),
            lev.WakeAt: self._wake,
            lev.EveryoneReady: lambda _order: self._ready.set(),
            lev.ReportFailure: self._fail,
            lev.Log: lambda order: getattr(_log, order.level)(order.text, **order.fields),
            lev.NewTree: on_order,
            lev.MoveRanks: on_order,
            lev.Notify: on_order,
        }

    # --- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the starters and order all processes; from the thread that creates the session.

        Raises:
            ResourceError: A starter cannot be started.
        """
        known: list[StarterKey] = [()] if self._setup.zygote else []
        known += [record.starter for record in self.processes]
        for key in dict.fromkeys(known):
            if key is not JOINED_AGENTS:
                self._starters.start(key)
        self.post(lev.StartAll())

    def listen(self, loop: SharedReactor) -> None:
        """Receive reports from now on."""
        self._loop = loop
        self._starters.listen(loop)
        self._loop.call_later(self._timeouts.interval, self._poll)

    def post(self, event: lev.Event) -> None:
        """Give the life cycle an event and carry out its orders.

        Raises:
            ConfigurationError: The tree cannot change in this way; nothing has changed.
        """
        if self._detached:
            return
        now = 0.0 if self._loop is None else self._loop.time()
        for order in self.life.step(now, event):
            self._perform(order)

    def wait_ready(self, timeout: float) -> None:
        """Wait until all processes are ready; from any thread but the loop's.

        Raises:
            ResourceError: Processes cannot be started, or it takes too long.
            NodeLostError: The machine of a process is gone, and no other one is available, or
                machines or their head cannot be reached.
            AgentLostError: A process ends again and again.
        """
        if not self._ready.wait(timeout):
            late = [record.rank for record in self.processes if not record.is_ready]
            every = self.life.tree.places - 1
            what = f"{len(late)} of {every} processes are not ready after {timeout:g} s"
            where = fold("rank", late)
            nodes, hosts = self._setup.nodes, self.life.hosts
            late_hosts = {hosts[rank] for rank in late if hosts} - {0}
            if isinstance(nodes, NodeNetwork) and (trouble := nodes.trouble(late_hosts)):
                raise NodeLostError(f"{what}: {trouble}", where=where, hint=nodes.hint)
            hint = "use fewer agents, or raise cluster.ready_timeout"
            raise ResourceError(what, where=where, hint=hint)
        if self._failure is not None:
            raise self._failure

    def reconfigure(self, setup: ProcessSetup) -> None:
        """Have processes start in another way from now on."""
        self._setup = setup
        self._starters.reconfigure(setup.configuration_of)

    def detach(self) -> None:
        """Receive nothing any more."""
        self._loop, self._detached = None, True
        self._starters.detach()

    def close(self) -> None:
        """End all processes and wait for that; from any thread."""
        self._starters.close()

    # --- what others ask -----------------------------------------------------------------------

    def new_runner_factory(self) -> RunnerFactory:
        """Return what has runners forked for the client itself; on the loop's thread.

        Raises:
            ResourceError: The zygote is gone.
        """
        return self._starters.main.new_runner_factory()

    def lend(self) -> socket.socket:
        """Return a control socket of the zygote, for a secondary tree; from any thread.

        Raises:
            ResourceError: The zygote is gone.
        """
        return self._starters.main.lend()

    @property
    def processes(self) -> ProcessTable:
        """The records of all processes."""
        return self.life.processes

    @property
    def restarts(self) -> int:
        """How many batches of processes were restarted."""
        return self.life.restarts

    @property
    def zygote_pid(self) -> int:
        """Process id of the zygote; of several, the default interpreter's."""
        return self._starters.main.pid

    @property
    def zygotes(self) -> list[orders.Ready]:
        """The reports of ready zygotes, the default interpreter's first."""
        return [self._zygotes[key] for key in sorted(self._zygotes, key=str)]

    @property
    def failure(self) -> SapwoodError | None:
        """Why processes stay lost, if the restart policy gave up."""
        return self._failure if isinstance(self._failure, SapwoodError) else None

    # --- events ----------------------------------------------------------------------------------

    def reported(self, key: StarterKey, report: orders.Report) -> None:
        """Take the report of a starter; one that fails does not stop those that follow it."""
        try:
            self._take_report(key, report)
        except Exception as error:  # noqa: BLE001 - it is about one process
            log_failure(f"taking in the report {report}", error)

    def _take_report(self, key: StarterKey, report: orders.Report) -> None:
        if isinstance(report, orders.ProcessReport):
            known = report.rank in self.processes and self.processes[report.rank]
            if known and known.state is not ProcessState.LEFT:
                self._on_report(report)
        if isinstance(report, orders.Ready):
            self._zygotes[key] = report
        elif isinstance(report, orders.RunnerLost):
            what = describe_status(report.status)
            _log.warning("runner lost", rank=report.rank, pid=report.pid, reason=what)
        elif isinstance(report, orders.SpawnFailed) and report.machine_gone:
            nodes = self._setup.nodes
            ready = tuple(nodes.ready_hosts()) if isinstance(nodes, NodeNetwork) else ()
            self.post(lev.MachineGone(report, ready))
        elif not isinstance(report, orders.HeartbeatReply):
            self.post(report)

    def ended(self, key: StarterKey = (), reason: str = "the zygote ended") -> None:
        """Take the end of a starter, and with it of all its processes."""
        self.post(lev.StarterEnded(key, reason))

    def _poll(self) -> None:
        """Look for starters that hang, and for processes that do not join the tree."""
        if self._loop is None:
            return
        timeouts = self._timeouts
        self._loop.call_later(timeouts.interval, self._poll)  # first: also after one that fails
        silent, join = timeouts.polls(timeouts.silence), timeouts.polls(timeouts.join)
        for key, starter in self._starters.silent(silent, max(silent, join)):
            _log.warning("the zygote hangs", silence=timeouts.silence)
            starter.end()
            self.ended(key, f"the zygote gave no sign of life for {timeouts.silence:g} s")
        self.post(lev.Poll())

    # --- orders ----------------------------------------------------------------------------------

    def _perform(self, order: lev.Order) -> None:
        self._performers[type(order)](order)

    def _kill(self, order: lev.EndProcess) -> None:
        starter = self._starters.get(order.key)
        if starter is not None:
            starter.kill(order.pid)

    def _replace(self, order: lev.ReplaceStarter) -> None:
        try:
            self._starters.replace(order.key)
        except ResourceError as error:
            self.post(lev.StarterFailed(order.key, error))

    def _wake(self, order: lev.WakeAt) -> None:
        if self._loop is not None:
            delay = max(0.0, order.at - self._loop.time())
            self._loop.call_later(delay, self.post, lev.WakeUp(order.at))

    def _fail(self, order: lev.ReportFailure) -> None:
        if self._failure is None:
            self._failure = order.error
        self._ready.set()

    def _start_processes(self, order: lev.Start) -> None:
        key = order.key
        entry = self._setup.entry
        try:
            starter = self._starters.start(key)
        except ResourceError as error:
            self.post(lev.StarterFailed(key, error))
            return
        specs = [orders.ProcessSpec(entry(rank), rank, number) for rank, number in order.processes]
        starter.spawn(specs)

    def new_starter(self, key: StarterKey) -> ProcessStarter:
        """Return the starter of a key, which is not started yet."""
        setup = self._setup
        on_report, on_end = partial(self.reported, key), partial(self.ended, key)
        if isinstance(key, SharedAgentsKey) and setup.agent_source is not None:
            return setup.agent_source.agents(on_report)
        if isinstance(key, OnHost) and setup.nodes is not None:
            return setup.nodes.starter(key.host, setup, on_report, on_end)
        if not isinstance(key, tuple):
            raise InternalError(f"no starter can be made for {key}")
        if not key:
            borrow = None if setup.agent_source is None else setup.agent_source.lend
            return Spawner(setup.plan, setup.configure, on_report, on_end, borrow)
        # The session's folder is removed by the zygote of the default interpreter alone.
        return Spawner(
            msgspec.structs.replace(setup.plan, interpreter=key),
            msgspec.structs.replace(setup.configure, folder=""),
            on_report,
            on_end,
        )
