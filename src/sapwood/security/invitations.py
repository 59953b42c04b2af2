"""Invitations: lines of text that let a machine become a node, or a process become an agent.

``<version>.<id>.<secret>.<pin>``: the id names the invitation, the secret proves that it was
given, and the pin tells the authority of the cluster or session from any other before the secret
is sent (as k3s' secure tokens do). The inviting side keeps a hash of the secret only. The line of
an agent's invitation also says where the root of the session is: ``@<host:port>,…`` follows.
"""

from __future__ import annotations

import fnmatch
import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import msgspec

from sapwood.core.errors import ConfigurationError, SecurityError

LIFETIME = 3600.0
"""Seconds that the token of a node is valid by default."""

MAX_INVITATIONS = 10_000
"""Invitations that a cluster or session keeps at once."""

ANY_NUMBER = 0
"""Uses of an invitation by which any number of processes may come."""

_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


@dataclass(frozen=True)
class InvitationKind:
    """What invitations are for, and what users read about them.

    Attributes:
        version: How their text begins; another form gets another number.
        noun: What one is called.
        role: What they let their holder become.
        foreign: The error for another text.
        unknown: The error for one that is not known, or not any more.
        hint: What to do about one that is not valid.
    """

    version: str
    noun: str
    role: str
    foreign: str
    unknown: str
    hint: str

    def parse(self, text: str) -> Invitation:
        """Return the invitation of a text; without addresses, if it names none.

        Raises:
            SecurityError: It is not one.
        """
        token, _, addresses = text.strip().partition("@")
        form = rf"{self.version}\.([a-z2-7]{{8}})\.([a-z2-7]{{52}})\.([0-9a-f]{{64}})"
        match = re.fullmatch(form, token)
        if match is None:
            raise SecurityError(
                self.foreign, hint=f"copy the whole line; it begins with {self.version}."
            )
        named = tuple(one for one in addresses.split(",") if one)
        return Invitation(self, match[1], match[2], match[3], named)

    def create(self, pin: str, addresses: tuple[str, ...] = ()) -> Invitation:
        """Make a new invitation."""
        return Invitation(self, _random(8), _random(52), pin, addresses)


NODES = InvitationKind(
    version="swd1",
    noun="join token",
    role="node",
    foreign="not a join token",
    unknown="the join token was used before, or revoked",
    hint="make a new one",
)
"""By which machines become nodes of a cluster."""

AGENTS = InvitationKind(
    version="swa1",
    noun="invitation",
    role="agent",
    foreign="not an invitation of a session",
    unknown="this session has not given the invitation",
    hint="ask its owner for another one",
)
"""By which processes become agents of a session."""


@dataclass(frozen=True)
class Invitation:
    """What a machine or process needs to join.

    Attributes:
        kind: What it is for.
        id: Which invitation it is; no secret.
        secret: What proves that it was given, 260 random bits.
        pin: Of the authority of the cluster or session.
        addresses: Where the root of the session is, ``host:port`` each.

    Example:
        >>> made = AGENTS.create("0" * 64, ("n1:7700", "10.0.0.1:7700"))
        >>> AGENTS.parse(made.line) == made
        True
    """

    kind: InvitationKind
    id: str
    secret: str
    pin: str
    addresses: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What its holder shows."""
        return f"{self.kind.version}.{self.id}.{self.secret}.{self.pin}"

    @property
    def line(self) -> str:
        """The invitation as people copy it."""
        return f"{self.text}@{','.join(self.addresses)}" if self.addresses else self.text

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the secret, which the inviting side keeps."""
        return hashlib.sha256(self.secret.encode()).digest()

    def __repr__(self) -> str:
        return f"<{self.kind.noun} {self.id}>"


class InvitationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of an invitation.

    Attributes:
        id: Which one it is.
        digest: SHA-256 of its secret.
        role: What it lets its holder become.
        uses: How often it may be used still; :data:`ANY_NUMBER` for no bound.
        expires: When it ends, seconds since 1970.
        names: Pattern of the names that its holders may have, as of a shell.
        slot: The place in the control tree that it is for; 0 for any.
        by: Ids of the blocks of the credential of its maker; none without one.
        revoked: Whether it was revoked.
    """

    id: str
    digest: bytes
    role: str = "node"
    uses: int = 1
    expires: float
    names: str = "*"
    slot: int = 0
    by: tuple[str, ...] = ()
    revoked: bool = False


class InvitationStore:
    """The invitations of a cluster or a session; any thread may use them.

    Args:
        kind: What they are for.
        pin: Of the authority.
        time: The time, seconds since 1970.
        keep: Called for each change, so that invitations outlive this process: with the id, and
            with the record or, if it is removed, None.
        records: Invitations that were kept.
        in_use: Says of an id whether a process is there by it. Such records stay, and also others
            that are over, until their room is needed: users see them.

    Example:
        >>> tokens = InvitationStore(NODES, "0" * 64, lambda: 1000.0)
        >>> token = tokens.create(names="gpu*")
        >>> tokens.redeem(NODES.parse(token.text), "gpu3").uses
        0
        >>> tokens.redeem(token, "gpu3")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        sapwood.core.errors.SecurityError: the join token was used before, or revoked. Hint: ...
    """

    def __init__(
        self,
        kind: InvitationKind,
        pin: str,
        time: Callable[[], float],
        keep: Callable[[str, InvitationRecord | None], None] | None = None,
        records: Iterable[InvitationRecord] = (),
        in_use: Callable[[str], bool] | None = None,
    ) -> None:
        self._kind = kind
        self._pin = pin
        self._time = time
        self._keep = keep or _keep_nothing
        self._in_use = in_use
        self._lock = threading.RLock()  # held while a change is kept, which may take long
        self._records = {record.id: record for record in records}

    def create(
        self,
        *,
        uses: int = 1,
        lifetime: float = LIFETIME,
        names: str = "*",
        slot: int = 0,
        by: tuple[str, ...] = (),
        addresses: tuple[str, ...] = (),
    ) -> Invitation:
        """Make an invitation; its secret is in what is returned, and nowhere else.

        Raises:
            ConfigurationError: There are too many.
        """
        made = self._kind.create(self._pin, addresses)
        record = InvitationRecord(
            id=made.id,
            digest=made.digest,
            role=self._kind.role,
            uses=uses,
            expires=self._time() + lifetime,
            names=names,
            slot=slot,
            by=by,
        )
        with self._lock:
            self.make_room(1)
            self._keep(made.id, record)
            self._records[made.id] = record
        return made

    def make_room(self, count: int) -> None:
        """Remove invitations that are over, if more are to be made than there is room for.

        Raises:
            ConfigurationError: There are too many.
        """
        with self._lock:
            self._forget_over(count)
            if len(self._records) + count > MAX_INVITATIONS:
                raise ConfigurationError(
                    f"{MAX_INVITATIONS} {self._kind.noun}s exist already, the maximum",
                    hint="revoke some of them",
                )

    def check(self, shown: Invitation, name: str) -> InvitationRecord:
        """Return what is known of an invitation that can be used.

        Raises:
            SecurityError: It is unknown, expired, revoked, used up, or for something else.
        """
        kind = self._kind
        record = self._records.get(shown.id)
        known = record.digest if record is not None else bytes(32)
        proved = hmac.compare_digest(shown.digest, known)
        if record is None or not proved:
            raise SecurityError(kind.unknown, hint=kind.hint)
        if record.revoked:
            raise SecurityError(f"the {kind.noun} was revoked", hint=kind.hint)
        if record.expires < self._time():
            raise SecurityError(f"the {kind.noun} has expired", hint=kind.hint)
        if record.role != kind.role or not fnmatch.fnmatchcase(name, record.names):
            raise SecurityError(
                f"the {kind.noun} is for a {record.role} called {record.names}, not for a "
                f"{kind.role} called {name}"
            )
        return record

    def redeem(self, shown: Invitation, name: str) -> InvitationRecord:
        """Use an invitation once; return what is left of it.

        Raises:
            SecurityError: It is unknown, expired, revoked, used up, or for something else.
        """
        with self._lock:
            record = self.check(shown, name)
            if record.uses == ANY_NUMBER:
                return record
            left = msgspec.structs.replace(record, uses=record.uses - 1)
            self._put(left.id, left if left.uses > 0 else None)
        return left

    def revoke(self, invitation: str) -> bool:
        """Revoke an invitation; return whether it existed and was not revoked before."""
        with self._lock:
            record = self._records.get(invitation)
            if record is None or record.revoked:
                return False
            stays = self._in_use is not None
            self._put(record.id, msgspec.structs.replace(record, revoked=True) if stays else None)
        return True

    def by_credentials(self, ids: Collection[str]) -> list[str]:
        """Return the ids of the invitations that were made with one of these credentials."""
        found = list(self._records.values())
        return [one.id for one in found if not set(ids).isdisjoint(one.by)]

    def list(self) -> list[InvitationRecord]:
        """Return the invitations; of a kind without users only those that can be used."""
        with self._lock:
            if self._in_use is None:
                self._forget_over(0)
            return list(self._records.values())

    def _forget_over(self, count: int) -> None:
        """Remove invitations that are over; where they are shown, only as many as needed."""
        now, in_use = self._time(), self._in_use or _nobody_uses
        over = [
            one.id
            for one in self._records.values()
            if (one.revoked or one.expires < now) and not in_use(one.id)
        ]
        surplus = max(0, len(self._records) + count - MAX_INVITATIONS)
        for name in over if self._in_use is None else over[:surplus]:
            self._put(name, None)

    def _put(self, name: str, record: InvitationRecord | None) -> None:
        self._keep(name, record)  # what fails changes nothing
        if record is None:
            del self._records[name]
        else:
            self._records[name] = record


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _keep_nothing(_invitation: str, _record: InvitationRecord | None) -> None:
    pass


def _nobody_uses(_invitation: str) -> bool:
    return False
