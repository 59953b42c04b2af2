"""The credentials of a cluster at its head: issued, listed, revoked, and announced to all.

The store of the head keeps the issuer's key, issued credentials (without keys), and
revocations. A revocation is in the store before it is announced; then the clients that use
the credential are cut off, and all nodes and the other clients get the new epoch of the list.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import msgspec

from sapwood.core import typed
from sapwood.core.errors import ConfigurationError, SapwoodError, SecurityError
from sapwood.core.futures import CallerFuture, when_done
from sapwood.core.hints import command
from sapwood.core.hostset import expand_hosts, fold_hosts
from sapwood.environment.units import format_time
from sapwood.head import calls
from sapwood.head.authorizer import limited
from sapwood.nodes import messages
from sapwood.nodes.note_event import NoteEvent, note_nothing
from sapwood.security.capabilities import Issuer, check_id
from sapwood.security.denials import MAX_DENIED, Denials, DenialUpdate
from sapwood.security.rights import Rights, read_rights
from sapwood.store.base import Delete, Put, Store

MAX_ISSUED = 10_000
"""Credentials that are listed at once."""

SHORTEST_LIFE = 1.0
"""Seconds that a credential lives at least."""

UNKNOWN_LIFE = 366 * 86_400.0
"""Seconds for which an id is denied that the head did not issue: no credential lives longer."""

LIFE_KEY = "limits.credential_life"
"""The key of the policy that bounds how long a credential lives."""

_ISSUER = "issuer"
_ISSUED = "credentials/issued/"
_REVOKED = "credentials/revoked/"
_EPOCH = "credentials/epoch"


class CredentialIssuer:
    """Issues and revokes the credentials of a cluster; for any thread.

    Args:
        store: Returns what keeps it.
        cluster: Name of the cluster in certificates.
        pin: Of its authority.
        generation: Which head of the cluster this is.
        note: Told of what is issued and revoked.
        clock: The time, seconds since 1970.

    Attributes:
        denials: Revoked credentials.

    Raises:
        StoreError: The store fails.
        msgspec.MsgspecError: The stored data were not written by a head.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        cluster: str,
        pin: str,
        generation: int = 0,
        note: NoteEvent = note_nothing,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._opened = store
        self._cluster = cluster
        self._pin = bytes.fromhex(pin)
        self._generation = generation
        self._note = note
        self._clock = clock
        self._lock = threading.Lock()
        self._issuer = self._kept_issuer()
        read = typed.unpacker(calls.CredentialInfo)
        self._issued = {
            one.key.removeprefix(_ISSUED): read(one.value) for one in store().entries(_ISSUED)
        }
        self._revoked = {
            one.key.removeprefix(_REVOKED): float(one.value) for one in store().entries(_REVOKED)
        }
        epoch = store().get(_EPOCH)
        self._epoch = 0 if epoch is None else int(epoch.value)
        self._whole = self._as_update()
        self.denials = Denials()
        self.denials.take(self._whole)

    def _kept_issuer(self) -> Issuer:
        entry = self._opened().get(_ISSUER)
        if entry is not None:
            return Issuer(entry.value)
        made = Issuer.create()
        self._opened().compare_and_set(_ISSUER, made.key, 0)
        return made

    @property
    def issuer(self) -> bytes:
        """Public key of the issuer, by which credentials are verified."""
        return self._issuer.public

    def whole_list(self) -> DenialUpdate:
        """Return all that was revoked and could be used still; it does not wait for the store."""
        return self._whole

    def _as_update(self) -> DenialUpdate:
        return DenialUpdate(
            since=0,
            epoch=self._epoch,
            ids=sorted(self._revoked),
            generation=self._generation,
        )

    def issue(
        self, wanted: calls.IssueCredential, by: Rights, addresses: list[str], longest: float
    ) -> calls.IssuedCredential:
        """Make a credential.

        Args:
            wanted: Which.
            by: The rights of the requester, which bound the new ones.
            addresses: Where the head is reached.
            longest: Seconds that it may live at most.

        Raises:
            SecurityError: It would allow more than that, or is malformed.
            ConfigurationError: It would live too long, or allow nothing.
            StoreError: It cannot be kept; then it is not given away either.
        """
        now = self._clock()
        if not wanted.rights:
            raise ConfigurationError(
                "a credential without rights allows nothing", hint="give --rights or --role"
            )
        read_rights(wanted.rights)
        if not SHORTEST_LIFE <= wanted.lifetime <= longest:
            raise ConfigurationError(
                f"a credential lives a second to {longest / 86_400:g} days",
                where=f"{wanted.lifetime:g} s",
                hint=_how_to_allow(wanted.lifetime),
            )
        wanted = limited(wanted, by, now)
        nodes = wanted.nodes
        if by.nodes is not None:
            named = set(expand_hosts(nodes)) if nodes else set(by.nodes)
            if not named <= by.nodes:
                raise SecurityError("the credential that asks is for other nodes")
            nodes = fold_hosts(sorted(named))
        made = self._issuer.issue(
            self._cluster,
            wanted.rights,
            not_after=now + wanted.lifetime,
            session=wanted.session or None,
            nodes=nodes or None,
            holder=wanted.holder or None,
            user=wanted.user or None,
            subject=wanted.subject,
            authority=self._pin,
        )
        facts = calls.CredentialInfo(
            id=made.id,
            subject=wanted.subject,
            rights=sorted(wanted.rights),
            session=wanted.session,
            nodes=nodes,
            not_after=now + wanted.lifetime,
            issued=now,
            bound=bool(wanted.holder),
            user=wanted.user,
        )
        with self._lock:
            self._forget_ended(now)
            if len(self._issued) >= MAX_ISSUED:
                raise SecurityError(
                    f"{MAX_ISSUED} credentials are good at once", hint="revoke some of them"
                )
            self._opened().put(_ISSUED + made.id, msgspec.msgpack.encode(facts))
            self._issued[made.id] = facts
        self._note(
            "credential.issued",
            f"issued a credential for {facts.subject or 'any holder'}: {', '.join(facts.rights)}",
            session=facts.session,
            facts={
                "id": made.id,
                "nodes": nodes,
                "by": by.subject,
                "until": format_time(facts.not_after),
            },
        )
        return calls.IssuedCredential(text=made.text, facts=facts, addresses=addresses)

    def list(self) -> list[calls.CredentialInfo]:
        """Return the credentials that have not ended, also those that were revoked."""
        with self._lock:
            self._forget_ended(self._clock())
            return sorted(self._issued.values(), key=lambda one: one.issued)

    def revoke(self, text: str, by: str = "") -> tuple[DenialUpdate, bool]:
        """Refuse what has a block of an id from now on; the store knows when this returns.

        Returns:
            The announcement, and whether the head issued that block.

        Raises:
            SecurityError: It is not an id, or too many were revoked.
            StoreError: It cannot be kept; then nothing is revoked.
        """
        block = check_id(text)
        now = self._clock()
        with self._lock:
            facts = self._issued.get(block)
            if block in self._revoked:
                since = self._epoch
            else:
                self._forget_ended(now)
                if len(self._revoked) >= MAX_DENIED:
                    raise SecurityError(f"{MAX_DENIED} credentials were revoked already")
                until = facts.not_after if facts is not None else now + UNKNOWN_LIFE
                changes = [
                    Put(_REVOKED + block, repr(until).encode()),
                    Put(_EPOCH, str(self._epoch + 1).encode()),
                ]
                if facts is not None:
                    facts = msgspec.structs.replace(facts, revoked=now)
                    changes.append(Put(_ISSUED + block, msgspec.msgpack.encode(facts)))
                self._opened().transact(changes)
                since = self._epoch
                self._epoch += 1
                self._revoked[block] = until
                self._whole = self._as_update()
                if facts is not None:
                    self._issued[block] = facts
            update = DenialUpdate(
                since=since,
                epoch=self._epoch,
                ids=[block],
                generation=self._generation,
            )
        self.denials.take(update)
        subject = "" if facts is None else facts.subject
        self._note(
            "credential.revoked",
            f"revoked the credential of {subject}" if subject else "revoked a credential",
            session="" if facts is None else facts.session,
            facts={"id": block, "by": by, "epoch": str(update.epoch)},
        )
        return update, facts is not None

    def _forget_ended(self, now: float) -> None:
        """Forget expired entries; with the lock held."""
        ended = [one for one, facts in self._issued.items() if facts.not_after < now]
        gone = [one for one, until in self._revoked.items() if until < now]
        keys = [_ISSUED + one for one in ended] + [_REVOKED + one for one in gone]
        for start in range(0, len(keys), 50):
            self._opened().transact([Delete(key) for key in keys[start : start + 50]])
        for one in ended:
            del self._issued[one]
        for one in gone:
            del self._revoked[one]
        if gone:
            self._whole = self._as_update()


class DenialFeed:
    """Tells the nodes which credentials were revoked, each until it has said that it knows.

    Args:
        ask: Sends a request to the daemon of a node.
        whole: Returns the whole list.
    """

    def __init__(
        self, ask: Callable[[int, str, Any], Future[Any]], whole: Callable[[], DenialUpdate]
    ) -> None:
        self._ask = ask
        self._whole = whole

    def tell(self, host: int, update: DenialUpdate | None = None) -> Future[bool]:
        """Tell a node what came, or the whole list; the future says whether it knows all."""
        confirmed: Future[bool] = CallerFuture()
        confirmed.set_running_or_notify_cancel()
        self._send(host, update or self._whole(), confirmed)
        return confirmed

    def _send(self, host: int, update: DenialUpdate, confirmed: Future[bool]) -> None:
        try:
            answer = self._ask(host, messages.DENY, messages.to_value(update))
        except SapwoodError:
            confirmed.set_result(False)
            return
        when_done(answer, partial(self._answered, host, update, confirmed))

    def _answered(
        self, host: int, update: DenialUpdate, confirmed: Future[bool], answer: Future[Any]
    ) -> None:
        if answer.cancelled() or answer.exception() is not None:
            confirmed.set_result(False)  # it gets the whole list when it is back
        elif answer.result() is True or update.since == 0:
            confirmed.set_result(True)
        else:
            self._send(host, self._whole(), confirmed)  # it has missed something


def _how_to_allow(lifetime: float) -> str:
    """Return what lets a credential live so long."""
    if not SHORTEST_LIFE <= lifetime <= UNKNOWN_LIFE:
        return ""
    return f"{command('policy', 'set', LIFE_KEY, f'{lifetime:.0f}s')} allows more"


def longest_of(seconds: float) -> float:
    """Return how long credentials may live, by a setting of which 0 means no limit."""
    return min(seconds, UNKNOWN_LIFE) if seconds else UNKNOWN_LIFE
