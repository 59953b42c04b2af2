"""Where machines become nodes: by a join token, or by the certificate of a former node."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from sapwood.contexts import orders
from sapwood.core.errors import CommunicationError, SapwoodError, SecurityError
from sapwood.core.hostset import fold_hosts
from sapwood.core.topology import ROOT, Tree
from sapwood.environment.logs import logger
from sapwood.environment.settings import NodeSettings, RestartSettings
from sapwood.lifecycle import events as lev
from sapwood.lifecycle.processes import ProcessTable
from sapwood.nodes.certificates import CertificateIssuer
from sapwood.nodes.daemon import DaemonOrder
from sapwood.nodes.joining import (
    JOIN_TIMEOUT,
    PATIENCE,
    JoinAnswer,
    JoinRequest,
    check_clock,
    check_facts,
    check_python,
)
from sapwood.nodes.note_event import NoteEvent
from sapwood.nodes.refusals import Refusals, RefusedMachine, RefusedMachines, log_refusals
from sapwood.nodes.registry import NodeRegistry
from sapwood.security.authority import valid_until
from sapwood.security.tokens import LIFETIME, JoinToken, TokenRecord, Tokens
from sapwood.session.port import NewAgent

_log = logger("nodes")

_NODE = re.compile(r"n[0-9]+(-[0-9]+){0,2}")
"""Names of nodes in certificates; those of heads and clients have others."""

MAX_TOKEN_USERS = 1000
"""Tokens of which the head remembers who used them."""

MAX_USERS = 16
"""Machines that it remembers of each, the last ones."""

MAX_NAME = 64
"""Characters of the name of a refused machine."""


class ControlSupervisor(Protocol):
    """The part of a supervisor that admits nodes."""

    @property
    def processes(self) -> ProcessTable:
        """The records of all daemons."""

    def post(self, event: lev.Event) -> None:
        """Give the life cycle of the daemons an event."""


class ControlHost(Protocol):
    """The part of a session's host that admits nodes."""

    def expand(self, places: Sequence[NewAgent]) -> tuple[int, ...]:
        """Add ranks to the tree."""

    def contract(self, ranks: Sequence[int], reason: str) -> None:
        """End the processes of ranks."""

    def configuration_of(self, host: int) -> bytes:
        """Return what the processes of a machine share, encoded."""


class ControlSession(Protocol):
    """The session whose agents are the daemons of nodes; as :class:`EmbeddedSession` is."""

    @property
    def supervisor(self) -> ControlSupervisor:
        """Supervises the daemons."""

    @property
    def host(self) -> ControlHost:
        """The root of the tree."""

    @property
    def tree(self) -> Tree:
        """The present tree."""

    def begin_contract(self, ranks: Sequence[int]) -> list[Future[Any]]:
        """Take ranks out of the tree."""


@dataclass(frozen=True)
class JoinPolicy:
    """How machines become nodes.

    Attributes:
        settings: The settings of nodes.
        restart: How often a node starts the processes of sessions again.
        generation: Which head of the authority this is; 0 if there is no other.
        denied: Says whether a node id may not return.
    """

    settings: NodeSettings
    restart: RestartSettings
    generation: int
    denied: Callable[[str], bool]


class JoinDesk:
    """Admits machines as nodes, or refuses them with the reason.

    Its methods run on the loop of the control tree unless others are named.

    Args:
        session: The session whose agents are the daemons.
        registry: The nodes.
        issuer: Signs their certificates.
        tokens: The tokens by which machines may join.
        policy: How machines become nodes.
        note: Receives an event for each machine that is admitted or refused.
        later: Calls a function after some seconds, on the loop.
        on_admitted: Called when a machine was admitted.
    """

    def __init__(
        self,
        session: Callable[[], ControlSession],
        registry: NodeRegistry,
        issuer: CertificateIssuer,
        tokens: Tokens,
        policy: JoinPolicy,
        note: NoteEvent,
        later: Callable[..., object],
        on_admitted: Callable[[], None],
    ) -> None:
        self._session = session
        self._registry = registry
        self._issuer = issuer
        self._tokens = tokens
        self._policy = policy
        self._note = note
        self._later = later
        self._expected: dict[str, int] = {}  # incarnations, by the ids of tokens
        self._token_users: dict[str, deque[str]] = {}
        self._refused = RefusedMachines()
        self._note_refused = Refusals(self._record_refusal)
        self._on_admitted = on_admitted

    # --- any thread ------------------------------------------------------------------------------

    @property
    def refusals(self) -> list[RefusedMachine]:
        """The machines that were refused, the last ones."""
        with self._registry.lock:
            return list(self._refused)

    @property
    def tokens(self) -> list[TokenRecord]:
        """The tokens that can be used, except those of daemons that are starting."""
        tokens = self._tokens.list()
        with self._registry.lock:
            return [one for one in tokens if one.id not in self._expected]

    def create_token(
        self, *, uses: int = 1, lifetime: float = LIFETIME, names: str = "*", host: int = 0
    ) -> JoinToken:
        """Return a token by which machines become nodes.

        Args:
            uses: How many machines may use it.
            lifetime: How long, in seconds.
            names: Pattern of the names that they may call themselves, as of a shell.
            host: The node that a machine is to be again, whose daemon has ended; 0 for a new one.
        """
        return self._tokens.create(uses=uses, lifetime=lifetime, names=names, slot=host)

    def revoke_token(self, token_id: str) -> bool:
        """Revoke a join token; return whether it existed."""
        return self._tokens.revoke(token_id)

    def daemon_order(self, rank: int, incarnation: int, places: Sequence[str]) -> DaemonOrder:
        """Return the configuration of the daemon of a rank, with a separate token.

        Args:
            rank: The rank.
            incarnation: Which daemon of that rank it is.
            places: Where it reaches the head.
        """
        token = self._tokens.create(slot=rank)
        with self._registry.lock:
            self._expected[token.id] = incarnation
        return DaemonOrder(token.text, list(places))

    # --- on the loop of the control tree -------------------------------------------------------

    def expect(self, spec: orders.ProcessSpec) -> None:
        """Let the next daemon of a rank join."""
        self._registry.await_daemon(spec.rank, spec.incarnation)

    def admit(self, request: JoinRequest, peer: str, address: str) -> JoinAnswer:
        """Admit a machine as a node, or refuse it and remember why.

        Args:
            request: What it asks for.
            peer: The id in the certificate that it shows; empty for none.
            address: Where it comes from.

        Raises:
            CommunicationError: It may try again.
            SapwoodError: It is refused.
        """
        try:
            answer = self.admitted(request, peer)
        except CommunicationError:
            raise  # it tries again
        except SapwoodError as error:
            reason = error.what
            with self._registry.lock:
                users = list(self._token_users.get(_id_of(request.token), ()))
            if users:
                reason += f"; it let in {fold_hosts(users)}"
            name = _printable(request.facts.name)
            self._refuse(
                RefusedMachine(time=time.time(), name=name, address=address, reason=reason)
            )
            raise
        self._note(
            "node.joined" if request.token else "node.back",
            "joined" if request.token else "reconnected with its certificate",
            node=self._registry.name_of(answer.rank),
            facts={"address": address, "id": answer.node, "user": request.facts.user},
        )
        return answer

    def failed(self, address: str, reason: str) -> None:
        """Record a peer that failed before it sent a request."""
        self._refuse(RefusedMachine(time=time.time(), address=address, reason=reason))

    def _refuse(self, refusal: RefusedMachine) -> None:
        log_refusals(refusal.name or refusal.address, refusal.reason)
        self._note_refused(refusal.address, f"{refusal.name}\0{refusal.reason}")
        with self._registry.lock:
            self._refused.add(refusal)

    def _record_refusal(self, address: str, what: str, left_out: int) -> None:
        """Record refused machines, rate-limited, because unauthenticated peers cause them."""
        name, _, reason = what.partition("\0")
        facts = {"address": address} | ({"name": name} if name else {})
        if left_out:
            facts["others"] = str(left_out)
        self._note("machine.refused", reason, facts=facts)

    def admitted(self, request: JoinRequest, peer: str) -> JoinAnswer:
        """Admit a machine as a node.

        Args:
            request: What it asks for.
            peer: The id in the certificate that it shows; empty for none.

        Raises:
            SapwoodError: It is not admitted.
        """
        self._issuer.check()
        check_facts(request.facts)
        check_python(request.facts.python)
        check_clock(request.facts.clock - time.time(), self._issuer.spare)
        if request.token:
            rank, incarnation, name = self._by_token(request)
            certificate = self._issuer.sign(request.request, name)
        else:
            # A node keeps its id: to deny the id is to deny all certificates that the node got.
            name = peer.partition(".")[0]
            self._must_be_node(peer)  # first: a signature costs time, and strangers get none
            certificate = self._issuer.sign(request.request, name)
            rank, incarnation = self._by_certificate(request, peer)
        node = self._issuer.authority.node_id(name)
        with self._registry.lock:
            one = self._registry.of(rank)
            one.node, one.facts = node, request.facts
            one.skew = request.facts.clock - time.time()
            one.certificate_end = valid_until(certificate)
            one.answered = incarnation
            one.trouble = ""
        self._on_admitted()
        return JoinAnswer(
            node,
            certificate,
            rank,
            incarnation,
            self._session().host.configuration_of(rank),
            self._registry.name_of(rank),
            self._policy.restart,
            list(dict.fromkeys(self._policy.settings.components)),
            self._policy.settings.stage_folder,
            self._policy.settings.stage_limit,
        )

    def _by_token(self, request: JoinRequest) -> tuple[int, int, str]:
        """Return rank, incarnation and name in certificates of a machine that has a token."""
        token = JoinToken.parse(request.token)
        checked = self._tokens.check(token, request.facts.name)
        former = 0 if checked.slot else self._rank_of_lost(request.facts.name)
        record = self._tokens.redeem(token, request.facts.name)
        with self._registry.lock:
            users = self._token_users.setdefault(token.id, deque(maxlen=MAX_USERS))
            users.append(_printable(request.facts.name))
            if len(self._token_users) > MAX_TOKEN_USERS:
                del self._token_users[next(iter(self._token_users))]
            launched = self._expected.pop(token.id, 0)
        rank = record.slot or former or self._add_node(request.facts.name)
        incarnation = launched or self._registry.take_awaited(rank)
        if not incarnation:
            raise SecurityError(
                f"the join token is for the node {rank}, which is there or was removed",
                hint="make a token for a new node",
            )
        name = f"n{rank}-{self._policy.generation}" if self._policy.generation else f"n{rank}"
        if former:  # the former daemon may only be cut off, and keeps its own certificate
            name = f"n{rank}-{self._policy.generation}-{incarnation}"
        return rank, incarnation, name

    def _rank_of_lost(self, name: str) -> int:
        """Return the rank of a lost node, which a machine gets that joins by its name.

        Returns:
            0 if no node of that name is lost.

        Raises:
            CommunicationError: The node of that name has no connection, but may come back.
        """
        session, registry = self._session(), self._registry
        known = [one for one in registry.named(name) if one in session.tree]
        if not known:
            return 0
        with registry.lock:
            if registry.of(known[0]).awaited:
                return known[0]
        if registry.given_up(known[0]):
            self._remove_given_up(known)
        elif registry.is_broken(known[0]) or session.supervisor.processes[known[0]].may_come_back:
            raise CommunicationError(f"the node '{name}' is not known to be gone yet")
        return 0

    def _remove_given_up(self, known: Sequence[int]) -> None:
        """Remove a node that was lost too often: its machine gets another rank."""
        session = self._session()
        session.begin_contract(known)
        session.host.contract(known, "it came again, and has another place")

    def _must_be_node(self, peer: str) -> None:
        """Raise SecurityError unless a certificate is one of a node that may come again."""
        if _NODE.fullmatch(peer.partition(".")[0]) is None:
            raise SecurityError("a machine that was never here needs a join token")
        if self._policy.denied(peer):
            raise SecurityError("the node was removed", hint="join with a new token")

    def _by_certificate(self, request: JoinRequest, peer: str) -> tuple[int, int]:
        """Return rank and incarnation of a node that comes again."""
        registry = self._registry
        with registry.lock:
            known = [rank for rank, one in registry if one.node == peer]
        if not known:
            rank = self._add_node(request.facts.name)
            return rank, registry.take_awaited(rank)
        incarnation = registry.take_awaited(known[0])
        if incarnation:
            return known[0], incarnation
        if not registry.given_up(known[0]):
            with registry.lock:
                answered = registry.of(known[0]).answered
            # The answer that admitted it may have got lost on its way.
            self._session().supervisor.post(lev.Restart(known[0], answered, "its node asks again"))
            raise CommunicationError("the node is not known to be gone yet")
        self._remove_given_up(known)
        rank = self._add_node(request.facts.name)
        return rank, registry.take_awaited(rank)

    def _add_node(self, name: str) -> int:
        """Give a joining machine a new rank; return it."""
        session = self._session()
        rank = session.tree.size
        present = [one for one in range(rank) if one in session.tree]
        self._registry.add(rank, name, present)
        (rank,) = session.host.expand([NewAgent(ROOT, rank)])
        _log.info("node admitted", host=self._registry.name_of(rank), rank=rank)
        self._later(JOIN_TIMEOUT + PATIENCE, self._forget_absent, rank)
        return rank

    def _forget_absent(self, rank: int) -> None:
        """Remove a node that was admitted and did not join the tree."""
        session = self._session()
        if session.supervisor.processes[rank].is_new and rank in session.tree:
            session.begin_contract([rank])
            session.host.contract([rank], "it joined and did not take its place")


def _id_of(token: str) -> str:
    """Return which token a text is, as far as that can be read."""
    return "".join(token.split(".")[1:2])


def _printable(name: str) -> str:
    """Return a name that an unknown machine gave itself, fit for a terminal."""
    return "".join(one if one.isprintable() else "?" for one in name[:MAX_NAME])
