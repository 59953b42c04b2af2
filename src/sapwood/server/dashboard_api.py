"""What the dashboard asks for: its pages as JSON, and a stream of what changes on them."""

from __future__ import annotations

import asyncio
from typing import Final, ParamSpec, TypeVar

import msgspec

from sapwood.activity.stack_round import LONGEST
from sapwood.client.stacks import stacks_by_credential
from sapwood.code.stacks import StackInfo
from sapwood.core.errors import ConfigurationError
from sapwood.core.terminal_text import printable
from sapwood.head import calls, session_records
from sapwood.head.parts.nodes import Nodes
from sapwood.head.parts.sessions import Sessions
from sapwood.head.protocol.call import HeadCall
from sapwood.security.rights import ATTACH
from sapwood.server.endpoints import ApiRequest, Endpoint, Routes
from sapwood.server.head_connections import HeadConnection
from sapwood.server.live import must_observe
from sapwood.server.problems import HttpError
from sapwood.views.live import (
    first_of,
    overview_of,
    run_of,
    snapshot_of,
    trees_of,
)
from sapwood.views.overview import Overview
from sapwood.views.run_page import RunPage

P = ParamSpec("P")
R = TypeVar("R")

FIRST_PATIENCE: Final = 0.2
"""Seconds that the head has for what is inside a page; else the page asks for it."""


MAX_ASKING: Final = 4
"""Viewers whose sessions are asked for stacks at a time; others wait."""


class NodePage(msgspec.Struct, frozen=True, kw_only=True):
    """One node.

    Attributes:
        snapshot: How it is in short.
        status: What exactly runs there, asked now.
    """

    snapshot: calls.NodeSnapshot
    status: calls.NodeStatus | None = None


class TreePage(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a cluster, and the trees of its sessions.

    Attributes:
        snapshot: The nodes in short.
        trees: The places of each active session, the newest session first.
    """

    snapshot: calls.ClusterSnapshot
    trees: list[session_records.SessionTree]


class StackQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long may it take?

    Attributes:
        timeout: Seconds that agents have to answer, up to 60.
    """

    timeout: float = 5.0


class SessionStacks(msgspec.Struct, frozen=True, kw_only=True):
    """The stacks of all agents of a session.

    Attributes:
        text: All of them, equal ones once, as `sapwood stack` shows them.
        agents: Each of them.
    """

    text: str
    agents: tuple[StackInfo, ...]


class DashboardApi:
    """The endpoints behind the pages of the dashboard.

    All viewers share the data that the server's own connection fetches, so that the head is asked
    once; each viewer needs the right to see them.

    Args:
        own: The server's own connection.
        version: Of Sapwood.
        cluster: What the user calls the cluster.
    """

    _routes = Routes()

    def __init__(self, own: HeadConnection, version: str, cluster: str) -> None:
        self._own = own
        self._version = version
        self._cluster = cluster
        self._asking = asyncio.Semaphore(MAX_ASKING)

    def endpoints(self, prefix: str) -> list[Endpoint]:
        """Return the endpoints.

        Args:
            prefix: How their paths begin.
        """
        return self._routes.endpoints(prefix, self)

    async def first(self, connection: HeadConnection) -> bytes:
        """Return what a page shows first, as JSON.

        Raises:
            HttpError: This client may not see it.
            TimeoutError: The head does not know it at once.
        """
        must_observe(connection)
        return msgspec.json.encode(await asyncio.wait_for(first_of(self.ask), FIRST_PATIENCE))

    async def ask(self, call: HeadCall[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the head over the connection of the server."""
        return await self._own.call(call, *args, **kwargs)

    @_routes("GET", "/overview", right="observe")
    async def _overview(self, asked: ApiRequest) -> Overview:
        """The health of the cluster, and what is wrong, in one sentence each."""
        must_observe(asked.connection)
        return await overview_of(self.ask)

    @_routes("GET", "/snapshot", right="observe")
    async def _snapshot(self, asked: ApiRequest) -> calls.ClusterSnapshot:
        """The nodes in short, from their last reports, without waiting."""
        must_observe(asked.connection)
        return await snapshot_of(self.ask)

    @_routes("GET", "/snapshot/{node}", right="observe", parts={"node": "The name of a node."})
    async def _node(self, asked: ApiRequest) -> NodePage:
        """One node in short, and what exactly runs there."""
        must_observe(asked.connection)
        name = asked.path["node"]
        snapshot = await snapshot_of(self.ask)
        found = next((one for one in snapshot.nodes if one.name == name), None)
        if found is None:
            raise HttpError(404, "there is no such node", where=name[:100])
        said = await self.ask(Nodes.status, [found.host])
        return NodePage(snapshot=found, status=said.nodes[0] if said.nodes else None)

    @_routes("GET", "/tree", right="observe")
    async def _tree(self, asked: ApiRequest) -> TreePage:
        """The nodes in short, and the places of each session: junctions and agents."""
        must_observe(asked.connection)
        trees = await trees_of(self.ask)
        return TreePage(snapshot=await snapshot_of(self.ask), trees=trees.changed)

    @_routes(
        "GET",
        "/sessions/{session}/tree",
        right="observe",
        parts={"session": "The name of a session, its id, or `name#id`."},
    )
    async def _session(self, asked: ApiRequest) -> session_records.SessionTree:
        """The places of one session: parents, nodes and states."""
        must_observe(asked.connection)
        name = asked.path["session"]
        found = (await trees_of(self.ask, name)).changed
        if not found:
            raise HttpError(404, "no running session has this name", where=name[:100])
        return found[0]

    @_routes(
        "GET",
        "/sessions/{session}/stacks",
        right=ATTACH,
        query=StackQuery,
        parts={"session": "The name of a session, its id, or `name#id`."},
    )
    async def _stacks(self, asked: ApiRequest) -> SessionStacks:
        """Where user code is now, on all agents of a session."""
        seconds = asked.query.timeout
        if not 0 <= seconds <= LONGEST:
            raise HttpError(400, "agents are given too long", hint=f"wait up to {LONGEST:g} s")
        try:
            credential = await asked.connection.call(Sessions.credential, asked.path["session"])
        except ConfigurationError as error:
            raise HttpError(404, error.what, hint=error.hint) from error
        async with self._asking:
            found = await asyncio.to_thread(stacks_by_credential, credential, seconds)
        return SessionStacks(text=printable(str(found)), agents=found.agents)

    @_routes(
        "GET",
        "/runs/{run}/picture",
        right="observe",
        parts={"run": "The id of a run, or the start of it."},
    )
    async def _run(self, asked: ApiRequest) -> RunPage:
        """All that a report shows of a detached run: who worked and who waited."""
        must_observe(asked.connection)
        try:
            view, _ = await run_of(self.ask, asked.path["run"], self._version, self._cluster)
        except ConfigurationError as error:
            raise HttpError(404, error.what, hint=error.hint) from error
        return view
