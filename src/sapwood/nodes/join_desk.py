"""Where machines become nodes: by a join token, or by the certificate of a former node."""

from __future__ import annotations

import hmac
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from sapwood.core.errors import CommunicationError, SapwoodError, SecurityError
from sapwood.core.failures import as_error, log_failure
from sapwood.core.futures import CallerFuture
from sapwood.core.hostset import fold_hosts
from sapwood.environment.settings import NodeSettings, RestartSettings
from sapwood.lifecycle import machine_events as mev
from sapwood.nodes.certificates import CertificateIssuer
from sapwood.nodes.daemon import DaemonOrder
from sapwood.nodes.joining import (
    JoinAnswer,
    JoinRequest,
    check_clock,
    check_facts,
    check_python,
)
from sapwood.nodes.machines import MachineSupervisor
from sapwood.nodes.note_event import NoteEvent
from sapwood.nodes.refusals import Refusals, RefusedMachine, RefusedMachines, log_refusals
from sapwood.nodes.registry import NodeRegistry
from sapwood.security.authority import fingerprint, valid_until
from sapwood.security.invitations import (
    LIFETIME,
    NODES,
    Invitation,
    InvitationRecord,
    InvitationStore,
)

_NODE = re.compile(r"n[0-9]+(-[0-9]+){0,2}")
"""Names of nodes in certificates; those of heads and clients have others."""

MAX_CLAIMED_TOKENS = 1000
"""Tokens of which the head remembers who used them, the last ones."""

MAX_CLAIMS = 64
"""Machines that it remembers of each, the last ones: as many may be joining at once."""

MAX_NAME = 64
"""Characters of the name of a refused machine."""


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


@dataclass(eq=False)
class _Claim:
    """One use of a token: the machine that has it may ask again when it got no answer.

    Attributes:
        name: What the machine calls itself.
        key: Fingerprint of its key.
        digest: Of the token's secret.
        record: The token after this use; None while it is being redeemed.
        node: The id of the node that the machine became; empty until it was admitted.
        revoked: Whether the token was revoked.
    """

    name: str
    key: str
    digest: bytes
    record: InvitationRecord | None = None
    node: str = ""
    revoked: bool = False


class JoinDesk:
    """Admits machines as nodes, or refuses them with the reason.

    Its methods run on the loop of the control tree unless others are named.

    Args:
        machines: Decides which machines may join.
        registry: Keeps what machines say of themselves.
        issuer: Signs their certificates.
        tokens: The tokens by which machines may join.
        policy: How machines become nodes.
        note: Receives an event for each machine that is admitted or refused.
        later: Calls a function after some seconds, on the loop; from any thread.
        off_loop: Calls a function on a separate thread of a name.
    """

    def __init__(
        self,
        machines: MachineSupervisor,
        registry: NodeRegistry,
        issuer: CertificateIssuer,
        tokens: InvitationStore,
        policy: JoinPolicy,
        note: NoteEvent,
        later: Callable[..., Any],
        off_loop: Callable[..., object],
    ) -> None:
        self._machines = machines
        self._registry = registry
        self._issuer = issuer
        self._tokens = tokens
        self._policy = policy
        self._note = note
        self._later = later
        self._off_loop = off_loop
        self._expected: dict[str, int] = {}  # incarnations, by the ids of tokens of launchers
        self._claims: dict[str, deque[_Claim]] = {}  # by the ids of tokens
        self._refused = RefusedMachines()
        self._note_refused = Refusals(self._record_refusal)

    # --- any thread ------------------------------------------------------------------------------

    @property
    def refusals(self) -> list[RefusedMachine]:
        """The machines that were refused, the last ones."""
        return list(self._refused)

    @property
    def tokens(self) -> list[InvitationRecord]:
        """The tokens that can be used, except those of daemons that are starting."""
        return [one for one in self._tokens.list() if one.id not in self._expected]

    def create_token(
        self, *, uses: int = 1, lifetime: float = LIFETIME, names: str = "*", host: int = 0
    ) -> Invitation:
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
        for claim in list(self._claims.get(token_id, ())):
            claim.revoked = True
        return self._tokens.revoke(token_id)

    def daemon_order(self, rank: int, incarnation: int, addresses: Sequence[str]) -> DaemonOrder:
        """Return the configuration of the daemon of a rank, with a separate token.

        Args:
            rank: The rank.
            incarnation: Which daemon of that rank it is.
            addresses: Where it reaches the head.
        """
        token = self._tokens.create(slot=rank)
        self._expected[token.id] = incarnation
        return DaemonOrder(token.text, list(addresses))

    # --- on the loop of the control tree -------------------------------------------------------

    def admit(self, request: JoinRequest, peer: str, address: str) -> Future[JoinAnswer]:
        """Admit a machine as a node, or refuse it and remember why.

        A join token is redeemed on a separate thread, because the store of the head may be slow.
        A machine that lost its connection before the answer may ask again with the same token, key
        and name until the token expires.

        Args:
            request: What it asks for.
            peer: The id in the certificate that it shows; empty for none.
            address: Where it comes from.

        Returns:
            The answer, which is completed on the loop; a :class:`CommunicationError` if the
            machine may try again, and another error if it is refused.
        """
        answer: Future[JoinAnswer] = CallerFuture()
        answer.set_running_or_notify_cancel()

        def end(admitted: Callable[[], JoinAnswer]) -> None:
            try:
                made = admitted()
            except Exception as exception:  # noqa: BLE001 - the machine gets an answer
                error = as_error(exception, "a machine that joins")
                if error is not exception:
                    log_failure("admitting a machine", exception)
                self._turned_away(request, address, error)
                answer.set_exception(error)
                return
            self._note(
                "node.joined" if request.token else "node.back",
                "joined" if request.token else "reconnected with its certificate",
                node=self._registry.name_of(made.rank),
                facts={"address": address, "id": made.node, "user": request.facts.user},
            )
            answer.set_result(made)

        def redeem(token: Invitation, claim: _Claim) -> None:
            try:
                record = self._tokens.redeem(token, request.facts.name)
            except Exception as error:  # noqa: BLE001 - the machine gets an answer
                self._later(0.0, end, partial(self._not_redeemed, token.id, claim, error))
            else:
                self._later(0.0, end, partial(self._redeemed, request, claim, record))

        if not request.token:
            end(partial(self.admitted, request, peer))
            return answer
        try:
            self._check(request)
            token = NODES.parse(request.token)
            former = self._former_claim(token, request)
            claim = former or self._new_claim(token, request)
        except Exception as error:  # noqa: BLE001 - the machine gets an answer
            end(partial(_raise, error))
            return answer
        if former is None:
            self._off_loop("sapwood-redeem", redeem, token, claim)
        else:
            end(partial(self._by_claim, request, claim))
        return answer

    def _turned_away(self, request: JoinRequest, address: str, error: SapwoodError) -> None:
        """Remember why a machine was refused, unless it tries again."""
        if isinstance(error, CommunicationError):
            return
        reason = error.what
        claims = self._claims.get(_id_of(request.token), ())
        users = [_printable(one.name) for one in claims if one.node]
        if users:
            reason += f"; it let in {fold_hosts(users)}"
        name = _printable(request.facts.name)
        self._refuse(RefusedMachine(time=time.time(), name=name, address=address, reason=reason))

    def failed(self, address: str, reason: str) -> None:
        """Record a peer that failed before it sent a request."""
        self._refuse(RefusedMachine(time=time.time(), address=address, reason=reason))

    def _refuse(self, refusal: RefusedMachine) -> None:
        log_refusals(refusal.name or refusal.address, refusal.reason)
        self._note_refused(refusal.address, f"{refusal.name}\0{refusal.reason}")
        self._refused.add(refusal)

    def _record_refusal(self, address: str, what: str, left_out: int) -> None:
        """Record refused machines, rate-limited, because unauthenticated peers cause them."""
        name, _, reason = what.partition("\0")
        facts = {"address": address} | ({"name": name} if name else {})
        if left_out:
            facts["others"] = str(left_out)
        self._note("machine.refused", reason, facts=facts)

    def admitted(self, request: JoinRequest, peer: str) -> JoinAnswer:
        """Admit a machine that was a node before.

        Args:
            request: What it asks for.
            peer: The id in the certificate that it shows.

        Raises:
            SapwoodError: It is not admitted.
        """
        self._check(request)
        # A node keeps its id: to deny the id is to deny all certificates that the node got.
        name = peer.partition(".")[0]
        self._must_be_node(peer)  # first: a signature costs time, and strangers get none
        certificate = self._issuer.sign(request.request, name)
        admitted = self._machines.join(mev.JoinAsked(request.facts.name, node=peer))
        return self._answer(request, name, certificate, admitted)

    def _check(self, request: JoinRequest) -> None:
        self._issuer.check()
        check_facts(request.facts)
        check_python(request.facts.python)
        check_clock(request.facts.clock - time.time(), self._issuer.spare)

    def _answer(
        self, request: JoinRequest, name: str, certificate: bytes, admitted: mev.Admit
    ) -> JoinAnswer:
        """Record a node that is admitted, and return the answer to it."""
        node = self._issuer.authority.node_id(name)
        rank = admitted.rank
        self._registry.of(rank).admitted(
            request.facts, request.facts.clock - time.time(), valid_until(certificate)
        )
        self._machines.post(mev.Certified(rank, node))
        return JoinAnswer(
            node,
            certificate,
            rank,
            admitted.incarnation,
            self._machines.configuration_of(rank),
            self._registry.name_of(rank),
            self._policy.restart,
            list(dict.fromkeys(self._policy.settings.components)),
            self._policy.settings.stage_folder,
            self._policy.settings.stage_limit,
        )

    # --- tokens ----------------------------------------------------------------------------------

    def _former_claim(self, token: Invitation, request: JoinRequest) -> _Claim | None:
        """Return the claim of a machine that has redeemed this token; None if there is none."""
        claims = [
            one
            for one in self._claims.get(token.id, ())
            if one.name == request.facts.name and hmac.compare_digest(one.digest, token.digest)
        ]
        if not claims:  # strangers do not make the head verify a signature
            return None
        key = fingerprint(request.request)
        found = next((one for one in claims if one.key == key), None)
        over = found and (
            found.revoked or (found.record is not None and found.record.expires < time.time())
        )
        return None if over else found

    def _new_claim(self, token: Invitation, request: JoinRequest) -> _Claim:
        """Let a machine claim a token that it can redeem now.

        Raises:
            CommunicationError: The node of its name may come back: it may try again later.
            SecurityError: The token cannot be used.
        """
        name = request.facts.name
        checked = self._tokens.check(token, name)
        if not checked.slot and self._machines.life.must_wait(name):  # its token stays valid
            raise CommunicationError(f"the node '{name}' is not known to be gone yet")
        claim = _Claim(name, fingerprint(request.request), token.digest)
        self._claims.setdefault(token.id, deque(maxlen=MAX_CLAIMS)).append(claim)
        if len(self._claims) > MAX_CLAIMED_TOKENS:
            del self._claims[next(iter(self._claims))]
        return claim

    def _not_redeemed(self, token_id: str, claim: _Claim, error: Exception) -> NoReturn:
        """Withdraw the claim of a machine whose token could not be redeemed."""
        claims = self._claims.get(token_id)
        if claims is not None and claim in claims:
            claims.remove(claim)
        raise error

    def _redeemed(
        self, request: JoinRequest, claim: _Claim, record: InvitationRecord
    ) -> JoinAnswer:
        """Admit a machine whose token was redeemed."""
        claim.record = record
        return self._by_claim(request, claim)

    def _by_claim(self, request: JoinRequest, claim: _Claim) -> JoinAnswer:
        """Admit a machine by its claim; one that was admitted before becomes the same node.

        Raises:
            SapwoodError: It is not admitted.
        """
        if claim.node:
            return self.admitted(request, claim.node)
        if claim.record is None:
            raise CommunicationError(
                "the previous request of this machine is still in progress (retry in a few seconds)"
            )
        record, name = claim.record, request.facts.name
        launched = self._expected.get(record.id, 0)
        asked = mev.JoinAsked(name, slot=record.slot, incarnation=launched)
        admitted = self._machines.join(asked)
        self._expected.pop(record.id, None)
        shown = self._name_of_admitted(admitted)
        certificate = self._issuer.sign(request.request, shown)
        answer = self._answer(request, shown, certificate, admitted)
        claim.node = answer.node
        return answer

    def _name_of_admitted(self, admitted: mev.Admit) -> str:
        """Return the name in certificates of a machine that joined by a token."""
        name, generation = f"n{admitted.rank}", self._policy.generation
        if admitted.replaces:  # the former daemon may only be cut off, and keeps its certificate
            return f"{name}-{generation}-{admitted.incarnation}"
        return f"{name}-{generation}" if generation else name

    def _must_be_node(self, peer: str) -> None:
        """Raise SecurityError unless a certificate is one of a node that may come again."""
        if _NODE.fullmatch(peer.partition(".")[0]) is None:
            raise SecurityError("a machine that was never here needs a join token")
        if self._policy.denied(peer):
            raise SecurityError("the node was removed", hint="join with a new token")


def _raise(error: Exception) -> NoReturn:
    raise error


def _id_of(token: str) -> str:
    """Return which token a text is, as far as that can be read."""
    return "".join(token.split(".")[1:2])


def _printable(name: str) -> str:
    """Return a name that an unknown machine gave itself, fit for a terminal."""
    return "".join(one if one.isprintable() else "?" for one in name[:MAX_NAME])
