"""The nodes of a cluster, as its clients see them: listed, looked at, removed."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import TYPE_CHECKING

import msgspec

from sapwood.head.calls import ClusterSnapshot, NodeRecord, TreeStatus
from sapwood.head.protocol.call import HeadPart, Http, Reach, call
from sapwood.head.protocol.caller import ServiceCaller
from sapwood.head.snapshot import NodeSnapshots, cluster_snapshot, troubles
from sapwood.head.status import ANSWER_TIMEOUT, tree_status, with_session_names
from sapwood.nodes import messages
from sapwood.security.rights import ADMIN, CONNECT, OBSERVE

if TYPE_CHECKING:
    from sapwood.head.authorizer import Authorizer
    from sapwood.head.node_sessions import NodeSessions
    from sapwood.head.node_table import NodeTable
    from sapwood.head.parts.components import Components
    from sapwood.head.parts.sessions import Sessions
    from sapwood.head.removals import Removals
    from sapwood.head.sessions import HeadSessions
    from sapwood.nodes.control import ControlTree


class Nodes(HeadPart):
    """The nodes of a cluster.

    Args:
        table: The nodes.
        control: The tree of nodes.
        authorizer: The authorizer.
        removals: They remove nodes.
        components: The components of the head.
        on_nodes: The sessions that have processes on nodes.
        registry: The sessions with session servers.
        sessions: What these sessions do.
    """

    def __init__(
        self,
        table: NodeTable,
        control: ControlTree,
        authorizer: Authorizer,
        removals: Removals,
        components: Components,
        on_nodes: NodeSessions,
        registry: HeadSessions,
        sessions: Sessions,
    ) -> None:
        self._table = table
        self._control = control
        self._authorizer = authorizer
        self._removals = removals
        self._components = components
        self._on_nodes = on_nodes
        self._registry = registry
        self._sessions = sessions
        self._snapshots = NodeSnapshots(lambda host: control.ask(host, messages.STATUS, None))

    @call("nodes", right=CONNECT, http=Http("GET", "/nodes", key="nodes"))
    def every(self) -> list[NodeRecord]:
        """Return the nodes, including those that were removed lately."""
        return self._table.records()

    @call("status", right=OBSERVE, slow=True, http=Http("GET", "/status", query=False))
    def status(self, hosts: list[int] | None = None) -> TreeStatus:
        """Return how the nodes are: each is asked now, and has two seconds to answer.

        Args:
            hosts: The numbers of the nodes; None for all. It has the commands of all users.
        """
        found = tree_status(
            self._control,
            self._table.some(hosts),
            self._components.views(),
            self._components.ready_seconds,
        )
        named = with_session_names(found, self._on_nodes.names())
        return msgspec.structs.replace(named, joined=self._registry.joined())

    @call("snapshot", right=OBSERVE, slow=True)
    def snapshot(self) -> ClusterSnapshot:
        """Return how the nodes are, as far as that is known without waiting."""
        views = {view.host: view for view in self._control.nodes}
        links = self._control.links().result(ANSWER_TIMEOUT)
        return ClusterSnapshot(
            time=time.time(),
            nodes=cluster_snapshot(self._table.records(), views, links, self._snapshots),
            refusals=self._control.desk.refusals,
            trouble=troubles(self._components.views()),
            ready_seconds=self._components.ready_seconds,
            work=self._sessions.work(),
            connected=self._on_nodes.connected(self._control.name_of),
        )

    @call("node.remove", right=ADMIN, reach=Reach.OBJECT)
    def remove(self, caller: ServiceCaller, name: str, drain: float = 0.0) -> Future[NodeRecord]:
        """End a node, which may not come back.

        Args:
            caller: The caller.
            name: What users call it.
            drain: Seconds that it gets to finish what it does.
        """
        self._authorizer.require_right(caller, ADMIN, node=name, what=Nodes.remove.name)
        return self._removals.remove(name, drain)
