"""The control tree: the head at its root, and the daemon of a node at each leaf.

It is a session like any other, in which other sessions begin their processes: to the supervisor of
such a session a node is a starter (:class:`NodeProcesses`), as the zygote of its machine is.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import re
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, wait
from functools import partial
from threading import Lock, Semaphore
from typing import Any

import msgspec

from sapwood.comm import plain, values
from sapwood.comm.link_figures import LinkFigures
from sapwood.comm.transport.tls import TakeSocket
from sapwood.contexts import orders
from sapwood.contexts.launchers.base import Launcher
from sapwood.core.errors import (
    ClosedError,
    CommunicationError,
    ConfigurationError,
    NodeLostError,
    ProtocolError,
    SapwoodError,
    SecurityError,
)
from sapwood.core.futures import CallerFuture
from sapwood.core.hostset import fold_hosts
from sapwood.core.topology import ROOT, flat
from sapwood.environment.logs import logger
from sapwood.environment.settings import CacheSettings, NodeSettings
from sapwood.lifecycle import events as lev
from sapwood.lifecycle.processes import ProcessState
from sapwood.nodes import messages
from sapwood.nodes.control_link import RENEW_AFTER
from sapwood.nodes.daemon import COMPONENT_NAMES, DaemonOrder
from sapwood.nodes.fetched_libraries import FETCH_SECONDS, FetchedLibraries
from sapwood.nodes.joining import (
    JOIN_TIMEOUT,
    PATIENCE,
    JoinAnswer,
    JoinRequest,
    JoinServer,
    check_clock,
    check_facts,
    check_python,
)
from sapwood.nodes.node_facts import NodeFacts
from sapwood.nodes.note_event import NoteEvent, note_nothing
from sapwood.nodes.port import HeadPort, SessionRootPort
from sapwood.nodes.processes import SessionNodes, SessionOnNode
from sapwood.nodes.refusals import (
    Refusals,
    RefusedMachine,
    RefusedMachines,
    log_refusals,
)
from sapwood.nodes.starting import SEND_TIMEOUT, AwaitedDaemon, DaemonStarter, NodeTrouble
from sapwood.security.authority import (
    HEAD,
    Authority,
    make_request,
    new_cluster_id,
    places_id,
    valid_until,
)
from sapwood.security.credentials import Credentials
from sapwood.security.tokens import LIFETIME, JoinToken, TokenRecord, Tokens
from sapwood.session.embedded import DRAINING, EmbeddedSession
from sapwood.session.options import PlacesChanged, SessionOptions
from sapwood.session.port import NewAgent
from sapwood.session.requests import ServedRequest
from sapwood.session.shared_reactor import SharedReactor
from sapwood.session.starters import ProcessStarter
from sapwood.session.supervisor import NodeSource, ProcessSetup

SHORTEST_SEARCH = 10.0
"""Seconds for which a daemon that was cut off looks for the head at least, before it ends."""

LEAVE_TIMEOUT = 2.0
"""Seconds that a node may take to say that it leaves."""

MAX_REQUEST = 16 * 1024
"""Bytes of a certificate request; one of a P-256 key has 400."""

_NODE = re.compile(r"n[0-9]+(-[0-9]+){0,2}")
"""Names of nodes in certificates; those of heads and front ends have others."""

"""States of the place of a node that is not there, and for which no other daemon can come yet."""

MAX_TOKEN_USERS = 1000
"""Tokens of which the head remembers who used them."""

MAX_USERS = 16
"""Machines that it remembers of each, the last ones."""

MAX_NAME = 64
"""Characters of the name of a machine that was not let in."""


_log = logger("nodes")


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of a node.

    Attributes:
        host: Number of the machine, from 1.
        name: What the user calls it.
        node: Its node id; empty until it has joined.
        state: ``starting``, ``ready``, ``disconnected`` or ``lost``.
        facts: What it says of itself; None until it has joined.
        skew: Seconds by which its clock is ahead of the head's.
        trouble: Why it is not there; empty if it is.
        certificate_end: When its certificate ends, seconds since 1970; 0 before it has one.
        components: How its components are; None before it has said so.
        way: The launcher through which it reaches the head, such as ``ssh``; empty where it does
            so directly.
    """

    host: int
    name: str
    node: str
    state: str
    facts: NodeFacts | None
    skew: float
    trouble: str
    certificate_end: float = 0.0
    components: messages.NodeComponents | None = None
    way: str = ""

    @property
    def closed(self) -> str:
        """Why sessions cannot begin processes there though it is there; empty if they can."""
        return self.components.closed if self.components is not None else ""


class ControlTree:
    """A head with its nodes: nodes that a launcher starts, and machines that join.

    A machine that joins with a token of :meth:`create_token` gets a separate rank, which no other
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
        leads: Whether this head serves: otherwise it admits no node and sends no requests.

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
        self._authority = authority or Authority.create(new_cluster_id())
        self._tokens = tokens or Tokens(self._authority.pin, time.time)
        self._generation = generation
        self._denied = denied
        self._note = note
        self._note_refused = Refusals(self._tell_refusal)
        self._life = dt.timedelta(seconds=settings.certificate_life)
        self._credentials = self._issue()
        self._lock = Lock()
        self._facts: dict[int, tuple[str, NodeFacts, float]] = {}
        self._trouble: dict[int, str] = {}
        self._ways: dict[int, str] = {}
        self._sessions: dict[tuple[str, int], SessionOnNode] = {}
        self._started = False
        self._given_up: dict[int, str] = {}
        self._expected: dict[str, int] = {}  # incarnations, by the ids of tokens
        self._joined: dict[int, str] = {}  # names of nodes that joined with a token
        self._awaited: dict[int, int] = {}  # incarnations of those that may join, by their ranks
        self._certificate_ends: dict[int, float] = {}
        self._components: dict[int, messages.NodeComponents] = {}
        self._components_listeners: list[Callable[[int, bool], None]] = []
        self._broken: set[int] = set()  # nodes whose links have no connection now
        self._link_listeners: list[Callable[[int, str], None]] = []
        self._signs = True
        self.leads: Callable[[], bool] = lambda: True
        self.server_starts: Callable[[str], bool] = lambda _session: False
        self._restart = options.restart
        self._answered: dict[int, int] = {}  # incarnations of those that were let in
        self._refusals = RefusedMachines()
        self._token_users: dict[str, deque[str]] = {}
        self._port: HeadPort | None = None
        self._loop_later: Callable[..., object] = _not_yet
        self._loop_soon: Callable[..., object] = _not_yet
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

    def _issue(self) -> Credentials:
        key, request = make_request()
        return self._authority.issue(request, HEAD, key, self._life)

    @property
    def credentials(self) -> Credentials:
        """What the head shows."""
        return self._credentials

    # --- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all nodes and wait until they have joined."""
        self.session.answer(messages.REPORT, self._reported)
        self.session.requests.serve(messages.RENEW, self._renew_node)
        self.session.requests.serve(messages.CERTIFY_PLACES, self._certify_places)
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
        with self._lock:
            facts, trouble = dict(self._facts), dict(self._trouble)
            ends, ways = dict(self._certificate_ends), dict(self._ways)
            components, broken = dict(self._components), set(self._broken)
        found: list[NodeView] = []
        for place in self.session.places():
            node, said, skew = facts.get(place.rank, ("", None, 0.0))
            cut_off = place.is_ready and place.rank in broken
            found.append(
                NodeView(
                    host=place.rank,
                    name=self.name_of(place.rank),
                    node=node,
                    state=ProcessState.DISCONNECTED.shown if cut_off else place.state.shown,
                    facts=said,
                    skew=skew,
                    trouble="" if place.is_ready else trouble.get(place.rank, ""),
                    certificate_end=ends.get(place.rank, 0.0),
                    components=components.get(place.rank),
                    way=ways.get(place.rank, ""),
                )
            )
        return found

    @property
    def refusals(self) -> list[RefusedMachine]:
        """Those who were not let in, the last ones; from any thread."""
        with self._lock:
            return list(self._refusals)

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

    def facts_of(self, host: int) -> NodeFacts | None:
        """Return what a node says of itself; None until it has joined."""
        with self._lock:
            _, facts, _ = self._facts.get(host, ("", None, 0.0))
        return facts

    def name_of(self, host: int) -> str:
        """Return what users call a node."""
        with self._lock:
            joined = self._joined.get(host)
        if joined is not None:
            return joined
        return self.hosts[host - 1] if 0 < host <= len(self.hosts) else f"node {host}"

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
        return self._tokens.create(uses=uses, lifetime=lifetime, names=names, slot=host)

    @property
    def tokens(self) -> list[TokenRecord]:
        """The tokens that can be used, but for those of daemons on their way; from any thread."""
        tokens = self._tokens.list()
        with self._lock:
            return [one for one in tokens if one.id not in self._expected]

    @property
    def cluster(self) -> str:
        """Name of the cluster in certificates."""
        return self._authority.cluster

    def revoke_token(self, token_id: str) -> bool:
        """Revoke a join token; return whether it existed."""
        return self._tokens.revoke(token_id)

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
        with self._lock:
            return self._missing_error() if self._trouble else error

    def _missing_error(self) -> NodeLostError:
        """Return an error that names the machines that did not come; with the lock held."""
        trouble = self._trouble
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

    @property
    def signs(self) -> bool:
        """Whether it lets machines join and gives certificates."""
        return self._signs

    @signs.setter
    def signs(self, value: bool) -> None:
        self._signs = value

    def _check_signs(self) -> None:
        """Refuse to sign a certificate while the authority is stopped.

        Raises:
            CommunicationError: It is: whoever asked may ask again.
        """
        self._check_leads()
        if not self._signs:
            raise CommunicationError(
                "the authority of the cluster is stopped",
                hint="`sapwood node start authority --node head` on the head's machine starts it",
            )

    def _check_leads(self) -> None:
        """Refuse to do what another head may do by now.

        Raises:
            CommunicationError: This one does not serve.
        """
        if not self.leads():
            raise CommunicationError(
                "this head does not serve", hint="try again: another one does, or will"
            )

    def _note_components(self, question: ServedRequest) -> None:
        """Take in how the components of a node are; on the loop of the tree."""
        host = question.asked.source
        told = messages.from_value(question.value(), messages.NodeComponents)
        with self._lock:
            before = self._components.get(host)
            self._components[host] = told
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

    def certify(self, request: bytes, name: str, seconds: float = math.inf) -> Credentials:
        """Return the TLS credentials of a client that is not a node, without a key.

        Args:
            request: The request for a certificate, PEM.
            name: What it is called, a DNS label.
            seconds: How long they are valid at most.

        Raises:
            SecurityError: The request is malformed.
            CommunicationError: The authority is stopped.
        """
        self._check_signs()
        life = min(seconds, self._life.total_seconds())
        return self._authority.issue(request, name, b"", dt.timedelta(seconds=life))

    def certify_server(self, request: bytes, name: str, hosts: Sequence[str]) -> Credentials:
        """Return the credentials of a server that browsers and scripts reach, without a key.

        Args:
            request: The request for a certificate, PEM.
            name: What it is called, a DNS label.
            hosts: Names and addresses under which it is reached.

        Raises:
            SecurityError: The request is malformed.
            CommunicationError: The authority is stopped.
        """
        self._check_signs()
        return Credentials(
            node=self._authority.node_id(name),
            certificate=self._authority.sign_server(request, name, hosts, self._life),
            key=b"",
            authority=self._authority.certificate,
        )

    @property
    def authority(self) -> bytes:
        """The certificate of the cluster's authority, PEM."""
        return self._authority.certificate

    @property
    def pin(self) -> str:
        """The pin of that authority."""
        return self._authority.pin

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
        self._loop_later = loop.call_later
        self._loop_soon = loop.call_soon_threadsafe
        port = self._port = HeadPort(
            self._settings.listen, loop, self.credentials, self._not_let_in
        )
        self._loop_later(self._life.total_seconds() * RENEW_AFTER, self._renew)
        port.serve_joining(JoinServer(self._authority.certificate, self._admit, loop))
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
            return AwaitedDaemon(self._expect, on_report)
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

    def _renew(self) -> None:
        """Show another certificate from now on: this one ends soon."""
        again = self._life.total_seconds() * RENEW_AFTER
        self._loop_later(again, self._renew)  # first: also after a time that fails
        self._credentials = self._issue()
        if self._port is not None:
            self._port.renew(self._credentials)

    def _renew_node(self, question: ServedRequest) -> None:
        """Give a node another certificate over its link, which says who it is."""
        with self._lock:
            node, _, _ = self._facts.get(question.asked.source, ("", None, 0.0))
        with question.answered_with_errors():
            self._check_signs()
            if not node or self._denied(node):
                raise SecurityError("this node gets no certificate")
            name = node.partition(".")[0]
            certificate = self._authority.sign(_request_in(question), name, self._life)
            with self._lock:
                self._certificate_ends[question.asked.source] = valid_until(certificate)
            self._note(
                "certificate.renewed",
                "renewed the certificate",
                node=self.name_of(question.asked.source),
                facts={"until": f"{valid_until(certificate):.0f}"},
            )
            question.give(certificate, None)

    def _certify_places(self, question: ServedRequest) -> None:
        """Give places on a node that run as another user a separate certificate."""
        with self._lock:
            node, _, _ = self._facts.get(question.asked.source, ("", None, 0.0))
        with question.answered_with_errors():
            self._check_signs()
            if not node or self._denied(node):
                raise SecurityError("this node gets no certificate")
            name = places_id(node.partition(".")[0])
            question.give(self._authority.sign(_request_in(question), name, self._life), None)

    def shown_by_places(self, node: str) -> str:
        """Return the id that places on a node show: they run as its daemon."""
        return node

    def _expect(self, spec: orders.ProcessSpec) -> None:
        with self._lock:
            self._awaited[spec.rank] = spec.incarnation

    def _order(self, rank: int, incarnation: int) -> DaemonOrder:
        """Return the configuration of the daemon of a place; called on its starting thread."""
        token = self._tokens.create(slot=rank)
        with self._lock:
            self._expected[token.id] = incarnation
        return DaemonOrder(token.text, list(self.places))

    @property
    def places(self) -> tuple[str, ...]:
        """Where machines that join reach the head, ``host:port`` each."""
        return () if self._port is None else self._port.places

    def _admit(self, request: JoinRequest, peer: str, address: str) -> JoinAnswer:
        """Let a machine become a node, or say why not, and remember that."""
        try:
            answer = self._admitted(request, peer)
        except CommunicationError:
            raise  # it will come again
        except SapwoodError as error:
            reason = error.what
            with self._lock:
                users = list(self._token_users.get(_id_of(request.token), ()))
            if users:
                reason += f"; it let in {fold_hosts(users)}"
            name = _printable(request.facts.name)
            self._note_refusal(
                RefusedMachine(time=time.time(), name=name, address=address, reason=reason)
            )
            raise
        self._note(
            "node.joined" if request.token else "node.back",
            "joined" if request.token else "reconnected with its certificate",
            node=self.name_of(answer.rank),
            facts={"address": address, "id": answer.node, "user": request.facts.user},
        )
        return answer

    def _not_let_in(self, address: str, reason: str) -> None:
        """Record a peer that failed before it sent a request; on the loop's thread."""
        self._note_refusal(RefusedMachine(time=time.time(), address=address, reason=reason))

    def _note_refusal(self, refusal: RefusedMachine) -> None:
        log_refusals(refusal.name or refusal.address, refusal.reason)
        self._note_refused(refusal.address, f"{refusal.name}\0{refusal.reason}")
        with self._lock:
            self._refusals.add(refusal)

    def _tell_refusal(self, address: str, what: str, left_out: int) -> None:
        """Log refused machines, rate-limited, because unauthenticated peers cause them."""
        name, _, reason = what.partition("\0")
        facts = {"address": address} | ({"name": name} if name else {})
        if left_out:
            facts["others"] = str(left_out)
        self._note("machine.refused", reason, facts=facts)

    def _admitted(self, request: JoinRequest, peer: str) -> JoinAnswer:
        self._check_signs()
        check_facts(request.facts)
        check_python(request.facts.python)
        spare = self._life.total_seconds() * (1.0 - RENEW_AFTER)  # what each certificate has left
        check_clock(request.facts.clock - time.time(), spare)
        if request.token:
            rank, incarnation, name = self._by_token(request)
            certificate = self._authority.sign(request.request, name, self._life)
        else:
            # It has the same id for ever: to deny that is to deny all certificates that it got.
            name = peer.partition(".")[0]
            self._must_be_node(peer)  # first: a signature costs time, and strangers get none
            certificate = self._authority.sign(request.request, name, self._life)
            rank, incarnation = self._by_certificate(request, peer)
        with self._lock:
            skew = request.facts.clock - time.time()
            node = self._authority.node_id(name)
            self._facts[rank] = (node, request.facts, skew)
            self._certificate_ends[rank] = valid_until(certificate)
            self._answered[rank] = incarnation
            self._trouble.pop(rank, None)
            decided = self._is_decided()
        if decided:
            self._decide()
        configuration = self.session.host.configuration_of(rank)
        return JoinAnswer(
            node,
            certificate,
            rank,
            incarnation,
            configuration,
            self.name_of(rank),
            self._restart,
            list(dict.fromkeys(self._settings.components)),
            self._settings.stage_folder,
            self._settings.stage_limit,
        )

    def _by_token(self, request: JoinRequest) -> tuple[int, int, str]:
        """Return place, incarnation and name in certificates of a machine that has a token."""
        token = JoinToken.parse(request.token)
        checked = self._tokens.check(token, request.facts.name)
        former = 0 if checked.slot else self._place_of_lost(request.facts.name)
        record = self._tokens.redeem(token, request.facts.name)
        with self._lock:
            users = self._token_users.setdefault(token.id, deque(maxlen=MAX_USERS))
            users.append(_printable(request.facts.name))
            if len(self._token_users) > MAX_TOKEN_USERS:
                del self._token_users[next(iter(self._token_users))]
            launched = self._expected.pop(token.id, 0)
        rank = record.slot or former or self._add_node(request.facts.name)
        with self._lock:
            incarnation = launched or self._awaited.pop(rank, 0)
        if not incarnation:
            raise SecurityError(
                f"the join token is for the node {rank}, which is there or was removed",
                hint="make a token for a new node",
            )
        name = f"n{rank}-{self._generation}" if self._generation else f"n{rank}"
        if former:  # the former daemon may only be cut off, and keeps its own certificate
            name = f"n{rank}-{self._generation}-{incarnation}"
        return rank, incarnation, name

    def _place_of_lost(self, name: str) -> int:
        """Return the place of a lost node, which a machine takes that joins by its name.

        Returns:
            0 if no node of that name is lost.

        Raises:
            CommunicationError: The node of that name has no connection, but may come back.
        """
        with self._lock:
            mine = [one for one, known in self._joined.items() if known == name]
            known = [one for one in mine if one in self.session.tree]
            if not known:
                return 0
            if known[0] in self._awaited:
                return known[0]
            given_up, broken = known[0] in self._given_up, known[0] in self._broken
        if given_up:
            self._remove_given_up(known)
        elif broken or self.session.supervisor.processes[known[0]].may_come_back:
            raise CommunicationError(f"the node '{name}' is not known to be gone yet")
        return 0

    def _remove_given_up(self, known: Sequence[int]) -> None:
        """Remove a node whose place was lost too often: it is there, and gets another place."""
        self.session.begin_contract(known)
        self.session.host.contract(known, "it came again, and has another place")

    def _must_be_node(self, peer: str) -> None:
        """Raise SecurityError unless a certificate is one of a node that may come again."""
        if _NODE.fullmatch(peer.partition(".")[0]) is None:
            raise SecurityError("a machine that was never here needs a join token")
        if self._denied(peer):
            raise SecurityError("the node was removed", hint="join with a new token")

    def _by_certificate(self, request: JoinRequest, peer: str) -> tuple[int, int]:
        """Return place and incarnation of a node that comes again."""
        with self._lock:
            known = [rank for rank, (node, _, _) in self._facts.items() if node == peer]
            incarnation = self._awaited.pop(known[0], 0) if known else 0
            given_up = bool(known) and known[0] in self._given_up
        if incarnation:
            return known[0], incarnation
        if known and not given_up:
            with self._lock:
                answered = self._answered.get(known[0], 0)
            # That it was let in may have got lost on its way.
            self.session.supervisor.post(lev.Restart(known[0], answered, "its node asks again"))
            raise CommunicationError("the node is not known to be gone yet")
        if given_up:
            self._remove_given_up(known)
        rank = self._add_node(request.facts.name)
        with self._lock:
            return rank, self._awaited.pop(rank)

    def _is_decided(self) -> bool:
        """Whether each machine has joined or failed, and some have failed; with the lock held."""
        known = self._facts.keys() | self._trouble.keys()
        return not self._started and bool(self._trouble) and len(known) == len(self.hosts)

    def _decide(self) -> None:
        """Go on without machines that did not come, or give up; on the loop of the tree."""
        with self._lock:
            missing = sorted(self._trouble.keys() & set(self.session.tree.agent_ranks))
            there = bool(self._facts)
            error = self._missing_error()
        if self._settings.missing == "wait" or not missing:
            return
        if self._settings.missing == "fail" or not there:
            self.session.supervisor.post(lev.GiveUp(error))
            return
        _log.warning(error.what, nodes=error.where)
        self.session.begin_contract(missing)
        self.session.host.contract(missing, "it did not come")

    def _add_node(self, name: str) -> int:
        """Give a joining machine a new place; return its rank."""
        host = self.session.tree.size
        with self._lock:
            here = {name for rank, name in self._joined.items() if rank in self.session.tree}
            taken = {*self.hosts, *here}
            self._joined[host] = name if name not in taken else f"{name}-{host}"
        (rank,) = self.session.host.expand([NewAgent(ROOT, host)])
        _log.info("node admitted", host=self.name_of(rank), rank=rank)
        self._loop_later(JOIN_TIMEOUT + PATIENCE, self._forget_absent, rank)
        return rank

    def _forget_absent(self, rank: int) -> None:
        """Remove a node that was let in and did not take its place."""
        record = self.session.supervisor.processes[rank]
        if record.is_new and rank in self.session.tree:
            self.session.begin_contract([rank])
            self.session.host.contract([rank], "it joined and did not take its place")

    def _note_way(self, host: int, way: str) -> None:
        """Note how a node reaches the head."""
        with self._lock:
            self._ways[host] = way

    def _note_trouble(self, host: int, trouble: NodeTrouble) -> bool:
        """Note why a node is not there; say whether to try again."""
        with self._lock:
            self._trouble[host] = trouble.reason
            started = self._started
            decided = self._is_decided()
            loop_soon = self._loop_soon
        (_log.warning if started else _log.info)(
            "node trouble", host=trouble.host, reason=trouble.reason
        )
        if decided:  # all others are there, or have failed as well
            with contextlib.suppress(ClosedError):
                loop_soon(self._decide)
        return started or self._settings.missing == "wait"

    def _reported(self, rank: int, value: Any) -> None:
        report = messages.from_value(value, messages.ProcessesReported)
        with self._lock:
            session = self._sessions.get((report.session, rank))
        if session is not None:
            session.heard(report)

    def _link_changed(self, host: int, reason: str) -> None:
        with self._lock:
            (self._broken.add if reason else self._broken.discard)(host)
        for listener in self._link_listeners:
            listener(host, reason)

    def _places_changed(self, change: PlacesChanged) -> None:
        with self._lock:
            self._broken.difference_update(change.ranks)
        if change.disconnected:
            return
        with self._lock:
            affected = [one for one in self._sessions.values() if one.host in change.ranks]
            if not change.back and not change.added:  # a new daemon says how its own are
                for rank in change.ranks:
                    self._components.pop(rank, None)
            if change.for_good:
                self._given_up |= dict.fromkeys(change.ranks, change.reason)
            if change.removed:
                for rank in change.ranks:
                    for known in (
                        self._facts,
                        self._trouble,
                        self._awaited,
                        self._answered,
                        self._certificate_ends,
                        self._ways,
                    ):
                        known.pop(rank, None)
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
        self._check_leads()
        body = plain.check_body(plain.encode(value))
        return self.session.ask_encoded(host, handler, body, values.Encoded(body, [], [], 0))

    def is_ready(self, host: int) -> bool:
        """Whether processes of sessions can begin on a node."""
        with self._lock:
            told = self._components.get(host)
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
        with self._lock:
            return self._given_up.get(host, "")


def _id_of(token: str) -> str:
    """Return which token a text is, as far as that can be read."""
    return "".join(token.split(".")[1:2])


def _printable(name: str) -> str:
    """Return a name that a stranger gave itself, fit for a terminal."""
    return "".join(one if one.isprintable() else "?" for one in name[:MAX_NAME])


def _not_yet(*_args: object) -> None:
    """Refuse to admit nodes before the port is open."""


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


def _request_in(question: ServedRequest) -> bytes:
    """Return the certificate request that a node sends.

    Raises:
        ProtocolError: It sends something else.
    """
    value = question.value()
    if not isinstance(value, bytes) or len(value) > MAX_REQUEST:
        raise ProtocolError(
            f"this is not a certificate request of at most {MAX_REQUEST} bytes",
            where=f"rank {question.asked.source}",
        )
    return value
