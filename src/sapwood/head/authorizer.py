"""The authorizer of a head: one table of calls and rights, and one place that checks it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import msgspec

from sapwood.contexts.local_user import is_own_user
from sapwood.core.errors import SecurityError
from sapwood.core.hints import command
from sapwood.environment.logs import logger
from sapwood.head import calls, session_records
from sapwood.head.protocol import greeting
from sapwood.head.protocol.call import HeadCall, Reach
from sapwood.head.protocol.caller import ServiceCaller
from sapwood.head.reserved import may_use_reserved, refused
from sapwood.nodes.note_event import NoteEvent, note_nothing
from sapwood.nodes.refusals import Refusals, RefusalsByKind
from sapwood.security import rights as r
from sapwood.security.capabilities import Shown, new_challenge, verify
from sapwood.security.denials import Denials
from sapwood.security.rights import Rights
from sapwood.security.session_secrets import limited_secret

_log = logger("head")


class Authorizer:
    """Decides what a client may call by its credential.

    Args:
        cluster: Name of the cluster in certificates.
        authority: The certificate of its authority, PEM.
        issuer: Public key of its issuer of credentials.
        denials: The credentials that were revoked.
        note: Told of what is refused.
        clock: The time, seconds since 1970.
        shared: Whether all credentials may run code on reserved nodes; see ``head/reserved.py``.
    """

    def __init__(
        self,
        cluster: str,
        authority: bytes,
        issuer: bytes,
        denials: Denials,
        note: NoteEvent = note_nothing,
        clock: Callable[[], float] = time.time,
        shared: Callable[[], bool] = lambda: False,
    ) -> None:
        self._shared = shared
        self._cluster = cluster
        self._authority = authority
        self._issuer = issuer
        self._denials = denials
        self._note = note
        self._note_stranger = Refusals(self._tell_of_stranger)
        self._lacking = RefusalsByKind()  # by credential, and by what was wanted
        self._clock = clock

    def greet(self, caller: ServiceCaller) -> greeting.Greeting:
        """Say who this is, and what a credential must sign."""
        caller.challenge = new_challenge()
        return greeting.Greeting(
            cluster=self._cluster, authority=self._authority, challenge=caller.challenge
        )

    def admit(self, caller: ServiceCaller, shown: Shown) -> Rights:
        """Give a client the rights of the credential that it shows, and no others.

        Raises:
            SecurityError: It is not valid; the ledger has why, and where it came from.
        """
        challenge, caller.challenge = caller.challenge, b""
        try:
            if not challenge:
                raise SecurityError("no credential was asked for")
            found = verify(
                shown,
                self._issuer,
                self._cluster,
                challenge,
                greeting.context(self._cluster),
                now=self._clock(),
                denied=self._denials.__contains__,
            )
            found.require(r.CONNECT, self._clock())
        except SecurityError as error:
            self._refused(caller, error, "")
            raise
        caller.rights = found
        _log.info("client admitted", client=caller.number, subject=found.subject)
        return found

    def require(self, caller: ServiceCaller, call: HeadCall[..., Any]) -> None:
        """Refuse a call that a client has no right for, or that it may not make from there.

        Raises:
            SecurityError: It has not, or may not.
        """
        known = caller.rights
        if not (call.reach.method_checks and known is not None and call.right in known.names):
            self.require_right(caller, call.right, what=call.name)
        if call.reach is Reach.HEAD and not caller.is_local:
            error = SecurityError(
                f"'{call.name}' is for processes on the head's machine only",
                hint=call.elsewhere or "call it there",
            )
            self._refused(caller, error, call.name)
            raise error

    def require_right(
        self, caller: ServiceCaller, right: str, *, session: str = "", node: str = "", what: str
    ) -> Rights:
        """Refuse what a client has no right for; return its rights.

        Args:
            caller: The client.
            right: What it needs.
            session: The session in question.
            node: The node in question.
            what: What it wants, for the ledger.

        Raises:
            SecurityError: It has not that right, or shows no credential.
        """
        try:
            if caller.rights is None:
                raise SecurityError(
                    "authentication required: this call needs a credential",
                    hint='give one: sapwood.connect(…, credential="FILE")',
                )
            caller.rights.require(right, self._clock(), session=session, node=node)
        except SecurityError as error:
            self._refused(caller, error, what)
            raise
        return caller.rights

    def require_session(
        self, caller: ServiceCaller, right: str, record: session_records.SessionRecord, *, what: str
    ) -> Rights:
        """Refuse what a client has no right for with one session; return its rights.

        A credential is for the sessions that its owner has made, and for one that its issuer
        named. With ``admin`` it is for all, and so is one that lets its holder watch and no more.

        Args:
            caller: The client.
            right: What it needs: ``attach``, ``run``, ``merge`` or ``delete``.
            record: The session.
            what: What it wants, for the ledger.

        Raises:
            SecurityError: It has not that right with this session.
        """
        rights = self.require_right(caller, right, session=record.name, what=what)
        made = record.creator or session_records.SessionCreator(names=[])
        try:
            if right != r.DELETE and rights.user and rights.user != made.user:
                raise SecurityError(
                    f"the credential is for processes of {rights.user}, and the session "
                    f"'{record.name}' has those of {made.user or 'the user of each node'}"
                )
            works = right in {r.DELETE, r.MERGE} or r.RUN in rights.names
            mine = bool(rights.owner) and rights.owner == made.owner
            named = rights.issued_session == record.name
            if works and not (mine or named or r.ADMIN in rights.names):
                raise SecurityError(
                    f"the session '{record.name}' belongs to another client",
                    where=made.subject or "the user of the head",
                    hint="ask for a credential that names it: "
                    + command("credential", "issue", "--session", record.name),
                )
        except SecurityError as error:
            self._refused(caller, error, what)
            raise
        return rights

    def may_use_reserved(self, rights: Rights) -> bool:
        """Whether processes with these rights may run on reserved nodes."""
        return self._shared() or may_use_reserved(rights, self._clock())

    def require_reserved(
        self, caller: ServiceCaller, what: str, *, where: str, wanted: str
    ) -> None:
        """Refuse a client that may not run code as the user of the head.

        Args:
            caller: The client.
            what: What it would run, for the error.
            where: The node or session.
            wanted: What it wants, for the ledger.

        Raises:
            SecurityError: It may not.
        """
        if caller.rights is not None and not self.may_use_reserved(caller.rights):
            error = refused(what, where)
            self._refused(caller, error, wanted)
            raise error

    def facts_of(self, rights: Rights) -> greeting.RightsFacts:
        """Return rights in the form that clients receive."""
        return greeting.RightsFacts.of(rights, reserved=self.may_use_reserved(rights))

    def seconds_left(self, rights: Rights) -> float:
        """Return for how long rights are still valid."""
        return max(rights.not_after - self._clock(), 0.0)

    def note_refused(self, session: str, refusal: session_records.ClientRefused) -> None:
        """Note whom the root of a session has not let in, or has cut off.

        Args:
            session: What users call the session.
            refusal: What its root says.
        """
        left_out = 0 if refusal.attached else self._note_stranger.count()
        if left_out is None:
            return
        facts = {
            "address": refusal.address,
            "client": refusal.label,
            "credential": refusal.credential,
            "others": str(left_out or ""),
        }
        shown = {name: value for name, value in facts.items() if value}
        kind = "credential.cut_off" if refusal.attached else "credential.refused"
        self._note(kind, refusal.reason, session=session, facts=shown)

    def note_cut_off(self, caller: ServiceCaller, rights: Rights, reason: str) -> None:
        """Note that a client of the head was cut off."""
        facts = {
            "address": caller.address,
            "subject": rights.subject,
            "credential": (rights.ids or ("",))[-1],
        }
        shown = {name: value for name, value in facts.items() if value}
        self._note("credential.cut_off", reason, session=rights.session, facts=shown)

    def _refused(self, caller: ServiceCaller, error: SecurityError, what: str) -> None:
        rights = caller.rights
        if rights is None:
            self._note_stranger(caller.address, error.what)
            return
        issued = rights.ids[0] if rights.ids else rights.subject  # narrower ones count as one
        left_out = self._lacking.count((issued, what))
        if left_out is None:
            return
        facts = {
            "address": caller.address,
            "wanted": what,
            "where": error.where,
            "subject": rights.subject,
            "credential": (rights.ids or ("",))[-1],
            "others": str(left_out or ""),
        }
        shown = {name: value for name, value in facts.items() if value}
        self._note("credential.refused", error.what, facts=shown)

    def _tell_of_stranger(self, address: str, reason: str, left_out: int) -> None:
        """Log refused credentials, rate-limited, because unauthenticated peers cause them."""
        others = {"others": str(left_out)} if left_out else {}
        self._note("credential.refused", reason, facts={"address": address, **others})

    @staticmethod
    def refuse_others(rights: Rights, what: str) -> None:
        """Refuse to start processes of the head's user with a credential for another user.

        Args:
            rights: Of whoever asks.
            what: What they ask for.

        Raises:
            SecurityError: Their credential names another user.
        """
        if rights.user and not is_own_user(rights.user):
            raise SecurityError(
                f"{what} runs as the user of the head, and the credential is for {rights.user}",
                hint="use the nodes of the cluster: processes there run as the credential's user",
            )

    @staticmethod
    def secret_for(rights: Rights, secret: str, session: str) -> str:
        """Return the proof for a session's server: it allows no more than these rights.

        Args:
            rights: What they may do; to attach is among it.
            secret: Of the session.
            session: Its id.
        """
        role = "watch"
        if r.RUN in rights.names:
            role = "owner" if r.DELETE in rights.names else "user"
        if (
            role == "owner"
            and r.MERGE in rights.names
            and rights.not_after == math.inf
            and not rights.ids
        ):
            return secret
        return limited_secret(secret, session, role, rights.not_after, rights.ids)

    @staticmethod
    def merge_secret_for(rights: Rights, secret: str, session: str) -> str:
        """Return what another session is to show to a session's root to be merged with it.

        Args:
            rights: Of whoever merges them; to merge is among them.
            secret: Of the session.
            session: Its id.
        """
        return limited_secret(secret, session, "merge", rights.not_after, rights.ids)


def limited(wanted: calls.IssueCredential, by: Rights, now: float) -> calls.IssueCredential:
    """Return the credential that a holder may issue: it cannot grant rights the holder lacks.

    Raises:
        SecurityError: It is for more than that.
    """
    more = set(wanted.rights) - by.names
    if more:
        raise SecurityError(
            f"cannot grant rights you do not hold: {', '.join(sorted(more))}",
            hint=f"this credential gives {', '.join(sorted(by.names))}",
        )
    if by.session and wanted.session not in {"", by.session}:
        raise SecurityError(f"the credential that asks is for the session '{by.session}'")
    if by.user and wanted.user not in {"", by.user}:
        raise SecurityError(f"the credential that asks is for processes of the user '{by.user}'")
    lifetime = wanted.lifetime
    if by.not_after < math.inf:
        lifetime = min(lifetime, by.not_after - now)
    return msgspec.structs.replace(
        wanted, session=wanted.session or by.session, lifetime=lifetime, user=wanted.user or by.user
    )


def refuse_staging(rights: Rights) -> None:
    """Refuse to change what all find on the nodes to a credential for processes of one user.

    Raises:
        SecurityError: Their credential names another user.
    """
    if rights.user and not is_own_user(rights.user):
        raise SecurityError(
            "staged files are code and data of all users of the nodes, and the credential is for "
            f"processes of {rights.user}",
            hint="write files of that user by a command: `sapwood exec COMMAND`",
        )
