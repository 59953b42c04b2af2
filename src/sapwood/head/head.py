"""The head of a long-lived cluster: nodes join it, and front ends use them.

It has the root of the control tree, the authority and what both must not forget, in a store. It
ends on request, and all nodes end with it. When it is killed, it can be started again: it
has the same authority then, and machines join it again.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from sapwood.contexts.launchers.base import Launcher
from sapwood.core.clock import MonotonicClock
from sapwood.core.errors import SapwoodError
from sapwood.environment.component import Component
from sapwood.environment.configuration import Configuration
from sapwood.environment.log_ring import LogRing, kept_lines
from sapwood.environment.logs import logger
from sapwood.environment.settings import NodeSettings, Settings
from sapwood.environment.supervisor import Supervisor
from sapwood.head import calls
from sapwood.head.components import (
    REFUSALS,
    FrontEndService,
    HeadAnnouncer,
    HeadAuthority,
    HeadStore,
    NodeTree,
)
from sapwood.head.folder import remove_info
from sapwood.head.gate import Gate
from sapwood.head.kept_cluster import KeptCluster
from sapwood.head.leadership import Leadership
from sapwood.head.ledger import MAX_FOUND, EventQuery, Ledger, nodes_there
from sapwood.head.node_changes import LostNodes, NodeChanges
from sapwood.head.node_sessions import NodeSessions
from sapwood.head.node_table import NodeTable
from sapwood.head.office import CredentialOffice, DenialFeed
from sapwood.head.parts.cluster import WholeCluster
from sapwood.head.parts.components import Components
from sapwood.head.parts.credentials import IssuedCredentials
from sapwood.head.parts.events import Events
from sapwood.head.parts.links import Links
from sapwood.head.parts.nodes import Nodes
from sapwood.head.parts.orders import Orders
from sapwood.head.parts.policy import Policy
from sapwood.head.parts.rates import Rates
from sapwood.head.parts.runs import Runs
from sapwood.head.parts.sessions import Sessions
from sapwood.head.parts.tokens import JoinTokens
from sapwood.head.parts.web import WebServer
from sapwood.head.protocol.call import HeadPart
from sapwood.head.remote_commands import RemoteCommands
from sapwood.head.removals import Removals
from sapwood.head.runs import HeadRuns
from sapwood.head.service import ServiceServer
from sapwood.head.service_port import ServiceTlsPort
from sapwood.head.sessions import HeadSessions
from sapwood.head.web import HttpListen, HttpService
from sapwood.nodes import messages
from sapwood.nodes.control import ControlTree
from sapwood.nodes.processes import RETURN_TIMEOUT
from sapwood.session.loop_thread import LoopThread
from sapwood.session.options import SessionOptions

SLOW_CALLS = 16
"""Slow calls that are answered at a time; more wait for them."""

Part = TypeVar("Part", bound=HeadPart)

_log = logger("head")


class Head:
    """A head.

    Args:
        name: What the user calls the cluster.
        folder: Folder of its files; see :func:`~sapwood.head.folder.head_folder`.
        options: How its control tree is made.
        settings: How machines become nodes.
        launcher: What starts nodes that belong to the head itself; None for none.
        configuration: All settings with where they come from, for the policy; by default those of
            files and variables.
        leadership: That of this head, which serves now, where several heads share a store.
        store: Where what it keeps lies, if not in the folder.
        announce: Whether to announce the cluster on the local network.
        http: Where its HTTP server listens besides the head's own port.

    Attributes:
        ended: Set when it is to end.
        ledger: What happened.
        policy: Its automatic actions.
        office: Its credentials.
        control: The tree of nodes.
        gate: The authorizer of calls.
        nodes: The nodes as clients see them.
        on_nodes: The sessions that have processes on nodes.
        commands: The commands of clients on nodes.
        sessions: The sessions with session servers.
        runs: The detached runs.
        parts: What answers calls, a part for each noun.

    Raises:
        StoreInUseError: The cluster is up already.
        StoreError: Its store cannot be used.

    Raises (from :meth:`start`):
        CommunicationError: It cannot listen.
        ConfigurationError: It cannot be announced.
        NodeLostError: Its own nodes did not join.
    """

    def __init__(  # noqa: PLR0913 - a head is made in one place, of things that have little in common
        self,
        name: str,
        folder: Path,
        options: SessionOptions,
        settings: NodeSettings,
        launcher: Launcher | None = None,
        configuration: Configuration | None = None,
        leadership: Leadership | None = None,
        store: str = "",
        *,
        announce: bool = False,
        http: HttpListen | None = None,
    ) -> None:
        self.name = name
        self._leadership = leadership
        self._folder = folder
        self._store = HeadStore(folder, store, leadership)
        self.ended = threading.Event()
        self._lines = LogRing()
        self._keeping = contextlib.ExitStack()
        self._clock = MonotonicClock()
        self._thread = LoopThread("sapwood-service")
        self._pool = ThreadPoolExecutor(SLOW_CALLS, "sapwood-slow")
        self.ledger = Ledger(folder, lambda: self.policy.current.limits.events)
        note = self.ledger.note
        try:
            kept = self._kept = KeptCluster(
                lambda: self._store.opened, folder, settings.certificate_life
            )
            self.policy = Policy(lambda: self._store.opened, configuration, note)
            cluster, pin = kept.authority.cluster, kept.authority.pin
            with kept.reading("credentials"):
                self.office = CredentialOffice(
                    lambda: self._store.opened, cluster, pin, kept.generation, note
                )
            self.control = ControlTree(
                launcher,
                options,
                kept.with_former_port(settings),
                kept.authority,
                kept.tokens,
                kept.generation,
                kept.is_denied,
                note,
                cache=self.policy.settings.cache,
            )
        except BaseException:
            self.ledger.close()
            self._store.stop()
            raise
        self.control.leads = self._leads
        self.gate = Gate(
            cluster,
            kept.authority.certificate,
            self.office.issuer,
            self.office.denials,
            note,
            shared=lambda: self.policy.current.limits.head_machine == "shared",
        )
        self._tls = ServiceTlsPort(self.control, self._thread)
        self._service = ServiceServer(self._thread, self.gate, self._leads, self._pool)
        self._socket = FrontEndService(folder, self._service, self._thread)
        self._web = HttpService(name, folder, self.control, self._thread, http or HttpListen())
        self._announcer = HeadAnnouncer(name, self.control) if announce else None
        self.sessions = HeadSessions(
            lambda: self._store.opened,
            name,
            folder,
            self._thread,
            self._pool,
            lambda: self.policy.current,
            note,
        )
        self.control.root_begins = self.sessions.root_begins
        self.runs = HeadRuns(
            lambda: self._store.opened,
            folder,
            self._thread,
            self._pool,
            note,
            lambda: self.policy.current,
        )
        self.nodes = NodeTable(self.control)
        self.on_nodes = NodeSessions(self.control, self._service, self.ledger, options.agent_entry)
        self.commands = RemoteCommands(self.control, self._service)
        self.removals = Removals(
            self.nodes,
            self.control,
            self.ledger,
            self._thread,
            kept.deny,
            lambda host: self.on_nodes.are_on(host) or self.commands.are_on(host),
            self._node_drains,
        )
        self._feed = DenialFeed(self.control.ask, self.office.whole_list)
        self._components = Components(
            self.control, self._thread, self._lines, self._supervisor(options)
        )
        lost = LostNodes(
            self.nodes, self.control, self.ledger, self.policy, self.removals, self._thread
        )
        self._changes = NodeChanges(
            self.nodes,
            self.control,
            self._service,
            lost,
            self.commands,
            self._components,
            self._greet,
        )
        self.cluster = WholeCluster(
            name,
            self.control,
            leadership,
            self.office.issuer,
            self._web.urls,
            self._service,
            self._thread,
            self.ended,
        )
        self.parts = self._made_parts()
        self._service.answer(self.parts)

    def _made_parts(self) -> list[HeadPart]:
        self.credentials = IssuedCredentials(
            self.office,
            self.policy,
            self._service,
            self._feed,
            self.nodes.records,
            lambda: self.cluster.places,
        )
        sessions = Sessions(
            self.sessions,
            self.gate,
            self.control,
            self.policy,
            self.office.denials,
            self.nodes.records,
            self.on_nodes.hosts_of,
        )
        return [
            self.cluster,
            self.policy,
            self._components,
            self.credentials,
            sessions,
            Nodes(
                self.nodes,
                self.control,
                self.gate,
                self.removals,
                self._components,
                self.on_nodes,
                self.sessions,
                sessions,
            ),
            Orders(
                self.control, self.gate, self.nodes, self.on_nodes, self.commands, self.sessions
            ),
            Links(self.control, self.gate, self._kept.generation),
            Runs(
                self.runs,
                self.sessions,
                self.gate,
                self.ledger,
                self.on_nodes.callers_of,
                self.on_nodes.names,
            ),
            Events(self.ledger, self._service),
            Rates(lambda: self._store.opened),
            JoinTokens(self.control, lambda: self.cluster.places),
            WebServer(
                self._web, self._service, self.control, self.credentials, self.ledger, self._thread
            ),
        ]

    def part(self, kind: type[Part]) -> Part:
        """Return the part of a class."""
        return next(one for one in self.parts if isinstance(one, kind))

    def _leads(self) -> bool:
        """Whether this head may serve: of several that share a store, one does."""
        return self._leadership is None or self._leadership.serves

    def _supervisor(self, options: SessionOptions) -> Supervisor:
        components: list[Component] = [
            self._store,
            HeadAuthority(self.control),
            NodeTree(self.control),
            self._socket,
            self._web,
        ]
        if self._announcer is not None:
            components.append(self._announcer)
        return Supervisor(components, Settings(restart=options.restart), self._clock, REFUSALS)

    # --- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen, and start its own nodes."""
        self._keeping.enter_context(kept_lines(self._lines))
        self.commands.serve()
        self._changes.watch()
        self.policy.watch(lambda rows: self._service.tell_all(calls.POLICY_CHANGED, rows))
        begun = self._clock.now()
        try:
            former = self._former_nodes()
            self.ledger.note("head.started", "the head began", facts={"pid": str(os.getpid())})
            self.control.start()
            self._kept.note_port(list(self.control.places))
            if self._announcer is not None:
                self._announcer.prepare()
            self._thread.start()
            self._tls.open(self._service)
            self.sessions.start()
            self.runs.start()
            self._thread.call(self._socket.listen)
            self._thread.call(self._components.start, begun)
            if former:
                later = self._thread.loop.call_later
                self._thread.post(later, RETURN_TIMEOUT, self._note_missing, former)
            if self._leadership is not None:
                self._leadership.when_heads_change(self._heads_changed)
        except BaseException:
            self.close()
            raise

    def _former_nodes(self) -> list[str]:
        """Return the nodes of a head that was killed: they are to come back to this one."""
        try:
            kinds = ["head.ended", "node.joined", "node.back", "node.lost", "node.removed"]
            return nodes_there(self.ledger.find(EventQuery(kinds=kinds, limit=MAX_FOUND)))
        except SapwoodError as error:
            _log.warning("former nodes unknown", reason=error.what)
            return []

    def _note_missing(self, former: Sequence[str]) -> None:
        """Record which nodes of the head before this one have not come back in time."""
        there = {one.name for one in self.nodes.records()}
        for name in former:
            if name not in there:
                text = "it did not come back after the head was killed"
                self.ledger.note("node.lost", text, node=name)

    def wait(self) -> None:
        """Wait until it is ended."""
        self.ended.wait()

    def close(self) -> None:
        """End all nodes, and leave nothing but what is kept."""
        remove_info(self._folder)
        self._close("head.ended", "the cluster is down", dismiss=True)

    def step_down(self, reason: str) -> None:
        """End without the nodes that joined: they and front ends look for the next head."""
        if self._leadership is not None:
            self._leadership.lose()  # no call is answered from now on
        self._store.stop()  # no call waits for it from now on
        self._close("head.replaced", f"another head may serve: {reason}", dismiss=False)

    def _close(self, kind: str, text: str, *, dismiss: bool) -> None:
        self.ended.set()
        if self._thread.started:
            if dismiss:
                self.runs.close()
            self.sessions.close(keep=not dismiss)
            if dismiss:  # after the servers of sessions, which are front ends as well
                self._service.tell_all(calls.ENDED, None)
            self._tls.close()
            self._thread.call(self._stop_listening)
        if dismiss:
            with contextlib.suppress(SapwoodError):
                self.control.dismiss(text)
        self.control.close()
        self._pool.shutdown(cancel_futures=True)
        self.removals.stop()
        self._thread.stop()
        self._components.stop()
        self.ledger.note(kind, text)
        self.ledger.close()
        self._store.stop()  # also where the supervisor was not started
        self._keeping.close()

    def _stop_listening(self) -> None:
        self._components.leave()
        self._socket.stop()
        self.removals.close()
        self._thread.post(self._service.close)  # after these answers

    # --- what nodes and clients hear -------------------------------------------------------------

    def _node_drains(self, host: int) -> None:
        """Tell clients that nothing can begin on a node from now on."""
        told = calls.NodesChanged(self.nodes.some([host]))
        self._service.tell_all(calls.NODES_CHANGED, told)

    def _greet(self, host: int) -> None:
        """Tell a node that came, or came back, which credentials were revoked, and of heads."""
        self._feed.tell(host)
        self._tell_heads(host)

    def _heads_changed(self) -> None:
        """Tell the nodes where they find the next head; on any thread."""
        for one in self.nodes.records():
            if one.can_be_asked:
                self._tell_heads(one.host)

    def _tell_heads(self, host: int) -> None:
        if self._leadership is not None:
            with contextlib.suppress(SapwoodError):
                self.control.ask(host, messages.HEADS, self.cluster.places)
