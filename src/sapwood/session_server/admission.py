"""Whether a session server lets a client in, and what it says to one that it lets in."""

from __future__ import annotations

from typing import Protocol

from sapwood.comm.machine import machine_id
from sapwood.core.errors import ConfigurationError, ProtocolError, SecurityError
from sapwood.core.shown import shown
from sapwood.session_server import wire
from sapwood.session_server.client import ServedClient
from sapwood.session_server.merging_hook import SessionMerging
from sapwood.session_server.process_news import ProcessNews
from sapwood.session_server.rights import Allowed, ClientRole
from sapwood.session_server.served_session import ServedSession

MAX_CLIENTS = 64
"""Clients that may be attached to a session at a time."""

MAX_WATCHERS = 32
"""Those of them that may only watch: so they leave room for others."""


class AdmittingServer(Protocol):
    """A session server: what admission needs of it.

    Attributes:
        session: The session.
        id: Its id.
        name: What users call it.
        largest: Bytes of the largest message and payload of a client.
        merging: Merges other sessions into this one.
        news: Knows the places.
    """

    session: ServedSession
    id: str
    name: str
    largest: int
    merging: SessionMerging
    news: ProcessNews

    @property
    def owner(self) -> ServedClient | None:
        """The present owner."""

    def admitted(self) -> list[ServedClient]:
        """Return the clients that were let in."""


class Admission:
    """Decides on clients that ask to attach; all on the loop's thread.

    Args:
        server: The session server.
    """

    def __init__(self, server: AdmittingServer) -> None:
        self._server = server
        self._machine = machine_id()

    def check(self, client: ServedClient, asked: wire.AskToAttach) -> tuple[ClientRole, Allowed]:
        """Return what a client becomes, and what it may be.

        Raises:
            SapwoodError: It may not attach.
        """
        server = self._server
        if asked.version != wire.VERSION:
            raise ProtocolError(
                f"the client speaks version {asked.version}, the session {wire.VERSION}",
                hint="use the same version of Sapwood in both",
            )
        if asked.session != server.id:
            raise ConfigurationError(
                f"the session {asked.session} is not here", hint="it has ended: make a new one"
            )
        try:
            wanted = ClientRole(asked.role)
        except ValueError:
            raise ProtocolError(f"a client cannot be {shown(asked.role)}") from None
        client.label = wire.printable(asked.label[:200])
        allowed = client.verify(asked)
        if wanted not in allowed.roles:
            may = ", ".join(sorted(role.value for role in allowed.roles))
            raise SecurityError(
                f"the credential does not let you be {wanted.value}",
                hint=f"attach with another role: {may}",
            )
        if wanted is ClientRole.MERGER:
            server.merging.must_be_mergeable()
        self._check_room(wanted)
        owner = server.owner
        if wanted is ClientRole.OWNER and owner is not None:
            raise ConfigurationError(
                f"the session '{server.name}' has an owner: {owner.label}",
                hint='attach with role="user" to work beside it, or "watch"',
            )
        return wanted, allowed

    def welcome(self, client: ServedClient, asked: wire.AskToAttach) -> wire.Admitted:
        """Return what a client hears first."""
        server, session = self._server, self._server.session
        same = client.here and asked.machine == self._machine
        failure = session.failure
        return wire.Admitted(
            session=server.id,
            name=server.name,
            tree=session.tree,
            platforms=session.platforms,
            pythons=session.pythons,
            processes=tuple(server.news.processes()),
            hosts=session.host.hosts,
            shares_memory=session.options.shared_memory and same,
            failure=None if failure is None else failure.to_record(),
            number=client.number,
            largest=server.largest,
        )

    def _check_room(self, wanted: ClientRole) -> None:
        """Refuse a client when there are enough of them.

        Raises:
            ConfigurationError: There are.
        """
        server = self._server
        there = server.admitted()
        watchers = sum(one.role is ClientRole.WATCHER for one in there)
        if len(there) >= MAX_CLIENTS:
            found = f"{MAX_CLIENTS} clients are attached to"
        elif wanted is ClientRole.WATCHER and watchers >= MAX_WATCHERS:
            found = f"{MAX_WATCHERS} clients watch"
        else:
            return
        raise ConfigurationError(
            f"{found} the session '{server.name}'", hint="let some of them leave first"
        )
