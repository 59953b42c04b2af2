"""Invited agents: a session issues invitations, and processes join by them.

The root of the session is the authority of these agents: it has a separate port, at which a
process shows its invitation and gets a certificate, a rank and what its place needs to know.
An invitation lets in one agent at a time. When that is gone, another process may come by it,
which gets a separate rank, until the invitation expires or is revoked.

The certificate names the rank, and the root takes links from no certificate but those of agents
that are there now. Besides, each agent shows the secret of its rank, as all places do.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

from sapwood.comm import frames
from sapwood.comm import messages as msg
from sapwood.comm.loop import Timer
from sapwood.comm.transport.base import Connection, ConnectionHandler
from sapwood.comm.transport.tls_port import TlsPort
from sapwood.contexts.plan import ZygotePlan
from sapwood.core.errors import ClosedError, ConfigurationError, ResourceError, SecurityError
from sapwood.core.futures import when_done
from sapwood.core.rankset import fold
from sapwood.environment.logs import logger
from sapwood.nodes.joining import (
    AGENT_PROTOCOL,
    AgentPlace,
    JoinRequest,
    JoinServer,
    check_facts,
    check_python,
)
from sapwood.nodes.port import addresses_of_port, listen_address
from sapwood.nodes.refusals import Refusals
from sapwood.security.authority import HEAD, Authority, make_request, new_cluster_id
from sapwood.security.credentials import Credentials
from sapwood.security.invitations import (
    AGENTS,
    ANY_NUMBER,
    Invitation,
    InvitationRecord,
    InvitationStore,
)
from sapwood.session.agent import END_AGENT, LEAVE_SESSION
from sapwood.session.embedded import DRAINING, EmbeddedSession
from sapwood.session.interface import AgentEvent, InvitationInfo, ProcessState
from sapwood.session.member import tree_protocol
from sapwood.session.options import PlacesChanged
from sapwood.session.requests import ServedRequest

CERTIFICATE_LIFE = dt.timedelta(days=365)
"""How long an agent's certificate is valid: it ends with the agent, and with the session."""

JOIN_PATIENCE = 30.0
"""Seconds from an answer to the link of the agent."""

END_TIMEOUT = 3.0
"""Seconds that agents get to end with their session."""

MAX_EVENTS = 64
"""Events that are kept; of more, the last ones."""

_log = logger("session")


class Invited:
    """The agent that is there by an invitation, if there is one.

    Attributes:
        id: Which invitation it is.
        rank: The agent that is there by it; 0 for none.
        host: What that process' machine calls itself.
        pid: Its process id there.
        since: When it joined, seconds since 1970.
        joined: How many processes have joined by it.
        links: Its connections that are open, by their numbers.
        timer: Gives it up if it does not come.
        leaves: Whether it wants to leave.
        lost: Why it is lost; empty while it is not.
    """

    def __init__(self, invitation: str) -> None:
        self.id = invitation
        self.host = ""
        self.pid = 0
        self.since = 0.0
        self.joined = 0
        self.links: set[int] = set()
        self.timer: Timer | None = None
        self.free()

    def free(self) -> None:
        """Record that none of its agents is left."""
        if self.timer is not None:
            self.timer.cancel()
        self.rank = 0
        self.links = set()
        self.timer = None
        self.leaves = False
        self.lost = ""


class Invitations:
    """Admits invited processes as agents of a session.

    Attributes:
        listed_by: What shows the invitations, for hints.

    Args:
        session: The session.
        listen: Where processes reach it by default, ``host:port``.
        most: Agents that the session may have.
        name: What users call the session.
        on_event: Told of each event, on the session's loop.
    """

    def __init__(
        self,
        session: EmbeddedSession,
        listen: str,
        most: int,
        name: str = "",
        on_event: Callable[[AgentEvent], None] = lambda _event: None,
    ) -> None:
        self.events: deque[AgentEvent] = deque(maxlen=MAX_EVENTS)
        self.listed_by = "cluster.invitations"
        self._session = session
        self._listen = listen
        self._most = most
        self._name = name or session.host.node.identity.cluster
        self._on_event = on_event
        self._authority = Authority.create(new_cluster_id())
        self._credentials = self._issue()
        self._store = InvitationStore(
            AGENTS, self._authority.pin, _now, in_use=lambda one: bool(self._of(one).rank)
        )
        self._invited: dict[str, Invited] = {}
        self._agents: dict[int, Invited] = {}
        self._nodes: dict[str, Invited] = {}
        self._port: TlsPort | None = None
        self._joining: JoinServer | None = None
        self._listens = ""
        self._addresses: tuple[str, ...] = ()
        self._happened = 0
        self._refusals = Refusals(self._tell_refusal)
        session.requests.serve(LEAVE_SESSION, self._leave)
        session.subscribe(self._places_changed)

    def _issue(self) -> Credentials:
        key, request = make_request()
        return self._authority.issue(request, HEAD, key, CERTIFICATE_LIFE)

    # --- for users, on any thread but the session's ----------------------------------------------

    def create(
        self, count: int, lifetime: float, listen: str = "", by: tuple[str, ...] = ()
    ) -> list[str]:
        """Make invitations; return their lines, which are secrets.

        Args:
            count: How many: each lets in one agent at a time.
            lifetime: Seconds for which they let processes in.
            listen: Where processes reach the session, ``host:port``; port 0 takes a free one.
            by: Ids of the blocks of the credential of whoever makes them: see :meth:`deny`.

        Raises:
            ConfigurationError: There cannot be so many, or the session listens elsewhere already.
            CommunicationError: The port is taken, or the address is none of this machine.
        """
        made = self._session.call(self._create, count, lifetime, listen, by)
        return [one.line for one in made]

    def views(self) -> list[InvitationInfo]:
        """Return snapshots of all invitations."""
        found: list[InvitationInfo] = self._session.call(self.current)
        return found

    def revoke(self, invitation: str) -> bool:
        """Revoke an invitation; return whether it existed.

        An agent that is there by it stays.
        """
        return bool(self._session.call(self._store.revoke, invitation))

    def close(self) -> None:
        """Stop all invited agents, and admit no more."""
        with contextlib.suppress(ClosedError):
            wait(self._session.call(self._end_agents), END_TIMEOUT)
            self._session.call(self._close)

    # --- on the session's loop -------------------------------------------------------------------

    def current(self) -> list[InvitationInfo]:
        """Return snapshots of all invitations."""
        now = _now()
        found = [(record, self._of(record.id)) for record in self._store.list()]
        return [
            InvitationInfo(
                id=one.id,
                state=_state_of(record, one, now),
                expires=record.expires,
                rank=one.rank,
                host=one.host if one.rank else "",
                pid=one.pid if one.rank else 0,
                since=one.since if one.rank else 0.0,
                joined=one.joined,
            )
            for record, one in found
        ]

    def _of(self, invitation: str) -> Invited:
        """Return the agent of an invitation."""
        found = self._invited.get(invitation)
        if found is None:
            found = self._invited[invitation] = Invited(invitation)
        return found

    def deny(self, ids: frozenset[str]) -> None:
        """End the invitations by credentials that were revoked, with the agents there by them."""
        for invitation in self._store.by_credentials(ids):
            self._store.revoke(invitation)
            one = self._of(invitation)
            if one.rank in self._agents:
                self._lost(one, "the credential of who invited it was revoked")

    def _create(
        self, count: int, lifetime: float, listen: str, by: tuple[str, ...]
    ) -> list[Invitation]:
        if not 1 <= count <= self._most:
            raise ConfigurationError(
                f"{count} agents cannot be invited",
                hint=f"from 1 to {self._most}; limits.agents is the most that there may be",
            )
        if not lifetime > 0:
            raise ConfigurationError(f"an invitation cannot be valid for {lifetime:g} s")
        self._store.make_room(count)
        self._open(listen)
        made = [
            self._store.create(uses=ANY_NUMBER, lifetime=lifetime, by=by, addresses=self._addresses)
            for _number in range(count)
        ]
        known = {record.id for record in self._store.list()}
        for over in self._invited.keys() - known:
            del self._invited[over]
        return made

    def _open(self, listen: str) -> None:
        wanted = listen_address(listen or self._listens or self._listen)
        if self._port is not None:
            if wanted != self._listens:
                raise ConfigurationError(
                    f"the session already admits agents at {self._listens}",
                    where=f"listen={listen}",
                    hint="a session has one such port; leave this out",
                )
            return
        session = self._session
        port = TlsPort(wanted, session.loop, self._credentials, refused=self._refusals)
        self._joining = JoinServer(self._authority.certificate, self._admit, session.loop)
        port.serve(AGENT_PROTOCOL, self._joining, certificate=False)
        tree = tree_protocol(session.host.node.identity.cluster)
        port.serve(tree, _LinkAuthorizer(session.host.driver, self._nodes, self._refusals))
        self._port, self._listens = port, wanted
        self._addresses = addresses_of_port(wanted, int(port.address.rpartition(":")[2]))
        _log.info("agents may join", at=",".join(self._addresses))

    def _end_agents(self) -> list[Future[Any]]:
        """Have all agents end; return their answers."""
        reason = "the session has ended"
        for one in self._agents.values():
            one.leaves = True
        if self._port is not None:
            self._port.close()  # no process joins any more; links continue
        ready = [
            rank
            for rank in self._agents
            if self._session.supervisor.processes[rank].state is ProcessState.READY
        ]
        return [self._session.ask(rank, END_AGENT, reason) for rank in ready]

    def _close(self) -> None:
        for one in self._invited.values():
            if one.timer is not None:
                one.timer.cancel()
        if self._joining is not None:
            self._joining.close()

    # --- who comes -------------------------------------------------------------------------------

    def _admit(self, request: JoinRequest, _peer: str, address: str) -> AgentPlace:
        """Give a process its place, or say why not."""
        try:
            return self._admitted(request)
        except (SecurityError, ConfigurationError, ResourceError) as error:
            self._refusals(address, error.what)
            raise

    def _admitted(self, request: JoinRequest) -> AgentPlace:
        record = self._store.redeem(AGENTS.parse(request.token), request.facts.name)
        found = self._of(record.id)
        check_facts(request.facts)
        check_python(request.facts.python)
        if found.rank and (found.links or found.timer is not None):
            raise SecurityError(
                f"agent {found.rank} is there by this invitation: process {found.pid} on "
                f"{found.host}",
                hint="an invitation lets in one agent at a time; it is free when that is gone",
            )
        session = self._session
        if session.tree.agents - bool(found.rank) >= self._most:
            raise ResourceError(
                f"the session has {self._most} agents",
                hint="raise limits.agents if this is meant",
            )
        if found.rank:  # its link is broken, and another process has come
            self._lost(found, "another process came by its invitation while its link was broken")
        rank = session.tree.size
        certificate = self._authority.sign(request.request, f"agent-{rank}", CERTIFICATE_LIFE)
        taken = session.host.take_in(request.facts.python)
        assert taken == rank  # noqa: S101 - both happen in one step of the loop
        found.rank, found.host, found.pid = rank, request.facts.name, request.facts.pid
        found.since = time.time()
        found.timer = session.loop.call_later(JOIN_PATIENCE, self._did_not_come, found, rank)
        node = self._authority.node_id(f"agent-{rank}")
        self._agents[rank] = self._nodes[node] = found
        options = session.options
        return AgentPlace(
            node=node,
            certificate=certificate,
            rank=rank,
            configuration=session.host.configuration_of(-rank),
            session=self._name,
            plan=ZygotePlan((), options.runner_modules, options.runner_entry),
            environment=dict(options.environment),
        )

    def _did_not_come(self, found: Invited, rank: int) -> None:
        if found.rank == rank and found.timer is not None:
            self._lost(found, f"it did not take its place within {JOIN_PATIENCE:g} s")

    def _lost(self, found: Invited, reason: str) -> None:
        found.lost = reason
        self._session.host.contract([found.rank], reason)

    # --- who goes --------------------------------------------------------------------------------

    def _leave(self, question: ServedRequest) -> None:
        """Let an agent leave after it has answered pending requests."""
        found = self._agents.get(question.asked.source)
        if found is None:
            question.fail(SecurityError("only an agent that has joined may leave"))
            return
        question.give(None, None)
        if found.leaves:
            return
        found.leaves = True
        rank, session = found.rank, self._session
        if rank not in session.tree:
            return  # it is being removed already
        waiting = set(session.begin_contract([rank]))
        removed = partial(session.host.contract, [rank], "it left")
        timer = session.loop.call_later(DRAINING, removed)

        def over(done: Future[Any]) -> None:
            waiting.discard(done)
            if not waiting:
                timer.cancel()
                removed()

        def told(done: Future[Any]) -> None:
            with contextlib.suppress(ClosedError):  # the session has ended
                session.loop.call_soon_threadsafe(over, done)

        if not waiting:
            timer.cancel()
            session.loop.call_soon(removed)
        for one in tuple(waiting):
            when_done(one, told)

    def _places_changed(self, change: PlacesChanged) -> None:
        for rank in change.ranks:
            found = self._agents.get(rank)
            if found is None:
                continue
            if change.back:
                self._is_there(found)
            elif change.removed:
                self._is_gone(found, change.reason)
            elif not found.lost:
                found.lost = change.reason

    def _is_there(self, found: Invited) -> None:
        if found.timer is None:
            return
        found.timer.cancel()
        found.timer = None
        found.joined += 1
        text = f"{fold('agent', [found.rank])} joined: process {found.pid} on {found.host}"
        self._note("agent.joined", text, found)

    def _is_gone(self, found: Invited, reason: str) -> None:
        del self._agents[found.rank]
        del self._nodes[self._authority.node_id(f"agent-{found.rank}")]
        lost = found.lost and not found.leaves
        agent = fold("agent", [found.rank])
        if lost:
            self._note("agent.lost", f"{agent} is lost: {found.lost}", found)
        else:
            self._note("agent.left", f"{agent} left: {reason}", found)
        found.free()

    def _note(self, kind: str, text: str, found: Invited) -> None:
        facts = {"invitation": found.id, "host": found.host, "pid": str(found.pid)}
        tell = _log.warning if kind == "agent.lost" else _log.info
        tell(kind, what=text, **facts)
        self._tell(kind, text, {"rank": str(found.rank), **facts})

    def _tell_refusal(self, address: str, reason: str, left_out: int) -> None:
        facts = {"address": address} | ({"others": str(left_out)} if left_out else {})
        _log.warning("agent.refused", reason=reason, **facts)
        self._tell("agent.refused", reason, facts)

    def _tell(self, kind: str, text: str, facts: dict[str, str]) -> None:
        self._happened += 1
        event = AgentEvent(number=self._happened, kind=kind, text=text, facts=facts)
        self.events.append(event)
        self._on_event(event)


def _now() -> float:
    return time.time()


def _state_of(record: InvitationRecord, one: Invited, now: float) -> str:
    if one.rank:
        return "joining" if one.timer is not None else "joined"
    return "revoked" if record.revoked else "expired" if record.expires < now else "open"


class _LinkAuthorizer:
    """Accepts links of present agents only.

    Args:
        root: The root.
        nodes: Those agents, by the ids in their certificates.
        refused: Told of others.
    """

    def __init__(
        self,
        root: ConnectionHandler,
        nodes: dict[str, Invited],
        refused: Callable[[str, str], None],
    ) -> None:
        self._root = root
        self._nodes = nodes
        self._refused = refused
        self._links: dict[int, Invited] = {}

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Accept a link of an agent."""
        found = self._nodes.get(connection.peer)
        if found is None:
            reason = "its place was removed, or given to another process"
            self._refused(connection.peer, reason)
            connection.write(frames.encode(msg.Refused(reason), None, share=False))
            connection.close()
            return -1
        number = self._root.connection_opened(connection, initiator=initiator)
        self._links[number] = found
        found.links.add(number)
        return number

    def bytes_received(self, number: int, data: bytes) -> None:
        """Hand bytes on."""
        if number >= 0:
            self._root.bytes_received(number, data)

    def connection_closed(self, number: int, reason: str) -> None:
        """Record that a connection has ended; its link may continue over another one."""
        found = self._links.pop(number, None)
        if found is not None:
            found.links.discard(number)
            self._root.connection_closed(number, reason)
