"""The control tree: the head at its root, and the daemon of a node at each leaf.

It is a session like any other, in which other sessions begin their processes: to the supervisor of
such a session a node is a starter (:class:`NodeProcesses`), as the zygote of its own machine is.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from threading import Lock, Semaphore
from typing import Any

import msgspec

from sapwood.contexts import orders
from sapwood.contexts.launchers.base import Launcher
from sapwood.core.errors import (
    AgentLostError,
    ClosedError,
    NodeLostError,
    SapwoodError,
    SecurityError,
)
from sapwood.core.hostset import fold_hosts
from sapwood.core.topology import ROOT, flat
from sapwood.environment.logs import logger
from sapwood.environment.settings import NodeSettings
from sapwood.nodes import messages
from sapwood.nodes.daemon import DaemonOrder
from sapwood.nodes.joining import (
    JOIN_TIMEOUT,
    PATIENCE,
    JoinAnswer,
    JoinRequest,
    JoinServer,
    NodeFacts,
)
from sapwood.nodes.port import HeadPort
from sapwood.nodes.starting import SEND_TIMEOUT, AwaitedDaemon, DaemonStarter, NodeTrouble
from sapwood.security.authority import HEAD, Authority, make_request, new_cluster_id
from sapwood.security.credentials import Credentials
from sapwood.security.tokens import LIFETIME, JoinToken, Tokens
from sapwood.session.embedded import DRAINING, EmbeddedSession
from sapwood.session.options import PlacesChanged, SessionOptions
from sapwood.session.port import NewAgent
from sapwood.session.shared_reactor import SharedReactor
from sapwood.session.supervisor import NodeSource, ProcessSetup, ProcessStarter

CLOSE_TIMEOUT = 10.0
"""Seconds that nodes get to end the processes of a session."""

_log = logger("nodes")


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node, as it is now.

    Attributes:
        host: Number of the machine, from 1.
        name: What the user calls it.
        node: Its node id; empty until it has joined.
        state: ``starting``, ``ready``, ``disconnected`` or ``lost``.
        facts: What it says of itself; None until it has joined.
        skew: Seconds by which its clock is ahead of the head's.
        trouble: Why it is not there; empty if it is.
    """

    host: int
    name: str
    node: str
    state: str
    facts: NodeFacts | None
    skew: float
    trouble: str


class ControlTree:
    """A head with its nodes: those that a launcher starts, and those that join by themselves.

    A machine that joins with a token of :meth:`create_token` gets a rank of its own, which no other
    machine ever has. :meth:`remove_node` lets a node go for good.

    Args:
        launcher: What starts daemons; None for a head that waits for machines to join.
        options: How the control tree is made; its tree is replaced.
        settings: How machines become nodes.

    Raises (from :meth:`start`):
        NodeLostError: Nodes did not come; the error says which and why.
    """

    def __init__(
        self,
        launcher: Launcher | None,
        options: SessionOptions,
        settings: NodeSettings,
    ) -> None:
        self.launcher = launcher
        self.hosts = tuple(launcher.hosts) if launcher is not None else ()
        self._settings = settings
        self._gate = Semaphore(launcher.concurrency if launcher is not None else 1)
        self._authority = Authority.create(new_cluster_id())
        self._tokens = Tokens(self._authority.pin, time.time)
        key, request = make_request()
        self.credentials: Credentials = self._authority.issue(request, HEAD, key)
        self._lock = Lock()
        self._facts: dict[int, tuple[str, NodeFacts, float]] = {}
        self._trouble: dict[int, str] = {}
        self._sessions: dict[tuple[str, int], NodeProcesses] = {}
        self._started = False
        self._given_up: dict[int, str] = {}
        self._expected: dict[str, int] = {}  # incarnations, by the ids of tokens
        self._joined: dict[int, str] = {}  # names of those that somebody else started
        self._awaited: dict[int, int] = {}  # incarnations of those that may join, by their ranks
        self._places: tuple[str, ...] = ()
        self._loop_later: Callable[..., object] = _not_yet
        count = len(self.hosts)
        self.session = EmbeddedSession(
            msgspec.structs.replace(
                options,
                tree=flat(count),
                hosts=tuple(range(count + 1)),
                shared_memory=False,
                fastpath=False,
                zygote=False,
                ready_timeout=SEND_TIMEOUT + 2 * settings.start_timeout + JOIN_TIMEOUT,
                join_timeout=0.0,
            ),
            nodes=_Daemons(self),
        )

    # --- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all nodes and wait until they have joined."""
        self.session.answer(messages.REPORT, self._reported)
        self.session.subscribe(self._places_changed)
        try:
            self.session.start()
        except SapwoodError as error:
            raise self._explained(error) from error
        with self._lock:
            self._started = True

    def close(self) -> None:
        """End all nodes, and all that they began."""
        self.session.close()
        if self.launcher is not None:
            self.launcher.close()

    @property
    def nodes(self) -> list[NodeView]:
        """The nodes, as they are now."""
        with self._lock:
            facts, trouble = dict(self._facts), dict(self._trouble)
        found: list[NodeView] = []
        for place in self.session.places():
            node, said, skew = facts.get(place.rank, ("", None, 0.0))
            found.append(
                NodeView(
                    host=place.rank,
                    name=self.name_of(place.rank),
                    node=node,
                    state=place.state.value,
                    facts=said,
                    skew=skew,
                    trouble="" if place.is_ready else trouble.get(place.rank, ""),
                )
            )
        return found

    def name_of(self, host: int) -> str:
        """Return what users call a node."""
        with self._lock:
            joined = self._joined.get(host)
        return self.hosts[host - 1] if joined is None else joined

    def create_token(
        self, *, uses: int = 1, lifetime: float = LIFETIME, names: str = "*", host: int = 0
    ) -> JoinToken:
        """Return a token by which machines become nodes; from any thread.

        Args:
            uses: How many machines may use it.
            lifetime: How long, in seconds.
            names: Pattern of the names that they may call themselves, as of a shell.
            host: The node that a machine is to be again, whose daemon has ended; 0 for a new one.
        """
        with self._lock:
            return self._tokens.create(uses=uses, lifetime=lifetime, names=names, slot=host)

    def revoke_token(self, token_id: str) -> bool:
        """Let nobody join by a token any more; return whether it was there."""
        with self._lock:
            return self._tokens.revoke(token_id)

    def remove_node(
        self, host: int, seconds: float = DRAINING, reason: str = "it was removed"
    ) -> None:
        """Let a node go for good: its daemon ends, and with it all that it began.

        Sessions lose their places there, as if it would not come back.

        Args:
            host: Its number, which no other node gets.
            seconds: How long what it was asked for may take.
            reason: Why, for those who wait for it.

        Raises:
            ConfigurationError: There is no such node.
            ClosedError: The control tree is closed.
        """
        self.session.contract([host], seconds, reason)

    def _explained(self, error: SapwoodError) -> SapwoodError:
        """Return an error that names the nodes that did not come, and why."""
        with self._lock:
            trouble = dict(self._trouble)
        if not trouble:
            return error
        by_reason: dict[str, list[str]] = {}
        for host, reason in sorted(trouble.items()):
            by_reason.setdefault(reason, []).append(self.name_of(host))
        lines = [f"{fold_hosts(names)}: {reason}" for reason, names in by_reason.items()]
        return NodeLostError(
            f"{len(trouble)} of {len(self.hosts)} nodes did not come",
            where="; ".join(lines),
            hint="try `ssh HOST true` for one of them" if self._is_ssh else "",
        )

    @property
    def _is_ssh(self) -> bool:
        return self.launcher is not None and self.launcher.name == "ssh"

    # --- for sessions --------------------------------------------------------------------------

    def source(self, *, owned: bool = False) -> NodeSource:
        """Return what begins the processes of one session on the nodes.

        Args:
            owned: Whether the control tree ends with that session.
        """
        return _Nodes(self, owned=owned)

    def open_port(self, loop: SharedReactor) -> HeadPort:
        """Return a port on the loop of a session, at which the nodes reach its root."""
        return HeadPort(self._settings.listen, loop, self.credentials)

    def join(self, session: NodeProcesses) -> None:
        """Have reports about a session on one node handed to it."""
        with self._lock:
            self._sessions[session.name, session.host] = session

    def part(self, session: NodeProcesses) -> None:
        """Hand no more reports to it."""
        with self._lock:
            if self._sessions.get((session.name, session.host)) is session:
                del self._sessions[session.name, session.host]

    # --- on the loop of the control tree -------------------------------------------------------

    def serve_joining(self, port: HeadPort, loop: SharedReactor) -> None:
        """Let machines join at a port."""
        self._loop_later = loop.call_later
        port.serve_joining(JoinServer(self._authority.certificate, self._admit, loop))

    def daemon_starter(
        self, host: int, on_report: Callable[[orders.Report], None]
    ) -> ProcessStarter:
        """Return what starts the daemon of a machine, or waits for it."""
        if self.launcher is None or host > len(self.hosts):
            return AwaitedDaemon(self._expect, on_report)
        return DaemonStarter(
            self.launcher,
            self.hosts[host - 1],
            self._gate,
            self._order,
            on_report,
            partial(self._note_trouble, host),
            self._settings,
        )

    def _expect(self, spec: orders.ProcessSpec) -> None:
        with self._lock:
            self._awaited[spec.rank] = spec.incarnation

    def _order(self, rank: int, incarnation: int) -> DaemonOrder:
        """Return what the daemon of a place is told; called on the thread that starts it."""
        with self._lock:
            token = self._tokens.create(slot=rank)
            self._expected[token.id] = incarnation
        return DaemonOrder(token.text, list(self.places))

    @property
    def places(self) -> tuple[str, ...]:
        """Where machines that join reach the head, ``host:port`` each."""
        return self._places

    def opened(self, port: HeadPort) -> None:
        """Note where machines join."""
        self._places = port.places

    def _admit(self, request: JoinRequest, _peer: str) -> JoinAnswer:
        """Let a machine become a node, or say why not."""
        token = JoinToken.parse(request.token)
        with self._lock:
            record = self._tokens.redeem(token, request.facts.name)
            launched = self._expected.pop(token.id, 0)
        rank = record.slot or self._add_node(request.facts.name)
        with self._lock:
            incarnation = launched or self._awaited.pop(rank, 0)
            if not incarnation:
                raise SecurityError(
                    f"the join token is for the node {rank}, which is there or was removed",
                    hint="make a token for a new node",
                )
            skew = request.facts.clock - time.time()
            name = f"n{rank}"
            certificate = self._authority.sign(request.request, name)
            node = self._authority.node_id(name)
            self._facts[rank] = (node, request.facts, skew)
            self._trouble.pop(rank, None)
            failed = not self._started and len(self._facts.keys() | self._trouble.keys()) == len(
                self.hosts
            )
        if failed and self._trouble:
            self.session.supervisor.give_up(NodeLostError("nodes did not come"))
        configuration = self.session.host.configuration_of(rank)
        return JoinAnswer(node, certificate, rank, incarnation, configuration)

    def _add_node(self, name: str) -> int:
        """Give a machine that joins a place of its own; return its rank."""
        host = self.session.tree.size
        with self._lock:
            taken = {*self.hosts, *self._joined.values()}
            self._joined[host] = name if name not in taken else f"{name}-{host}"
        (rank,) = self.session.host.expand([NewAgent(ROOT, host)])
        _log.info("node admitted", host=self.name_of(rank), rank=rank)
        self._loop_later(JOIN_TIMEOUT + PATIENCE, self._forget_absent, rank)
        return rank

    def _forget_absent(self, rank: int) -> None:
        """Remove a node that was let in and did not take its place."""
        record = self.session.supervisor.places[rank]
        if record.is_new and rank in self.session.tree:
            self.session.begin_contract([rank])
            self.session.host.contract([rank], "it joined and did not take its place")

    def _note_trouble(self, host: int, trouble: NodeTrouble) -> bool:
        """Note why a node is not there; say whether to try again."""
        with self._lock:
            self._trouble[host] = trouble.reason
            started = self._started
            decided = len(self._facts.keys() | self._trouble.keys()) == len(self.hosts)
        (_log.warning if started else _log.info)(
            "node trouble", host=trouble.host, reason=trouble.reason
        )
        if not started and decided:  # all others are there, or have failed as well
            self.session.supervisor.give_up(NodeLostError(trouble.reason, where=trouble.host))
        return started

    def _reported(self, rank: int, value: Any) -> None:
        report = messages.from_value(value, messages.ProcessesReported)
        with self._lock:
            session = self._sessions.get((report.session, rank))
        if session is not None:
            session.heard(report)

    def _places_changed(self, change: PlacesChanged) -> None:
        if change.disconnected:
            return
        with self._lock:
            affected = [one for one in self._sessions.values() if one.host in change.ranks]
            if change.for_good:
                self._given_up |= dict.fromkeys(change.ranks, change.reason)
            if change.removed:
                for rank in change.ranks:
                    for known in (self._facts, self._trouble, self._awaited):
                        known.pop(rank, None)
        for session in affected:
            if change.removed:
                session.node_removed(change.reason)
            elif change.for_good:
                session.node_given_up(change.reason)
            else:
                session.node_changed(there=change.back, reason=change.reason)

    def given_up(self, host: int) -> str:
        """Return why a node will not come back; empty if it may."""
        with self._lock:
            return self._given_up.get(host, "")


def _not_yet(*_args: object) -> None:
    """Nobody joins before there is a port."""


class _Daemons:
    """What begins the places of the control tree: the daemons."""

    def __init__(self, control: ControlTree) -> None:
        self._control = control

    def open_port(self, loop: SharedReactor) -> HeadPort:
        """Return the port at which nodes join and have their links."""
        port = self._control.open_port(loop)
        self._control.opened(port)
        self._control.serve_joining(port, loop)
        return port

    def starter(
        self,
        host: int,
        setup: ProcessSetup,
        on_report: Callable[[orders.Report], None],
        on_end: Callable[[str], None],
    ) -> ProcessStarter:
        """Return what starts the daemon of a machine."""
        del setup, on_end
        return self._control.daemon_starter(host, on_report)

    def close(self) -> None:
        """Do nothing: the daemons end with the channels of the launcher."""


class _Nodes:
    """What begins the places of a session on the nodes of a control tree."""

    def __init__(self, control: ControlTree, *, owned: bool) -> None:
        self._control = control
        self._owned = owned

    def open_port(self, loop: SharedReactor) -> HeadPort:
        """Return a port at which the nodes reach the root of the session."""
        return self._control.open_port(loop)

    def starter(
        self,
        host: int,
        setup: ProcessSetup,
        on_report: Callable[[orders.Report], None],
        on_end: Callable[[str], None],
    ) -> ProcessStarter:
        """Return what begins processes on one node."""
        return NodeProcesses(self._control, host, setup, on_report, on_end)

    def close(self) -> None:
        """Say that the session is over."""
        if self._owned:
            self._control.close()


class NodeProcesses:
    """The processes of a session on one node, as the session's supervisor sees them: a starter.

    Args:
        control: The control tree.
        host: Number of the node.
        setup: How processes begin.
        on_report: Told what becomes of them, on the session's loop.
        on_end: Told why all of them are gone, on the session's loop.
    """

    _lives = itertools.count(1)

    def __init__(
        self,
        control: ControlTree,
        host: int,
        setup: ProcessSetup,
        on_report: Callable[[orders.Report], None],
        on_end: Callable[[str], None],
    ) -> None:
        self.name = setup.session
        self.host = host
        self._control = control
        self._setup = setup
        self._configuration = setup.configuration_of(host)
        self._on_report = on_report
        self._on_end = on_end
        self._life = next(self._lives)
        self._loop: SharedReactor | None = None
        self._early: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._lock = Lock()
        self._there = False
        self._specs: dict[int, orders.ProcessSpec] = {}
        self._waiting: list[tuple[str, Any]] = []
        self._over = False
        self._closing: Future[Any] | None = None

    def start(self) -> None:
        """Have the node get ready; if it is not there, when it is."""
        self._control.join(self)
        if self._control.session.places([self.host])[0].is_ready:
            self._open()

    def _open(self) -> None:
        """Open the session on the node, and send the orders that waited for that."""
        with self._lock:
            if self._there or self._over:
                return
            self._there = True
            waiting, self._waiting = self._waiting, []
        opening = messages.OpenProcesses(
            session=self.name,
            host=self.host,
            plan=self._setup.plan,
            configuration=self._configuration,
            environment=self._setup.configure.environment,
            life=self._life,
        )
        self._ask(messages.OPEN, messages.to_value(opening))
        for handler, value in waiting:
            self._ask(handler, value)

    def listen(self, loop: SharedReactor) -> None:
        """Report on a loop from now on; called on its thread."""
        with self._lock:
            self._loop = loop
            early, self._early = self._early, []
        for function, args in early:
            function(*args)

    def reconfigure(self, configuration: bytes) -> None:
        """Give another configuration to processes that begin from now on."""
        with self._lock:
            self._configuration = configuration
            there = self._there and not self._over
        if there:
            changed = messages.ConfigureSession(self.name, configuration)
            self._ask(messages.CONFIGURE, messages.to_value(changed))

    def spawn(self, processes: Sequence[orders.ProcessSpec]) -> None:
        """Begin processes."""
        self._specs |= {spec.rank: spec for spec in processes}
        reason = self._control.given_up(self.host)
        if reason:
            self.node_given_up(reason)
        spawning = messages.SpawnProcesses(self.name, list(processes))
        self._order(messages.SPAWN, messages.to_value(spawning))

    def kill(self, pid: int) -> None:
        """End a process."""
        killing = messages.KillProcess(self.name, pid, signal.SIGKILL)
        self._order(messages.KILL, messages.to_value(killing))

    def is_silent(self, looks: int, first: int) -> bool:
        """Return False: the node looks after its zygote, and the control tree after the node."""
        del looks, first
        return False

    def end(self) -> None:
        """Do nothing, as it is never silent."""

    def detach(self) -> None:
        """Report nothing any more, and let all processes end: so all nodes do that at once."""
        with self._lock:
            there, self._there, self._over = self._there, False, True
            self._loop = None
        self._control.part(self)
        if there:
            with contextlib.suppress(ClosedError):
                self._closing = self._control.session.ask(self.host, messages.CLOSE, self.name)

    def close(self) -> None:
        """End all processes on the node, and wait for that, where there are any."""
        self.detach()
        if self._closing is not None:
            wait([self._closing], CLOSE_TIMEOUT)

    # --- on the loop of the control tree -------------------------------------------------------

    def heard(self, report: messages.ProcessesReported) -> None:
        """Take in what the node reports."""
        if report.life != self._life:
            return
        if report.report is None:
            self._ended(f"{self._name}: {report.reason}")
        else:
            self._on_loop(self._on_report, report.report)

    def node_changed(self, *, there: bool, reason: str) -> None:
        """Take in that the node is gone, or that a new daemon is there in its place."""
        if there:
            self._open()
        else:
            self._ended(f"the node {self._name} is gone: {reason}")

    def node_removed(self, reason: str) -> None:
        """Take in that the node has left for good."""
        with self._lock:
            there = self._there
        if there:
            self._ended(f"the node {self._name} is gone: {reason}")  # who follows is told the rest
        else:
            self.node_given_up(reason)

    def node_given_up(self, reason: str) -> None:
        """Take in that the node will not come back."""
        for spec in self._specs.values():
            failed = orders.SpawnFailed(
                spec.rank,
                spec.incarnation,
                f"the node {self._name} is given up: {reason}",
                "see the messages above; restart.limit says how often a node is started again",
            )
            self._on_loop(self._on_report, failed, last=True)

    def _ended(self, reason: str) -> None:
        """All processes are gone: another starter takes the place of this one."""
        with self._lock:
            there, self._there = self._there, False
            self._over = self._over or there
        if there:
            self._on_loop(self._on_end, reason, last=True)

    @property
    def _name(self) -> str:
        return self._control.name_of(self.host)

    def _order(self, handler: str, value: Any) -> None:
        with self._lock:
            if self._over:
                return
            if not self._there:
                self._waiting.append((handler, value))
                return
        self._ask(handler, value)

    def _ask(self, handler: str, value: Any) -> None:
        try:
            answer = self._control.session.ask(self.host, handler, value)
        except ClosedError:
            return
        answer.add_done_callback(self._answered)

    def _answered(self, answer: Future[Any]) -> None:
        error = answer.exception()
        if error is None or isinstance(error, AgentLostError | ClosedError):
            return  # that a node is gone is told by the control tree
        self._ended(f"{self._name}: {error}")

    def _on_loop(self, function: Callable[..., None], *args: Any, last: bool = False) -> None:
        with self._lock:
            if self._over and not last:
                return
            loop = self._loop
            if loop is None:
                self._early.append((function, args))
                return
        with contextlib.suppress(ClosedError):  # the loop has ended
            loop.call_soon_threadsafe(self._if_listening, function, args)

    def _if_listening(self, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self._loop is not None:
            function(*args)
