"""Join tokens: a line of text that lets a machine become a node of a cluster.

``swd1.<id>.<secret>.<pin>``: the id names the token, the secret proves that it was given, and the
pin tells the cluster's authority from any other (as k3s' secure tokens do). The cluster keeps a
hash of the secret only.
"""

from __future__ import annotations

import fnmatch
import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Callable, Iterable

import msgspec

from sapwood.core.errors import SecurityError

VERSION = "swd1"
"""How tokens begin; another form gets another number."""

LIFETIME = 3600.0
"""Seconds that a token is valid by default."""

MAX_TOKENS = 10_000
"""Tokens that a cluster keeps at once."""

_FORM = re.compile(rf"{VERSION}\.([a-z0-9]{{8}})\.([a-z0-9]{{52}})\.([0-9a-f]{{64}})")

_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


class JoinToken(msgspec.Struct, frozen=True):
    """What a machine needs to join.

    Attributes:
        id: Which token it is; no secret.
        secret: What proves that it was given, 260 random bits.
        pin: Of the cluster's authority.
    """

    id: str
    secret: str
    pin: str

    @property
    def text(self) -> str:
        """The token as people copy it."""
        return f"{VERSION}.{self.id}.{self.secret}.{self.pin}"

    @classmethod
    def parse(cls, text: str) -> JoinToken:
        """Return the token of a text.

        Raises:
            SecurityError: It is none.
        """
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise SecurityError(
                "not a join token", hint=f"copy the whole line; it begins with {VERSION}."
            )
        return cls(*match.groups())

    def __repr__(self) -> str:
        return f"<JoinToken {self.id}>"


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster keeps of a token.

    Attributes:
        id: Which one it is.
        digest: SHA-256 of its secret.
        role: What it lets a machine become.
        uses: How often it may be used still.
        expires: When it ends, seconds since 1970.
        names: Pattern of the names that nodes may have, as of a shell.
        slot: The place in the control tree that it is for; 0 for any.
    """

    id: str
    digest: bytes
    role: str = "node"
    uses: int = 1
    expires: float
    names: str = "*"
    slot: int = 0


class Tokens:
    """The tokens of a cluster; any thread may use them.

    Args:
        pin: Of the cluster's authority.
        time: The time, seconds since 1970.
        keep: Told of each change, so that tokens outlive this process: the id, and the record or,
            if there is none any more, None.
        records: Tokens that were kept.

    Example:
        >>> tokens = Tokens("0" * 64, lambda: 1000.0)
        >>> token = tokens.create(names="gpu*")
        >>> tokens.redeem(JoinToken.parse(token.text), "gpu3").uses
        0
        >>> tokens.redeem(token, "gpu3")
        Traceback (most recent call last):
        sapwood.core.errors.SecurityError: the join token was used before, or revoked
    """

    def __init__(
        self,
        pin: str,
        time: Callable[[], float],
        keep: Callable[[str, TokenRecord | None], None] | None = None,
        records: Iterable[TokenRecord] = (),
    ) -> None:
        self._pin = pin
        self._time = time
        self._keep = keep or _keep_nothing
        self._lock = threading.RLock()  # held while a change is kept, which may take long
        self._records = {record.id: record for record in records}

    def create(
        self,
        *,
        role: str = "node",
        uses: int = 1,
        lifetime: float = LIFETIME,
        names: str = "*",
        slot: int = 0,
    ) -> JoinToken:
        """Make a token; its secret is in what is returned, and nowhere else.

        Raises:
            SecurityError: There are too many.
        """
        token = JoinToken(_random(8), _random(52), self._pin)
        record = TokenRecord(
            id=token.id,
            digest=_digest(token.secret),
            role=role,
            uses=uses,
            expires=self._time() + lifetime,
            names=names,
            slot=slot,
        )
        with self._lock:
            self._forget_expired()
            if len(self._records) >= MAX_TOKENS:
                raise SecurityError(
                    f"{MAX_TOKENS} join tokens exist already, the maximum",
                    hint="revoke some of them",
                )
            self._keep(token.id, record)
            self._records[token.id] = record
        return token

    def check(self, token: JoinToken, name: str, role: str = "node") -> TokenRecord:
        """Return what is known of a token that can be used.

        Raises:
            SecurityError: It is unknown, expired, used up, or for something else.
        """
        record = self._records.get(token.id)
        known = record.digest if record is not None else bytes(32)
        proved = hmac.compare_digest(_digest(token.secret), known)
        if record is None or not proved:
            raise SecurityError("the join token was used before, or revoked")
        if record.expires < self._time():
            raise SecurityError("the join token has expired", hint="make a new one")
        if record.role != role or not fnmatch.fnmatchcase(name, record.names):
            raise SecurityError(
                f"the join token is for a {record.role} called {record.names}, not for a {role} "
                f"called {name}"
            )
        return record

    def redeem(self, token: JoinToken, name: str, role: str = "node") -> TokenRecord:
        """Use a token once; return what is left of it.

        Raises:
            SecurityError: It is unknown, expired, used up, or for something else.
        """
        with self._lock:
            record = self.check(token, name, role)
            left = msgspec.structs.replace(record, uses=record.uses - 1)
            self._keep(token.id, left if left.uses > 0 else None)  # what fails changes nothing
            if left.uses > 0:
                self._records[token.id] = left
            else:
                del self._records[token.id]
        return left

    def revoke(self, token_id: str) -> bool:
        """Revoke a join token; return whether it existed."""
        with self._lock:
            if token_id not in self._records:
                return False
            self._keep(token_id, None)
            del self._records[token_id]
        return True

    def list(self) -> list[TokenRecord]:
        """Return the tokens that can be used."""
        with self._lock:
            self._forget_expired()
            return list(self._records.values())

    def _forget_expired(self) -> None:
        now = self._time()
        for record in list(self._records.values()):
            if record.expires < now:
                self.revoke(record.id)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _keep_nothing(_token: str, _record: TokenRecord | None) -> None:
    pass
