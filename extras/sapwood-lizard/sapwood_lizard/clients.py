"""The clients of a server: machines that bring agents to its cluster."""

from __future__ import annotations

import collections
import threading
import uuid
from collections.abc import Mapping
from typing import Any, Final

from sapwood import Cluster
from sapwood.errors import ResourceError
from sapwood.types import InvitationInfo

MAX_CLIENTS: Final = 1024
"""Clients that may be there at a time."""

MAX_AGENTS: Final = 1024
"""Agents of one client."""

MAX_REMOTE_EVENTS: Final = 256
"""Events of one client that are kept."""


class RegisteredClient:
    """A client.

    Args:
        hardware: What it says of its machine.
        url: Where it answers requests itself.
        invitations: By which its agents join: the lines, which are secrets.
    """

    def __init__(
        self, hardware: Mapping[str, Any], url: str, invitations: tuple[str, ...] = ()
    ) -> None:
        self.uuid = uuid.uuid4().hex
        self.hardware = hardware
        self.url = url
        self.invitations = invitations
        self.ids = frozenset(line.split(".")[1] for line in invitations)
        self._events: collections.OrderedDict[str, Mapping[str, Any]] = collections.OrderedDict()

    def keep(self, event_id: str, event: Mapping[str, Any]) -> None:
        """Keep the client's report of one of its events."""
        self._events[event_id] = event
        self._events.move_to_end(event_id)
        while len(self._events) > MAX_REMOTE_EVENTS:
            self._events.popitem(last=False)

    def event(self, event_id: str) -> Mapping[str, Any] | None:
        """Return what the client said of an event; None for nothing."""
        return self._events.get(event_id)


class Clients:
    """All clients of a server.

    Args:
        cluster: What their agents join.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._clients: dict[str, RegisteredClient] = {}

    def add(self, hardware: Mapping[str, Any], url: str, agents: int) -> RegisteredClient:
        """Register a client.

        Args:
            hardware: What it says of its machine.
            url: Where it answers requests.
            agents: How many agents it brings; 0 for a client that knows nothing of Sapwood.

        Raises:
            ResourceError: There are too many.
            CommunicationError: This machine cannot listen for agents.
        """
        with self._lock:
            self._forget_lost()
            if len(self._clients) >= MAX_CLIENTS:
                raise ResourceError(f"{MAX_CLIENTS} clients exist already, the maximum")
            lines = tuple(self._cluster.invite(agents)) if agents else ()
            client = RegisteredClient(hardware, url, lines)
            self._clients[client.uuid] = client
        return client

    def get(self, client: str) -> RegisteredClient | None:
        """Return a client; None if there is none."""
        with self._lock:
            self._forget_lost()
            return self._clients.get(client)

    def all(self) -> list[str]:
        """Return all clients."""
        with self._lock:
            self._forget_lost()
            return list(self._clients)

    def show(self, client: RegisteredClient) -> dict[str, Any]:
        """Return a client as the API shows it, and the ranks of its agents."""
        ranks = sorted(view.rank for view in self._views(client) if view.rank)
        shown = {"uuid": client.uuid, "hardware": client.hardware, "url": client.url}
        return {**shown, "agents": ranks}

    def remove(self, client: str) -> bool:
        """Forget a client, and remove its agents; return whether there was one."""
        with self._lock:
            found = self._clients.pop(client, None)
        if found is None:
            return False
        views = self._views(found)
        for view in views:
            if view.state not in {"revoked", "expired"}:
                self._cluster.revoke_invitation(view.id)
        ranks = [view.rank for view in views if view.rank]
        if ranks:
            self._cluster.contract(ranks)
        return True

    def _views(self, client: RegisteredClient) -> list[InvitationInfo]:
        if not client.ids:
            return []
        return [view for view in self._cluster.invitations if view.id in client.ids]

    def _forget_lost(self) -> None:
        """Forget clients whose agents have all been there and are gone."""
        views = {view.id: view for view in self._cluster.invitations} if self._clients else {}
        for client in list(self._clients.values()):
            known = [views[each] for each in client.ids if each in views]
            if known and all(view.joined and not view.rank for view in known):
                del self._clients[client.uuid]
