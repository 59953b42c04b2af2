"""The head of a long-lived cluster: nodes join it, and front ends use them.

It has the root of the control tree, the authority and what both must not forget, in a store. It
ends on request, and all nodes end with it. When it is killed, it can be started again: it
has the same authority then, and machines join it again.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from sapwood.comm.machine import machine_id
from sapwood.contexts.launchers.base import Launcher
from sapwood.contexts.launchers.choice import is_launched, names_machines
from sapwood.contexts.orders import Exited, ProcessSpec, RunnerLost
from sapwood.contexts.process import describe_status
from sapwood.core import typed
from sapwood.core.clock import MonotonicClock
from sapwood.core.errors import (
    ClosedError,
    ConfigurationError,
    ProtocolError,
    SapwoodError,
    SecurityError,
    StoreError,
)
from sapwood.core.futures import CallerFuture, when_done
from sapwood.environment.component import Component, ComponentEvent
from sapwood.environment.configuration import Configuration
from sapwood.environment.log_ring import LogRing, kept_lines
from sapwood.environment.logs import logger
from sapwood.environment.settings import NodeSettings, Settings
from sapwood.environment.supervisor import ALL_READY, Supervisor
from sapwood.head import calls
from sapwood.head.components import (
    REFUSALS,
    FrontEndService,
    HeadAnnouncer,
    HeadAuthority,
    HeadStore,
    NodeTree,
)
from sapwood.head.figure_book import FigureBook
from sapwood.head.folder import remove_info
from sapwood.head.gate import (
    READING_ORDERS,
    RIGHT_OF_ORDER,
    SHARED_STAGE_ORDERS,
    STAGE_ORDERS,
    Gate,
    merge_secret_for,
    refuse_others,
    refuse_staging,
    secret_for,
)
from sapwood.head.glance import NodeGlances, cluster_glance, troubles
from sapwood.head.leadership import Leadership
from sapwood.head.ledger import (
    MAX_FOUND,
    EventQuery,
    Ledger,
    nodes_there,
)
from sapwood.head.office import CredentialOffice, DenialFeed
from sapwood.head.parts.credentials import IssuedCredentials
from sapwood.head.parts.events import Events
from sapwood.head.parts.policy import Policy, PolicyRow
from sapwood.head.parts.rates import Rates
from sapwood.head.parts.tokens import JoinTokens
from sapwood.head.protocol.caller import ServiceCaller
from sapwood.head.reserved import is_reserved, refused, runs_as_head_user
from sapwood.head.runs import HeadRuns
from sapwood.head.service import Handler, ServiceServer
from sapwood.head.service_port import ServiceTlsPort
from sapwood.head.session_settings import allowed_settings
from sapwood.head.sessions import HeadSessions
from sapwood.head.status import (
    ANSWER_TIMEOUT,
    NodeCauses,
    link_ended,
    tree_status,
    with_session_names,
)
from sapwood.head.tree_book import TreeBook
from sapwood.head.web import HttpListen, HttpService, send_socket
from sapwood.nodes import messages
from sapwood.nodes.control import ControlTree, NodeView
from sapwood.nodes.port import listen_address
from sapwood.nodes.processes import RETURN_TIMEOUT
from sapwood.nodes.refusals import RefusalsByKind
from sapwood.security.authority import Authority, new_cluster_id
from sapwood.security.rights import (
    ADMIN,
    ALL_RIGHTS,
    ALLOCATE,
    ATTACH,
    CONNECT,
    DELETE,
    MERGE,
    OBSERVE,
    RUN,
    SPAWN,
)
from sapwood.security.tokens import TokenRecord, Tokens
from sapwood.session.folder import PREFIX
from sapwood.session.loop_thread import LoopThread
from sapwood.session.options import PlacesChanged, SessionOptions
from sapwood.session.requests import ServedRequest
from sapwood.session.session_life import SessionState

ORDERS = frozenset(
    {
        messages.OPEN,
        messages.RESUME,
        messages.CONFIGURE,
        messages.DETOUR,
        messages.LISTEN,
        messages.SPAWN,
        messages.KILL,
        messages.CLOSE,
        messages.COMMAND_START,
        messages.COMMAND_INPUT,
        messages.COMMAND_SIGNAL,
        messages.COMMAND_CANCEL,
        *STAGE_ORDERS,
    }
)
"""What front ends may ask of nodes."""

OF_OPEN_SESSION = frozenset({messages.CONFIGURE, messages.DETOUR, messages.SPAWN, messages.KILL})
"""Of these, those about a session that the front end has opened on that node."""

SLOW_CALLS = 16
"""Questions to nodes that are answered at a time; more wait for them."""

REMOVALS = 16
"""Nodes that leave at a time; more wait for them."""

MAX_REMOVED = 100
"""The most removed nodes that are still listed, the last ones."""

MAX_LOST = 1000
"""Nodes that joined and are lost that a head keeps; of more, the one lost longest is removed."""

LOOK = 0.1
"""Seconds between two looks at what runs on a node that is drained."""

LAST_WORD = 1.0
"""Seconds that what runs on a node gets to end when the node is removed."""

MOST_NOTED = 300
"""Events of one kind that one credential or node causes, and that the ledger takes each minute.

With more it would soon keep nothing else: the oldest events make room.
"""

DENIED_FOR = 30 * 24 * 3600.0
"""Seconds for which a node that was removed may not come again, or longer, as its certificate."""

AWAY = "it is away; it is taken back if it comes again"

_AUTHORITY = "authority"
_TOKENS = "tokens/"
_GENERATION = "generation"
_DENIED = "denied/"
_PORT = "port/"

_log = logger("head")


class _KeptAuthority(msgspec.Struct, frozen=True):
    """An authority in the store."""

    key: bytes
    certificate: bytes


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
        gate: The authorizer of calls.

    Raises:
        StoreInUseError: The cluster is up already.
        StoreError: Its store cannot be used.

    Raises (from :meth:`start`):
        CommunicationError: It cannot listen.
        ConfigurationError: It cannot be announced.
        NodeLostError: Its own nodes did not join.
    """

    def __init__(  # noqa: PLR0913, PLR0915 - a head is made in one place, of things that have little in common
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
        self._life = settings.certificate_life
        self._folder = folder
        self._store = HeadStore(folder, store, leadership)
        self.ended = threading.Event()
        self._started = time.time()
        self._lock = threading.Lock()  # for what follows, which several threads use
        self._joined: dict[int, float] = {}
        self._removed: dict[int, calls.NodeRecord] = {}
        self._removals: dict[int, _Removal] = {}
        self._draining: dict[int, float] = {}  # until when, monotonic
        self._sessions: dict[tuple[str, int], _RemoteSession] = {}
        self._agent_entry = options.agent_entry
        self._causes = NodeCauses()
        self._glances = NodeGlances(lambda host: self.control.ask(host, messages.STATUS, None))
        self._away: dict[
            int, None
        ] = {}  # the one lost longest first; used on the loop of the control tree only
        self._lines = LogRing()
        self._keeping = contextlib.ExitStack()
        self._front_ends = itertools.count(1)
        self._thread = LoopThread("sapwood-service")
        self._pool = ThreadPoolExecutor(SLOW_CALLS, "sapwood-slow")
        self._ready_seconds: float | None = None
        self._look_planned = False
        self._leaving = ThreadPoolExecutor(REMOVALS, "sapwood-leaving")
        self.ledger = Ledger(folder, lambda: self.policy.current.limits.events)
        note = self.ledger.note
        self._caused = RefusalsByKind(most=MOST_NOTED)
        try:
            authority, tokens = self._kept()
            self._generation = self._next_generation()
            self._rates = Rates(lambda: self._store.opened)
            self.policy = Policy(lambda: self._store.opened, configuration, note)
            cluster, pin = authority.cluster, authority.pin
            with self._reading("credentials"):
                self.office = CredentialOffice(
                    lambda: self._store.opened, cluster, pin, self._generation, note
                )
            self.control = ControlTree(
                launcher,
                options,
                self._with_former_port(settings),
                authority,
                tokens,
                self._generation,
                self._is_denied,
                note,
                cache=self.policy.settings.cache,
            )
        except BaseException:
            self.ledger.close()
            self._store.stop()
            raise
        self.gate = Gate(
            cluster,
            authority.certificate,
            self.office.issuer,
            self.office.denials,
            note,
            shared=lambda: self.policy.current.limits.head_machine == "shared",
        )
        self.control.leads = self._leads
        self._feed = DenialFeed(self.control.ask, self.office.whole_list)
        self._tls = ServiceTlsPort(self.control, self._thread)
        self._service = ServiceServer(
            self._handlers(),
            self._thread,
            self.gate,
            self._leads,
            self._pool,
        )
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
        self._commands = _RemoteCommands(self.control, self._service)
        self.credentials = IssuedCredentials(
            self.office,
            self.policy,
            self._service,
            self._feed,
            self.records,
            lambda: self.places,
        )
        self._service.answer(
            [
                self.policy,
                self._rates,
                self.credentials,
                Events(self.ledger, self._service),
                JoinTokens(self.control, lambda: self.places),
            ]
        )
        self._delegated: dict[tuple[str, bool], tuple[int, Callable[[], None]]] = {}
        self._socket = FrontEndService(folder, self._service, self._thread)
        self._trees = TreeBook()
        self._figures = FigureBook()
        self._web = HttpService(name, folder, self.control, self._thread, http or HttpListen())
        self._clock = MonotonicClock()
        self._announcer = HeadAnnouncer(name, self.control) if announce else None
        self._supervisor = self._new_supervisor(Settings(restart=options.restart))

    def _handlers(self) -> Mapping[str, Handler]:
        """Return what answers which call."""
        return {
            calls.HELLO: self._hello,
            calls.NODES: self._nodes,
            calls.STATUS: self._status,
            calls.GLANCE: self._glance,
            calls.LOGS: self._logs,
            calls.COMPONENT: self._act,
            calls.REMOVE_NODE: self._remove_node,
            calls.CERTIFY: self._certify,
            calls.DELEGATE: self._delegate,
            calls.UNDELEGATE: self._undelegate,
            calls.ORDER: self._order,
            calls.TAKEN: self._taken,
            calls.RECORD_RUN: self._record_run,
            calls.CREATE_SESSION: self._create_session,
            calls.CERTIFY_SESSION: self._certify_session,
            calls.SESSION_CREDENTIAL: self._session_credential,
            calls.MERGE_CREDENTIAL: self._merge_credential,
            calls.LIST_SESSIONS: self._list_sessions,
            calls.FIND_SESSION: self._find_session,
            calls.REPORT_TREE: self._report_tree,
            calls.REPORT_FIGURES: self._report_figures,
            calls.SESSION_TREES: self._session_trees,
            calls.END_SESSION: self._end_session,
            calls.ACT_FOR_SESSION: self._act_for_session,
            calls.REPORT_SESSION: self._report_session,
            calls.REPORT_REFUSED: self._report_refused,
            calls.CREATE_RUN: self._create_run,
            calls.LIST_RUNS: self._list_runs,
            calls.FIND_RUN: self._find_run,
            calls.CANCEL_RUN: self._cancel_run,
            calls.SPEAK_FOR: self._speak_for,
            calls.SERVE_HTTP: self._serve_http,
            calls.HTTP_REFUSED: self._http_refused,
            calls.OPEN_DASHBOARD: self._open_dashboard,
            calls.HTTP_URLS: self._http_urls,
            calls.REDEEM_TICKET: self._redeem_ticket,
            calls.DOWN: self._down,
        }

    def _leads(self) -> bool:
        """Whether this head may serve: of several that share a store, one does."""
        return self._leadership is None or self._leadership.serves

    def _new_supervisor(self, settings: Settings) -> Supervisor:
        parts: list[Component] = [
            self._store,
            HeadAuthority(self.control),
            NodeTree(self.control),
            self._socket,
            self._web,
        ]
        if self._announcer is not None:
            parts.append(self._announcer)
        return Supervisor(parts, settings, self._clock, REFUSALS)

    # --- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen, and start its own nodes."""
        self._keeping.enter_context(kept_lines(self._lines))
        self._commands.serve()
        self.control.session.subscribe(self._places_changed)
        self.policy.watch(self._policy_changed)
        self.control.watch_components(self._components_changed)
        self.control.watch_links(self._link_changed)
        begun = self._clock.now()
        try:
            former = self._former_nodes()
            self.ledger.note("head.started", "the head began", facts={"pid": str(os.getpid())})
            self.control.start()
            self._note_port()
            if self._announcer is not None:
                self._announcer.prepare()
            self._thread.start()
            self._tls.open(self._service)
            self.sessions.start()
            self.runs.start()
            self._thread.call(self._socket.listen)
            self._thread.call(self._supervise, begun)
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
        there = {one.name for one in self.records()}
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
        for pool in (self._pool, self._leaving):
            pool.shutdown(cancel_futures=True)
        self._thread.stop()
        self._supervisor.stop()
        self.ledger.note(kind, text)
        self.ledger.close()
        self._store.stop()  # also where the supervisor was not started
        self._keeping.close()

    def _supervise(self, begun: float) -> None:
        """Look after the components from now on; on the thread of the service."""
        self._supervisor.subscribe(self._heard)
        self._supervisor.start(begun)
        self._supervisor.attend(self._thread.loop)

    def _heard(self, event: ComponentEvent) -> None:
        """Say that all is ready, when it is: the head, and each component of each node."""
        if event.topic == ALL_READY:
            self._ready_seconds = event.value
            _log.info("cluster ready", seconds=round(event.value, 4))
            self.control.tell_ready(event.value)

    def _look_soon(self) -> None:
        """Look at the components, once for all that happens now; from any thread."""
        with self._lock:
            planned, self._look_planned = self._look_planned, True
        if not planned:
            with contextlib.suppress(ClosedError):
                self._thread.post(self._look)

    def _look(self) -> None:
        with self._lock:
            self._look_planned = False
        if not self.ended.is_set():
            self._supervisor.look()

    def _stop_listening(self) -> None:
        self._supervisor.detach()
        self._socket.stop()
        with self._lock:
            waiting = list(self._removals.values())
        for one in waiting:
            one.end(error=ClosedError("the head ends"))
        self._thread.post(self._service.close)  # after these answers

    def _kept(self) -> tuple[Authority, Tokens]:
        """Return authority and tokens of the cluster, which the first head makes."""
        entry = self._store.opened.get(_AUTHORITY)
        if entry is None:
            authority = Authority.create(new_cluster_id())
            kept = _KeptAuthority(authority.key, authority.certificate)
            self._store.opened.compare_and_set(_AUTHORITY, msgspec.msgpack.encode(kept), 0)
        else:
            with self._reading(_AUTHORITY):
                found = typed.unpacker(_KeptAuthority)(entry.value)
                authority = Authority.load(found.key, found.certificate)
        read = typed.unpacker(TokenRecord)
        with self._reading(_TOKENS):
            records = [read(one.value) for one in self._store.opened.entries(_TOKENS)]
        # Those with a slot were for daemons that the former head had started.
        usable = [one for one in records if not one.slot]
        return authority, Tokens(authority.pin, time.time, self._keep_token, usable)

    def _next_generation(self) -> int:
        """Count the heads that this cluster had."""
        entry = self._store.opened.get(_GENERATION)
        with self._reading(_GENERATION):
            number = 1 if entry is None else int(entry.value) + 1
        self._store.opened.put(_GENERATION, str(number).encode())
        return number

    def _with_former_port(self, settings: NodeSettings) -> NodeSettings:
        """Return settings with the port of the head before this one, where any free one will do.

        Nodes and sessions that outlived it look for the next head there.
        """
        host, _, port = listen_address(settings.listen).rpartition(":")
        entry = self._store.opened.get(_PORT + machine_id()) if port == "0" else None
        if entry is None:
            return settings
        former = f"{host}:{entry.value.decode()}"
        with contextlib.suppress(OSError, ValueError):
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host.strip("[]"), int(entry.value)))
            return msgspec.structs.replace(settings, listen=former)
        return settings

    def _note_port(self) -> None:
        """Note where this head listens, for the next one."""
        for place in self.control.places[:1]:
            port = place.rpartition(":")[2].encode()
            self._store.opened.put(_PORT + machine_id(), port)

    @contextlib.contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        """Say what to do about an entry that no head has written."""
        try:
            yield
        except (msgspec.MsgspecError, ValueError, SecurityError) as error:
            raise StoreError(
                f"the cluster's entry '{key}' cannot be read: {error}",
                where=self._store.opened.url,
                hint=f"move {self._folder} away: the cluster is a new one then, and machines join "
                "it anew",
            ) from error

    def _is_denied(self, node: str) -> bool:
        """Whether a node was removed, and its certificate may be valid still."""
        return self._store.opened.get(_DENIED + node) is not None

    def _deny(self, node: str) -> None:
        """Deny a node; forget denied nodes whose certificates have expired."""
        now = time.time()
        self._store.opened.put(_DENIED + node, str(now + max(self._life, DENIED_FOR)).encode())
        for entry in list(self._store.opened.entries(_DENIED)):
            with contextlib.suppress(ValueError):
                if float(entry.value) < now:
                    self._store.opened.delete(entry.key)

    def _keep_token(self, token: str, record: TokenRecord | None) -> None:
        if record is None:
            self._store.opened.delete(_TOKENS + token)
        else:
            self._store.opened.put(_TOKENS + token, msgspec.msgpack.encode(record))

    # --- what front ends want -------------------------------------------------------------------

    def _hello(self, caller: ServiceCaller, value: Any) -> Any:
        del caller, value
        return _plain(
            calls.HeadFacts(
                name=self.name,
                cluster=self.control.cluster,
                version=importlib.metadata.version("sapwood"),
                pid=os.getpid(),
                started=self._started,
                places=list(self.control.places),
                heads=self.places if self._leadership is not None else [],
                front_ends=len(self._service.callers),
                issuer=self.office.issuer,
                urls=self._web.urls(),
            )
        )

    @property
    def places(self) -> list[str]:
        """Where this head is reached, and then those that stand by; ``host:port`` each."""
        others = self._leadership.others if self._leadership is not None else []
        return [*self.control.places, *others]

    def _heads_changed(self) -> None:
        """Tell the nodes where they find the next head; on any thread."""
        for one in self.records():
            if one.can_be_asked:
                self._tell_heads(one.host)

    def _tell_heads(self, host: int) -> None:
        if self._leadership is not None:
            with contextlib.suppress(SapwoodError):
                self.control.ask(host, messages.HEADS, self.places)

    def _nodes(self, caller: ServiceCaller, value: Any) -> Any:
        del caller, value
        return [_plain(one) for one in self.records()]

    def records(self) -> list[calls.NodeRecord]:
        """Return the nodes that are there, and those that were removed."""
        found = [self._record(view) for view in self.control.nodes]
        known = {one.host for one in found}
        with self._lock:
            found += [one for host, one in self._removed.items() if host not in known]
        return sorted(found, key=lambda one: one.host)

    def _status(self, caller: ServiceCaller, value: Any) -> Future[Any]:
        del caller
        wanted = None if value is None else set(_read(value, list[int]))
        parts, seconds = self._supervisor.views(), self._ready_seconds
        return self._pool.submit(
            lambda: _plain(
                msgspec.structs.replace(
                    with_session_names(
                        tree_status(self.control, self._some_records(wanted), parts, seconds),
                        self._session_names(),
                    ),
                    joined=self.sessions.joined(),
                )
            )
        )

    def _some_records(self, hosts: set[int] | None) -> list[calls.NodeRecord]:
        return [one for one in self.records() if hosts is None or one.host in hosts]

    def _glance(self, caller: ServiceCaller, value: Any) -> Future[Any]:
        del caller, value
        return self._pool.submit(self._glance_now)

    def _glance_now(self) -> Any:
        views = {view.host: view for view in self.control.nodes}
        nodes = cluster_glance(
            self.records(), views, self.control.links().result(ANSWER_TIMEOUT), self._glances
        )
        return messages.to_value(
            calls.ClusterGlance(
                time=time.time(),
                nodes=nodes,
                refusals=self.control.refusals,
                trouble=troubles(self._supervisor.views()),
                ready_seconds=self._ready_seconds,
                work=self._work(),
                connected=self._connected(),
            )
        )

    def _connected(self) -> list[calls.ConnectedUser]:
        """Return the programs that use nodes without a named session, the newest first."""
        found: dict[str, list[_RemoteSession]] = {}
        with self._lock:
            for one in self._sessions.values():
                if not one.caller.session:
                    found.setdefault(one.name, []).append(one)
        made = [_connected_user(some, self.control.name_of) for some in found.values()]
        return sorted(made, key=lambda one: -one.since)

    def _session_names(self) -> dict[str, str]:
        """Return what users call the sessions that have processes on nodes."""
        with self._lock:
            return {one.name: one.shown for one in self._sessions.values()}

    def _work(self) -> calls.WorkFigures:
        records = self.sessions.records()
        live = [one.id for one in records if not SessionState(one.state).is_over]
        with self._lock:
            return self._figures.total(live)

    def _act(self, caller: ServiceCaller, value: Any) -> Future[Any]:
        """Start, stop or restart a component; on the thread of the service."""
        del caller
        wanted = _read(value, calls.ComponentOf)
        if wanted.host:
            return self.control.act(wanted.host, wanted.order)
        answer: Future[Any] = CallerFuture()
        self._supervisor.act(wanted.order.component, wanted.order.action)
        self._supervisor.when_settled(
            wanted.order.component, lambda view: answer.set_result(messages.to_value(view))
        )
        return answer

    def _logs(self, caller: ServiceCaller, value: Any) -> Any:
        del caller
        wanted = _read(value, calls.LogsOf)
        if not wanted.host:
            return messages.to_value(self._lines.read(wanted.read.after, wanted.read.level))
        return self.control.ask(wanted.host, messages.LOGS, messages.to_value(wanted.read))

    def _record(self, view: NodeView) -> calls.NodeRecord:
        cause, state = self._causes.of(view.host), view.state
        with self._lock:
            if view.facts is not None:
                self._joined.setdefault(view.host, time.time())
                if state == "starting" and view.host > len(self.control.hosts):
                    state = "lost"  # it is not started from here: it may come back
            if state == "ready" and view.host in self._draining:
                state = "draining"
            if view.state == "ready" and view.closed:
                state = "closed"
            joined = self._joined.get(view.host, 0.0)
        reason = "" if state in {"ready", "draining"} else cause.reason
        return calls.NodeRecord(
            host=view.host,
            name=view.name,
            node=view.node,
            state=state,
            facts=view.facts,
            skew=view.skew,
            reason=view.trouble or reason or (AWAY if state == "lost" else ""),
            joined=joined,
            since=cause.since,
            former=cause.former,
            former_time=cause.former_time,
            reserved=is_reserved(view.facts),
        )

    def _remove_node(self, caller: ServiceCaller, value: Any) -> Future[Any]:
        wanted = _read(value, calls.RemoveNode)
        self.gate.require_right(caller, ADMIN, node=wanted.name, what=calls.REMOVE_NODE)
        return self.remove_node(wanted)

    def remove_node(self, wanted: calls.RemoveNode) -> Future[Any]:
        """Remove a node, when its work is done or its time is over.

        Raises:
            ConfigurationError: There is no such node, or it is the head's own.
        """
        found = [
            one for one in self.records() if one.name == wanted.name and one.state != calls.GONE
        ]
        if not found:
            known = ", ".join(one.name for one in self.records() if not one.is_gone)
            raise ConfigurationError(
                f"node '{wanted.name}' does not exist", hint=f"nodes are {known}" if known else ""
            )
        record = found[-1]  # one that is leaving may have the same name
        if record.host <= len(self.control.hosts):
            raise ConfigurationError(
                f"'{wanted.name}' is the head's own node",
                hint="`sapwood down` ends it; `sapwood up --no-node` makes a head without one",
            )
        until = time.monotonic() + wanted.drain
        with self._lock:
            under_way = self._removals.get(record.host)
            if under_way is not None:  # a second request may have a shorter time
                self._draining[record.host] = min(self._draining[record.host], until)
                return under_way.done
            self._draining[record.host] = until
            how = "it was drained and removed" if wanted.drain > 0 else "it was removed"
            removal = self._removals[record.host] = _Removal(record, how)
        self._tell_nodes([record.host])
        self._drain(removal)
        return removal.done

    def _drain(self, removal: _Removal) -> None:
        """Look whether a node is idle, or its time over, and then remove it; on the loop.

        It takes no thread: a drain may last for hours.
        """
        if self.ended.is_set():
            return
        host = removal.record.host
        with self._lock:
            late = time.monotonic() >= self._draining[host]
            busy = any(one == host for _, one in self._sessions)
        if late or not (busy or self._commands.are_on(host)):
            self._leaving.submit(self._remove, removal)
        else:
            self._thread.loop.call_later(LOOK, self._drain, removal)

    def _remove(self, removal: _Removal) -> None:
        record = removal.record
        host = record.host
        gone = msgspec.structs.replace(
            record, state=calls.GONE, reason=removal.reason, since=time.time()
        )
        try:
            if self.ended.is_set():
                raise ClosedError("the head ends")
            if record.node:
                self._deny(record.node)
            with self._lock:
                self._removed[host] = gone
                for old in list(self._removed)[:-MAX_REMOVED]:
                    del self._removed[old]
            self.control.remove_node(host, LAST_WORD)
            self.ledger.note("node.removed", removal.reason, node=record.name)
        except BaseException as error:  # noqa: BLE001 - handed to those who wait
            with self._lock:
                self._removed.pop(host, None)
            failed: BaseException | None = error
        else:
            failed = None
        with self._lock:
            del self._draining[host], self._removals[host]
            self._joined.pop(host, None)
        removal.end(_plain(gone), failed)

    def _certify(self, caller: ServiceCaller, value: Any) -> Any:
        # Processes that a former head certified may still run.
        name = f"f{self._generation}-{caller.number}-{next(self._front_ends)}"
        rights = caller.rights or ALL_RIGHTS
        request, left = _read(value, bytes), self.gate.seconds_left(rights)
        made = self.control.certify(request, name, left)
        return _plain(calls.FrontEndCertificate(made.node, made.certificate, made.authority))

    def _delegate(self, caller: ServiceCaller, value: Any) -> Any:
        wanted = _read(value, calls.DelegateLinks)
        if not caller.is_local:
            raise ProtocolError("links are given to processes of the head's machine only")
        key = (wanted.tree, wanted.session)
        self._end_delegation(key, caller.number)  # it may come again, with a new path
        end = self.control.delegate(
            wanted.tree, partial(send_socket, wanted.path), session=wanted.session
        )
        forget = caller.when_gone(partial(self._abandon_delegation, wanted, caller.number))

        def stop() -> None:
            forget()
            end()

        self._delegated[key] = (caller.number, stop)
        return None

    def _undelegate(self, caller: ServiceCaller, value: Any) -> Any:
        tree = _read(value, str)
        for session in (False, True):
            self._end_delegation((tree, session), caller.number)
        return None

    def _abandon_delegation(self, wanted: calls.DelegateLinks, caller: int) -> None:
        """A front end is gone; one that was killed has left its socket, and the folder of that."""
        self._end_delegation((wanted.tree, wanted.session), caller)
        left = Path(wanted.path)
        if left.parent.name.startswith(PREFIX):
            with contextlib.suppress(OSError):
                if left.is_socket():
                    left.unlink()
                left.parent.rmdir()  # if nothing else is in it

    def _end_delegation(self, key: tuple[str, bool], caller: int) -> None:
        owner, end = self._delegated.get(key, (0, _nothing))
        if owner == caller:
            del self._delegated[key]
            end()

    def _order(self, caller: ServiceCaller, value: Any) -> Future[Any]:
        order = _read(value, calls.NodeOrder)
        if order.handler not in ORDERS:
            raise ProtocolError(f"a front end may not ask a node for '{order.handler}'")
        self._check_order(caller, order)
        self._check_reserved(caller, order)
        begins = order.handler in {messages.OPEN, messages.COMMAND_START}
        with self._lock:
            draining = order.host in self._draining
        if draining and begins:
            raise ConfigurationError(
                f"the node {self.control.name_of(order.host)} is being drained",
                hint="take another one",
            )
        if order.handler == messages.OPEN:
            opening = messages.from_value(order.value, messages.OpenProcesses)
            self._own_session(caller, opening.session, order.host)
            by = caller.rights or ALL_RIGHTS
            marked = msgspec.structs.replace(opening, credential=by.ids, user=by.user)
            order = msgspec.structs.replace(order, value=messages.to_value(marked))
        elif order.handler == messages.RESUME:
            return self._resume(caller, order)
        elif order.handler == messages.CLOSE:
            name = str(order.value)
            if not self._disown_session(caller, name, order.host):
                with self._lock:
                    owned = any(one == name for one, _ in self._sessions)
                if owned or not caller.is_local:
                    return _done(None)  # it is closed, was never open, or belongs to another client
                # A front end of the head's user clears what a killed one has left.
        elif order.handler == messages.COMMAND_START:
            starting = messages.from_value(order.value, messages.StartCommand)
            user = caller.rights.user if caller.rights is not None else ""
            if not user and order.session:  # as the processes of that session
                creator = self.sessions.find(order.session).creator
                user = "" if creator is None else creator.user
            value = messages.to_value(msgspec.structs.replace(starting, user=user))
            return self._commands.start(caller, msgspec.structs.replace(order, value=value))
        elif order.handler in SHARED_STAGE_ORDERS:
            refuse_staging(caller.rights or ALL_RIGHTS)
        elif order.handler in READING_ORDERS:
            reading = messages.from_value(order.value, READING_ORDERS[order.handler])
            user = caller.rights.user if caller.rights is not None else ""
            value = messages.to_value(msgspec.structs.replace(reading, user=user))
            order = msgspec.structs.replace(order, value=value)
        return self.control.ask(order.host, order.handler, order.value)

    def _resume(self, caller: ServiceCaller, order: calls.NodeOrder) -> Future[Any]:
        """Give a session on a node back to who has opened it; the node knows who that was."""
        resuming = messages.from_value(order.value, messages.ResumeProcesses)
        with self._lock:
            known = (resuming.session, order.host) in self._sessions
        self._own_session(caller, resuming.session, order.host)
        if not known:
            with self._lock:
                self._sessions[resuming.session, order.host].is_resumed = True
        ids = caller.rights.ids if caller.rights is not None else ()
        marked = messages.to_value(msgspec.structs.replace(resuming, credential=ids))
        answer = self.control.ask(order.host, order.handler, marked)

        def answered(done: Future[Any]) -> None:
            if not known and (done.cancelled() or done.exception() is not None):
                self._disown_session(caller, resuming.session, order.host)

        when_done(answer, answered)
        return answer

    def _check_order(self, caller: ServiceCaller, order: calls.NodeOrder) -> None:
        """Refuse calls that a client has no right for, or that concern processes of other clients.

        Raises:
            SecurityError: It has no right for it on that node, or for that session.
            ProtocolError: It is another front end's.
        """
        if order.handler == messages.COMMAND_START and order.session:
            self._check_command_of_session(caller, order)
            return
        right = RIGHT_OF_ORDER.get(order.handler, ADMIN)
        begun = _session_of(order)
        node = self.control.name_of(order.host) if right != CONNECT else ""
        self.gate.require_right(caller, right, session=begun, node=node, what=order.handler)
        if order.handler in OF_OPEN_SESSION:
            with self._lock:
                known = self._sessions.get((begun, order.host))
            if known is None or known.caller is not caller:
                raise ProtocolError(f"the session {begun} is not this front end's on that node")
        elif order.handler in COMMAND_ORDERS:
            command = messages.from_value(order.value, COMMAND_ORDERS[order.handler]).command
            if not self._commands.may(caller, command, order.host):
                raise ProtocolError(f"the command {command} is another front end's")
        if order.handler == messages.SPAWN:
            self._note_spawned(caller, order)

    def _check_reserved(self, caller: ServiceCaller, order: calls.NodeOrder) -> None:
        """Refuse what begins processes on a reserved node, or reads its files.

        Raises:
            SecurityError: The credential may not use such nodes, or the session leaves them out.
        """
        if RIGHT_OF_ORDER[order.handler] == CONNECT or not is_reserved(
            self.control.facts_of(order.host)
        ):
            return
        node = self.control.name_of(order.host)
        what = f"'{order.handler}' on this node"
        self.gate.require_reserved(caller, what, where=f"node {node}", wanted=order.handler)
        if caller.session and self.sessions.find(caller.session).shared:
            raise refused("code of credentials that use this session", f"node {node}")

    def _check_work(self, caller: ServiceCaller, record: calls.SessionRecord, what: str) -> None:
        """Refuse work with agents of a session that run as the head's user on reserved nodes.

        The agents of a session whose creator may not use such nodes are nowhere else. Any other
        session leaves such nodes out from now on.

        Raises:
            SecurityError: The session has such agents, and the credential may not use such nodes.
        """
        rights = caller.rights or ALL_RIGHTS
        made_by = ALL_RIGHTS if record.creator is None else record.creator.rights
        if self.gate.may_use_reserved(rights) or (
            not self.gate.may_use_reserved(made_by) and not runs_as_head_user(record.on)
        ):
            return
        if self._is_on_reserved(record):
            where = f"session {record.handle}"
            self.gate.require_reserved(caller, "code in this session", where=where, wanted=what)
        self.sessions.share(record)

    def _is_on_reserved(self, record: calls.SessionRecord) -> bool:
        """Whether agents of a session are on reserved nodes."""
        if runs_as_head_user(record.on):
            return True
        with self._lock:
            hosts = {
                host for (_, host), one in self._sessions.items() if one.caller.session == record.id
            }
        reported = set() if record.report is None else set(record.report.nodes)
        return any(
            one.reserved and (one.host in hosts or one.name in reported) for one in self.records()
        )

    def _check_command_of_session(self, caller: ServiceCaller, order: calls.NodeOrder) -> None:
        """Let who may run code at a session's agents run a command where they are.

        Raises:
            SecurityError: It has no right for that.
            ConfigurationError: There is no such session, or it is not on that node.
        """
        record = self.sessions.find(order.session)
        node = self.control.name_of(order.host)
        self.gate.require_session(caller, RUN, record, what=order.handler)
        self.gate.require_right(caller, RUN, session=record.name, node=node, what=order.handler)
        own_machines = is_launched(record.on)  # the names of those may be the same
        if own_machines or record.report is None or node not in record.report.nodes:
            raise ConfigurationError(
                f"the session '{record.handle}' is not on the node {node}",
                hint="`sapwood session show SESSION` says where it is",
            )

    def _note_spawned(self, caller: ServiceCaller, order: calls.NodeOrder) -> None:
        spawning = messages.from_value(order.value, messages.SpawnProcesses)
        with self._lock:
            session = self._sessions.get((spawning.session, order.host))
        if session is not None:
            session.spawned(spawning.processes, self._agent_entry)
        for one in spawning.processes:
            if one.incarnation > 1:
                self._note_caused(
                    "process.replaced",
                    f"another process begins as rank {one.rank}",
                    _owner(caller),
                    node=self.control.name_of(order.host),
                    session=spawning.session if session is None else session.shown,
                    facts={"rank": str(one.rank), "incarnation": str(one.incarnation)},
                )

    def _own_session(self, caller: ServiceCaller, session: str, host: int) -> None:
        """Note whose a session is."""
        key = (session, host)
        with self._lock:
            known = self._sessions.get(key)
            owners = [one.caller for (name, _), one in self._sessions.items() if name == session]
        if any(owner is not caller for owner in owners):
            raise ProtocolError(f"the session {session} is another front end's")
        if known is None:
            made = _RemoteSession(session, host, caller, self._service, self._exited)
            made.forget = caller.when_gone(partial(self._abandoned, key))
            with self._lock:
                first = not any(name == session for name, _ in self._sessions)
                self._sessions[key] = made
            self.control.join(made)
            if first:
                subject = caller.rights.subject if caller.rights is not None else ""
                self._note_caused(
                    "session.created",
                    f"it takes nodes for {subject or 'the user of the head'}",
                    _owner(caller),
                    session=made.shown,
                    facts={"front_end": str(caller.number), "address": caller.address or "here"},
                )

    def _exited(self, host: int, report: messages.ProcessesReported) -> None:
        """A process of a session ended; on a thread of the control tree."""
        ended, kind = report.report, "process.lost"
        if ended is None:
            text, facts = f"all its processes there: {report.reason}", {}
        elif isinstance(ended, Exited) and (ended.status or ended.reason):
            text = f"rank {ended.rank}: {ended.reason or describe_status(ended.status)}"
            facts = {"rank": str(ended.rank), "status": str(ended.status)}
        elif isinstance(ended, RunnerLost):
            kind = "runner.lost"
            text = f"runner of rank {ended.rank}: {describe_status(ended.status)}"
            facts = {
                "rank": str(ended.rank),
                "process": str(ended.pid),
                "status": str(ended.status),
            }
        else:
            return
        node = self.control.name_of(host)
        names = self._session_names()
        shown_name = names.get(report.session, report.session)
        self._note_caused(kind, text, node, node=node, session=shown_name, facts=facts)

    def _note_caused(
        self,
        kind: str,
        text: str,
        by: str,
        *,
        node: str = "",
        session: str = "",
        facts: Mapping[str, str] | None = None,
    ) -> None:
        """Note what a front end or a node can cause at will, unless it causes very much of it.

        Args:
            kind: As for :meth:`~sapwood.head.ledger.Ledger.note`.
            text: Likewise.
            by: The owner of the credential, or the node; empty for the head's user, who is not
                limited.
            node: As for the ledger.
            session: Likewise.
            facts: Likewise.
        """
        left_out = self._caused.count((kind, by)) if by else 0
        if left_out is None:
            return
        others = {"others": str(left_out)} if left_out else {}
        self.ledger.note(kind, text, node=node, session=session, facts={**(facts or {}), **others})

    def _session_left(self, left: _RemoteSession, reason: str) -> None:
        """Note that a session is gone, if that was its last node."""
        with self._lock:
            there = any(one == left.name for one, _ in self._sessions)
        if not there:
            by = _owner(left.caller)
            self._note_caused("session.ended", reason, by, session=left.shown)

    def _disown_session(self, caller: ServiceCaller, name: str, host: int) -> bool:
        """Forget a session on a node; return whether it was this front end's."""
        with self._lock:
            known = self._sessions.get((name, host))
            if known is None or known.caller is not caller:
                return False
            del self._sessions[name, host]
        known.forget()
        self.control.part(known)
        self._session_left(known, "it was closed")
        return True

    def _abandoned(self, key: tuple[str, int]) -> None:
        """A front end is gone without a word: nothing of its session stays on a node."""
        with self._lock:
            session = self._sessions.pop(key, None)
        if session is not None:
            self.control.part(session)
            _log.info("session ended with its front end", session=key[0], host=key[1])
            self._session_left(session, "its front end is gone")
            with contextlib.suppress(SapwoodError):
                self.control.ask(key[1], messages.CLOSE, key[0])

    def _create_session(self, caller: ServiceCaller, value: Any) -> Future[Any]:
        wanted = _read(value, calls.CreateSession)
        rights = caller.rights or ALL_RIGHTS
        needed = [ALLOCATE, SPAWN]  # its root acts with these rights
        if wanted.on == "local":  # its agents are processes of the head's user, beside the head
            needed = [ADMIN]
            refuse_others(rights, "a session on the head's machine")
        elif is_launched(wanted.on):  # and these, on machines that its user pays for or logs in to
            needed = [ADMIN] if names_machines(wanted.on) else needed
            refuse_others(rights, "a session that brings machines along")
        for right in needed:
            self.gate.require_right(caller, right, session=wanted.name, what=calls.CREATE_SESSION)
        there = [one for one in self.records() if one.is_ready]
        only_reserved = wanted.on == "head" and there and all(one.reserved for one in there)
        if only_reserved or runs_as_head_user(wanted.on):
            self.gate.require_reserved(
                caller, "this session", where=f"--on {wanted.on}", wanted=calls.CREATE_SESSION
            )
        if rights.nodes is not None:
            raise SecurityError(
                "a separate session may use all nodes, and the credential is for some",
                hint="use the nodes by sapwood.connect()",
            )
        if rights is not ALL_RIGHTS:
            settings = allowed_settings(wanted.settings, self.policy.settings)
            wanted = msgspec.structs.replace(wanted, settings=settings)
        return self.sessions.create(wanted, calls.SessionCreator.of(rights))

    def _act_for_session(self, caller: ServiceCaller, value: Any) -> Any:
        """Leave the root of a session no more rights than whoever made it has."""
        if not caller.is_local:
            raise ProtocolError("roots of sessions are on the head's machine")
        record = self.sessions.find(_read(value, str))
        caller.session, caller.session_name = record.id, record.name
        creator = record.creator
        if creator is None:
            return None
        denied = self.office.denials.any_of(creator.ids)
        if denied:
            raise SecurityError("the credential that made the session was revoked", where=denied)
        caller.rights = creator.rights
        return _plain(self.gate.facts_of(creator.rights))

    def _certify_session(self, caller: ServiceCaller, value: Any) -> Any:
        del caller
        wanted = _read(value, calls.CertifySession)
        record = self.sessions.find(wanted.session)
        made = self.control.certify(wanted.request, f"s-{record.id}")
        return _plain(calls.FrontEndCertificate(made.node, made.certificate, made.authority))

    def _session_credential(self, caller: ServiceCaller, value: Any) -> Any:
        record = self.sessions.find(_read(value, str))
        rights = self.gate.require_session(caller, ATTACH, record, what=calls.SESSION_CREDENTIAL)
        if RUN in rights.names:
            self._check_work(caller, record, calls.SESSION_CREDENTIAL)
        secret = secret_for(rights, self.sessions.secret_of(record), record.id)
        return self._shown_at_root(record, secret)

    def _merge_credential(self, caller: ServiceCaller, value: Any) -> Any:
        record = self.sessions.find(_read(value, str))
        rights = self.gate.require_session(caller, MERGE, record, what=calls.MERGE_CREDENTIAL)
        self._check_work(caller, record, calls.MERGE_CREDENTIAL)
        secret = merge_secret_for(rights, self.sessions.secret_of(record), record.id)
        return self._shown_at_root(record, secret)

    def _shown_at_root(self, record: calls.SessionRecord, secret: str) -> Any:
        """Return what the holder of a session's secret needs to reach its server."""
        made = calls.SessionCredential(
            record.id,
            record.name,
            secret,
            f"s-{record.id}.{self.control.cluster}",
            self.control.authority,
            list(self.control.places),
        )
        return _plain(made)

    def _list_sessions(self, caller: ServiceCaller, value: Any) -> Any:
        del caller, value
        return [_plain(one) for one in self.sessions.records()]

    def _find_session(self, caller: ServiceCaller, value: Any) -> Any:
        del caller
        return _plain(self.sessions.find(_read(value, str)))

    def _end_session(self, caller: ServiceCaller, value: Any) -> Future[Any]:
        record = self.sessions.find(_read(value, str))
        self.gate.require_session(caller, DELETE, record, what=calls.END_SESSION)
        return self.sessions.end(record.handle)

    def _report_session(self, caller: ServiceCaller, value: Any) -> Any:
        del caller
        return self.sessions.report(_read(value, calls.SessionReport))

    def _report_tree(self, caller: ServiceCaller, value: Any) -> Any:
        del caller
        self._trees.note(_read(value, calls.SessionTree))

    def _report_figures(self, caller: ServiceCaller, value: Any) -> Any:
        del caller
        with self._lock:
            self._figures.note(_read(value, calls.SessionFigures))

    def _session_trees(self, caller: ServiceCaller, value: Any) -> Any:
        del caller
        known = _read(value, calls.KnownTrees)
        return _plain(self._trees.changed(known, self.sessions.records()))

    def _report_refused(self, caller: ServiceCaller, value: Any) -> Any:
        del caller
        told = _read(value, calls.FrontEndRefused)
        self.gate.note_refused(self.sessions.find(told.session).name, told)
        return None

    def _create_run(self, caller: ServiceCaller, value: Any) -> Any:
        if not caller.is_local:
            raise SecurityError(
                "a detached run is a process of the head's user, and begins on its machine only",
                hint="begin it there, or drive it here: `sapwood run PROGRAM --on head:NAME`",
            )
        refuse_others(caller.rights or ALL_RIGHTS, "a detached run")
        return _plain(self.runs.create(_read(value, calls.CreateRun)))

    def _list_runs(self, caller: ServiceCaller, value: Any) -> Any:
        del caller, value
        return [_plain(one) for one in self.runs.records()]

    def _find_run(self, caller: ServiceCaller, value: Any) -> Any:
        del caller
        return _plain(self.runs.find(_read(value, str)))

    def _cancel_run(self, caller: ServiceCaller, value: Any) -> Future[Any]:
        del caller
        return self.runs.cancel(_read(value, str))

    def _taken(self, caller: ServiceCaller, value: Any) -> Any:
        self._commands.taken(caller, _read(value, int))
        return None

    # --- credentials, events and policy ----------------------------------------------------------

    def _record_run(self, caller: ServiceCaller, value: Any) -> Any:
        run = _read(value, calls.RunEnded)
        self._check_run_of(caller, run.session)
        name = run.run[:MAX_RUN_NAME]
        caller.runs.pop(name, None)
        if run.state == "running":
            caller.runs[name] = time.time()
            if len(caller.runs) > MAX_RUNS:
                del caller.runs[next(iter(caller.runs))]
            return None
        subject = caller.rights.subject if caller.rights is not None else ""
        facts = {
            "state": run.state,
            "seconds": f"{run.seconds:.3f}",
            "iterations": str(run.iterations),
            "by": subject,
        }
        text = f"{run.run}: {run.state}" + (f": {run.reason}" if run.reason else "")
        session = self._session_names().get(run.session, run.session)
        self._note_caused("run.ended", text, _owner(caller), session=session, facts=facts)
        return None

    def _check_run_of(self, caller: ServiceCaller, session: str) -> None:
        """Refuse a report on a run in a session that the caller may not use.

        Raises:
            SecurityError: The session is another front end's.
        """
        with self._lock:
            owners = [one.caller for (name, _), one in self._sessions.items() if name == session]
        if caller in owners or not session:
            self.gate.require_right(caller, RUN, session=session, what=calls.RECORD_RUN)
            return
        try:
            record = self.sessions.find(session)
        except ConfigurationError:
            self.gate.require_right(caller, ADMIN, session=session, what=calls.RECORD_RUN)
        else:
            self.gate.require_session(caller, RUN, record, what=calls.RECORD_RUN)

    def _policy_changed(self, rows: list[PolicyRow]) -> None:
        self._service.tell_all(calls.POLICY_CHANGED, rows)

    # --- the HTTP server -------------------------------------------------------------------------

    def _speak_for(self, caller: ServiceCaller, value: Any) -> Any:
        self._require_here(caller)
        self._service.speaks_for(caller, _read(value, calls.SpeakFor).address)
        return None

    def _serve_http(self, caller: ServiceCaller, value: Any) -> Any:
        self._require_here(caller)
        made = self._web.serve(caller.number, _read(value, calls.ServeHttp))
        caller.when_gone(partial(self._web.gone, caller.number))
        return _plain(made)

    def _http_refused(self, caller: ServiceCaller, value: Any) -> Any:
        self._require_here(caller)
        told = _read(value, calls.HttpRefused)
        facts = {"address": told.address, "others": str(told.others or "")}
        shown = {name: text for name, text in facts.items() if text}
        self.ledger.note("request.refused", told.reason, facts=shown)
        return None

    def _open_dashboard(self, caller: ServiceCaller, value: Any) -> Any:
        self._require_here(caller)
        wanted = _read(value, calls.OpenDashboard)
        issued = self.credentials.issued(
            caller.granted,
            calls.IssueCredential(
                subject=wanted.subject,
                rights=wanted.rights or [CONNECT, OBSERVE],
                lifetime=min(wanted.lifetime, self.credentials.longest),
            ),
        )

        def open_now() -> Any:
            ticket, expires = self._web.new_ticket(issued.text)
            made = calls.DashboardTicket(
                ticket=ticket,
                urls=self._web.urls(),
                expires=expires,
                credential=issued.facts.id,
                authority=self.control.authority,
            )
            return _plain(made)

        return _after(self._web.serving(), open_now)

    def _http_urls(self, caller: ServiceCaller, value: Any) -> Any:
        del value
        self._require_here(caller)
        return _after(self._web.serving(), self._web.urls)

    def _redeem_ticket(self, caller: ServiceCaller, value: Any) -> Any:
        self._require_here(caller)
        return self._web.redeem(_read(value, str))

    def _require_here(self, caller: ServiceCaller) -> None:
        if not caller.is_local:
            raise ProtocolError("the HTTP server is on the head's machine")

    def _down(self, caller: ServiceCaller, value: Any) -> Any:
        del caller, value
        if self._leadership is not None:
            self._leadership.end_cluster()
        self._thread.loop.call_soon(self.ended.set)
        return {"nodes": len(self.control.nodes)}

    # --- notices to clients ----------------------------------------------------------------------

    def _places_changed(self, change: PlacesChanged) -> None:
        """Nodes have changed; on the loop of the control tree."""
        self._causes.changed(change, time.time())
        known = {view.host: self._record(view) for view in self.control.nodes}
        with self._lock:
            nodes = [known.get(rank) or self._removed.get(rank) for rank in change.ranks]
        told = calls.NodesChanged(
            [one for one in nodes if one is not None],
            back=change.back,
            gone=not change.back and not change.disconnected,
            for_good=change.for_good or change.removed,
            reason=change.reason,
        )
        if told.gone:
            self._commands.nodes_gone(change.ranks)
        self._service.tell_all(calls.NODES_CHANGED, _plain(told))
        for rank in change.ranks:
            if change.back or change.added:
                self._feed.tell(rank)
                self._tell_heads(rank)
            self._note_node(rank, change)
        self._look_soon()

    def _components_changed(self, host: int, turned: bool) -> None:  # noqa: FBT001 - as told
        """Components of a node are not what they were; on the loop of the control tree."""
        view = next((one for one in self.control.nodes if one.host == host), None)
        if turned and view is not None:
            self._causes.note([host], view.closed, time.time())
            told = calls.NodesChanged(
                [self._record(view)],
                back=not view.closed,
                gone=bool(view.closed),
                reason=view.closed,
            )
            self._service.tell_all(calls.NODES_CHANGED, _plain(told))
            if not view.closed:
                self._feed.tell(host)
        self._look_soon()

    def _link_changed(self, host: int, reason: str) -> None:
        """The link to a node has no connection, or continues; on the loop of the control tree."""
        cause = link_ended(reason) if reason else ""
        self._causes.note([host], cause, time.time())
        view = next((one for one in self.control.nodes if one.host == host), None)
        if view is not None:
            told = calls.NodesChanged([self._record(view)], back=not reason, reason=cause)
            self._service.tell_all(calls.NODES_CHANGED, _plain(told))
        self._look_soon()

    def _note_node(self, rank: int, change: PlacesChanged) -> None:
        """Note once that a node is gone, and that it is back if it need not join again for that."""
        was_away = rank in self._away
        if change.back or change.added or change.removed:
            self._away.pop(rank, None)
            if was_away and change.back and change.disconnected:
                self.ledger.note(
                    "node.back", "its link is there again", node=self.control.name_of(rank)
                )
        elif not was_away:
            self._away[rank] = None
            self._node_lost(rank, change.reason)

    def _node_lost(self, rank: int, reason: str) -> None:
        """Note that a node is gone; if the policy says so, it is removed when it stays away.

        The list has a bound under any policy: machines that come under new names do not fill it.
        """
        self.ledger.note("node.lost", reason, node=self.control.name_of(rank))
        recovery = self.policy.current.recovery
        if recovery.lost_nodes == "remove" and rank > len(self.control.hosts):
            with contextlib.suppress(ClosedError):
                self._thread.post(
                    self._thread.loop.call_later, recovery.patience, self._remove_lost, rank
                )
        lost = [one for one in self._away if one > len(self.control.hosts)]
        if len(lost) > MAX_LOST:
            with contextlib.suppress(ClosedError):
                self._thread.post(partial(self._remove_lost, lost[0], always=True))

    def _remove_lost(self, rank: int, *, always: bool = False) -> None:
        """Remove a node that is still lost, if the policy still says so.

        Args:
            rank: The node.
            always: Remove it whatever the policy says.
        """
        found = next((one for one in self.records() if one.host == rank), None)
        if found is None or found.state not in {"lost", "disconnected"}:
            return
        if always or self.policy.current.recovery.lost_nodes == "remove":
            with contextlib.suppress(SapwoodError):
                self.remove_node(calls.RemoveNode(found.name))

    def _tell_nodes(self, hosts: list[int]) -> None:
        nodes = [one for one in self.records() if one.host in hosts]
        self._service.tell_all(calls.NODES_CHANGED, _plain(calls.NodesChanged(nodes)))


class _Removal:
    """A node that is to leave.

    Attributes:
        record: The node.
        reason: Why it leaves.
        done: Has the answer to those who wait for that.
    """

    def __init__(self, record: calls.NodeRecord, reason: str) -> None:
        self.record = record
        self.reason = reason
        self.done: Future[Any] = CallerFuture()
        self.done.set_running_or_notify_cancel()

    def end(self, answer: Any = None, error: BaseException | None = None) -> None:
        """Answer those who wait, if they have no answer yet."""
        with contextlib.suppress(InvalidStateError):
            if error is not None:
                self.done.set_exception(error)
            else:
                self.done.set_result(answer)


def _connected_user(
    some: Sequence[_RemoteSession], name_of: Callable[[int], str]
) -> calls.ConnectedUser:
    """Return the program that uses one or several nodes."""
    caller = some[0].caller
    agents = [one.agents for one in some]
    return calls.ConnectedUser(
        name=some[0].shown,
        user=caller.rights.subject if caller.rights is not None else "",
        address=caller.address,
        since=min(one.since for one in some),
        nodes=[name_of(one.host) for one in some],
        agents=None if None in agents else sum(one or 0 for one in agents),
        runs=[calls.ConnectedRun(name, since) for name, since in list(caller.runs.items())],
    )


MAX_RUNS = 64
"""Runs in progress of a front end that are shown, the newest."""

MAX_RUN_NAME = 200
"""Characters of the name of such a run."""


class _RemoteSession:
    """A session of a front end on a node: what it should hear goes there."""

    def __init__(
        self,
        name: str,
        host: int,
        caller: ServiceCaller,
        service: ServiceServer,
        exited: Callable[[int, messages.ProcessesReported], None],
    ) -> None:
        self._exited = exited
        self._agents: set[int] = set()
        self.since = time.time()
        self.is_resumed = False
        self.name = name
        self.host = host
        self.caller = caller
        self.forget: Callable[[], None] = _nothing
        self._service = service

    @property
    def shown(self) -> str:
        """What users know the session by."""
        return self.caller.session_name or f"connection-{self.caller.number}"

    @property
    def agents(self) -> int | None:
        """How many agents it has on the node; None if they are older than this head."""
        return None if self.is_resumed else len(self._agents)

    def spawned(self, processes: Sequence[ProcessSpec], agent_entry: str) -> None:
        """Note processes that the node is asked to start."""
        self._agents |= {one.rank for one in processes if one.entry == agent_entry}

    def heard(self, report: messages.ProcessesReported) -> None:
        """Pass on what the node reports."""
        if report.report is None:
            self._agents = set()
        elif isinstance(report.report, Exited):
            self._agents -= {report.report.rank}
        self._exited(self.host, report)
        value = _plain(calls.OfNode(self.host, messages.to_value(report)))
        self._service.tell(self.caller, calls.PROCESSES_REPORTED, value)

    def node_changed(self, *, there: bool, reason: str) -> None:
        """Do nothing: all front ends hear of nodes."""

    def node_removed(self, reason: str) -> None:
        """Do nothing: all front ends hear of nodes."""

    def node_given_up(self, reason: str) -> None:
        """Do nothing: all front ends hear of nodes."""

    def way_lost(self) -> None:
        """Do nothing: the way from the head is the control tree."""

    def way_back(self) -> None:
        """Do nothing, either."""


class _RemoteCommands:
    """Commands of front ends on nodes."""

    def __init__(self, control: ControlTree, service: ServiceServer) -> None:
        self._control = control
        self._service = service
        self._lock = threading.Lock()
        self._owners: dict[tuple[int, int], tuple[ServiceCaller, Callable[[], None]]] = {}
        self._untaken: dict[int, tuple[ServiceCaller, ServedRequest]] = {}
        self._numbers = itertools.count(1)

    def serve(self) -> None:
        """Hear what commands write, and of their ends."""
        serve = self._control.session.requests.serve
        serve(messages.COMMAND_OUTPUT, self._wrote)
        serve(messages.COMMAND_ENDED, self._ended)

    def start(self, caller: ServiceCaller, order: calls.NodeOrder) -> Future[Any]:
        """Have a node start a command, and note whose it is."""
        command = messages.from_value(order.value, messages.StartCommand).command
        key = (command, order.host)
        with self._lock:
            if key in self._owners:
                raise ProtocolError(f"there is a command {command} already")
            forget = caller.when_gone(partial(self._abandoned, key))
            self._owners[key] = (caller, forget)
        try:
            answer = self._control.ask(order.host, order.handler, order.value)
        except BaseException:
            self._disown(key)
            raise

        def answered(done: Future[Any]) -> None:
            if done.cancelled() or done.exception() is not None:
                self._disown(key)  # it was not started

        when_done(answer, answered)
        return answer

    def _disown(self, key: tuple[int, int]) -> None:
        with self._lock:
            owner = self._owners.pop(key, None)
        if owner is not None:
            owner[1]()

    def are_on(self, host: int) -> bool:
        """Whether a command runs on a node."""
        with self._lock:
            return any(one == host for _, one in self._owners)

    def may(self, caller: ServiceCaller, command: int, host: int) -> bool:
        """Whether a front end may give orders to a command: it is its own, or has ended."""
        with self._lock:
            owner = self._owners.get((command, host))
        return owner is None or owner[0] is caller

    def taken(self, caller: ServiceCaller, number: int) -> None:
        """A front end has room for more output."""
        with self._lock:
            owner, question = self._untaken.get(number, (None, None))
            if owner is caller:
                del self._untaken[number]
        if question is not None and owner is caller:
            question.give(None, None)

    def nodes_gone(self, hosts: tuple[int, ...]) -> None:
        """Forget commands on nodes that are gone."""
        with self._lock:
            keys = [key for key in self._owners if key[1] in hosts]
            forget = [self._owners.pop(key)[1] for key in keys]
        for function in forget:
            function()

    def _abandoned(self, key: tuple[int, int]) -> None:
        with self._lock:
            owner = self._owners.pop(key, None)
            mine = [n for n, (caller, _) in self._untaken.items() if owner and caller is owner[0]]
            questions = [self._untaken.pop(number)[1] for number in mine]
        for question in questions:
            question.give(None, None)
        order = messages.to_value(messages.CancelCommand(key[0]))
        with contextlib.suppress(SapwoodError):
            self._control.ask(key[1], messages.COMMAND_CANCEL, order)

    def _wrote(self, question: ServedRequest) -> None:
        output = messages.from_value(question.value(), messages.CommandOutput)
        host = question.asked.source
        with self._lock:
            owner = self._owners.get((output.command, host))
            number = next(self._numbers)
            if owner is not None:
                self._untaken[number] = (owner[0], question)
        if owner is None:
            question.give(None, None)
            return
        told = calls.OfNode(host, messages.to_value(output), number)
        self._service.tell(owner[0], calls.COMMAND_OUTPUT, _plain(told))

    def _ended(self, question: ServedRequest) -> None:
        report = messages.from_value(question.value(), messages.CommandEnded)
        host = question.asked.source
        with self._lock:
            owner = self._owners.pop((report.command, host), None)
        if owner is not None:
            owner[1]()  # it need not be cancelled any more
            told = calls.OfNode(host, messages.to_value(report))
            self._service.tell(owner[0], calls.COMMAND_ENDED, _plain(told))
        question.give(None, None)


COMMAND_ORDERS: dict[str, Any] = {
    messages.COMMAND_INPUT: messages.CommandInput,
    messages.COMMAND_SIGNAL: messages.SignalCommand,
    messages.COMMAND_CANCEL: messages.CancelCommand,
}
"""Orders to a command that was started, and what they carry."""


def _owner(caller: ServiceCaller) -> str:
    """Return whose is what a front end makes; empty for the head's user."""
    return "" if caller.rights is None else caller.rights.owner


def _session_of(order: calls.NodeOrder) -> str:
    """Return the session that an order is about; empty for a command."""
    if order.handler == messages.CLOSE:
        return str(order.value)
    kinds: dict[str, Any] = {
        messages.OPEN: messages.OpenProcesses,
        messages.RESUME: messages.ResumeProcesses,
        messages.DETOUR: messages.NoteDetour,
        messages.CONFIGURE: messages.ConfigureSession,
        messages.SPAWN: messages.SpawnProcesses,
        messages.KILL: messages.KillProcess,
    }
    kind = kinds.get(order.handler)
    return "" if kind is None else str(messages.from_value(order.value, kind).session)


def _done(value: Any) -> Future[Any]:
    made: Future[Any] = CallerFuture()
    made.set_result(value)
    return made


def _after(event: Future[None], function: Callable[[], Any]) -> Future[Any]:
    """Return what a function gives when something has happened, or why it cannot happen."""
    answer: Future[Any] = CallerFuture()

    def happened(found: Future[None]) -> None:
        if (error := found.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(function())

    when_done(event, happened)
    return answer


def _plain(value: msgspec.Struct) -> Any:
    return msgspec.to_builtins(value, builtin_types=(bytes,))


def _read(value: Any, kind: Any) -> Any:
    try:
        return typed.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"malformed call: {error}") from error


def _nothing() -> None:
    pass
