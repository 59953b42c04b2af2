"""The supervisor of a session: it starts the processes of a tree and replaces those that end.

The supervisor ends and restarts a process that exited, hangs or does not join the tree, and one
whose parent in the tree has given it up. Processes below it keep running: they are disconnected
until another parent takes them, and count as lost only if none does in time. The restart policy
says how often the supervisor replaces processes within a window.

What begins and ends processes is a :class:`ProcessStarter`: a zygote of this machine, one for each
interpreter; the node of another machine; the agents of another session (:class:`ProcessStarters`).
The supervisor sends each of them heartbeat requests and replaces it, too.
"""

from __future__ import annotations

import enum
import math
import socket
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, cast

import msgspec

from sapwood.comm import events as ev
from sapwood.comm.transport.base import ConnectionHandler
from sapwood.contexts import orders
from sapwood.contexts.plan import ZygotePlan
from sapwood.contexts.process import describe_status
from sapwood.contexts.runner_factory import RunnerFactory
from sapwood.contexts.spawner import Spawner
from sapwood.core.errors import AgentLostError, NodeLostError, ResourceError, SapwoodError
from sapwood.core.failures import log_failure, new_thread, start_thread
from sapwood.core.rankset import fold, from_ranges
from sapwood.core.topology import ROOT, Tree
from sapwood.environment.logs import logger
from sapwood.environment.restart import RestartBudget
from sapwood.environment.settings import RestartSettings
from sapwood.session.places import PlaceEvent, Places, PlaceState
from sapwood.session.shared_reactor import SharedReactor

_log = logger("session")

Command = tuple[str, ...]
"""The command that starts an interpreter; empty for the one that all run on by default."""


class SharedAgentsKey(enum.Enum):
    """Which starter a place has, if it is an agent of another session."""

    SHARED_AGENTS = "agents of another session"


class JoinedAgentsKey(enum.Enum):
    """Key of the starter of places whose processes join by an invitation."""

    JOINED_AGENTS = "agents that others start"


@dataclass(frozen=True)
class OnHost:
    """Which starter a place on another machine has: the node there.

    Attributes:
        host: Number of the machine; 0 is the root's.
    """

    host: int


StarterKey = Command | SharedAgentsKey | JoinedAgentsKey | OnHost
"""Tells starters apart: by an interpreter of this machine, or by who begins processes elsewhere."""

SHARED_AGENTS = SharedAgentsKey.SHARED_AGENTS

JOINED_AGENTS = JoinedAgentsKey.JOINED_AGENTS

SHORTEST_INTERVAL = 0.01
"""Seconds between two looks at those that are waited for, at least."""


class AgentSource(Protocol):
    """What a supervisor has of another session, whose agents are the leaves of its tree."""

    def agents(self, on_report: Callable[[orders.Report], None]) -> ProcessStarter:
        """Return what begins and ends the places of agents."""

    def lend(self) -> socket.socket:
        """Return a control socket of a zygote, for the junctions."""


class RootPort(Protocol):
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

    def open_port(self, loop: SharedReactor) -> RootPort:
        """Return where those machines reach the root; it works once its loop runs."""

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


class PlaceChange(msgspec.Struct, frozen=True):
    """Told to the listener: what happened to places.

    Attributes:
        ranks: The places.
        back: Whether they are there again; else they are not to be reached.
        disconnected: Whether their processes are the same as before.
        reason: Why they are not there.
        for_good: Whether they will not be back: the restart policy has given them up, or they
            were removed.
        added: Whether they are there for the first time, in a tree that was running.
        removed: Whether the tree does not have them any more.
    """

    ranks: tuple[int, ...]
    back: bool
    disconnected: bool
    reason: str = ""
    for_good: bool = False
    added: bool = False
    removed: bool = False


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
        interpreters: The command that starts Python for the places that do not run on the
            plan's.
        agent_source: Another session, where the agents belong to that.
        hosts: The machines of the places that are not on this one.
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
    interpreters: Mapping[int, Command] = field(default_factory=dict)
    agent_source: AgentSource | None = None
    hosts: Mapping[int, int] = field(default_factory=dict)
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
        heartbeat: Between two looks at those that are waited for.
        silence: Until a zygote that gives no sign of life is taken for dead.
    """

    attach: float
    join: float
    heartbeat: float
    silence: float

    @property
    def interval(self) -> float:
        """Seconds between two looks."""
        shortest = min(self.heartbeat, self.silence / 4, self.join / 4 or math.inf)
        return max(shortest, SHORTEST_INTERVAL)

    def looks(self, seconds: float) -> int:
        """Return after how many looks a time has passed for certain."""
        return math.ceil(seconds / self.interval) + 1


class ProcessStarter(Protocol):
    """Starts and stops the processes of places: a zygote, or agents that exist already."""

    def start(self) -> None:
        """Start it; orders may follow at once."""

    def listen(self, loop: SharedReactor) -> None:
        """Hear reports on a loop; called on its thread."""

    def reconfigure(self, configuration: bytes) -> None:
        """Give another configuration to processes that begin from now on."""

    def spawn(self, processes: Sequence[orders.ProcessSpec]) -> None:
        """Begin processes."""

    def kill(self, pid: int) -> None:
        """End a process."""

    def is_silent(self, looks: int, first: int) -> bool:
        """Ask it for a sign of life; say whether it gave none to ``looks`` requests.

        Until it is ready, to ``first`` requests.
        """

    def end(self) -> None:
        """Kill it, as it hangs."""

    def detach(self) -> None:
        """Stop listening."""

    def close(self) -> None:
        """End all, and wait for that."""


class JoinedAgents:
    """Stands where a starter stands for agents that others start: it begins and ends nothing.

    A process whose place is removed is notified over its link, and ends.
    """

    def start(self) -> None:
        """Do nothing."""

    def listen(self, loop: SharedReactor) -> None:
        """Do nothing: only their links show the losses of these processes."""

    def reconfigure(self, configuration: bytes) -> None:
        """Do nothing: a process receives the tree when it joins."""

    def spawn(self, processes: Sequence[orders.ProcessSpec]) -> None:
        """Do nothing: the process exists already."""

    def kill(self, pid: int) -> None:
        """Do nothing: it may be on any machine."""

    def is_silent(self, looks: int, first: int) -> bool:
        """Return False: their links have heartbeats."""
        del looks, first
        return False

    def end(self) -> None:
        """Do nothing: it is never silent."""

    def detach(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class ProcessStarters:
    """Sends each order to the starter that it is for.

    Args:
        make: Returns the starter of a key.
        keys: The starter of each place that does not have the zygote of the default interpreter.
        main: Whether there is such a zygote.
    """

    def __init__(
        self,
        make: Callable[[StarterKey], ProcessStarter],
        keys: Mapping[int, StarterKey],
        *,
        main: bool = True,
    ) -> None:
        self._make = make
        self._keys = dict(keys)
        known: list[StarterKey] = [()] if main else []
        known += self._keys.values()
        self._spawners = {key: make(key) for key in dict.fromkeys(known)}
        self._closing: list[threading.Thread] = []

    def __iter__(self) -> Iterator[ProcessStarter]:
        return iter(self._spawners.values())

    @property
    def main(self) -> Spawner:
        """The one of the default interpreter."""
        return cast("Spawner", self._spawners[()])  # only what is not the default can be another

    def of(self, rank: int) -> ProcessStarter:
        """Return the one that begins the process of a place."""
        return self._spawners[self._keys.get(rank, ())]

    def has(self, rank: int) -> bool:
        """Whether there is one."""
        return self._keys.get(rank, ()) in self._spawners

    def start(self, specs: Sequence[orders.ProcessSpec]) -> None:
        """Start all of them and order processes.

        Raises:
            ResourceError: A process cannot be started.
        """
        for spawner in self:
            spawner.start()
        self.spawn(specs)

    def listen(self, loop: SharedReactor) -> None:
        """Hear reports on a loop; called on its thread."""
        for spawner in self:
            spawner.listen(loop)

    def spawn(self, specs: Sequence[orders.ProcessSpec]) -> None:
        """Have processes begun, each by its starter."""
        for spawner in self:
            mine = [spec for spec in specs if self.of(spec.rank) is spawner]
            if mine:
                spawner.spawn(mine)

    def kill(self, rank: int, pid: int) -> None:
        """End the process of a place."""
        self.of(rank).kill(pid)

    def reconfigure(self, configuration_of: Callable[[int], bytes]) -> None:
        """Give another configuration to processes that begin from now on.

        Args:
            configuration_of: Returns the configuration of a machine.
        """
        for key, spawner in self._spawners.items():
            spawner.reconfigure(configuration_of(key.host if isinstance(key, OnHost) else 0))

    def add(self, keys: Mapping[int, StarterKey], loop: SharedReactor | None) -> None:
        """Have places begun that are new; called on the loop's thread.

        Raises:
            ResourceError: A starter cannot be started.
        """
        for key in dict.fromkeys(keys.values()):
            if key not in self._spawners:
                self._spawners[key] = self._make(key)
                self._spawners[key].start()
                if loop is not None:
                    self._spawners[key].listen(loop)
        self._keys |= {rank: key for rank, key in keys.items() if key}

    def remove(self, ranks: Iterable[int]) -> None:
        """Forget places that are gone, and end starters on machines where no other place is.

        Called on the loop's thread, which does not wait for that end.
        """
        for rank in ranks:
            key = self._keys.pop(rank, ())
            if isinstance(key, OnHost) and key not in self._keys.values():
                spawner = self._spawners.pop(key)
                spawner.detach()
                closing = new_thread("sapwood-starter", spawner.close)
                self._closing.append(closing)
                closing.start()

    def silent(self, looks: int, first: int) -> list[StarterKey]:
        """Ask all zygotes for a sign of life; return the keys of those that hang.

        Args:
            looks: How many looks in a row must have found nothing.
            first: How many of a zygote that is not ready yet.
        """
        spawners = self._spawners.items()
        return [key for key, spawner in spawners if spawner.is_silent(looks, first)]

    def end(self, key: StarterKey) -> None:
        """Kill one that hangs."""
        self._spawners[key].end()

    def new_runner_factory(self) -> RunnerFactory:
        """Return what has runners forked for the front end itself.

        Raises:
            ResourceError: The zygote is gone.
        """
        return self.main.new_runner_factory()

    def replace(self, key: StarterKey, loop: SharedReactor | None) -> None:
        """Start another one in place of one that ended.

        Raises:
            ResourceError: The process cannot be started.
        """
        self._spawners[key].close()
        self._spawners[key] = self._make(key)
        self._spawners[key].start()
        if loop is not None:
            self._spawners[key].listen(loop)

    def runs_on(self, rank: int, key: StarterKey) -> bool:
        """Whether a starter begins the process of a place."""
        return self._keys.get(rank, ()) == key

    def detach(self) -> None:
        """Stop listening; called on the loop's thread before :meth:`close`."""
        for spawner in self:
            spawner.detach()

    def close(self) -> None:
        """End all zygotes and all their descendants, and wait for that; after :meth:`detach`.

        They are waited for at once, so several that hang take the time of one.

        Raises:
            Exception: What the first one that could not be ended raised.
        """
        problems: list[SapwoodError] = []
        first, *others = [*self] or [None]
        waits = self._closing + [
            start_thread("sapwood-starter", spawner.close, failed=problems.append)
            for spawner in others
            if spawner is not None
        ]
        try:
            if first is not None:
                first.close()
        finally:
            for one in waits:
                one.join()
        if problems:
            raise problems[0]


class ProcessSupervisor:
    """Supervises the processes of a tree; its methods run on the loop's thread.

    Args:
        tree: The tree.
        beginning: How its processes begin.
        restart: When lost processes are replaced.
        patience: How long it waits for what.
        on_change: Told of places that are lost or back.
        on_machine_gone: Told of a place whose machine is gone, and why; says whether that was dealt
            with.
        on_joined_lost: Receives each lost agent that had joined by an invitation, and the reason.
        on_report: Receives the reports on processes of places that the tree has.
    """

    def __init__(
        self,
        tree: Tree,
        beginning: ProcessSetup,
        restart: RestartSettings,
        patience: SupervisionTimeouts,
        on_change: Callable[[PlaceChange], None],
        on_machine_gone: Callable[[int, str], bool] = lambda _rank, _reason: False,
        on_joined_lost: Callable[[int, str], None] = lambda _rank, _reason: None,
        on_report: Callable[[orders.ProcessReport], None] = lambda _report: None,
    ) -> None:
        self.places = Places(tree)
        self.restarts = 0
        self._tree = tree
        self._beginning = beginning
        self._restart = restart
        self._budgets: dict[int, RestartBudget] = {}
        self._patience = patience
        self._on_change = on_change
        self._on_machine_gone = on_machine_gone
        self._on_joined_lost = on_joined_lost
        self._on_report = on_report
        self._starters = ProcessStarters(
            self._starter_of, starter_keys(tree, beginning), main=beginning.zygote
        )
        self._loop: SharedReactor | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._repairs: dict[int, float | None] = {}
        self._last_reason = ""
        self._started: dict[StarterKey, orders.Ready] = {}

    # --- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the zygote and order all processes; from the thread that creates the session."""
        self._starters.start(self._specs(self._tree.subtree(ROOT)[1:]))
        if self.places.all_ready():
            self._ready.set()  # all have joined already

    def listen(self, loop: SharedReactor) -> None:
        """Hear of processes from now on."""
        self._loop = loop
        self._starters.listen(loop)
        self._later(self._patience.interval, self._look)

    def wait_ready(self, timeout: float) -> None:
        """Wait until all places are ready; from any thread but the loop's.

        Raises:
            ResourceError: Processes cannot be started, or it takes too long.
            NodeLostError: The machine of a process is gone, and no other one is there, or machines
                or their head cannot be reached.
            AgentLostError: A process ends again and again.
        """
        if not self._ready.wait(timeout):
            late = [record.rank for record in self.places if record.state is not PlaceState.READY]
            every = self._tree.places - 1
            what = f"{len(late)} of {every} processes are not ready after {timeout:g} s"
            where = fold("rank", late)
            nodes, hosts = self._beginning.nodes, self._beginning.hosts
            late_hosts = {hosts.get(rank, 0) for rank in late} - {0}
            trouble = "" if nodes is None else nodes.trouble(late_hosts)
            if nodes is not None and trouble:
                raise NodeLostError(f"{what}: {trouble}", where=where, hint=nodes.hint)
            hint = "use fewer agents, or raise cluster.ready_timeout"
            raise ResourceError(what, where=where, hint=hint)
        if self._failure is not None:
            raise self._failure

    def give_up(self, error: BaseException) -> None:
        """Let :meth:`wait_ready` fail."""
        if self._failure is None:
            self._failure = error
        self._ready.set()

    def new_runner_factory(self) -> RunnerFactory:
        """Return what has runners forked for the front end itself; on the loop's thread.

        Raises:
            ResourceError: The zygote is gone.
        """
        return self._starters.new_runner_factory()

    def lend(self) -> socket.socket:
        """Return a control socket of the zygote, for a secondary tree; from any thread.

        Raises:
            ResourceError: The zygote is gone.
        """
        return self._starters.main.lend()

    def expand(self, tree: Tree, beginning: ProcessSetup, keys: Mapping[int, StarterKey]) -> None:
        """Have the places of another epoch begun that the one before did not have.

        Args:
            tree: The tree, of which the root and its neighbours know already.
            beginning: How processes begin from now on.
            keys: What begins those places.

        Raises:
            ResourceError: Their starter cannot be started.
        """
        self._change(tree, beginning)
        self._starters.add(keys, self._loop)
        self._starters.spawn(self._specs(sorted(keys)))

    def reconfigure(self, beginning: ProcessSetup) -> None:
        """Have processes begin in another way from now on."""
        self._beginning = beginning
        self._starters.reconfigure(beginning.configuration_of)

    def drain(self, tree: Tree, beginning: ProcessSetup) -> None:
        """Use a tree of the next epoch that lacks places; their processes keep running for now."""
        self._change(tree, beginning)

    def move(self, beginning: ProcessSetup, key: OnHost, ranks: Sequence[int]) -> None:
        """Begin places on another machine: their own is gone, and their processes with it.

        Args:
            beginning: How processes begin from now on.
            key: The other machine.
            ranks: The places, parents first.

        Raises:
            ResourceError: Processes cannot be begun there.
        """
        self.reconfigure(beginning)
        self._starters.remove(ranks)
        self._starters.add(dict.fromkeys(ranks, key), self._loop)
        for rank in ranks:
            record = self.places[rank]
            record.pid = 0
            record.advance(PlaceEvent.GONE)
            record.incarnation += 1
            record.advance(PlaceEvent.SPAWNED)
            self._repairs.pop(rank, None)
        self.restarts += 1
        self._starters.spawn(self._specs(ranks))

    def has_joined(self, rank: int) -> bool:
        """Whether the process of a place joined by an invitation."""
        return self._starters.runs_on(rank, JOINED_AGENTS)

    def begin_again(self, rank: int, incarnation: int, reason: str) -> None:
        """Restart the process of a place, if it has not joined the tree yet."""
        record = self.places[rank]
        if record.state is PlaceState.STARTING and record.incarnation == incarnation:
            self._repair([rank], reason)

    def contract(self, ranks: Sequence[int], reason: str) -> None:
        """End the processes of places that the tree does not have any more."""
        ranks = [rank for rank in ranks if self.places[rank].state is not PlaceState.LEFT]
        if not ranks:
            return
        _log.info("removed", places=fold("rank", ranks), reason=reason)
        for rank in ranks:
            record = self.places[rank]
            record.advance(PlaceEvent.REMOVED)
            self._repairs.pop(rank, None)
            self._budgets.pop(rank, None)
            if record.pid:
                self._starters.kill(rank, record.pid)
        self._on_change(
            PlaceChange(
                tuple(ranks),
                back=False,
                disconnected=False,
                reason=reason,
                for_good=True,
                removed=True,
            )
        )
        self._starters.remove(ranks)
        if self.places.all_ready():
            self._ready.set()

    def _change(self, tree: Tree, beginning: ProcessSetup) -> None:
        self._tree = tree
        self.places.change(tree)
        self.reconfigure(beginning)

    def detach(self) -> None:
        """Hear of nothing any more."""
        self._loop = None
        self._starters.detach()

    def close(self) -> None:
        """End all processes and wait for that; from any thread."""
        self._starters.close()

    @property
    def zygote_pid(self) -> int:
        """Process id of the zygote; of several, the default interpreter's."""
        return self._starters.main.pid

    @property
    def zygotes(self) -> list[orders.Ready]:
        """The reports of ready zygotes, the default interpreter's first."""
        return [self._started[key] for key in sorted(self._started, key=str)]

    # --- what the root of the tree says --------------------------------------------------------

    def joined(self, effect: ev.PlaceJoined) -> None:
        """A process is in its place, for the first time or again."""
        record = self.places[effect.rank]
        if effect.incarnation != record.incarnation:
            return
        disconnected = record.state is PlaceState.DISCONNECTED
        if not disconnected and record.state is not PlaceState.STARTING:
            return
        record.pid = effect.pid
        record.advance(PlaceEvent.JOINED)
        added, record.is_new = record.is_new, False
        # While the session starts, only places whose loss was reported are reported.
        if self._ready.is_set() or disconnected or record.incarnation > 1:
            what = "attached" if disconnected else "added" if added else "replaced"
            _log.info(what, rank=effect.rank)
            self._on_change(
                PlaceChange((effect.rank,), back=True, disconnected=disconnected, added=added)
            )
        if self.places.all_ready():
            self._ready.set()

    def lost(self, effect: ev.PlacesLost) -> None:
        """The way to places is gone."""
        ranks = [
            rank
            for rank in sorted(from_ranges(effect.ranks))
            if self.places[rank].state is PlaceState.READY
        ]
        for rank in ranks:
            record = self.places[rank]
            record.advance(PlaceEvent.CUT_OFF)
            record.drifts += 1
            if self.has_joined(rank):
                continue
            levels = 1 + len(list(self._tree.ancestors(rank)))
            self._later(
                self._patience.attach * levels, self._give_up_disconnected, rank, record.drifts
            )
        if ranks:
            _log.warning("cut off", places=fold("rank", ranks), reason=effect.reason)
            self._on_change(
                PlaceChange(tuple(ranks), back=False, disconnected=True, reason=effect.reason)
            )
        for rank in filter(self.has_joined, ranks):
            self._on_joined_lost(rank, effect.reason)
        if effect.condemned and self.places[effect.top].state is PlaceState.DISCONNECTED:
            self._repair([effect.top], effect.reason)

    def _give_up_disconnected(self, rank: int, drifts: int) -> None:
        if self._loop is None:
            return  # the session ends
        record = self.places[rank]
        if record.state is PlaceState.DISCONNECTED and record.drifts == drifts:
            self._repair([rank], "it found no way back in time")

    def _look(self) -> None:
        """Look for those that hang: zygotes, and processes on their way into the tree."""
        patience = self._patience
        self._later(patience.interval, self._look)  # first: also after a look that fails
        silent, join = patience.looks(patience.silence), patience.looks(patience.join)
        for key in self._starters.silent(silent, max(silent, join)):
            _log.warning("the zygote hangs", silence=patience.silence)
            self._starters.end(key)
            self._starter_ended(key, f"the zygote gave no sign of life for {patience.silence:g} s")
        if patience.join and not self.places.all_ready():
            late = [record.rank for record in self.places if record.is_late(join)]
            if late:
                self._repair(
                    late,
                    f"it did not join the tree within {patience.join:g} s (cluster.join_timeout)",
                )

    def _later(self, seconds: float, function: Callable[..., None], *args: int) -> None:
        if self._loop is not None:
            self._loop.call_later(seconds, function, *args)

    # --- what the zygote says --------------------------------------------------------------------

    def _reported(self, report: orders.Report) -> None:
        """Take a report in; one that cannot be taken in does not stop those that follow it."""
        try:
            self._take_report(report)
        except Exception as error:  # noqa: BLE001 - it is about one process
            log_failure(f"taking in the report {report}", error)

    def _take_report(self, report: orders.Report) -> None:
        if isinstance(report, orders.ProcessReport) and self._is_there(report.rank):
            self._on_report(report)
        if isinstance(report, orders.Spawned):
            record = self.places[report.rank]
            if record.incarnation == report.incarnation and record.state is PlaceState.STARTING:
                record.pid = report.pid
            elif record.pid != report.pid and self._starters.has(report.rank):
                # It was given up while it was being forked.
                self._starters.kill(report.rank, report.pid)
        elif isinstance(report, orders.Ready):
            self._started[()] = report
        elif isinstance(report, orders.Exited):
            self._exited(report)
        elif isinstance(report, orders.RunnerLost):
            what = describe_status(report.status)
            _log.warning("runner lost", rank=report.rank, pid=report.pid, reason=what)
        elif (
            isinstance(report, orders.SpawnFailed)
            and report.machine_gone
            and (
                self.places[report.rank].incarnation != report.incarnation
                or self._on_machine_gone(report.rank, report.reason)
                or report.may_return
            )
        ):
            return
        elif isinstance(report, orders.SpawnFailed) and self._is_there(report.rank):
            kind = NodeLostError if report.machine_gone else ResourceError
            error = kind(
                f"cannot start the process of rank {report.rank}: {report.reason}",
                hint=report.hint,
            )
            ready = self._ready.is_set()
            self.give_up(error)
            if ready:  # else callers that wait until all are ready get the error
                self._tell_given_up(report.rank, error)

    def _exited(self, report: orders.Exited) -> None:
        record = self.places[report.rank]
        if record.incarnation != report.incarnation:
            return
        record.pid = 0
        if record.state is PlaceState.LOST:
            self._respawn_where_gone()
        elif self._is_there(report.rank):
            self._repair([report.rank], report.reason or describe_status(report.status))

    def _is_there(self, rank: int) -> bool:
        """Whether a place was not removed yet."""
        return self.places[rank].state is not PlaceState.LEFT

    def _other_reported(self, key: StarterKey, report: orders.Report) -> None:
        if isinstance(report, orders.Ready):
            self._started[key] = report
        else:
            self._reported(report)

    def _starter_ended(self, key: StarterKey = (), reason: str = "the zygote ended") -> None:
        ranks = [one.rank for one in self.places if self._starters.runs_on(one.rank, key)]
        if len(ranks) > 1:  # parents first
            order = {rank: place for place, rank in enumerate(self._tree.subtree(ROOT))}
            ranks.sort(key=lambda rank: order.get(rank, 0))
        for rank in ranks:
            self.places[rank].pid = 0
        if isinstance(key, OnHost):
            self._repair(ranks, reason)
            if all(self.places[rank].state is PlaceState.LOST for rank in ranks):
                return  # else a node that cannot begin anything would be asked again for ever
        try:
            self._starters.replace(key, self._loop)
        except ResourceError as error:
            self.give_up(error)
            return
        if not isinstance(key, OnHost):
            self._repair(ranks, reason)

    # --- repair ----------------------------------------------------------------------------------

    def _repair(self, ranks: Sequence[int], reason: str) -> None:
        """End the processes of places, parents first, then start them anew.

        Those that the tree does not have any more are gone with that.
        """
        leaving = [rank for rank in ranks if rank not in self._tree]
        if leaving:
            self.contract(leaving, reason)
            ranks = [rank for rank in ranks if rank in self._tree]
            if not ranks:
                return
        for rank in filter(self.has_joined, ranks):
            self._on_joined_lost(rank, reason)
        ranks = [rank for rank in ranks if not self.has_joined(rank)]
        if not ranks:
            return
        pauses = self._pauses(ranks)
        self._last_reason = reason
        waits = [pause for pause in pauses.values() if pause is not None]
        _log.warning(
            "lost", places=fold("rank", ranks), reason=reason, wait=max(waits, default=None)
        )
        for rank in ranks:
            self._repairs[rank] = pauses[rank]
            record = self.places[rank]
            record.advance(PlaceEvent.GONE)
            if record.pid:
                self._starters.kill(rank, record.pid)
        self._on_change(PlaceChange(tuple(ranks), back=False, disconnected=False, reason=reason))
        self._respawn_where_gone()

    def _respawn_where_gone(self) -> None:
        """Start processes anew whose predecessors have ended."""
        waits: dict[float, list[int]] = {}
        for rank, pause in list(self._repairs.items()):
            record = self.places[rank]
            if record.pid:
                continue
            del self._repairs[rank]
            if pause is None:
                self._give_up_on(rank)
                continue
            record.incarnation += 1
            record.advance(PlaceEvent.SPAWNED)
            waits.setdefault(pause, []).append(rank)
        for pause, ranks in waits.items():
            self.restarts += 1
            if self._loop is not None:
                self._loop.call_later(pause, self._spawn_again, self._specs(ranks))

    def _spawn_again(self, specs: list[orders.ProcessSpec]) -> None:
        wanted = [
            spec
            for spec in specs
            if self._is_there(spec.rank) and self.places[spec.rank].incarnation == spec.incarnation
        ]
        if self._loop is not None and wanted:
            self._starters.spawn(wanted)

    def _pauses(self, ranks: Sequence[int]) -> dict[int, float | None]:
        """Return how long each place waits: each has its own budget."""
        return {
            rank: None if self._fails(rank) else self._pause_before_restart(rank) for rank in ranks
        }

    def _fails(self, rank: int) -> bool:
        """Whether as many processes as may be replaced did not even join, however slowly."""
        return self.places[rank].failures >= self._restart.limit

    def _pause_before_restart(self, rank: int) -> float | None:
        """Return the seconds to wait, or None where this place has been replaced too often."""
        assert self._loop is not None  # noqa: S101 - repairs happen on the loop
        budget = self._budgets.get(rank)
        if budget is None:
            budget = self._budgets[rank] = RestartBudget(self._restart)
        return budget.next_wait(self._loop.time())

    def _give_up_on(self, rank: int) -> None:
        error = AgentLostError(
            f"the processes of rank {rank} end again and again: {self._last_reason}",
            hint="see the messages above; restart.limit says how often they are replaced",
        )
        _log.error("given up", rank=rank, reason=self._last_reason)
        self.give_up(error)
        self._tell_given_up(rank, error)

    def _tell_given_up(self, rank: int, error: SapwoodError) -> None:
        change = PlaceChange((rank,), back=False, disconnected=False, reason=str(error))
        self._on_change(msgspec.structs.replace(change, for_good=True))

    def _specs(self, ranks: Sequence[int]) -> list[orders.ProcessSpec]:
        return [
            orders.ProcessSpec(self._beginning.entry(rank), rank, self.places[rank].incarnation)
            for rank in ranks
        ]

    @property
    def _spawner(self) -> Spawner:
        return self._starters.main

    def _starter_of(self, key: StarterKey) -> ProcessStarter:
        if not key:
            return self._new_spawner()
        beginning = self._beginning
        if isinstance(key, SharedAgentsKey):
            assert beginning.agent_source is not None  # noqa: S101 - else no place has this key
            return beginning.agent_source.agents(self._reported)
        if isinstance(key, JoinedAgentsKey):
            return JoinedAgents()
        if isinstance(key, OnHost):
            assert beginning.nodes is not None  # noqa: S101 - as above
            return beginning.nodes.starter(
                key.host,
                beginning,
                partial(self._other_reported, key),
                partial(self._starter_ended, key),
            )
        # The session's folder is removed by the zygote of the default interpreter alone.
        return Spawner(
            msgspec.structs.replace(self._beginning.plan, interpreter=key),
            msgspec.structs.replace(self._beginning.configure, folder=""),
            partial(self._other_reported, key),
            partial(self._starter_ended, key),
        )

    def _new_spawner(self) -> Spawner:
        agent_source = self._beginning.agent_source
        borrow = None if agent_source is None else agent_source.lend
        return Spawner(
            self._beginning.plan,
            self._beginning.configure,
            self._reported,
            self._starter_ended,
            borrow,
        )

    @property
    def failure(self) -> SapwoodError | None:
        """Why places stay lost, if the policy gave up."""
        return self._failure if isinstance(self._failure, SapwoodError) else None


def starter_keys(tree: Tree, beginning: ProcessSetup) -> dict[int, StarterKey]:
    """Return the starters of the places that the default interpreter's zygote does not begin."""
    keys: dict[int, StarterKey] = dict(beginning.interpreters)
    if beginning.agent_source is not None:
        keys = dict.fromkeys(tree.agent_ranks, SHARED_AGENTS)
    far = {rank: host for rank, host in beginning.hosts.items() if host}
    return keys | {rank: OnHost(host) if host > 0 else JOINED_AGENTS for rank, host in far.items()}
