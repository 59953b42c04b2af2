"""How sessions in the process of a control tree use its nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Any, Protocol

from sapwood.comm.transport.tls_port import TakeSocket
from sapwood.lifecycle import machine_events as mev
from sapwood.lifecycle.machine_core import MachineLifecycle
from sapwood.nodes import messages
from sapwood.nodes.port import SessionRootPort
from sapwood.nodes.processes import ReportReceiver, SessionNodes, SessionOnNode
from sapwood.nodes.registry import NodeView
from sapwood.security.credentials import Credentials
from sapwood.session.shared_reactor import SharedReactor
from sapwood.session.supervisor import NodeSource


class OwnNodes(Protocol):
    """The part of a control tree that sessions in its process use."""

    @property
    def nodes(self) -> Sequence[NodeView]:
        """Snapshots of the nodes."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where machines reach the head, ``host:port`` each."""

    @property
    def credentials(self) -> Credentials:
        """What the head shows."""

    def delegate(self, tree: str, take: TakeSocket, *, session: bool = False) -> Callable[[], None]:
        """Have the links of a tree served elsewhere."""

    def ask(self, host: int, handler: str, value: Any) -> Future[Any]:
        """Send a request to the daemon of a node."""

    def name_of(self, host: int) -> str:
        """Return what users call a node."""

    def given_up(self, host: int) -> str:
        """Return why a node will not come back; empty if it may."""

    def close(self) -> None:
        """End all nodes."""


class SessionsOnNodes:
    """The sessions that use nodes, by name and node; any thread may use it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._receivers: dict[tuple[str, int], ReportReceiver] = {}
        self._sessions: dict[tuple[str, int], SessionOnNode] = {}

    def join(self, session: SessionOnNode) -> None:
        """Hand reports about a session on one node to it, and news of the node."""
        with self._lock:
            self._receivers[session.name, session.host] = session
            self._sessions[session.name, session.host] = session

    def forward(self, receiver: ReportReceiver) -> None:
        """Hand only the reports about a session on one node to a receiver."""
        with self._lock:
            self._receivers[receiver.name, receiver.host] = receiver
            self._sessions.pop((receiver.name, receiver.host), None)

    def part(self, receiver: ReportReceiver) -> None:
        """Hand no more reports to it."""
        key = (receiver.name, receiver.host)
        with self._lock:
            if self._receivers.get(key) is receiver:
                del self._receivers[key]
                self._sessions.pop(key, None)

    def on(self, hosts: Collection[int] | None = None) -> list[SessionOnNode]:
        """Return the sessions that joined, on some nodes; by default on all."""
        with self._lock:
            found = list(self._sessions.values())
        return [one for one in found if hosts is None or one.host in hosts]

    def reported(self, rank: int, value: Any) -> None:
        """Hand on what a node reports of the processes of a session."""
        report = messages.from_value(value, messages.ProcessesReported)
        with self._lock:
            receiver = self._receivers.get((report.session, rank))
        if receiver is not None:
            receiver.heard(report)

    def notify(self, order: mev.NotifySessions) -> None:
        """Notify the sessions on a node of its new state."""
        for session in self.on({order.rank}):
            if order.news is mev.MachineNews.REMOVED:
                session.node_removed(order.reason)
            elif order.news is mev.MachineNews.GIVEN_UP:
                session.node_given_up(order.reason)
            else:
                session.node_changed(there=order.news is mev.MachineNews.READY, reason=order.reason)


class ControlAccess:
    """The way to the nodes for sessions in the process of their control tree.

    Args:
        control: The control tree.
        life: The life cycle of its machines.
        sessions: The sessions that use its nodes.
    """

    def __init__(
        self, control: OwnNodes, life: MachineLifecycle, sessions: SessionsOnNodes
    ) -> None:
        self._control = control
        self._life = life
        self.join = sessions.join
        self.forward = sessions.forward
        self.part = sessions.part

    def source(self, *, owned: bool = False) -> NodeSource:
        """Return what begins the processes of one session on the nodes.

        Args:
            owned: Whether the control tree ends with that session.
        """
        return SessionNodes(self, owned=owned)

    @property
    def nodes(self) -> Sequence[NodeView]:
        """The nodes."""
        return self._control.nodes

    def open_port(self, loop: SharedReactor) -> SessionRootPort:
        """Return where the nodes reach the root of a session, on that session's loop."""
        control = self._control
        return SessionRootPort(
            control.addresses, control.delegate, loop, lambda: control.credentials
        )

    def ask(self, host: int, handler: str, value: Any) -> Future[Any]:
        """Send a request to the daemon of a node; see :meth:`ControlTree.ask`."""
        return self._control.ask(host, handler, value)

    def is_ready(self, host: int) -> bool:
        """Whether processes of sessions can begin on a node."""
        record = self._life.get(host)
        return record is not None and record.is_ready

    def name_of(self, host: int) -> str:
        """Return what users call a node."""
        return self._control.name_of(host)

    def shown_by_places(self, node: str) -> str:
        """Return the id that places on a node show: they run as its daemon."""
        return node

    def given_up(self, host: int) -> str:
        """Return why a node will not come back; empty if it may."""
        return self._control.given_up(host)

    @property
    def is_away(self) -> bool:
        """Whether the connection to all nodes is lost for now: never, in this process."""
        return False

    @property
    def is_over(self) -> bool:
        """Whether all nodes are gone for good: never, as long as this process runs."""
        return False

    @property
    def hint(self) -> str:
        """What users can do where a node is given up."""
        return "see the messages above; restart.limit says how often a node is started again"

    def trouble(self) -> str:
        """Return why the nodes cannot be asked: never, as this process asks them."""
        return ""

    def close(self) -> None:
        """End the nodes."""
        self._control.close()
