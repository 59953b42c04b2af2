"""The head of a long-lived cluster: nodes join it, and clients use them.

It has the root of the control tree, the authority and what both must not forget, in a store. It
ends on request, and all nodes end with it. When it is killed, it can be started again: it
has the same authority then, and machines join it again.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from sapwood.contexts.launchers.base import Launcher
from sapwood.core.clock import MonotonicClock
from sapwood.core.errors import SapwoodError
from sapwood.environment.component import Component
from sapwood.environment.configuration import Configuration
from sapwood.environment.logs import logger
from sapwood.environment.settings import NodeSettings, Settings
from sapwood.environment.supervisor import Supervisor
from sapwood.head import calls
from sapwood.head.authorizer import Authorizer
from sapwood.head.components import (
    REFUSALS,
    HeadAnnouncer,
    HeadAuthority,
    HeadStore,
    NodeTree,
)
from sapwood.head.credential_issuer import CredentialIssuer, DenialFeed
from sapwood.head.front import HeadFront
from sapwood.head.kept_cluster import KeptCluster
from sapwood.head.leadership import Leadership
from sapwood.head.ledger import MAX_FOUND, EventQuery, Ledger, nodes_there
from sapwood.head.node_changes import LostNodes, NodeChanges, NodeNews
from sapwood.head.node_sessions import NodeSessions
from sapwood.head.node_table import NodeTable
from sapwood.head.parts.cluster import WholeCluster
from sapwood.head.parts.components import Components
from sapwood.head.parts.credentials import IssuedCredentials
from sapwood.head.parts.events import Events
from sapwood.head.parts.links import Links
from sapwood.head.parts.nodes import Nodes
from sapwood.head.parts.orders import Orders
from sapwood.head.parts.policy import Policy
from sapwood.head.parts.rates import RunRates
from sapwood.head.parts.runs import Runs
from sapwood.head.parts.sessions import Sessions
from sapwood.head.parts.tokens import JoinTokens
from sapwood.head.parts.web import WebServer
from sapwood.head.protocol.call import HeadPart
from sapwood.head.remote_commands import RemoteCommands
from sapwood.head.removals import Removals
from sapwood.head.runs import HeadRuns
from sapwood.head.session_reports import SessionReports
from sapwood.head.sessions import HeadSessions
from sapwood.head.web import HttpListen
from sapwood.nodes.control import ControlTree
from sapwood.nodes.processes import RETURN_TIMEOUT
from sapwood.session.options import SessionOptions

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
        credentials: The issuer of its credentials.
        control: The tree of nodes.
        front: The ways to the head.
        authorizer: The authorizer of calls.
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
        self._leadership = leadership
        self._store = HeadStore(folder, store, leadership)
        self.ended = threading.Event()
        self.ledger = Ledger(folder, lambda: self.policy.current.limits.events)
        note = self.ledger.note
        try:
            kept = self._kept = KeptCluster(
                lambda: self._store.opened, folder, settings.certificate_life
            )
            self.policy = Policy(lambda: self._store.opened, configuration, note)
            with kept.reading("credentials"):
                self.credentials = CredentialIssuer(
                    lambda: self._store.opened,
                    kept.authority.cluster,
                    kept.authority.pin,
                    kept.generation,
                    note,
                )
            self.control = ControlTree(
                launcher,
                options,
                kept.with_former_port(settings),
                kept.authority,
                kept.tokens,
                kept.generation,
                kept.is_denied,
                self.ledger.note_of_node,
                cache=self.policy.settings.cache,
                leads=self._leads,
                server_starts=self._server_starts,
            )
        except BaseException:
            self.ledger.close()
            self._store.stop()
            raise

        def shared() -> bool:
            return self.policy.current.limits.head_machine == "shared"

        self.authorizer = Authorizer(
            kept.authority.cluster,
            kept.authority.certificate,
            self.credentials.issuer,
            self.credentials.denials,
            note,
            shared=shared,
        )
        front = self.front = HeadFront(
            name, folder, self.control, self.authorizer, self._leads, http or HttpListen()
        )
        self._announcer = HeadAnnouncer(name, self.control) if announce else None
        self.sessions = HeadSessions(
            lambda: self._store.opened,
            name,
            folder,
            front.thread,
            front.pool,
            lambda: self.policy.current,
            note,
        )
        self.runs = HeadRuns(
            lambda: self._store.opened,
            folder,
            front.thread,
            front.pool,
            note,
            lambda: self.policy.current,
        )
        self.nodes = NodeTable(self.control, shared)
        self.on_nodes = NodeSessions(self.control, front.server, self.ledger, options.agent_entry)
        self.commands = RemoteCommands(self.control, front.server)
        self.removals = Removals(
            self.nodes,
            self.control,
            self.ledger,
            front.thread,
            kept.deny,
            lambda host: self.on_nodes.are_on(host) or self.commands.are_on(host),
            lambda host: front.server.tell_all(
                calls.NODES_CHANGED, calls.NodesChanged(self.nodes.some([host]))
            ),
        )
        self._components = Components(self.control, front.thread, self._supervisor(options))
        cluster = WholeCluster(
            name,
            self.control,
            leadership,
            self.credentials.issuer,
            front.http.urls,
            front.server,
            front.thread,
            self.ended,
        )
        feed = DenialFeed(self.control.ask, self.credentials.whole_list)
        self._changes = NodeChanges(
            self.nodes,
            self.control,
            front.server,
            LostNodes(
                self.nodes, self.control, self.ledger, self.policy, self.removals, front.thread
            ),
            self.commands,
            self._components,
            NodeNews(self.nodes, self.control, feed, cluster.addresses, leadership),
        )
        self.parts = self._made_parts(cluster, feed)
        front.server.answer(self.parts)

    def _made_parts(self, cluster: WholeCluster, feed: DenialFeed) -> list[HeadPart]:
        """Return the parts, one for each noun.

        Args:
            cluster: The part of the cluster as a whole.
            feed: It tells nodes which credentials were revoked.
        """
        front = self.front
        credentials = IssuedCredentials(
            self.credentials,
            self.policy,
            front.server,
            feed,
            self.nodes.records,
            cluster.addresses,
        )
        sessions = Sessions(
            self.sessions,
            self.authorizer,
            self.control,
            self.policy,
            self.credentials.denials,
            self.nodes.records,
            self.on_nodes.hosts_of,
            SessionReports(self.ledger),
        )
        return [
            cluster,
            self.policy,
            self._components,
            credentials,
            sessions,
            Nodes(
                self.nodes,
                self.control,
                self.authorizer,
                self.removals,
                self._components,
                self.on_nodes,
                self.sessions,
                sessions,
            ),
            Orders(
                self.control,
                self.authorizer,
                self.nodes,
                self.on_nodes,
                self.commands,
                self.sessions,
            ),
            Links(self.control, self.authorizer, self._kept.generation),
            Runs(
                self.runs,
                self.sessions,
                self.authorizer,
                self.ledger,
                self.on_nodes.callers_of,
                self.on_nodes.names,
            ),
            Events(self.ledger, front.server),
            RunRates(lambda: self._store.opened),
            JoinTokens(self.control, cluster.addresses),
            WebServer(
                front.http,
                front.server,
                self.control,
                credentials,
                self.ledger,
                front.thread,
            ),
        ]

    def part(self, kind: type[Part]) -> Part:
        """Return the part of a class."""
        return next(one for one in self.parts if isinstance(one, kind))

    def _server_starts(self, session: str) -> bool:
        """Whether the root of a session runs here or soon will; called once the port is open."""
        return self.sessions.server_starts(session)

    def _leads(self) -> bool:
        """Whether this head may serve: of several that share a store, one does."""
        return self._leadership is None or self._leadership.serves

    def _supervisor(self, options: SessionOptions) -> Supervisor:
        components: list[Component] = [
            self._store,
            HeadAuthority(self.control),
            NodeTree(self.control),
            self.front.socket,
            self.front.http,
        ]
        if self._announcer is not None:
            components.append(self._announcer)
        settings = Settings(restart=options.restart)
        return Supervisor(components, settings, MonotonicClock(), REFUSALS)

    # --- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen, and start its own nodes."""
        self._components.keep_lines()
        self.commands.serve()
        self._changes.watch()
        self.policy.watch(lambda rows: self.front.server.tell_all(calls.POLICY_CHANGED, rows))
        begun = MonotonicClock().now()
        try:
            former = self._former_nodes()
            self.ledger.note("head.started", "the head started", facts={"pid": str(os.getpid())})
            self.control.start()
            self._kept.note_port(list(self.control.addresses))
            if self._announcer is not None:
                self._announcer.prepare()
            self.front.open()
            self.sessions.start()
            self.runs.start()
            self.front.thread.call(self.front.socket.listen)
            self.front.thread.call(self._components.start, begun)
            if former:
                later = self.front.thread.loop.call_later
                self.front.thread.post(later, RETURN_TIMEOUT, self._note_missing, former)
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

    def close(self) -> None:
        """End all nodes, and leave nothing but what is kept."""
        self.front.hide()
        self._close("head.ended", "the cluster is down", dismiss=True)

    def step_down(self, reason: str) -> None:
        """End without the nodes that joined: they and clients look for the next head."""
        if self._leadership is not None:
            self._leadership.lose()  # no call is answered from now on
        self._store.stop()  # no call waits for it from now on
        self._close("head.replaced", f"another head may serve: {reason}", dismiss=False)

    def _close(self, kind: str, text: str, *, dismiss: bool) -> None:
        self.ended.set()
        if self.front.thread.started:
            if dismiss:
                self.runs.close()
            self.sessions.close(keep=not dismiss)
            if dismiss:  # after the servers of sessions, which are clients as well
                self.front.server.tell_all(calls.ENDED, None)
            self.front.close(self._leave)
        if dismiss:
            with contextlib.suppress(SapwoodError):
                self.control.dismiss(text)
        self.control.close()
        self.removals.stop()
        self.front.stop()
        self._components.stop()
        self.ledger.note(kind, text)
        self.ledger.close()
        self._store.stop()  # also where the supervisor was not started
        self._components.keep_no_lines()

    def _leave(self) -> None:
        self._components.leave()
        self.removals.close()
