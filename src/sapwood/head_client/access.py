"""A client's way to the nodes of a head: what a control tree is in one's own process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import msgspec

from sapwood.core import typed
from sapwood.core.errors import ProtocolError, SapwoodError
from sapwood.core.futures import when_done
from sapwood.core.hints import DEFAULT_CLUSTER, command
from sapwood.environment.logs import logger
from sapwood.head import calls
from sapwood.head.parts.cluster import WholeCluster
from sapwood.head.parts.credentials import IssuedCredentials
from sapwood.head.parts.nodes import Nodes
from sapwood.head.parts.orders import Orders
from sapwood.head_client.certificate import RenewedCredentials
from sapwood.head_client.connection import CALL_TIMEOUT, ServiceClient
from sapwood.head_client.handed_connections import HandedConnections
from sapwood.head_client.known_nodes import KnownNodes
from sapwood.head_client.reconnecting import SILENCE, ReconnectingClient
from sapwood.nodes.port import SessionRootPort, interface_of
from sapwood.nodes.processes import SessionNodes
from sapwood.security.authority import places_id
from sapwood.security.capabilities import Capability, HolderKey
from sapwood.security.denials import Denials, DenialUpdate
from sapwood.session.shared_reactor import SharedReactor
from sapwood.session.supervisor import NodeSource, TreePort

_log = logger("head")


class HeadAccess:
    """A connection to the head of a cluster, through which sessions use its nodes.

    When the head is killed, sessions continue, and orders wait. When it was started again, this
    connects to it, and the sessions have their nodes back.

    Args:
        name: What the user calls the cluster, or ``sapwood://host:port`` for a head on another
            machine, which needs a credential.
        credential: What this side may do; None for all, at a head of one's own on this machine.
        holder: The key of its holder, if the credential names one.
        listen: Where this side listens for the nodes of its sessions, if the head is elsewhere.
        session: The id of the session whose root this side is, if it is one: it acts with the
            rights of whoever made that.

    Attributes:
        connection: The connection itself: what the head says of itself, and the rights here.
        known: The nodes that the head knows.
        denials: The credentials that were revoked; kept up to date.
        handed: The sockets at which the head hands connections over.
        credentials: What this side shows to nodes.

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
        self._listen = listen
        self._listeners: list[Callable[[str, Any], None]] = []
        self.denials = Denials()
        self.connection = ReconnectingClient(name, credential, holder, session, self)
        self.known = KnownNodes(lambda: self.connection.rights)
        self.join, self.part = self.known.sessions.join, self.known.sessions.part
        self.handed = HandedConnections(lambda: self.client)
        self.credentials = RenewedCredentials(self.connection)
        self.connection.open()

    @property
    def client(self) -> ServiceClient:
        """The connection to the present head: for calls."""
        return self.connection.client

    @property
    def gone(self) -> str:
        """Why the head is gone; empty if it is there."""
        return self.known.over or self.connection.away

    def close(self) -> None:
        """Leave: the head ends what is left of this client's sessions."""
        self.handed.close()
        self.connection.close()

    def subscribe(self, listener: Callable[[str, Any], None]) -> Callable[[], None]:
        """Call a function with each notice, on a thread of this connection.

        Returns:
            A function that ends that.
        """
        self._listeners.append(listener)

        def end() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return end

    # --- the way to the nodes -------------------------------------------------------------------

    @property
    def nodes(self) -> list[calls.NodeRecord]:
        """The nodes that processes of this side can begin on now; none once the cluster is down."""
        return self.known.usable

    def source(self, *, owned: bool = False) -> NodeSource:
        """Return what begins the processes of one session on the nodes.

        Args:
            owned: Whether this connection ends with that session.
        """
        return SessionNodes(self, owned=owned)

    def open_port(self, loop: SharedReactor) -> TreePort:
        """Return where the nodes reach the root of a session, on that session's loop.

        That is the head's own port where the head is on this machine. Else this side listens,
        and also where another head may take over: that one is elsewhere.
        """
        if self.connection.is_remote or self.connection.heads:
            return self.credentials.listen(self._listen_at(), loop)
        addresses = tuple(self.connection.facts.addresses)
        return SessionRootPort(addresses, self.handed.take, loop, self.credentials.current)

    def _listen_at(self) -> str:
        """Return where this side listens: not for all machines if the head does not either."""
        heads = self.connection.heads
        on_loopback = all(interface_of(address) == "lo" for address in heads)
        if heads and on_loopback and not self.connection.is_remote:
            return "127.0.0.1:0"
        return self._listen

    def shown_by_places(self, node: str) -> str:
        """Return the id that places on a node show, which may run as another user."""
        rights = self.connection.rights
        return places_id(node) if rights is not None and rights.user else node

    def ask(self, host: int, handler: str, value: Any, session: str = "") -> Future[Any]:
        """Send a request to the daemon of a node, if need be by the right for a session."""
        order = calls.NodeOrder(self.known.at_head(host), handler, value, session)
        return self.client.ask(Orders.give, order)

    def is_ready(self, host: int) -> bool:
        """Whether a node is there; False if it or the whole cluster will not come back."""
        return self.known.is_ready(host)

    def name_of(self, host: int) -> str:
        """Return what users call a node."""
        return self.known.name_of(host)

    def given_up(self, host: int) -> str:
        """Return why a node will not come back; empty if it may."""
        return self.known.given_up(host)

    @property
    def is_away(self) -> bool:
        """Whether the head is gone, for now or for good."""
        return self.connection.is_away

    @property
    def is_over(self) -> bool:
        """Whether the cluster is down, or another one has its name: no node will come back."""
        return bool(self.known.over)

    @property
    def hint(self) -> str:
        """What users can do where a node is given up."""
        name = self.connection.name
        if self.is_over:
            return f"start a cluster with {command('up', cluster=name)}, then start this again"
        shown = command("node", "list", cluster=name)
        return f"{shown} shows the nodes of the cluster and their states"

    def trouble(self) -> str:
        """Return why the head cannot be asked now; empty if it answers."""
        if not self.gone:
            try:
                self.client.call_within(SILENCE, WholeCluster.facts)
            except SapwoodError as error:
                return error.what
        return self.gone

    # --- events of the connection, on its threads -------------------------------------------------

    def connected(self, client: ServiceClient, *, again: bool) -> None:
        """Fetch the nodes and what is revoked; have another head hand connections over."""
        self.known.take(client.call_within(CALL_TIMEOUT, Nodes.every), anew=again)
        self.denials.take(client.call_within(CALL_TIMEOUT, IssuedCredentials.denials))
        if again:
            self.handed.ask_again(client)

    def noticed(self, name: str, value: Any) -> None:
        """Take a notice of the head, and hand it to subscribers."""
        try:
            if name == calls.PROCESSES_REPORTED:
                self.known.reported(typed.convert(value, calls.OfNode))
            elif name == calls.DENIED:
                self._denied(typed.convert(value, DenialUpdate))
            elif name == calls.NODES_CHANGED:
                value = _plain(self.known.changed(typed.convert(value, calls.NodesChanged)))
            elif name in {calls.COMMAND_OUTPUT, calls.COMMAND_ENDED}:
                value = _plain(self.known.renumbered(typed.convert(value, calls.OfNode)))
        except (msgspec.ValidationError, ProtocolError) as error:
            _log.warning("malformed notice", name=name, reason=str(error))
            return
        for listener in list(self._listeners):
            listener(name, value)

    def head_gone(self) -> None:
        """Make sessions wait for the next head."""
        for session in self.known.sessions.on():
            session.way_lost()
        self.known.forget()

    def head_back(self) -> None:
        """Have the sessions use their nodes again."""
        self.credentials.plan_renewal()
        for session in self.known.sessions.on():
            session.way_back()

    def head_given_up(self, reason: str) -> None:
        """Give all nodes up."""
        self.known.give_up(reason)

    def _denied(self, update: DenialUpdate) -> None:
        """Take in what was revoked; ask for the whole list if something was missed."""
        if self.denials.take(update) or not self.connection.is_open:
            return  # a connection that opens asks for the whole list anyway

        def answered(answer: Future[DenialUpdate]) -> None:
            with contextlib.suppress(SapwoodError):
                self.denials.take(answer.result())

        when_done(self.client.ask(IssuedCredentials.denials), answered)


def _plain(value: msgspec.Struct) -> Any:
    return msgspec.to_builtins(value, builtin_types=(bytes,))
