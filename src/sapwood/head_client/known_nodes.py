"""The nodes of a cluster as its head reports them to a client, and which of them it may use."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

from sapwood.core.hostset import expand_hosts, fold_hosts
from sapwood.environment.logs import logger
from sapwood.head.calls import NodeRecord, NodesChanged, OfNode
from sapwood.head.protocol.greeting import RightsFacts
from sapwood.head.reserved import refused
from sapwood.head_client.numbers import NodeNumbers
from sapwood.nodes.control_access import SessionsOnNodes

_MISSING = frozenset({"disconnected", "lost", "closed"})
"""States of nodes that belong to the cluster and cannot be used at present."""

_log = logger("head")


class KnownNodes:
    """The nodes that the head knows, and the client's sessions on them; any thread may use it.

    Args:
        rights: Returns what the client may do; None for all.

    Attributes:
        sessions: The client's sessions, one for each node that they use.
    """

    def __init__(self, rights: Callable[[], RightsFacts | None]) -> None:
        self._rights = rights
        self._lock = threading.Lock()
        self._numbers = NodeNumbers()
        self._records: dict[int, NodeRecord] = {}
        self._given_up: dict[int, str] = {}
        self._over = ""
        self.sessions = SessionsOnNodes()

    @property
    def records(self) -> list[NodeRecord]:
        """All nodes that the head knows, those that were removed, too."""
        with self._lock:
            return sorted(self._records.values(), key=lambda one: one.host)

    @property
    def usable(self) -> list[NodeRecord]:
        """The nodes on which the client can start processes; none once the cluster is down."""
        return [
            one
            for one in self.records
            if one.is_ready and self.is_ready(one.host) and self._may_use(one)
        ]

    @property
    def for_commands(self) -> list[NodeRecord]:
        """The nodes on which the client can start commands."""
        return [one for one in self.records if one.takes_commands and self._may_use(one)]

    @property
    def over(self) -> str:
        """Why no node will come back; empty while the cluster may."""
        with self._lock:
            return self._over

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

    def given_up(self, host: int) -> str:
        """Return why a node will not come back; empty if it may."""
        with self._lock:
            return self._over or self._given_up.get(host, "")

    def warn_of_missing(self) -> None:
        """Name in the log the nodes of the cluster on which nothing can begin now, and why."""
        for one in self.records:
            if one.state in _MISSING and self._may_use(one):
                _log.warning("node left out", node=one.name, state=one.state, reason=one.reason)
            elif one.reserved and one.can_be_asked and not self._may_use_reserved:
                _log.warning("node left out", node=one.name, reason="it is the head user's own")

    def refuse_reserved(self) -> None:
        """Refuse a cluster of which the client may use no node, because all are reserved.

        Raises:
            SecurityError: There are such nodes, and no others.
        """
        there = [one for one in self.records if one.can_be_asked]
        if there and all(one.reserved for one in there) and not self._may_use_reserved:
            names = fold_hosts([one.name for one in there])
            raise refused("code of this credential", f"node {names}")

    @property
    def _may_use_reserved(self) -> bool:
        rights = self._rights()
        return rights is None or rights.reserved

    def _may_use(self, node: NodeRecord) -> bool:
        """Whether the client has rights on a node."""
        if node.reserved and not self._may_use_reserved:
            return False
        rights = self._rights()
        only = "" if rights is None else rights.nodes
        return not only or node.name in set(expand_hosts(only))

    # --- what the head reports --------------------------------------------------------------------

    def forget(self) -> None:
        """Know no nodes until the next head has named them."""
        with self._lock:
            self._records.clear()

    def take(self, nodes: list[NodeRecord], *, anew: bool = False) -> list[NodeRecord]:
        """Take in what the head reports of nodes.

        Args:
            nodes: The nodes, with the head's numbers.
            anew: Whether these are all nodes of another head, which has counted them anew.

        Returns:
            The same with the client's numbers.
        """
        with self._lock:
            if anew:
                self._numbers.begin()
                self._records.clear()
            taken = [self._numbers.taken(one) for one in nodes]
            self._records |= {one.host: one for one in taken}
        return taken

    def changed(self, change: NodesChanged) -> NodesChanged:
        """Take in a change of nodes, notify sessions there; return it with the client's numbers."""
        nodes = self.take(change.nodes)
        hosts = {one.host for one in nodes}
        affected = self.sessions.on(hosts)
        if change.for_good:
            with self._lock:
                self._given_up |= dict.fromkeys(hosts, change.reason)
        for session in affected:
            if change.for_good:
                session.node_removed(change.reason)
            elif change.back or change.gone:
                session.node_changed(there=change.back, reason=change.reason)
        return msgspec.structs.replace(change, nodes=nodes)

    def reported(self, notice: OfNode) -> None:
        """Give a node's report about processes to the session that it is about.

        Raises:
            ProtocolError: The report is malformed.
        """
        self.sessions.reported(self.renumbered(notice).host, notice.value)

    def renumbered(self, notice: OfNode) -> OfNode:
        """Return what the head reports of a node, with the client's number of the node."""
        with self._lock:
            return msgspec.structs.replace(notice, host=self._numbers.here(notice.host))

    def at_head(self, host: int) -> int:
        """Return what the head calls a node; 0 if it does not know it."""
        with self._lock:
            return self._numbers.at_head(host)

    def give_up(self, reason: str) -> None:
        """Note that no node will come back, and notify sessions."""
        with self._lock:
            self._over = reason
        for session in self.sessions.on():
            session.node_removed(reason)
