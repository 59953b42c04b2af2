"""The control tree: the head at its root, and the daemon of a node at each leaf.

It is a session like any other, in which other sessions start their processes: to the supervisor of
such a session a node is a starter (``processes.py``), as the zygote of its machine is. The parts of
the control tree are the supervisor of machines, whose life cycle decides which of them are nodes
(``machines.py``); the registry of what they say of themselves (``registry.py``); the desk at which
machines join (``join_desk.py``); the source of daemons (``daemon_source.py``); the issuer of
certificates (``certificates.py``); and the way of sessions to the nodes (``control_access.py``).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

import msgspec

from sapwood.comm import plain, values
from sapwood.comm.link_figures import LinkFigures
from sapwood.comm.transport.tls_port import TakeSocket
from sapwood.contexts.launchers.base import Launcher
from sapwood.core.errors import ClosedError, ConfigurationError, SapwoodError
from sapwood.core.failures import start_thread
from sapwood.core.futures import CallerFuture
from sapwood.core.topology import flat
from sapwood.environment.settings import CacheSettings, NodeSettings
from sapwood.lifecycle import machine_events as mev
from sapwood.lifecycle.machine_core import MachineLifecycle, MachinePolicy
from sapwood.nodes import messages
from sapwood.nodes.certificates import CertificateIssuer
from sapwood.nodes.control_access import ControlAccess, SessionsOnNodes
from sapwood.nodes.daemon import COMPONENT_NAMES
from sapwood.nodes.daemon_source import DaemonSource
from sapwood.nodes.fetched_libraries import FETCH_SECONDS, FetchedLibraries
from sapwood.nodes.join_desk import JoinDesk, JoinPolicy
from sapwood.nodes.joining import JOIN_TIMEOUT, PATIENCE, JoinServer
from sapwood.nodes.machines import MachineSupervisor
from sapwood.nodes.note_event import NoteEvent, note_nothing
from sapwood.nodes.port import HeadPort
from sapwood.nodes.registry import NodeRegistry, NodeView
from sapwood.nodes.starting import SEND_TIMEOUT
from sapwood.security.authority import Authority, new_cluster_id
from sapwood.security.credentials import Credentials
from sapwood.security.invitations import NODES, InvitationStore
from sapwood.session.embedded import DRAINING, EmbeddedSession
from sapwood.session.options import PlacesChanged, SessionOptions
from sapwood.session.requests import ServedRequest
from sapwood.session.shared_reactor import SharedReactor

SHORTEST_SEARCH = 10.0
"""Seconds for which a daemon that was cut off looks for the head at least, before it ends."""

LEAVE_TIMEOUT = 2.0
"""Seconds that a node may take to say that it leaves."""


class ControlTree:
    """A head with its nodes: nodes that a launcher starts, and machines that join.

    A machine that joins with a token of :class:`JoinDesk` gets a separate rank, which no other
    machine ever has. :meth:`remove_node` lets a node go for good.

    Args:
        launcher: What starts daemons; None for a head that waits for machines to join.
        options: How the control tree is made; its tree is replaced.
        settings: How machines become nodes.
        authority: The existing authority of a cluster; None for a new one.
        tokens: Those by which machines may join it.
        generation: Which head of that authority this is; 0 if there is no other. It tells the
            nodes of one head from another's.
        denied: Says whether a node id may not come again.
        note: Told of nodes that join, of machines that are refused, and of certificates.
        cache: Where libraries for machines with another Python are kept; without it where
            the settings have it by default.
        leads: Returns whether this head serves: otherwise it signs nothing.
        server_starts: Returns whether the root of a session, by its id, runs here or soon will.

    Attributes:
        machines: Decides which machines are nodes.
        registry: What nodes say of themselves.
        access: How sessions in this process use the nodes.
        issuer: Issues certificates.
        desk: Admits machines as nodes.

    Raises (from :meth:`start`):
        NodeLostError: Nodes did not come; the error says which and why.
    """

    def __init__(  # noqa: PLR0913 - a head says all about its nodes at once
        self,
        launcher: Launcher | None,
        options: SessionOptions,
        settings: NodeSettings,
        authority: Authority | None = None,
        tokens: InvitationStore | None = None,
        generation: int = 0,
        denied: Callable[[str], bool] = lambda _node: False,
        note: NoteEvent = note_nothing,
        *,
        cache: CacheSettings | None = None,
        leads: Callable[[], bool] = lambda: True,
        server_starts: Callable[[str], bool] = lambda _session: False,
    ) -> None:
        self._server_starts = server_starts
        self.launcher = launcher
        self.hosts = tuple(launcher.hosts) if launcher is not None else ()
        self._settings = settings
        authority = authority or Authority.create(new_cluster_id())
        is_ssh = launcher is not None and launcher.name == "ssh"
        hint = "try `ssh HOST true` for one of them" if is_ssh else ""
        policy = MachinePolicy(JOIN_TIMEOUT + PATIENCE, settings.missing, hint)
        self._sessions = SessionsOnNodes()
        self.machines = MachineSupervisor(
            MachineLifecycle(self.hosts, policy), lambda: self.session, self._machine_changed
        )
        self.registry = NodeRegistry(self.machines.life)
        self.access = ControlAccess(self, self.machines.life, self._sessions)
        self.issuer = CertificateIssuer(
            authority, settings.certificate_life, self.registry, denied, note, leads
        )
        self.desk = JoinDesk(
            self.machines,
            self.registry,
            self.issuer,
            tokens or InvitationStore(NODES, authority.pin, time.time),
            JoinPolicy(settings, options.restart, generation, denied),
            note,
            self._later,
            self._off_loop,
        )
        self._daemons = DaemonSource(
            launcher,
            settings,
            FetchedLibraries(cache or CacheSettings()),
            self.machines,
            self.registry,
            self.desk,
            self._listen,
        )
        self._components_listeners: list[Callable[[int, bool], None]] = []
        self._link_listeners: list[Callable[[int, str], None]] = []
        self._machine_listeners: list[Callable[[mev.NotifySessions], None]] = []
        self._port: HeadPort | None = None
        self._loop: SharedReactor | None = None
        taken = sorted(COMPONENT_NAMES & set(settings.components))
        if taken:
            raise ConfigurationError(
                f"a component of another package cannot be called '{taken[0]}'",
                where="nodes.components",
                hint="each node has one of that name already",
            )
        count = len(self.hosts)
        self.session = self._new_session(
            msgspec.structs.replace(
                options,
                tree=flat(count),
                hosts=tuple(range(count + 1)),
                shared_memory=False,
                fastpath=False,
                zygote=False,
                ready_timeout=FETCH_SECONDS
                + SEND_TIMEOUT
                + 2 * settings.start_timeout
                + JOIN_TIMEOUT,
                join_timeout=0.0,
                attach_timeout=settings.loss_timeout / 2,  # for each of two levels
                # A node that counts as lost has no place any more.
                search_timeout=max(settings.loss_timeout, SHORTEST_SEARCH),
            )
        )

        # First: what others learn of a change is what the life cycle of machines has made of it.
        self.session.subscribe(self._places_changed)
        listeners = self.session.host.listeners
        listeners.links.append(self._link_changed)
        listeners.joins.append(self.machines.daemon_joined)

    def _new_session(self, options: SessionOptions) -> EmbeddedSession:
        return EmbeddedSession(options, nodes=self._daemons)

    @property
    def authority(self) -> Authority:
        """The authority of the cluster."""
        return self.issuer.authority

    @property
    def credentials(self) -> Credentials:
        """What the head shows."""
        return self.issuer.credentials

    # --- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all nodes and wait until they have joined."""
        self.session.answer(messages.REPORT, self._sessions.reported)
        self.session.requests.serve(messages.RENEW, self.issuer.renew_node)
        self.session.requests.serve(messages.CERTIFY_PLACES, self.issuer.certify_places)
        self.session.requests.serve(messages.COMPONENTS, self._note_components)
        try:
            self.session.start()
        except SapwoodError as error:
            raise self.machines.life.missing() or error from error
        self.session.on_loop(self.machines.post, mev.StartOver())

    def close(self) -> None:
        """End all nodes, and all that they began."""
        self.session.close()
        if self.launcher is not None:
            self.launcher.close()

    @property
    def nodes(self) -> list[NodeView]:
        """Snapshots of the nodes."""
        return self.registry.views()

    def links(self) -> Future[dict[int, LinkFigures]]:
        """Return what is known of the link to each node; from any thread.

        Raises:
            ClosedError: The control tree is closed.
        """
        found: Future[dict[int, LinkFigures]] = CallerFuture()

        def look() -> None:
            try:
                found.set_result({one.rank: one for one in self.session.host.driver.figures()})
            except Exception as error:  # noqa: BLE001 - handed to the caller
                found.set_exception(error)

        self.session.on_loop(look)
        return found

    def name_of(self, host: int) -> str:
        """Return what users call a node."""
        return self.registry.name_of(host)

    def remove_node(
        self, host: int, seconds: float = DRAINING, reason: str = "it was removed"
    ) -> None:
        """Remove a node for good: its daemon ends, with all processes that it started.

        Sessions lose their places there, as if it would not come back.

        Args:
            host: Its number, which no other node gets.
            seconds: How long what it was asked for may take.
            reason: Why, for those who wait for it.

        Raises:
            ConfigurationError: There is no such node.
            ClosedError: The control tree is closed.
        """
        with contextlib.suppress(SapwoodError, TimeoutError):  # it may be gone already
            self.ask(host, messages.LEAVE, reason).result(LEAVE_TIMEOUT)
        self.session.call(self.machines.post, mev.Leaving(host))
        self.session.contract([host], seconds, reason)

    def dismiss(self, reason: str) -> None:
        """End all nodes that joined with a token, because the cluster ends."""
        hosts = [view.host for view in self.nodes if view.host > len(self.hosts)]
        asked = [self.ask(host, messages.LEAVE, reason) for host in hosts]
        wait(asked, LEAVE_TIMEOUT)

    # --- components ----------------------------------------------------------------------------

    def watch_components(self, listener: Callable[[int, bool], None]) -> None:
        """Have a function told when components of a node change; on the loop's thread.

        Args:
            listener: Given the node's number, and whether sessions can begin processes there now
                and could not before, or the other way round.
        """
        self._components_listeners.append(listener)

    def watch_links(self, listener: Callable[[int, str], None]) -> None:
        """Have a function told when the link to a node loses its connection or continues.

        Args:
            listener: Given the node's number, and why its link has no connection; empty if it
                continues. Called on the loop's thread.
        """
        self._link_listeners.append(listener)

    def watch_machines(self, listener: Callable[[mev.NotifySessions], None]) -> None:
        """Have a function called with what sessions learn of machines; on the loop's thread."""
        self._machine_listeners.append(listener)

    def act(self, host: int, order: messages.ComponentOrder) -> Future[Any]:
        """Start, stop or restart a component of a node; the answer is a ``ComponentView``."""
        return self.ask(host, messages.COMPONENT, messages.to_value(order))

    def tell_ready(self, seconds: float) -> None:
        """Notify the components of all nodes that the whole cluster is ready, without waiting."""
        for view in self.nodes:
            if view.state == "ready":
                with contextlib.suppress(SapwoodError):
                    self.ask(view.host, messages.CLUSTER_READY, seconds)

    def _note_components(self, question: ServedRequest) -> None:
        """Take in how the components of a node are; on the loop of the tree."""
        host = question.asked.source
        told = messages.from_value(question.value(), messages.NodeComponents)
        record = self.machines.life[host]
        before = record.closed
        self.registry.of(host).components = told
        question.give(None, None)
        self.machines.post(mev.ComponentsReported(host, told.closed))
        for listener in self._components_listeners:
            listener(host, bool(record.closed) != bool(before))

    # --- for sessions --------------------------------------------------------------------------

    def delegate(self, tree: str, take: TakeSocket, *, session: bool = False) -> Callable[[], None]:
        """Have the links of a tree served elsewhere; see :meth:`HeadPort.delegate`.

        Raises:
            ClosedError: The control tree has no port yet, or no more.
        """
        if self._port is None:
            raise ClosedError("the port of the head is closed")
        return self._port.delegate(tree, take, session=session)

    def hand_over(self, protocol: str, take: TakeSocket) -> Callable[[], None]:
        """Have the connections of a protocol served elsewhere; see :meth:`HeadPort.hand_over`.

        Raises:
            ClosedError: The control tree has no port yet, or no more.
        """
        if self._port is None:
            raise ClosedError("the port of the head is closed")
        return self._port.hand_over(protocol, take)

    # --- on the loop of the control tree -------------------------------------------------------

    def _listen(self, loop: SharedReactor) -> HeadPort:
        """Return the port of the head, at which machines join and have their links."""
        self._loop = loop
        self.machines.listen(loop)
        port = self._port = HeadPort(
            self._settings.listen, loop, self.credentials, self.desk.failed
        )
        self._later(self.issuer.renew_after, self._renew)
        port.serve_joining(JoinServer(self.issuer.authority.certificate, self.desk.admit, loop))
        port.hold_clients(self._server_starts)
        return port

    def _later(self, seconds: float, function: Callable[..., None], *args: Any) -> None:
        """Call a function later, on the loop of the control tree; before it has one, never.

        From any thread.
        """
        if self._loop is not None:
            with contextlib.suppress(ClosedError):
                self._loop.call_soon_threadsafe(self._loop.call_later, seconds, function, *args)

    def _off_loop(self, name: str, function: Callable[..., None], *args: Any) -> None:
        """Call a function on a separate thread."""
        start_thread(name, function, *args)

    def _renew(self) -> None:
        """Show another certificate from now on: this one ends soon."""
        self._later(self.issuer.renew_after, self._renew)  # first: also after a time that fails
        credentials = self.issuer.renew()
        if self._port is not None:
            self._port.renew(credentials)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where machines that join reach the head, ``host:port`` each."""
        return () if self._port is None else self._port.addresses

    def _link_changed(self, host: int, reason: str) -> None:
        self.machines.post(mev.DaemonLinkChanged(host, reason))
        for listener in self._link_listeners:
            listener(host, reason)

    def _machine_changed(self, order: mev.NotifySessions) -> None:
        self._sessions.notify(order)
        for listener in self._machine_listeners:
            listener(order)

    def _places_changed(self, change: PlacesChanged) -> None:
        self.machines.places_changed(change)
        if change.removed:
            self.registry.forget(change.ranks)

    def ask(self, host: int, handler: str, value: Any) -> Future[Any]:
        """Send a request to the daemon of a node; all of its value is in the body.

        Raises:
            DataValueError: That is too large.
            CommunicationError: This head does not serve.
        """
        self.issuer.check_leads()
        body = plain.check_body(plain.encode(value))
        return self.session.ask_encoded(host, handler, body, values.Encoded(body, [], [], 0))

    def given_up(self, host: int) -> str:
        """Return why a node will not come back; empty if it may."""
        record = self.machines.life.get(host)
        return record.given_up if record is not None else ""
