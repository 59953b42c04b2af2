"""The processes of a session on a node, seen from the session's root."""

from __future__ import annotations

import contextlib
import itertools
import signal
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from functools import partial
from threading import Event, Lock
from typing import Any, Protocol

import msgspec

from sapwood.comm.transport.tls_identity import parse_address
from sapwood.contexts import orders
from sapwood.core import typed
from sapwood.core.errors import AgentLostError, ClosedError, SapwoodError
from sapwood.core.futures import CallerFuture, when_done
from sapwood.lifecycle import holds
from sapwood.nodes import messages
from sapwood.nodes.node_facts import NodeFacts
from sapwood.session.shared_reactor import SharedReactor
from sapwood.session.starters import ProcessStarter
from sapwood.session.supervisor import NodeSource, ProcessSetup, TreePort

RETURN_TIMEOUT = 15.0
"""Seconds in which nodes come back to a head that has been started again, at most."""

CLOSE_TIMEOUT = 10.0
"""Seconds that nodes get to end the processes of a session."""


class ReportReceiver(Protocol):
    """Receives the reports of the processes of a session on a node.

    Attributes:
        name: Of the session.
        host: Number of the node.
    """

    name: str
    host: int

    def heard(self, report: messages.ProcessesReported) -> None:
        """Take in what the node reports."""


class SessionOnNode(ReportReceiver, Protocol):
    """Receives also news of the node, and of the way to it."""

    def node_changed(self, *, there: bool, reason: str) -> None:
        """Take in that the node is gone, or that a new daemon is there in its place."""

    def node_removed(self, reason: str) -> None:
        """Take in that the node has left for good."""

    def node_given_up(self, reason: str) -> None:
        """Take in that the node will not come back."""

    def way_lost(self) -> None:
        """Take in that nothing can be said to the node, nor heard of it, for now."""

    def way_back(self) -> None:
        """Take in that the way is there again; the node may be away still."""


class NodeAccess(Protocol):
    """The way to the nodes: a control tree in this process, or the head that has one."""

    def ask(self, host: int, handler: str, value: Any) -> Future[Any]:
        """Send a request to the daemon of a node.

        Raises:
            ClosedError: There is no way any more.
        """

    def is_ready(self, host: int) -> bool:
        """Whether a node is there."""

    def name_of(self, host: int) -> str:
        """Return what users call a node."""

    def shown_by_places(self, node: str) -> str:
        """Return the id that places on a node show to places of other machines.

        Args:
            node: The id of the node itself.
        """

    def given_up(self, host: int) -> str:
        """Return why a node will not come back; empty if it may."""

    @property
    def is_away(self) -> bool:
        """Whether the connection to all nodes is lost for now; requests fail meanwhile."""

    @property
    def is_over(self) -> bool:
        """Whether all nodes are gone for good."""

    @property
    def hint(self) -> str:
        """What users can do where a node is given up."""

    def trouble(self) -> str:
        """Return why the nodes cannot be asked; it may wait some seconds for an answer."""

    def join(self, session: SessionOnNode) -> None:
        """Have reports about a session on one node handed to it."""

    def part(self, session: SessionOnNode) -> None:
        """Hand no more reports to it."""

    @property
    def nodes(self) -> Sequence[PooledNode]:
        """The nodes."""

    def open_port(self, loop: SharedReactor) -> TreePort:
        """Return where the nodes reach the root of a session, on that session's loop."""

    def close(self) -> None:
        """End the way to the nodes, and in its own process the nodes."""


class NodePool(Protocol):
    """Nodes that are there: a control tree, or the way to a head that has one."""

    @property
    def nodes(self) -> Sequence[PooledNode]:
        """The nodes."""

    def source(self, *, owned: bool = False) -> NodeSource:
        """Return what begins the processes of one session on the nodes."""


class PooledNode(Protocol):
    """A node that may get agents."""

    @property
    def host(self) -> int:
        """Its number."""

    @property
    def name(self) -> str:
        """What users call it."""

    @property
    def node(self) -> str:
        """Its id in certificates."""

    @property
    def facts(self) -> NodeFacts | None:
        """What it says of itself."""


class NodeProcesses:
    """The processes of a session on one node, as the session's supervisor sees them: a starter.

    :class:`~sapwood.lifecycle.holds.NodeHold` decides what is sent to the node, and what the
    session learns of it. Any thread may post an event; orders are carried out one after the other,
    in the order in which they were given.

    Args:
        access: The way to the node.
        host: Number of the node.
        setup: How processes begin.
        on_report: Receives their state changes, on the session's loop.
        on_end: Told why all of them are gone, on the session's loop.
    """

    _lives = itertools.count(1)

    def __init__(
        self,
        access: NodeAccess,
        host: int,
        setup: ProcessSetup,
        on_report: Callable[[orders.Report], None],
        on_end: Callable[[str], None],
    ) -> None:
        self.name = setup.session
        self.host = host
        self._access = access
        self._setup = setup
        self._life = next(self._lives)
        self._loop: SharedReactor | None = None
        self._early: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._lock = Lock()
        self._hold = holds.NodeHold(
            setup.configuration_of(host),
            holds.HoldPolicy(
                RETURN_TIMEOUT,
                setup.node_patience,
                partial(access.name_of, host),
                lambda: access.hint,
            ),
        )
        self._orders: deque[holds.HoldOrder] = deque()
        self._performing = False
        self._closed = Event()
        self._ends_by = 0.0
        self._performers: dict[type[Any], Callable[[Any], None]] = {
            holds.OpenOnNode: self._open,
            holds.AskWhatRuns: self._resume,
            holds.SpawnOnNode: self._send_spawn,
            holds.KillOnNode: self._send_kill,
            holds.ConfigureOnNode: self._send_configuration,
            holds.CloseOnNode: self._end,
            holds.ReportToSession: lambda order: self._on_loop(on_report, order.report),
            holds.ReportEnd: lambda order: self._on_loop(on_end, order.reason),
            holds.WakeIn: lambda order: self._on_loop(self._wake, order),
        }

    # --- as a starter --------------------------------------------------------------------------

    def start(self) -> None:
        """Have the node get ready now, or as soon as it is reached."""
        self._access.join(self)
        if self._access.is_ready(self.host):
            self._post(holds.NodeUsable())

    def listen(self, loop: SharedReactor) -> None:
        """Report on a loop from now on; called on its thread."""
        with self._lock:
            self._loop = loop
            early, self._early = self._early, []
        for function, args in early:
            function(*args)

    def reconfigure(self, configuration: bytes) -> None:
        """Give another configuration to processes that begin from now on."""
        self._post(holds.ConfigureOnNode(configuration))

    def spawn(self, processes: Sequence[orders.ProcessSpec]) -> None:
        """Begin processes."""
        given_up = self._access.given_up(self.host)
        self._post(holds.SpawnOnNode(tuple(processes), given_up, self._access.is_over))

    def kill(self, pid: int) -> None:
        """End a process."""
        self._post(holds.KillOnNode(pid))

    def detach(self) -> None:
        """Report nothing any more, and let all processes end: so all nodes do that at once."""
        with self._lock:
            self._loop = None
            self._early.clear()
            self._ends_by = self._ends_by or time.monotonic() + CLOSE_TIMEOUT
        self._access.part(self)
        self._post(holds.HoldReleased())

    def close(self) -> None:
        """End all processes on the node, and wait for that, where there are any.

        The time counts from :meth:`detach`, so that several nodes have one deadline in common.
        """
        self.detach()
        self._closed.wait(max(0.0, self._ends_by - time.monotonic()))

    # --- news of the node, on any thread -------------------------------------------------------

    def heard(self, report: messages.ProcessesReported) -> None:
        """Take in what the node reports."""
        if report.life != self._life:
            return
        if report.report is None:
            self._post(holds.ProcessesEnded(report.reason))
        else:
            self._post(holds.ReportToSession(report.report))

    def node_changed(self, *, there: bool, reason: str) -> None:
        """Take in that the node is gone, or that a new daemon is there in its place."""
        self._post(holds.NodeUsable() if there else holds.NodeLost(reason))

    def way_lost(self) -> None:
        """Take in that nothing can be said to the node, nor heard of it, for now.

        Its processes keep running, and orders wait.
        """
        self._post(holds.WayLost())

    def way_back(self) -> None:
        """Take in that the way is there again; the node may be away still."""
        self._post(holds.WayBack(self._access.is_ready(self.host)))

    def node_removed(self, reason: str) -> None:
        """Take in that the node has left for good."""
        self._post(holds.NodeRemoved(reason, self._access.is_over))

    def node_given_up(self, reason: str) -> None:
        """Take in that the node will not come back."""
        self._post(holds.NodeGivenUp(reason, self._access.is_over))

    # --- events and orders ---------------------------------------------------------------------

    def _post(self, event: holds.HoldInput) -> None:
        """Give the hold an event, and carry out its orders unless another call is doing that."""
        with self._lock:
            self._orders += self._hold.step(event)
            if self._performing:
                return
            self._performing = True
        try:
            while (order := self._next()) is not None:
                self._performers[type(order)](order)
        except BaseException:
            with self._lock:
                self._performing = False
            raise

    def _next(self) -> holds.HoldOrder | None:
        """Return the next order; None if there is none, and then nothing is being performed."""
        with self._lock:
            if self._orders:
                return self._orders.popleft()
            self._performing = False
            return None

    def _open(self, order: holds.OpenOnNode) -> None:
        opening = messages.OpenProcesses(
            session=self.name,
            host=self.host,
            plan=self._setup.plan,
            configuration=order.configuration,
            environment=self._setup.configure.environment,
            life=self._life,
        )
        self._send(order, messages.OPEN, opening)
        self._on_loop(self._setup.node_opened, self.host)

    def _resume(self, order: holds.AskWhatRuns) -> None:
        def answered(answer: Future[Any]) -> None:
            error = answer.exception()
            if error is None:
                found = messages.from_value(answer.result(), messages.ResumedProcesses)
                self._post(holds.FoundRunning(order.number, tuple(found.living)))
            else:
                unreached = self._access.is_away or isinstance(error, _NODE_LOST)
                self._post(holds.NothingFound(order.number, str(error), unreached))

        resuming = messages.ResumeProcesses(self.name, self._life)
        when_done(self._ask(messages.RESUME, messages.to_value(resuming)), answered)

    def _send_spawn(self, order: holds.SpawnOnNode) -> None:
        spawning = messages.SpawnProcesses(self.name, list(order.processes))
        self._send(order, messages.SPAWN, spawning)

    def _send_kill(self, order: holds.KillOnNode) -> None:
        killing = messages.KillProcess(self.name, order.pid, signal.SIGKILL)
        self._send(order, messages.KILL, killing)

    def _send_configuration(self, order: holds.ConfigureOnNode) -> None:
        changed = messages.ConfigureSession(self.name, order.configuration)
        self._send(order, messages.CONFIGURE, changed)

    def _end(self, order: holds.CloseOnNode) -> None:
        if order.held:
            answer = self._ask(messages.CLOSE, self.name)
            when_done(answer, lambda _answer: self._closed.set())
        else:
            self._closed.set()

    def _send(
        self, request: holds.NodeCommand | holds.OpenOnNode, handler: str, body: msgspec.Struct
    ) -> None:
        """Send the node a request; the hold learns of it if it is not carried out."""

        def answered(answer: Future[Any]) -> None:
            error = answer.exception()
            if error is not None:
                away, lost = self._access.is_away, isinstance(error, _NODE_LOST)
                self._post(holds.CommandFailed(request, str(error), away, lost))

        when_done(self._ask(handler, messages.to_value(body)), answered)

    def _ask(self, handler: str, value: Any) -> Future[Any]:
        try:
            return self._access.ask(self.host, handler, value)
        except SapwoodError as error:
            failed: Future[Any] = CallerFuture()
            failed.set_exception(error)
            return failed

    def _wake(self, order: holds.WakeIn) -> None:
        if self._loop is not None:
            self._loop.call_later(order.seconds, self._post, holds.AlarmDue(order.alarm))

    def _on_loop(self, function: Callable[..., None], *args: Any) -> None:
        with self._lock:
            loop = self._loop
            if loop is None:
                if not self._ends_by:
                    self._early.append((function, args))
                return
        with contextlib.suppress(ClosedError):  # the loop has ended
            loop.call_soon_threadsafe(self._if_listening, function, args)

    def _if_listening(self, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self._loop is not None:
            function(*args)


_NODE_LOST = (AgentLostError, ClosedError)
"""Errors of requests to a node that is lost: the control tree reports that separately."""


class SessionNodes:
    """What begins the places of one session on nodes.

    Args:
        access: The way to the nodes.
        owned: Whether it ends with the session.
    """

    def __init__(self, access: NodeAccess, *, owned: bool) -> None:
        self._access = access
        self._owned = owned

    def open_port(self, loop: SharedReactor) -> TreePort:
        """Return where the nodes reach the root of the session."""
        return self._access.open_port(loop)

    def starter(
        self,
        host: int,
        setup: ProcessSetup,
        on_report: Callable[[orders.Report], None],
        on_end: Callable[[str], None],
    ) -> ProcessStarter:
        """Return what begins processes on one node."""
        return NodeProcesses(self._access, host, setup, on_report, on_end)

    def listen(self, host: int, where: str) -> Future[str]:
        """Make a node listen for others; the returned future gets its address."""
        found: Future[str] = CallerFuture()

        def answered(answer: Future[Any]) -> None:
            try:
                endpoints = ",".join(typed.convert(answer.result(), list[str]))
                node = next(one.node for one in self._access.nodes if one.host == host)
                address = f"tls://{self._access.shown_by_places(node)}@{endpoints}"
                parse_address(address)
                found.set_result(address)
            except Exception as error:  # noqa: BLE001 - the waiting caller gets it
                found.set_exception(error)

        value = messages.to_value(messages.ListenForNodes(where))
        when_done(self._access.ask(host, messages.LISTEN, value), answered)
        return found

    def name_of(self, host: int) -> str:
        """Return what users call a node."""
        return self._access.name_of(host)

    def note_detour(self, session: str, host: int, rank: int, home: int, at: int) -> None:
        """Send the node of a place the machine to which the place is attached."""
        order = messages.NoteDetour(session, messages.Detour(rank, home, at))
        with contextlib.suppress(ClosedError):
            self._access.ask(host, messages.DETOUR, messages.to_value(order))

    @property
    def hint(self) -> str:
        """What users can do where a node is given up."""
        return self._access.hint

    def trouble(self, hosts: Collection[int]) -> str:
        """Return why nothing can begin on some of these nodes; empty if nothing is known."""
        trouble = self._access.trouble()
        if not trouble:
            away = [one for one in sorted(hosts) if not self._access.is_ready(one)]
            trouble = ", ".join(f"the node {self.name_of(one)} cannot be reached" for one in away)
        return trouble

    def ready_hosts(self) -> list[int]:
        """Return the numbers of the nodes that are there."""
        return [one.host for one in self._access.nodes if self._access.is_ready(one.host)]

    def close(self) -> None:
        """Say that the session is over."""
        if self._owned:
            self._access.close()
