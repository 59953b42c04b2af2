"""The control tree: the head at its root, and the daemon of a node at each leaf.

It is a session like any other, in which other sessions begin their processes: to the supervisor of
such a session a node is a starter (:class:`NodeProcesses`), as the zygote of its own machine is.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from threading import Lock, Semaphore
from typing import Any

import msgspec

from sapwood.comm.link_figures import LinkFigures
from sapwood.comm.transport.tls import TakeSocket
from sapwood.contexts import orders
from sapwood.contexts.launchers.base import Launcher
from sapwood.core.errors import (
    ClosedError,
    CommunicationError,
    NodeLostError,
    SapwoodError,
    SecurityError,
)
from sapwood.core.hostset import fold_hosts
from sapwood.core.topology import ROOT, flat
from sapwood.environment.logs import logger
from sapwood.environment.settings import NodeSettings
from sapwood.nodes import messages
from sapwood.nodes.daemon import RENEW_AFTER, DaemonOrder
from sapwood.nodes.joining import (
    JOIN_TIMEOUT,
    PATIENCE,
    JoinAnswer,
    JoinRequest,
    JoinServer,
    NodeFacts,
    check_facts,
)
from sapwood.nodes.port import HeadPort, SessionRootPort, log_refusals
from sapwood.nodes.processes import SessionNodes, SessionOnNode
from sapwood.nodes.starting import SEND_TIMEOUT, AwaitedDaemon, DaemonStarter, NodeTrouble
from sapwood.security.authority import (
    HEAD,
    Authority,
    make_request,
    new_cluster_id,
    valid_until,
)
from sapwood.security.credentials import Credentials
from sapwood.security.tokens import LIFETIME, JoinToken, TokenRecord, Tokens
from sapwood.session.embedded import DRAINING, EmbeddedSession
from sapwood.session.options import PlacesChanged, SessionOptions
from sapwood.session.port import NewAgent
from sapwood.session.requests import ServedRequest
from sapwood.session.shared_reactor import SharedReactor
from sapwood.session.supervisor import NodeSource, ProcessSetup, ProcessStarter

LEAVE_TIMEOUT = 2.0
"""Seconds that a node may take to say that it leaves."""

_NODE = re.compile(r"n[0-9]+(-[0-9]+)?")
"""Names of nodes in certificates; those of heads and front ends have others."""

MAX_REFUSALS = 100
"""Machines that were not let in, the last ones, that the head remembers."""

MAX_TOKEN_USERS = 1000
"""Tokens of which the head remembers who used them."""

MAX_USERS = 16
"""Machines that it remembers of each, the last ones."""

MAX_NAME = 64
"""Characters of the name of a machine that was not let in."""

_log = logger("nodes")


class RefusedMachine(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody was not let in.

    Attributes:
        time: When, seconds since 1970.
        name: What it calls itself; empty if it did not come so far.
        address: Where it is; empty if that is not known.
        reason: Why.
    """

    time: float
    name: str = ""
    address: str = ""
    reason: str


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
        certificate_end: When its certificate ends, seconds since 1970; 0 before it has one.
    """

    host: int
    name: str
    node: str
    state: str
    facts: NodeFacts | None
    skew: float
    trouble: str
    certificate_end: float = 0.0


class ControlTree:
    """A head with its nodes: those that a launcher starts, and those that join by themselves.

    A machine that joins with a token of :meth:`create_token` gets a rank of its own, which no other
    machine ever has. :meth:`remove_node` lets a node go for good.

    Args:
        launcher: What starts daemons; None for a head that waits for machines to join.
        options: How the control tree is made; its tree is replaced.
        settings: How machines become nodes.
        authority: Of a cluster that was there before; without one it is a new one.
        tokens: Those by which machines may join it.
        generation: Which head of that authority this is; 0 if there is no other. It tells the
            nodes of one from those of another.
        denied: Says whether a node id may not come again.

    Raises (from :meth:`start`):
        NodeLostError: Nodes did not come; the error says which and why.
    """

    def __init__(
        self,
        launcher: Launcher | None,
        options: SessionOptions,
        settings: NodeSettings,
        authority: Authority | None = None,
        tokens: Tokens | None = None,
        generation: int = 0,
        denied: Callable[[str], bool] = lambda _node: False,
    ) -> None:
        self.launcher = launcher
        self.hosts = tuple(launcher.hosts) if launcher is not None else ()
        self._settings = settings
        self._gate = Semaphore(launcher.concurrency if launcher is not None else 1)
        self._authority = authority or Authority.create(new_cluster_id())
        self._tokens = tokens or Tokens(self._authority.pin, time.time)
        self._generation = generation
        self._denied = denied
        self._life = dt.timedelta(seconds=settings.certificate_life)
        self._credentials = self._issue()
        self._lock = Lock()
        self._facts: dict[int, tuple[str, NodeFacts, float]] = {}
        self._trouble: dict[int, str] = {}
        self._sessions: dict[tuple[str, int], SessionOnNode] = {}
        self._started = False
        self._given_up: dict[int, str] = {}
        self._expected: dict[str, int] = {}  # incarnations, by the ids of tokens
        self._joined: dict[int, str] = {}  # names of those that somebody else started
        self._awaited: dict[int, int] = {}  # incarnations of those that may join, by their ranks
        self._certificate_ends: dict[int, float] = {}
        self._refusals: deque[RefusedMachine] = deque(maxlen=MAX_REFUSALS)
        self._token_users: dict[str, deque[str]] = {}
        self._port: HeadPort | None = None
        self._loop_later: Callable[..., object] = _not_yet
        self._loop_soon: Callable[..., object] = _not_yet
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
                attach_timeout=settings.loss_timeout / 2,  # for each of two levels
            ),
            nodes=_Daemons(self),
        )

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
            ends = dict(self._certificate_ends)
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
                    certificate_end=ends.get(place.rank, 0.0),
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
        found: Future[dict[int, LinkFigures]] = Future()

        def look() -> None:
            try:
                found.set_result({one.rank: one for one in self.session.host.place.figures()})
            except Exception as error:  # noqa: BLE001 - handed to the caller
                found.set_exception(error)

        self.session.on_loop(look)
        return found

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
        with self._lock:
            return self._tokens.create(uses=uses, lifetime=lifetime, names=names, slot=host)

    @property
    def tokens(self) -> list[TokenRecord]:
        """The tokens that can be used, but for those of daemons on their way; from any thread."""
        with self._lock:
            return [one for one in self._tokens.list() if one.id not in self._expected]

    @property
    def authority(self) -> bytes:
        """Certificate of the cluster's authority, PEM."""
        return self._authority.certificate

    @property
    def cluster(self) -> str:
        """Name of the cluster in certificates."""
        return self._authority.cluster

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
        with contextlib.suppress(SapwoodError, TimeoutError):  # it may be gone already
            self.ask(host, messages.LEAVE, reason).result(LEAVE_TIMEOUT)
        self.session.contract([host], seconds, reason)

    def dismiss(self, reason: str) -> None:
        """Let all nodes end that nobody here has started: the cluster ends."""
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

    def certify(self, request: bytes, name: str) -> Credentials:
        """Return the credentials of somebody who is no node, without a key.

        Args:
            request: The request for a certificate, PEM.
            name: What it is called, a DNS label.

        Raises:
            SecurityError: The request is malformed.
        """
        return self._authority.issue(request, name, b"", self._life)

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
        return port

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

    def _renew(self) -> None:
        """Show another certificate from now on: this one ends soon."""
        self._credentials = self._issue()
        if self._port is not None:
            self._port.renew(self._credentials)
        self._loop_later(self._life.total_seconds() * RENEW_AFTER, self._renew)

    def _renew_node(self, question: ServedRequest) -> None:
        """Give a node another certificate over its link, which says who it is."""
        with self._lock:
            node, _, _ = self._facts.get(question.asked.source, ("", None, 0.0))
        try:
            if not node or self._denied(node):
                raise SecurityError("this node gets no certificate")
            name = node.partition(".")[0]
            certificate = self._authority.sign(bytes(question.value()), name, self._life)
            with self._lock:
                self._certificate_ends[question.asked.source] = valid_until(certificate)
            question.give(certificate, None)
        except SecurityError as error:
            question.fail(error)

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
        return () if self._port is None else self._port.places

    def _admit(self, request: JoinRequest, peer: str) -> JoinAnswer:
        """Let a machine become a node, or say why not, and remember that."""
        try:
            return self._admitted(request, peer)
        except CommunicationError:
            raise  # it will come again
        except SapwoodError as error:
            reason = error.what
            with self._lock:
                users = list(self._token_users.get(_id_of(request.token), ()))
            if users:
                reason += f"; it let in {fold_hosts(users)}"
            name = _printable(request.facts.name)
            self._note_refusal(RefusedMachine(time=time.time(), name=name, reason=reason))
            raise

    def _not_let_in(self, address: str, reason: str) -> None:
        """Somebody did not get as far as to say what it wants; on the loop's thread."""
        self._note_refusal(RefusedMachine(time=time.time(), address=address, reason=reason))

    def _note_refusal(self, refusal: RefusedMachine) -> None:
        log_refusals(refusal.name or refusal.address, refusal.reason)
        with self._lock:
            self._refusals.append(refusal)

    def _admitted(self, request: JoinRequest, peer: str) -> JoinAnswer:
        check_facts(request.facts)
        if request.token:
            rank, incarnation = self._by_token(request)
            name = f"n{rank}-{self._generation}" if self._generation else f"n{rank}"
            certificate = self._authority.sign(request.request, name, self._life)
        else:
            # It has the same id for ever: to deny that is to deny all certificates that it got.
            name = peer.partition(".")[0]
            certificate = self._authority.sign(request.request, name, self._life)
            rank, incarnation = self._by_certificate(request, peer)
        with self._lock:
            skew = request.facts.clock - time.time()
            node = self._authority.node_id(name)
            self._facts[rank] = (node, request.facts, skew)
            self._certificate_ends[rank] = valid_until(certificate)
            self._trouble.pop(rank, None)
            decided = self._is_decided()
        if decided:
            self._decide()
        configuration = self.session.host.configuration_of(rank)
        return JoinAnswer(node, certificate, rank, incarnation, configuration, self.name_of(rank))

    def _by_token(self, request: JoinRequest) -> tuple[int, int]:
        """Return place and incarnation of a machine that has a token."""
        token = JoinToken.parse(request.token)
        with self._lock:
            record = self._tokens.redeem(token, request.facts.name)
            users = self._token_users.setdefault(token.id, deque(maxlen=MAX_USERS))
            users.append(_printable(request.facts.name))
            if len(self._token_users) > MAX_TOKEN_USERS:
                del self._token_users[next(iter(self._token_users))]
            launched = self._expected.pop(token.id, 0)
        rank = record.slot or self._add_node(request.facts.name)
        with self._lock:
            incarnation = launched or self._awaited.pop(rank, 0)
        if not incarnation:
            raise SecurityError(
                f"the join token is for the node {rank}, which is there or was removed",
                hint="make a token for a new node",
            )
        return rank, incarnation

    def _by_certificate(self, request: JoinRequest, peer: str) -> tuple[int, int]:
        """Return place and incarnation of a node that comes again."""
        if _NODE.fullmatch(peer.partition(".")[0]) is None:
            raise SecurityError("a machine that was never here needs a join token")
        if self._denied(peer):
            raise SecurityError("the node was removed", hint="join with a new token")
        with self._lock:
            known = [rank for rank, (node, _, _) in self._facts.items() if node == peer]
            if known:
                incarnation = self._awaited.pop(known[0], 0)
                if not incarnation:
                    raise CommunicationError("the node is not known to be gone yet")
                return known[0], incarnation
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
            self.session.supervisor.give_up(error)
            return
        _log.warning(error.what, nodes=error.where)
        self.session.begin_contract(missing)
        self.session.host.contract(missing, "it did not come")

    def _add_node(self, name: str) -> int:
        """Give a machine that joins a place of its own; return its rank."""
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
        record = self.session.supervisor.places[rank]
        if record.is_new and rank in self.session.tree:
            self.session.begin_contract([rank])
            self.session.host.contract([rank], "it joined and did not take its place")

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

    def _places_changed(self, change: PlacesChanged) -> None:
        if change.disconnected:
            return
        with self._lock:
            affected = [one for one in self._sessions.values() if one.host in change.ranks]
            if change.for_good:
                self._given_up |= dict.fromkeys(change.ranks, change.reason)
            if change.removed:
                for rank in change.ranks:
                    for known in (
                        self._facts,
                        self._trouble,
                        self._awaited,
                        self._certificate_ends,
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
        """Send a request to the daemon of a node."""
        return self.session.ask(host, handler, value)

    def is_ready(self, host: int) -> bool:
        """Whether a node is there."""
        return self.session.places([host])[0].is_ready

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
    """Nobody joins before there is a port."""


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

    def ready_hosts(self) -> list[int]:
        """Return nothing: a daemon begins on no other machine than its own."""
        return []

    def close(self) -> None:
        """Do nothing: the daemons end with the channels of the launcher."""
