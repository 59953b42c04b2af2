"""The session server: it serves the clients of a session, and outlives them.

The events of a client enter the protocol core like the events of an embedded session, with
numbers that this server assigns; the effects that belong to a client go back to it. So nothing of
the tree is done twice, and a client that is gone leaves nothing under way.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

import msgspec

from sapwood.comm.transport.base import Connection
from sapwood.comm.transport.tls_connection import TlsConnection
from sapwood.core.errors import SapwoodError, SecurityError
from sapwood.core.failures import as_error, log_failure
from sapwood.environment.logs import logger
from sapwood.environment.settings import CommSettings, DisconnectPolicy
from sapwood.head import session_records
from sapwood.session.interface import AgentEvent, InvitationInfo
from sapwood.session_server import wire
from sapwood.session_server.admission import Admission
from sapwood.session_server.client import ServedClient
from sapwood.session_server.keeping import KeptOutput, KeptStreams
from sapwood.session_server.merging_hook import merging_of
from sapwood.session_server.process_news import ProcessNews
from sapwood.session_server.rights import WORKING, ClientRole, Verify
from sapwood.session_server.served_session import ServedSession
from sapwood.session_server.server_calls import ServerCalls

MAX_STRANGERS = 64
"""Clients that were not let in yet; with more, the first of them is cut off."""

STRANGER_PATIENCE = 10.0
"""Seconds that a client has to ask to attach."""

LONGEST_TIMER = 3600.0
"""Seconds after which the end of a credential is looked at again at the latest."""

FAREWELL = 1.0
"""Seconds that a client has to read why it is cut off."""

TOLD_EVENTS = 16
"""Events of agents that others start, of which a report tells."""

_log = logger("session")


class SessionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a session is.

    Attributes:
        agents: How many it has.
        owner: Its present owner; empty without one.
        clients: The attached clients, with their roles.
        streams: Open streams.
        since: Since when it is attached or detached, seconds since 1970.
        kept: Bytes of retained output.
        dropped: Bytes of output that were left out.
        invitations: By which processes that others start may be agents, and are.
        agent_events: The last events of such agents.
        merged: The sessions that are merged into it.
        part_of: The sessions that it is merged into, as they call themselves.
        owned: Whether it ends soon after its owner is gone without having left it.
    """

    agents: int
    owner: str = ""
    clients: list[str] = []
    streams: int = 0
    since: float = 0.0
    kept: int = 0
    dropped: int = 0
    invitations: list[InvitationInfo] = []
    agent_events: list[AgentEvent] = []
    merged: list[str] = []
    part_of: list[str] = []
    owned: bool = False


def _kept_output(keeping: DisconnectPolicy) -> int:
    """Return how many bytes are kept of what each agent prints."""
    return 0 if keeping.output == "drop" else keeping.buffer


class SessionServer:
    """Serves the clients of a session: what a listener gives their connections to.

    Args:
        session: The session.
        session_id: Its id.
        name: What users call it.
        verify: Says what a client may be.
        changed: Told on the loop's thread that clients have come or gone.
        end: Has the session ended; given why.
        keeping: Treatment of results that arrive without an attached client.
        refused: Told on the loop's thread of clients that were not let in, or cut off.
        largest: Bytes of the largest message and payload of a client: the server has it in memory.
        clock: The time, seconds since 1970.
        executor: Does what takes long; by default some threads.
        abandoned: Whether the owner of a former server of the session may be gone.

    Attributes:
        id: Its session's id.
        name: What users call the session.
        changed: Told on the loop's thread that clients have come or gone, or merged sessions.
        largest: Bytes of the largest message and payload of a client.
        abandoned: Whether the session belonged to an owner that is gone without having left it.
        denied: The credentials that were revoked.
        kept_streams: Takes the streams of an owner that is gone.
        merging: Merges other sessions into this one.
        calls: Answers calls of clients.
        news: Tells clients of places.
    """

    def __init__(  # noqa: PLR0913 - what a server is made of has little in common
        self,
        session: ServedSession,
        session_id: str,
        name: str,
        verify: Verify,
        changed: Callable[[], None],
        end: Callable[[str], None],
        keeping: DisconnectPolicy,
        *,
        refused: Callable[[session_records.ClientRefused], None] = lambda _refusal: None,
        largest: int = CommSettings().max_payload,
        clock: Callable[[], float] = time.time,
        executor: Executor | None = None,
        abandoned: bool = False,
    ) -> None:
        self.session = session
        self.id = session_id
        self.name = name
        self.changed = changed
        self.largest = max(largest, wire.MAX_STRANGE)
        self.abandoned = abandoned
        self.denied: frozenset[str] = frozenset()
        self._refused = refused
        self._clock = clock
        self._verify = verify
        self._clients: dict[int, ServedClient] = {}
        self._numbers = itertools.count(1)
        self._kept = KeptOutput(_kept_output(keeping))
        self._since, self._was_attached = clock(), False
        self.kept_streams = KeptStreams(keeping, session.post_of_stream)
        self.merging = merging_of(self)
        self.calls = ServerCalls(self, end, clock, executor)
        self.news = ProcessNews(session, self._kept, self.admitted)
        self._admission = Admission(self)

    @property
    def owner(self) -> ServedClient | None:
        """Who owns the session now."""
        return next((one for one in self.admitted() if one.role is ClientRole.OWNER), None)

    @property
    def attached(self) -> bool:
        """Whether a client is attached that does more than watch."""
        return any(one.role in WORKING for one in self.admitted())

    @property
    def merged(self) -> bool:
        """Whether it is merged with another session."""
        return self.merging.begun or bool(self.mergers())

    def split_off(self, labels: Sequence[str], error: SapwoodError) -> None:
        """End the connections of servers of sessions that this one is merged into."""
        for one in self.mergers():
            if one.label in labels:
                self._cut_off(one, error)

    def mergers(self) -> list[ServedClient]:
        """Return the servers of the sessions that this one is merged into."""
        return [one for one in self.admitted() if one.role is ClientRole.MERGER]

    def change_keeping(self, keeping: DisconnectPolicy) -> None:
        """Act by another policy from now on; on the loop's thread."""
        self.kept_streams.change(keeping)
        self._kept.change(_kept_output(keeping))

    def taken(self, client: ServedClient) -> None:
        """Forget what was kept for a client: it has arrived."""
        self._kept.taken(client.number)
        if client.role is ClientRole.OWNER:
            self.kept_streams.taken()

    def status(self) -> SessionStatus:
        """Return how the session is; on the loop's thread."""
        owner, invited = self.owner, self.session.invited
        return SessionStatus(
            agents=self.session.tree.agents,
            owner=owner.label if owner is not None else "",
            clients=[f"{one.label} ({one.role.value})" for one in self.admitted() if one.role],
            streams=len(self.session.of_stream),
            since=self._since,
            kept=self._kept.nbytes,
            dropped=sum(self._kept.dropped.values()),
            invitations=[] if invited is None else invited.current(),
            agent_events=[] if invited is None else list(invited.events)[-TOLD_EVENTS:],
            merged=self.merging.handles,
            part_of=[one.label for one in self.mergers()],
            owned=self.abandoned or any(one.owned for one in self.admitted()),
        )

    def admitted(self) -> list[ServedClient]:
        """Return the clients that were let in."""
        return [one for one in self._clients.values() if one.role is not None]

    # --- connections ---------------------------------------------------------------------------

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Take a client of this machine in that has said nothing yet."""
        del initiator
        return self.open(connection, self._verify, here=True)

    def open(self, connection: Connection, verify: Verify, *, here: bool) -> int:
        """Take a client in that has said nothing yet.

        Args:
            connection: The connection with it.
            verify: Says what it may be.
            here: Whether it is on this machine: then both map each other's memory.
        """
        number = next(self._numbers)
        strangers = [one for one in self._clients.values() if one.role is None]
        if len(strangers) >= MAX_STRANGERS:
            self._cut_off(
                strangers[0], SecurityError("others wait, and it has not asked to attach")
            )
        made = ServedClient(number, connection, self, verify, here=here)
        self._clients[number] = made
        self.session.loop.call_later(STRANGER_PATIENCE, self._too_late, made)
        return number

    def _too_late(self, client: ServedClient) -> None:
        if client.role is None:
            self._cut_off(client, SecurityError("it has not asked to attach in time"))

    def _look_at_end(self, client: ServedClient, not_after: float) -> None:
        """Cut a client off when what it has shown ends."""
        left = not_after - self._clock()
        if self._clients.get(client.number) is not client or not_after == math.inf:
            return
        if left <= 0:
            self._cut_off(client, SecurityError("its credential has expired"))
        else:
            wait = min(left, LONGEST_TIMER)
            self.session.loop.call_later(wait, self._look_at_end, client, not_after)

    def bytes_received(self, number: int, data: bytes) -> None:
        """Take in what a client says."""
        client = self._clients.get(number)
        if client is None:
            return
        try:
            for message in client.reader.feed(data):
                if self._clients.get(number) is not client:
                    return  # it was cut off meanwhile
                client.take(message)
        except SapwoodError as error:
            self._cut_off(client, error)
        except Exception as error:  # noqa: BLE001 - what one client says must not end the session
            doing = f"a message of client {number}"
            log_failure(doing, error)
            self._cut_off(client, as_error(error, doing))

    def _cut_off(self, client: ServedClient, error: SapwoodError) -> None:
        """End a connection, and tell the client why."""
        if self._clients.get(client.number) is not client:
            return
        _log.warning("client cut off", number=client.number, reason=error.what)
        if client.role is None:
            said: msgspec.Struct = wire.NotAdmitted(error.to_record())
        else:
            what = f"the session has cut this client off: {error.what}"
            record = msgspec.structs.replace(error.to_record(), what=what)
            said = wire.SessionEnds(what, record)
        if isinstance(error, SecurityError):
            self._note_refused(client, error)
        client.connection.write(wire.pack(said, sharing=False))
        client.connection.close()
        self.session.loop.call_later(FAREWELL, client.connection.abort)
        self.connection_closed(client.number, error.what)

    def _note_refused(self, client: ServedClient, error: SecurityError) -> None:
        """Have it noted who was not let in, or was cut off, and where they are."""
        way = client.connection
        address = way.facts().address if isinstance(way, TlsConnection) else ""
        refusal = session_records.ClientRefused(
            session=self.id,
            reason=error.what,
            address=address,
            label=client.label,
            credential=error.where or (client.allowed.credential or ("",))[-1],
            attached=client.role is not None,
        )
        self._refused(refusal)

    def deny(self, ids: frozenset[str]) -> None:
        """Cut off those whose credential was revoked, and whom they invited; on the loop."""
        self.denied |= ids
        if self.session.invited is not None:
            self.session.invited.deny(ids)
        for client in self.admitted():
            found = ids & set(client.allowed.credential)
            if found:
                self._cut_off(client, SecurityError("its credential was revoked", where=min(found)))

    def connection_closed(self, number: int, reason: str) -> None:
        """A client is gone, with or without a word."""
        client = self._clients.pop(number, None)
        if client is None:
            return
        client.gone()
        self.abandoned = self.abandoned or client.owned
        self._kept.given_back(number)
        if client.role is not None:
            _log.info("client gone", number=number, label=client.label, reason=reason)
            self._note_change()

    def leave(self, client: ServedClient) -> None:
        """Detach a client that has asked for it: later results are for the next one."""
        client.owned = False
        client.connection.close()
        self.session.loop.call_later(FAREWELL, client.connection.abort)
        self.connection_closed(client.number, "it has left")

    def _note_change(self) -> None:
        """Clients have come or gone."""
        if self.attached is not self._was_attached:
            self._was_attached = self.attached
            self._since = self._clock()
        self.changed()

    def admit(self, client: ServedClient, asked: wire.AskToAttach) -> None:
        """Let a client in.

        Raises:
            SapwoodError: It may not.
        """
        wanted, allowed = self._admission.check(client, asked)
        limit = wire.MAX_STRANGE if wanted is ClientRole.WATCHER else self.largest
        welcome = self._admission.welcome(client, asked)
        client.outbox.tell(welcome)
        client.admit(wanted, allowed, limit=limit, shares=welcome.shares_memory)
        if wanted is ClientRole.OWNER:
            client.owned, self.abandoned = asked.owned, False
            client.streams.inherit()
        if wanted in WORKING:
            for message in self._kept.take(client.number):
                client.outbox.tell(message)
            client.outbox.tell(wire.AllHandedOver(len(client.streams)))
        self._look_at_end(client, allowed.not_after)
        _log.info("client attached", number=client.number, role=wanted.value)
        self._note_change()

    def answer(self, client: ServedClient, call: wire.SessionCall) -> Any:
        """Return the answer to a call, or a future that gets it."""
        return self.calls.answer(client, call)

    def close(self, reason: str) -> None:
        """Tell all clients that the session ends; on the loop's thread."""
        self.merging.close()
        for client in list(self._clients.values()):
            client.outbox.tell(wire.SessionEnds(reason))
            client.connection.close()


class RemoteDoor:
    """Where clients on other machines come in: they show a credential.

    Args:
        server: Serves them.
        verify: Says what they may be.
    """

    def __init__(self, server: SessionServer, verify: Verify) -> None:
        self._server = server
        self._verify = verify
        self.bytes_received = server.bytes_received
        self.connection_closed = server.connection_closed

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Take a client in that has said nothing yet."""
        del initiator
        return self._server.open(connection, self._verify, here=False)
