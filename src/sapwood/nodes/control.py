"""The control tree: the head at its root, and the daemon of a node at each leaf.

It is a session like any other, in which other sessions start their processes: to the supervisor of
such a session a node is a starter (:class:`NodeProcesses`), as the zygote of its machine is. The
parts of the control tree are the registry of nodes (``registry.py``), the desk at which machines
join (``join_desk.py``) and the issuer of certificates (``certificates.py``).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, wait
from functools import partial
from threading import Lock, Semaphore
from typing import Any

import msgspec

from sapwood.comm import plain, values
from sapwood.comm.link_figures import LinkFigures
from sapwood.comm.transport.tls_port import TakeSocket
from sapwood.contexts import orders
from sapwood.contexts.launchers.base import Launcher
from sapwood.core.errors import ClosedError, ConfigurationError, NodeLostError, SapwoodError
from sapwood.core.futures import CallerFuture
from sapwood.core.hostset import fold_hosts
from sapwood.core.topology import flat
from sapwood.environment.logs import logger
from sapwood.environment.settings import CacheSettings, NodeSettings
from sapwood.lifecycle import events as lev
from sapwood.nodes import messages
from sapwood.nodes.certificates import CertificateIssuer
from sapwood.nodes.daemon import COMPONENT_NAMES, DaemonOrder
from sapwood.nodes.fetched_libraries import FETCH_SECONDS, FetchedLibraries
from sapwood.nodes.join_desk import JoinDesk, JoinPolicy
from sapwood.nodes.joining import JOIN_TIMEOUT, JoinServer
from sapwood.nodes.note_event import NoteEvent, note_nothing
from sapwood.nodes.port import HeadPort, SessionRootPort
from sapwood.nodes.processes import SessionNodes, SessionOnNode
from sapwood.nodes.registry import NodeRegistry, NodeView
from sapwood.nodes.starting import SEND_TIMEOUT, AwaitedDaemon, DaemonStarter, NodeTrouble
from sapwood.security.authority import Authority, new_cluster_id
from sapwood.security.credentials import Credentials
from sapwood.security.tokens import Tokens
from sapwood.session.embedded import DRAINING, EmbeddedSession
from sapwood.session.options import PlacesChanged, SessionOptions
from sapwood.session.requests import ServedRequest
from sapwood.session.shared_reactor import SharedReactor
from sapwood.session.starters import ProcessStarter
from sapwood.session.supervisor import NodeSource, ProcessSetup

SHORTEST_SEARCH = 10.0
"""Seconds for which a daemon that was cut off looks for the head at least, before it ends."""

LEAVE_TIMEOUT = 2.0
"""Seconds that a node may take to say that it leaves."""

_log = logger("nodes")


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

    Attributes:
        registry: The nodes.
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
        tokens: Tokens | None = None,
        generation: int = 0,
        denied: Callable[[str], bool] = lambda _node: False,
        note: NoteEvent = note_nothing,
        *,
        cache: CacheSettings | None = None,
    ) -> None:
        self._libraries = FetchedLibraries(cache or CacheSettings())
        self.launcher = launcher
        self.hosts = tuple(launcher.hosts) if launcher is not None else ()
        self._settings = settings
        self._slots = Semaphore(launcher.concurrency if launcher is not None else 1)
        authority = authority or Authority.create(new_cluster_id())
        self.registry = NodeRegistry(self.hosts)
        self.issuer = CertificateIssuer(
            authority, settings.certificate_life, self.registry, denied, note
        )
        self.desk = JoinDesk(
            lambda: self.session,
            self.registry,
            self.issuer,
            tokens or Tokens(authority.pin, time.time),
            JoinPolicy(settings, options.restart, generation, denied),
            note,
            self._later,
            self._look_whether_decided,
        )
        self._lock = Lock()
        self._sessions: dict[tuple[str, int], SessionOnNode] = {}
        self._started = False
        self._components_listeners: list[Callable[[int, bool], None]] = []
        self._link_listeners: list[Callable[[int, str], None]] = []
        self.server_starts: Callable[[str], bool] = lambda _session: False
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

    def _new_session(self, options: SessionOptions) -> EmbeddedSession:
        return EmbeddedSession(options, nodes=_Daemons(self))

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
        self.session.answer(messages.REPORT, self._reported)
        self.session.requests.serve(messages.RENEW, self.issuer.renew_node)
        self.session.requests.serve(messages.CERTIFY_PLACES, self.issuer.certify_places)
        self.session.requests.serve(messages.COMPONENTS, self._note_components)
        self.session.subscribe(self._places_changed)
        self.session.host.watch_links(self._link_changed)
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
        """Snapshots of the nodes."""
        return self.registry.views(self.session.places())

    def links(self) -> Future[dict[int, LinkFigures]]:
        """Return what is known of the link to each node; from any thread.

        Raises:
            ClosedError: The control tree is closed.
        """
        found: Future[dict[int, LinkFigures]] = CallerFuture()

        def look() -> None:
            try:
                found.set_result({one.rank: one for one in self.session.host.place.figures()})
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
        self.session.contract([host], seconds, reason)

    def dismiss(self, reason: str) -> None:
        """End all nodes that joined with a token, because the cluster ends."""
        hosts = [view.host for view in self.nodes if view.host > len(self.hosts)]
        asked = [self.ask(host, messages.LEAVE, reason) for host in hosts]
        wait(asked, LEAVE_TIMEOUT)

    def _explained(self, error: SapwoodError) -> SapwoodError:
        """Return an error that names the nodes that did not come, and why."""
        return self._missing_error() if self._missing() else error

    def _missing(self) -> dict[int, str]:
        """Return the machines that did not come, and why."""
        with self.registry.lock:
            return self.registry.troubled()

    def _missing_error(self) -> NodeLostError:
        """Return an error that names the machines that did not come."""
        trouble = self._missing()
        by_reason: dict[str, list[str]] = {}
        for host, reason in sorted(trouble.items()):
            by_reason.setdefault(reason, []).append(self.hosts[host - 1])
        lines = [f"{fold_hosts(names)}: {reason}" for reason, names in by_reason.items()]
        return NodeLostError(
            f"{len(trouble)} of {len(self.hosts)} nodes did not come",
            where="; ".join(lines),
            hint="try `ssh HOST true` for one of them" if self._is_ssh else "",
        )

    @property
    def _is_ssh(self) -> bool:
        return self.launcher is not None and self.launcher.name == "ssh"

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
        before = self.registry.set_components(host, told)
        with self._lock:
            affected = [one for one in self._sessions.values() if one.host == host]
        question.give(None, None)
        closed_before = before.closed if before is not None else ""
        turned = bool(told.closed) != bool(closed_before)
        for session in affected if turned else ():
            session.node_changed(there=not told.closed, reason=told.closed)
        for listener in self._components_listeners:
            listener(host, turned)

    # --- for sessions --------------------------------------------------------------------------

    def source(self, *, owned: bool = False) -> NodeSource:
        """Return what begins the processes of one session on the nodes.

        Args:
            owned: Whether the control tree ends with that session.
        """
        return SessionNodes(self, owned=owned)

    def open_port(self, loop: SharedReactor) -> SessionRootPort:
        """Return where the nodes reach the root of a session, on that session's loop."""
        return SessionRootPort(self.places, self.delegate, loop, lambda: self.credentials)

    def delegate(self, tree: str, take: TakeSocket, *, session: bool = False) -> Callable[[], None]:
        """Have the links of a tree served elsewhere; see :meth:`HeadPort.delegate`.

        Raises:
            ClosedError: The control tree has no port yet, or no more.
        """
        if self._port is None:
            raise ClosedError("the head listens nowhere")
        return self._port.delegate(tree, take, session=session)

    def hand_over(self, protocol: str, take: TakeSocket) -> Callable[[], None]:
        """Have the connections of a protocol served elsewhere; see :meth:`HeadPort.hand_over`.

        Raises:
            ClosedError: The control tree has no port yet, or no more.
        """
        if self._port is None:
            raise ClosedError("the head listens nowhere")
        return self._port.hand_over(protocol, take)

    def join(self, session: SessionOnNode) -> None:
        """Have reports about a session on one node handed to it."""
        with self._lock:
            self._sessions[session.name, session.host] = session

    def part(self, session: SessionOnNode) -> None:
        """Hand no more reports to it."""
        with self._lock:
            if self._sessions.get((session.name, session.host)) is session:
                del self._sessions[session.name, session.host]

    # --- on the loop of the control tree -------------------------------------------------------

    def listen(self, loop: SharedReactor) -> HeadPort:
        """Return the port of the head, at which machines join and have their links."""
        self._loop = loop
        port = self._port = HeadPort(
            self._settings.listen, loop, self.credentials, self.desk.failed
        )
        self._later(self.issuer.renew_after, self._renew)
        port.serve_joining(JoinServer(self.issuer.authority.certificate, self.desk.admit, loop))
        port.hold_clients(self._server_starts)
        return port

    def _server_starts(self, session: str) -> bool:
        """Return the keeper of the sessions; None before the head is complete."""
        return self.server_starts(session)

    def daemon_starter(
        self, host: int, on_report: Callable[[orders.Report], None]
    ) -> ProcessStarter:
        """Return what starts the daemon of a machine, or waits for it."""
        if self.launcher is None or host > len(self.hosts):
            return AwaitedDaemon(self.desk.expect, on_report)
        return DaemonStarter(
            self.launcher,
            self.hosts[host - 1],
            self._slots,
            self._order,
            on_report,
            partial(self._note_trouble, host),
            self._settings,
            partial(self._note_way, host),
            libraries=self._libraries,
        )

    def _later(self, seconds: float, function: Callable[..., None], *args: Any) -> None:
        """Call a function later, on the loop of the control tree; before it has one, never."""
        if self._loop is not None:
            self._loop.call_later(seconds, function, *args)

    def _renew(self) -> None:
        """Show another certificate from now on: this one ends soon."""
        self._later(self.issuer.renew_after, self._renew)  # first: also after a time that fails
        credentials = self.issuer.renew()
        if self._port is not None:
            self._port.renew(credentials)

    def shown_by_places(self, node: str) -> str:
        """Return the id that places on a node show: they run as its daemon."""
        return node

    def _order(self, rank: int, incarnation: int) -> DaemonOrder:
        """Return the configuration of the daemon of a rank; called on its starting thread."""
        return self.desk.daemon_order(rank, incarnation, self.places)

    @property
    def places(self) -> tuple[str, ...]:
        """Where machines that join reach the head, ``host:port`` each."""
        return () if self._port is None else self._port.places

    def _is_decided(self) -> bool:
        """Whether each machine has joined or failed, and some have failed."""
        with self.registry.lock:
            known = [one for _, one in self.registry if one.node or one.trouble]
        started = self._started
        return not started and bool(self._missing()) and len(known) == len(self.hosts)

    def _look_whether_decided(self) -> None:
        if self._is_decided():
            self._decide()

    def _decide(self) -> None:
        """Continue without machines that did not come, or give up; on the loop of the tree."""
        missing = sorted(self._missing().keys() & set(self.session.tree.agent_ranks))
        with self.registry.lock:
            some = any(one.node for _, one in self.registry)
        if self._settings.missing == "wait" or not missing:
            return
        error = self._missing_error()
        if self._settings.missing == "fail" or not some:
            self.session.supervisor.post(lev.GiveUp(error))
            return
        _log.warning(error.what, nodes=error.where)
        self.session.begin_contract(missing)
        self.session.host.contract(missing, "it did not come")

    def _note_way(self, host: int, way: str) -> None:
        """Record how a node reaches the head."""
        with self.registry.lock:
            self.registry.of(host).way = way

    def _note_trouble(self, host: int, trouble: NodeTrouble) -> bool:
        """Record why a node did not come; return whether to try again."""
        with self.registry.lock:
            self.registry.of(host).trouble = trouble.reason
        started = self._started
        (_log.warning if started else _log.info)(
            "node trouble", host=trouble.host, reason=trouble.reason
        )
        if self._is_decided() and self._loop is not None:
            with contextlib.suppress(ClosedError):
                self._loop.call_soon_threadsafe(self._decide)
        return started or self._settings.missing == "wait"

    def _reported(self, rank: int, value: Any) -> None:
        report = messages.from_value(value, messages.ProcessesReported)
        with self._lock:
            session = self._sessions.get((report.session, rank))
        if session is not None:
            session.heard(report)

    def _link_changed(self, host: int, reason: str) -> None:
        self.registry.set_broken([host], broken=bool(reason))
        for listener in self._link_listeners:
            listener(host, reason)

    def _places_changed(self, change: PlacesChanged) -> None:
        self.registry.set_broken(change.ranks, broken=False)
        if change.disconnected:
            return
        with self._lock:
            affected = [one for one in self._sessions.values() if one.host in change.ranks]
        if not change.back and not change.added:
            self.registry.drop_components(change.ranks)
        if change.for_good:
            self.registry.give_up(change.ranks, change.reason)
        if change.removed:
            self.registry.forget(change.ranks)
        for session in affected:
            if change.removed:
                session.node_removed(change.reason)
            elif change.for_good:
                session.node_given_up(change.reason)
            else:
                session.node_changed(there=change.back, reason=change.reason)

    def ask(self, host: int, handler: str, value: Any) -> Future[Any]:
        """Send a request to the daemon of a node; all of its value is in the body.

        Raises:
            DataValueError: That is too large.
            CommunicationError: This head does not serve.
        """
        self.issuer.check_leads()
        body = plain.check_body(plain.encode(value))
        return self.session.ask_encoded(host, handler, body, values.Encoded(body, [], [], 0))

    def is_ready(self, host: int) -> bool:
        """Whether processes of sessions can begin on a node."""
        told = self.registry.components_of(host)
        closed = told is not None and told.closed
        return not closed and self.session.places([host])[0].is_ready

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

    def given_up(self, host: int) -> str:
        """Return why a node will not come back; empty if it may."""
        return self.registry.given_up(host)


class _Daemons:
    """What begins the places of the control tree: the daemons."""

    def __init__(self, control: ControlTree) -> None:
        self._control = control

    def open_port(self, loop: SharedReactor) -> HeadPort:
        """Return the port at which nodes join and have their links."""
        return self._control.listen(loop)

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

    def listen(self, host: int, where: str) -> Future[str]:
        """Return nothing ever: the control tree has no nodes below others."""
        del host, where
        return CallerFuture()

    def name_of(self, host: int) -> str:
        """Return what users call a node."""
        return self._control.name_of(host)

    def note_detour(self, session: str, host: int, rank: int, home: int, at: int) -> None:
        """Do nothing: the home of each daemon is the root."""

    def ready_hosts(self) -> list[int]:
        """Return nothing: a daemon begins on no other machine than its own."""
        return []

    @property
    def hint(self) -> str:
        """What users can do where a node is given up."""
        return self._control.hint

    def trouble(self, hosts: Collection[int]) -> str:
        """Return nothing: the launcher reports what is wrong with each machine."""
        del hosts
        return ""

    def close(self) -> None:
        """Do nothing: the daemons end with the channels of the launcher."""
