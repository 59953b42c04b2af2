"""The processes of a session on a node, seen from the session's root."""

from __future__ import annotations

import contextlib
import enum
import itertools
import signal
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, wait
from functools import partial
from threading import Lock
from typing import Any, Protocol

from sapwood.comm.transport.tls_identity import parse_address
from sapwood.contexts import orders
from sapwood.core import typed
from sapwood.core.errors import AgentLostError, ClosedError
from sapwood.core.futures import CallerFuture, when_done
from sapwood.core.states import StateTable
from sapwood.nodes import messages
from sapwood.nodes.node_facts import NodeFacts
from sapwood.session.shared_reactor import SharedReactor
from sapwood.session.starters import ProcessStarter
from sapwood.session.supervisor import NodeSource, ProcessSetup, TreePort

RETURN_TIMEOUT = 15.0
"""Seconds in which nodes come back to a head that has been started again, at most."""

CLOSE_TIMEOUT = 10.0
"""Seconds that nodes get to end the processes of a session."""


class HoldState(enum.Enum):
    """States of a session's hold on the processes of one node."""

    ABSENT = "absent"
    SENDING = "sending"
    OPEN = "open"
    AWAY = "away"
    OVER = "over"

    @property
    def is_held(self) -> bool:
        """Whether the node has the session open."""
        return self not in {HoldState.ABSENT, HoldState.OVER}


class HoldEvent(enum.Enum):
    """What happens to a hold."""

    OPENED = "opened"
    SENT = "all sent"
    CUT_OFF = "cut off"
    RESUMED = "resumed"
    ENDED = "ended"
    DETACHED = "detached"


_S, _E = HoldState, HoldEvent

TRANSITIONS = StateTable(
    "a node's processes",
    {
        (_S.ABSENT, _E.OPENED): _S.SENDING,
        (_S.SENDING, _E.SENT): _S.OPEN,
        (_S.SENDING, _E.CUT_OFF): _S.AWAY,
        (_S.OPEN, _E.CUT_OFF): _S.AWAY,
        (_S.AWAY, _E.RESUMED): _S.SENDING,
        **{(state, _E.ENDED): _S.OVER for state in (_S.SENDING, _S.OPEN, _S.AWAY)},
        **{(state, _E.DETACHED): _S.OVER for state in _S},
    },
)
"""(state, event) → next state. Orders wait in all states but OPEN, and in OVER they are dropped."""


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
        self._configuration = setup.configuration_of(host)
        self._on_report = on_report
        self._on_end = on_end
        self._life = next(self._lives)
        self._loop: SharedReactor | None = None
        self._early: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._lock = Lock()
        self._state = HoldState.ABSENT
        self._specs: dict[int, orders.ProcessSpec] = {}
        self._waiting: list[tuple[str, Any]] = []
        self._closing: Future[Any] | None = None
        self._ends_by = 0.0

    def _advance(self, event: HoldEvent) -> bool:
        """Go to the next state if this event can happen now, with the lock held; return whether."""
        if (self._state, event) not in TRANSITIONS:
            return False
        self._state = TRANSITIONS.after(self._state, event)
        return True

    def start(self) -> None:
        """Have the node get ready now, or as soon as it is reached."""
        self._access.join(self)
        if self._access.is_ready(self.host):
            self._open()

    def _open(self) -> None:
        """Open the session on the node, and send the orders that waited for that."""
        with self._lock:
            if not self._advance(HoldEvent.OPENED):
                return
        opening = messages.OpenProcesses(
            session=self.name,
            host=self.host,
            plan=self._setup.plan,
            configuration=self._configuration,
            environment=self._setup.configure.environment,
            life=self._life,
        )
        self._ask(messages.OPEN, messages.to_value(opening))
        self._send_waiting()
        self._on_loop(self._setup.node_opened, self.host)

    def _send_waiting(self) -> None:
        """Send the orders that waited, then the orders that other threads give meanwhile."""
        while True:
            with self._lock:
                waiting, self._waiting = self._waiting, []
                if self._state is not HoldState.SENDING:
                    self._waiting = waiting
                    return
                if not waiting:
                    self._advance(HoldEvent.SENT)
                    return
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
            held = self._state.is_held
        if held:
            changed = messages.ConfigureSession(self.name, configuration)
            self._order(messages.CONFIGURE, messages.to_value(changed))

    def spawn(self, processes: Sequence[orders.ProcessSpec]) -> None:
        """Begin processes."""
        self._specs |= {spec.rank: spec for spec in processes}
        reason = self._access.given_up(self.host)
        if reason:
            self.node_given_up(reason)
        spawning = messages.SpawnProcesses(self.name, list(processes))
        self._order(messages.SPAWN, messages.to_value(spawning))
        if not self._state.is_held and not reason and self._setup.node_patience:
            self._on_loop(self._wait_for_node)

    def kill(self, pid: int) -> None:
        """End a process."""
        killing = messages.KillProcess(self.name, pid, signal.SIGKILL)
        self._order(messages.KILL, messages.to_value(killing))

    def detach(self) -> None:
        """Report nothing any more, and let all processes end: so all nodes do that at once."""
        with self._lock:
            held = self._state.is_held
            self._advance(HoldEvent.DETACHED)
            self._loop = None
            self._ends_by = self._ends_by or time.monotonic() + CLOSE_TIMEOUT
        self._access.part(self)
        if held:
            with contextlib.suppress(ClosedError):
                self._closing = self._access.ask(self.host, messages.CLOSE, self.name)

    def close(self) -> None:
        """End all processes on the node, and wait for that, where there are any.

        The time counts from :meth:`detach`, so that several nodes have one deadline in common.
        """
        self.detach()
        if self._closing is not None:
            wait([self._closing], max(0.0, self._ends_by - time.monotonic()))

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
        if not there:
            self._ended(f"the node {self._name} is gone: {reason}")
        elif self._state is HoldState.AWAY:
            self._resume()
        else:
            self._open()

    def way_lost(self) -> None:
        """Take in that nothing can be said to the node, nor heard of it, for now.

        Its processes keep running, and orders wait.
        """
        with self._lock:
            self._advance(HoldEvent.CUT_OFF)

    def way_back(self) -> None:
        """Take in that the way is there again; the node may be away still."""
        with self._lock:
            away = self._state is HoldState.AWAY
        if away and self._access.is_ready(self.host):
            self._resume()
        elif away:
            self._on_loop(self._wait_for_return)
        elif self._access.is_ready(self.host):
            self._open()

    def _wait_for_return(self) -> None:
        if self._loop is not None:
            self._loop.call_later(RETURN_TIMEOUT, self._not_returned)

    def _not_returned(self) -> None:
        with self._lock:
            away = self._state is HoldState.AWAY and not self._access.is_away
        if away:
            self._ended(f"the node {self._name} did not come back to its head")

    def _resume(self) -> None:
        """Ask the node what lives of the session, and send the orders that waited."""
        resuming = messages.ResumeProcesses(self.name, self._life)
        try:
            answer = self._access.ask(self.host, messages.RESUME, messages.to_value(resuming))
        except ClosedError:
            return
        when_done(answer, self._resumed)

    def _resumed(self, answer: Future[Any]) -> None:
        error = answer.exception()
        if error is not None:
            self._answered(answer)  # if the way is lost once more, this is tried once more
            return
        found = messages.from_value(answer.result(), messages.ResumedProcesses)
        with self._lock:
            if not self._advance(HoldEvent.RESUMED):
                return
            waiting = list(self._waiting)
        coming = {spec for handler, value in waiting for spec in _begun(handler, value)}
        living = {(one.rank, one.incarnation) for one in found.living}
        for one in found.living:
            self._on_loop(self._on_report, one)
        for spec in list(self._specs.values()):
            if (spec.rank, spec.incarnation) not in living | coming:
                gone = "it ended while the head was away"
                ended = orders.Exited(spec.rank, spec.incarnation, 0, 0, gone)
                self._on_loop(self._on_report, ended)
        self._send_waiting()

    def node_removed(self, reason: str) -> None:
        """Take in that the node has left for good."""
        with self._lock:
            held = self._state.is_held
        if held:
            self._ended(f"the node {self._name} is gone: {reason}")  # followers get the rest
        else:
            self.node_given_up(reason)

    def node_given_up(self, reason: str) -> None:
        """Take in that the node will not come back."""
        text = reason if self._access.is_over else f"the node {self._name} is given up: {reason}"
        self._tell_gone(text, may_return=False)

    def _tell_gone(self, reason: str, *, may_return: bool) -> None:
        for spec in self._specs.values():
            failed = orders.SpawnFailed(
                spec.rank,
                spec.incarnation,
                reason,
                self._access.hint,
                machine_gone=True,
                may_return=may_return,
            )
            self._on_loop(self._on_report, failed, last=True)

    def _wait_for_node(self) -> None:
        """Wait for a node that is not there, but not for ever; on the session's loop."""
        if self._loop is not None:
            self._loop.call_later(self._setup.node_patience, self._absent_too_long)

    def _absent_too_long(self) -> None:
        with self._lock:
            absent = self._state is HoldState.ABSENT
        if absent:
            self._tell_gone(
                f"the node {self._name} did not come back within {self._setup.node_patience:g} s",
                may_return=True,
            )
            self._wait_for_node()

    def _ended(self, reason: str) -> None:
        """All processes are gone: another starter takes the place of this one."""
        with self._lock:
            ended = self._advance(HoldEvent.ENDED)
        if ended:
            self._on_loop(self._on_end, reason, last=True)

    @property
    def _name(self) -> str:
        return self._access.name_of(self.host)

    def _order(self, handler: str, value: Any) -> None:
        with self._lock:
            if self._state is HoldState.OVER:
                return
            if self._state is not HoldState.OPEN:
                self._waiting.append((handler, value))
                return
        self._ask(handler, value)

    def _ask(self, handler: str, value: Any) -> None:
        try:
            answer = self._access.ask(self.host, handler, value)
        except ClosedError:
            return
        when_done(answer, partial(self._done, handler, value))

    def _done(self, handler: str, value: Any, answer: Future[Any]) -> None:
        """An order was carried out, or not; those that may be given twice are, if they were lost.

        Started processes are found when the connection is back.
        """
        if answer.exception() is not None and self._access.is_away:
            if handler in {messages.KILL, messages.CONFIGURE}:
                with self._lock:
                    self._waiting.append((handler, value))
            return
        self._answered(answer)

    def _answered(self, answer: Future[Any]) -> None:
        error = answer.exception()
        if error is not None and self._access.is_away:
            return
        if error is None or isinstance(error, AgentLostError | ClosedError):
            return  # the control tree reports the loss of a node
        self._ended(f"{self._name}: {error}")

    def _on_loop(self, function: Callable[..., None], *args: Any, last: bool = False) -> None:
        with self._lock:
            if self._state is HoldState.OVER and not last:
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


def _begun(handler: str, value: Any) -> list[tuple[int, int]]:
    """Return the places, and the incarnations of their processes, that an order begins."""
    if handler != messages.SPAWN:
        return []
    order = messages.from_value(value, messages.SpawnProcesses)
    return [(spec.rank, spec.incarnation) for spec in order.processes]


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
