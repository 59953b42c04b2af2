"""A client's way to the nodes of a head: what a control tree is in one's own process."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import msgspec

from sapwood.core import typed
from sapwood.core.errors import (
    ClosedError,
    CommunicationError,
    ProtocolError,
    SapwoodError,
    SecurityError,
)
from sapwood.core.failures import as_error, start_thread
from sapwood.core.futures import when_done
from sapwood.core.hints import DEFAULT_CLUSTER, command
from sapwood.core.hostset import expand_hosts, fold_hosts
from sapwood.environment.logs import logger
from sapwood.head import calls
from sapwood.head.folder import find_head
from sapwood.head.parts.cluster import HeadFacts, WholeCluster
from sapwood.head.parts.credentials import IssuedCredentials
from sapwood.head.parts.links import Links
from sapwood.head.parts.nodes import Nodes
from sapwood.head.parts.orders import Orders
from sapwood.head.parts.rates import RunRates
from sapwood.head.parts.runs import RunEnded, Runs
from sapwood.head.parts.sessions import Sessions
from sapwood.head.reserved import refused
from sapwood.head_client.connection import CALL_TIMEOUT, ServiceClient
from sapwood.head_client.handed_connections import HandedConnections
from sapwood.head_client.numbers import NodeNumbers
from sapwood.head_client.remote import SCHEME, TlsWay, show, way_to
from sapwood.nodes import messages
from sapwood.nodes.control_link import RENEW_AFTER, RENEW_PAUSE
from sapwood.nodes.port import HeadPort, SessionRootPort, interface_of
from sapwood.nodes.processes import SessionNodes, SessionOnNode
from sapwood.security.authority import make_request, places_id, valid_until
from sapwood.security.capabilities import Capability, HolderKey
from sapwood.security.credentials import Credentials
from sapwood.security.denials import Denials, DenialUpdate
from sapwood.security.rights import RUN
from sapwood.session.shared_reactor import SharedReactor
from sapwood.session.supervisor import NodeSource, TreePort

LOOK_PAUSE, MAX_LOOK_PAUSE = 0.1, 2.0
"""Seconds between two looks for a head that was killed: the first pause, and the longest."""

MAX_LOOK_PAUSE_OF_SEVERAL = 0.5
"""The longest where another head may serve at any moment."""

SILENCE = 2.0
"""Seconds between two looks whether a head answers that another one may take over from: as long
as it may take for that."""

_MISSING = frozenset({"disconnected", "lost", "closed"})
"""States of nodes that belong to the cluster and cannot be used at present."""

_log = logger("head")


class HeadAccess:
    """A connection to the head of a cluster, through which sessions use its nodes.

    When the head is killed, sessions continue, and orders wait. When it was started again, this
    connects to it, and the sessions have their nodes back.

    Args:
        name: What the user calls the cluster, or ``sapwood://host:port`` for a head on another
            machine, which wants to see a credential.
        credential: What this side may do; None for all, at a head of one's own on this machine.
        holder: The key of its holder, if the credential names one.
        listen: Where this side listens for the nodes of its sessions, if the head is elsewhere.
        session: The id of the session whose root this side is, if it is one: it acts with the
            rights of whoever made that.

    Attributes:
        rights: What this side may do; None for all.
        denials: The credentials that were revoked; kept up to date.

    Raises:
        NodeLostError: No head runs on this machine.
        CommunicationError: It does not answer.
        SecurityError: It is another head, or refuses the credential.
    """

    def __init__(
        self,
        name: str = DEFAULT_CLUSTER,
        credential: Capability | None = None,
        holder: HolderKey | None = None,
        listen: str = "0.0.0.0:0",
        session: str = "",
    ) -> None:
        self._name = name
        self._credential = credential
        self._holder = holder
        self._listen = listen
        self._session = session
        self._is_remote = name.startswith(SCHEME)
        self._ports: list[tuple[SharedReactor, HeadPort]] = []
        self.denials = Denials()
        self.rights: calls.RightsFacts | None = None
        self._lock = threading.Lock()
        self._records: dict[int, calls.NodeRecord] = {}
        self._given_up: dict[int, str] = {}
        self._sessions: dict[tuple[str, int], SessionOnNode] = {}
        self._listeners: list[Callable[[str, Any], None]] = []
        self._handed = HandedConnections(lambda: self.client)
        self._credentials: Credentials | None = None
        self._over = ""
        self._away = ""
        self._numbers = NodeNumbers()
        self._closed = threading.Event()
        self._connection = -1  # of those that are in use
        self._heads: list[str] = []
        self.client, self.facts = self._connected(0)
        self._connection = 0
        self._heads = self.facts.heads
        if self.client.is_over:
            self._head_gone(0, "the connection was closed")
        self._plan_look()

    def _connected(self, number: int) -> tuple[ServiceClient, HeadFacts]:
        """Connect to the head that is there now; connections are counted."""
        way, where, hint = way_to(self._name, self._credential, self._heads)
        try:
            client = ServiceClient(way, self._noticed, partial(self._head_gone, number))
        except CommunicationError as error:
            raise CommunicationError(
                f"the head of the cluster '{self._name}' does not answer", where=where, hint=hint
            ) from error
        try:
            if self._credential is not None:
                far = way if isinstance(way, TlsWay) else None
                self.rights = show(client, self._credential, self._holder, far, CALL_TIMEOUT)
            if self._session:
                self.rights = client.call_within(CALL_TIMEOUT, Sessions.act_for, self._session)
            facts = client.call_within(CALL_TIMEOUT, WholeCluster.facts)
            if number:
                with self._lock:
                    self._numbers.begin()
                    self._records.clear()
            self._take_nodes(client.call_within(CALL_TIMEOUT, Nodes.every))
            self.denials.take(client.call_within(CALL_TIMEOUT, IssuedCredentials.denials))
        except BaseException:
            client.close()
            raise
        return client, facts

    # --- the cluster ---------------------------------------------------------------------------

    @property
    def nodes(self) -> list[calls.NodeRecord]:
        """The nodes that processes of this side can begin on now; none once the cluster is down."""
        return [
            one
            for one in self.records
            if one.is_ready and self.is_ready(one.host) and self._may_use(one)
        ]

    @property
    def command_nodes(self) -> list[calls.NodeRecord]:
        """The nodes that commands of this side can begin on now."""
        return [one for one in self.records if one.takes_commands and self._may_use(one)]

    def warn_of_missing(self) -> None:
        """Name in the log the nodes of the cluster on which nothing can begin now, and why."""
        for one in self.records:
            if one.state in _MISSING and self._may_use(one):
                _log.warning("node left out", node=one.name, state=one.state, reason=one.reason)
            elif one.reserved and one.can_be_asked and not self._may_use_reserved:
                _log.warning("node left out", node=one.name, reason="it is the head user's own")

    def refuse_reserved(self) -> None:
        """Refuse a cluster of which this side may use no node, because all are reserved.

        Raises:
            SecurityError: There are such nodes, and no others.
        """
        there = [one for one in self.records if one.can_be_asked]
        if there and all(one.reserved for one in there) and not self._may_use_reserved:
            names = fold_hosts([one.name for one in there])
            raise refused("code of this credential", f"node {names}")

    @property
    def _may_use_reserved(self) -> bool:
        return self.rights is None or self.rights.reserved

    def _may_use(self, node: calls.NodeRecord) -> bool:
        """Whether this side has rights on a node."""
        if node.reserved and not self._may_use_reserved:
            return False
        only = "" if self.rights is None else self.rights.nodes
        return not only or node.name in set(expand_hosts(only))

    @property
    def records(self) -> list[calls.NodeRecord]:
        """All nodes that the head knows, those that were removed, too."""
        with self._lock:
            return sorted(self._records.values(), key=lambda one: one.host)

    @property
    def gone(self) -> str:
        """Why the head is gone; empty if it is there."""
        with self._lock:
            return self._over or self._away

    @property
    def folders(self) -> list[str]:
        """Folders with the sockets at which the head hands connections over."""
        return self._handed.folders

    def close(self) -> None:
        """Leave: the head ends what is left of this client's sessions."""
        self._closed.set()
        self._handed.close()
        self.client.close()

    def source(self, *, owned: bool = False) -> NodeSource:
        """Return what begins the processes of one session on the nodes.

        Args:
            owned: Whether this connection ends with that session.
        """
        return SessionNodes(self, owned=owned)

    def subscribe(self, listener: Callable[[str, Any], None]) -> Callable[[], None]:
        """Have a function told of notices, on a thread of this connection.

        Returns:
            A function that ends that.
        """
        self._listeners.append(listener)

        def end() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return end

    def open_port(self, loop: SharedReactor) -> TreePort:
        """Return where the nodes reach the root of a session, on that session's loop.

        That is the head's own port where the head is on this machine. Else this side listens,
        and also where another head may take over: that one is elsewhere.
        """
        if self._is_remote or self._heads:
            port = HeadPort(self._listen_at(), loop, self.credentials())
            with self._lock:
                self._ports.append((loop, port))
            return port
        return SessionRootPort(tuple(self.facts.places), self._handed.take, loop, self.credentials)

    def shown_by_places(self, node: str) -> str:
        """Return the id that places on a node show, which may run as another user."""
        return places_id(node) if self.rights is not None and self.rights.user else node

    def _listen_at(self) -> str:
        """Return where this side listens: not for all machines if the head does not either."""
        on_loopback = all(interface_of(place) == "lo" for place in self._heads)
        if self._heads and on_loopback and not self._is_remote:
            return "127.0.0.1:0"
        return self._listen

    def credentials(self) -> Credentials:
        """Return what this client shows to nodes; it is renewed before it ends.

        It waits for the head the first time only.

        Raises:
            CommunicationError: The head is gone.
        """
        with self._lock:
            known = self._credentials
        if known is None:
            key, request = make_request()
            made = self.client.call_within(CALL_TIMEOUT, Links.certify, request)
            known = self._take_certificate(key, made)
        return known

    def _take_certificate(self, key: bytes, made: calls.ClientCertificate) -> Credentials:
        """Show another certificate from now on, and have it renewed in time."""
        taken = Credentials(
            node=made.node, certificate=made.certificate, key=key, authority=made.authority
        )
        with self._lock:
            self._credentials = taken
            ports = list(self._ports)
        for loop, port in ports:
            try:
                loop.call_soon_threadsafe(port.renew, taken)
            except ClosedError:  # its session is over
                with self._lock:
                    self._ports.remove((loop, port))
        self._plan_renewal(taken)
        return taken

    def _plan_renewal(self, credentials: Credentials) -> None:
        left = max(valid_until(credentials.certificate) - time.time(), 0.0)
        self.client.later(left * RENEW_AFTER, self._renew)

    def _renew(self) -> None:
        """Ask for another certificate; on the connection's thread, which does not wait for it."""
        key, request = make_request()

        def answered(answer: Future[calls.ClientCertificate]) -> None:
            try:
                self._take_certificate(key, answer.result())
            except SapwoodError as error:
                _log.warning("certificate not renewed", reason=error.what)
                if not self.is_away:
                    self.client.later(RENEW_PAUSE, self._renew)

        when_done(self.client.ask(Links.certify, request), answered)

    def record_run(
        self, run: str, state: str, seconds: float, iterations: int, *, reason: str = ""
    ) -> None:
        """Let the head note that a run has started or ended, if this side may; do not wait."""
        if self.rights is None or RUN in self.rights.names:
            with self._lock:
                session = next((name for name, _ in self._sessions), "")
            record = RunEnded(
                run=run,
                session=session,
                state=state,
                seconds=seconds,
                iterations=iterations,
                reason=reason,
            )
            self.client.ask(Runs.report, record)

    def kept_rates(self, key: str, seconds: float) -> bytes | None:
        """Return what runs have measured of agents with a function; None if nothing is kept.

        Raises:
            SecurityError: This side may not begin runs anywhere.
            CommunicationError: The head does not say it in time.
        """
        return self.client.call_within(seconds, RunRates.measured, key)

    def keep_rates(self, key: str, rates: bytes) -> Future[None]:
        """Have the head keep what a run has measured; this waits for nothing."""
        return self.client.ask(RunRates.keep, key, rates)

    # --- the way to the nodes --------------------------------------------------------------------

    def ask(self, host: int, handler: str, value: Any, session: str = "") -> Future[Any]:
        """Send a request to the daemon of a node, if need be by the right for a session."""
        with self._lock:
            number = self._numbers.at_head(host)
        order = calls.NodeOrder(number, handler, value, session)
        return self.client.ask(Orders.give, order)

    def is_ready(self, host: int) -> bool:
        """Whether a node is there; False if it or the whole cluster will not come back."""
        with self._lock:
            record = self._records.get(host)
            if self._over or host in self._given_up:
                return False
        return record is not None and record.state in {"ready", "draining"}

    def name_of(self, host: int) -> str:
        """Return what users call a node."""
        with self._lock:
            record = self._records.get(host)
        return f"node {host}" if record is None else record.name

    @property
    def is_away(self) -> bool:
        """Whether the head is gone, for now or for good."""
        return bool(self._away) or self.client.is_over

    @property
    def is_over(self) -> bool:
        """Whether the cluster is down, or another one has its name: no node will come back."""
        with self._lock:
            return bool(self._over)

    @property
    def hint(self) -> str:
        """What users can do where a node is given up."""
        if self.is_over:
            return (
                f"start a cluster with {command('up', cluster=self._name)}, then start this again"
            )
        shown = command("node", "list", cluster=self._name)
        return f"{shown} shows the nodes of the cluster and their states"

    def trouble(self) -> str:
        """Return why the head cannot be asked now; empty if it answers."""
        if not self.gone:
            try:
                self.client.call_within(SILENCE, WholeCluster.facts)
            except SapwoodError as error:
                return error.what
        return self.gone

    def given_up(self, host: int) -> str:
        """Return why a node will not come back; empty if it may."""
        with self._lock:
            return self._over or self._given_up.get(host, "")

    def join(self, session: SessionOnNode) -> None:
        """Have reports about a session on one node handed to it."""
        with self._lock:
            self._sessions[session.name, session.host] = session

    def part(self, session: SessionOnNode) -> None:
        """Hand no more reports to it."""
        with self._lock:
            if self._sessions.get((session.name, session.host)) is session:
                del self._sessions[session.name, session.host]

    # --- what the head tells, on the connection's thread ------------------------------------------

    def _noticed(self, name: str, value: Any) -> None:
        try:
            if name == calls.PROCESSES_REPORTED:
                told = typed.convert(value, calls.OfNode)
                report = messages.from_value(told.value, messages.ProcessesReported)
                with self._lock:
                    host = self._numbers.here(told.host)
                    session = self._sessions.get((report.session, host))
                if session is not None:
                    session.heard(report)
            elif name == calls.DENIED:
                self._denied(typed.convert(value, DenialUpdate))
            elif name == calls.NODES_CHANGED:
                value = _plain(self._nodes_changed(typed.convert(value, calls.NodesChanged)))
            elif name in {calls.COMMAND_OUTPUT, calls.COMMAND_ENDED}:
                told = typed.convert(value, calls.OfNode)
                with self._lock:
                    told = msgspec.structs.replace(told, host=self._numbers.here(told.host))
                value = _plain(told)
            elif name == calls.ENDED:
                self._give_up(f"the cluster '{self._name}' is down")
        except (msgspec.ValidationError, ProtocolError) as error:
            _log.warning("malformed notice", name=name, reason=str(error))
            return
        self._tell(name, value)

    def _tell(self, name: str, value: Any) -> None:
        for listener in list(self._listeners):
            listener(name, value)

    def _denied(self, update: DenialUpdate) -> None:
        """Take in what was revoked; ask for the whole list if something was missed."""
        if self.denials.take(update):
            return

        def answered(answer: Future[DenialUpdate]) -> None:
            with contextlib.suppress(SapwoodError):
                self.denials.take(answer.result())

        when_done(self.client.ask(IssuedCredentials.denials), answered)

    def _nodes_changed(self, change: calls.NodesChanged) -> calls.NodesChanged:
        nodes = self._take_nodes(change.nodes)
        hosts = {one.host for one in nodes}
        with self._lock:
            affected = [one for one in self._sessions.values() if one.host in hosts]
            if change.for_good:
                self._given_up |= dict.fromkeys(hosts, change.reason)
        for session in affected:
            if change.for_good:
                session.node_removed(change.reason)
            elif change.back or change.gone:
                session.node_changed(there=change.back, reason=change.reason)
        return msgspec.structs.replace(change, nodes=nodes)

    def _take_nodes(self, nodes: list[calls.NodeRecord]) -> list[calls.NodeRecord]:
        with self._lock:
            taken = [self._numbers.taken(one) for one in nodes]
            self._records |= {one.host: one for one in taken}
        return taken

    # --- a head that was killed ------------------------------------------------------------------

    def _head_gone(self, number: int, reason: str) -> None:
        """Running work continues; new work waits for the next head, if there may be one."""
        with self._lock:
            if number != self._connection or self._away:
                return  # it was not used yet, or counts as gone already
            self._away = f"the head is gone: {reason}"
            is_over = bool(self._over)
            sessions = list(self._sessions.values())
        _log.warning("head gone", reason=reason)
        try:
            if not self._is_remote:
                find_head(self._name)  # a head that ends removes its file first
        except SapwoodError:
            is_over = True
        if is_over:
            self._give_up(f"the cluster '{self._name}' is down")
        else:
            for session in sessions:
                session.way_lost()
            start_thread("sapwood-look", self._look_for_head, failed=self._look_failed)
        self._tell(calls.HEAD_GONE, self._away)

    def _give_up(self, reason: str) -> None:
        """Nothing can begin any more; the first reason counts."""
        with self._lock:
            if self._over:
                return
            self._over = reason
            sessions = list(self._sessions.values())
        for session in sessions:
            session.node_removed(reason)

    # --- a head that is silent, where another one may serve by now --------------------------------

    def _plan_look(self) -> None:
        """Look soon whether the head answers, if another one may take over from it."""
        if self._heads:
            self.client.later(SILENCE, self._look_at_head)

    def _look_at_head(self) -> None:
        """Ask the head where the others are; on the connection's thread."""
        client = self.client
        answer = client.ask(WholeCluster.facts)

        def look() -> None:
            if client is not self.client or client.is_over:
                return
            if not answer.done():
                start_thread("sapwood-look", self._look_elsewhere, client, answer)
                return
            with contextlib.suppress(SapwoodError):
                self._heads = answer.result().heads
            self._plan_look()

        client.later(SILENCE, look)

    def _look_elsewhere(self, client: ServiceClient, answer: Future[Any]) -> None:
        """Look whether another head serves, as this one is silent; only then leave it.

        A head that is slow must not see this side go: it would end its sessions.
        """
        while not self._closed.wait(LOOK_PAUSE) and not client.is_over:
            if answer.done():
                self._plan_look()
                return
            if self._another_serves():
                client.cut("it is silent, and another one serves")
                return

    def _another_serves(self) -> bool:
        try:
            way, _, _ = way_to(self._name, self._credential, self._heads)
            client = ServiceClient(way)
        except SapwoodError:
            return False
        try:
            if self._credential is not None:
                far = way if isinstance(way, TlsWay) else None
                show(client, self._credential, self._holder, far, CALL_TIMEOUT)
            found = client.call_within(SILENCE, WholeCluster.facts)
        except SapwoodError:
            return False
        finally:
            client.close()
        same = (found.pid, found.started) == (self.facts.pid, self.facts.started)
        return found.cluster == self.facts.cluster and not same

    def _look_for_head(self) -> None:
        """Look for the next head until this is closed, on a separate thread."""
        pause = LOOK_PAUSE
        longest = MAX_LOOK_PAUSE_OF_SEVERAL if self._heads else MAX_LOOK_PAUSE
        with self._lock:
            self._records.clear()
        while not self._closed.wait(pause):
            pause = min(2 * pause, longest)
            try:
                client, facts = self._connected(self._connection + 1)
            except SecurityError as error:  # the credential was revoked
                self._give_up(error.what)
                return
            except Exception as error:  # noqa: BLE001 - a head of another version may say anything
                _log.debug("no head", reason=as_error(error).what)
                continue
            if facts.cluster != self.facts.cluster:
                client.close()
                self._give_up(f"another cluster is called '{self._name}' now")
                return
            try:
                self._handed.ask_again(client)
            except Exception as error:  # noqa: BLE001 - it is gone as well, or of another version
                _log.debug("no head", reason=as_error(error).what)
                client.close()
                continue
            if self._returned(client, facts):
                return

    def _look_failed(self, error: SapwoodError) -> None:
        self._give_up(f"the next head cannot be looked for: {error.what}")

    def _returned(self, client: ServiceClient, facts: HeadFacts) -> bool:
        """Use another head from now on, and have the sessions use their nodes again.

        Returns:
            Whether it still exists.
        """
        with self._lock:
            if client.is_over:
                return False
            former, self.client, self.facts = self.client, client, facts
            self._connection += 1
            self._away = ""
            self._heads = facts.heads
            credentials = self._credentials
            sessions = list(self._sessions.values())
        former.close()
        if credentials is not None:
            self._plan_renewal(credentials)
        self._plan_look()
        _log.info("head is back", pid=facts.pid)
        for session in sessions:
            session.way_back()
        return True


def _plain(value: msgspec.Struct) -> Any:
    return msgspec.to_builtins(value, builtin_types=(bytes,))
