"""What lets clients on other machines attach to a session: its secret, or less than that.

The head and the root of a session know the secret. A holder of the secret may do everything with
the session, as long as it lives. For fewer rights the head derives a text from the secret: it
names one role, an end, and the blocks of the credential for which the head has made it. The root
sees by its last part that the head has made it, and refuses it when one of the blocks is revoked.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Callable, Iterable

import msgspec

from sapwood.core.errors import SecurityError
from sapwood.core.hints import command

ALL_ROLES = ""
"""Stands for every role."""


class ShownSecret(msgspec.Struct, frozen=True):
    """The role in a session that a proof gives.

    Attributes:
        role: The role, :data:`ALL_ROLES` for all of them.
        not_after: When that ends, seconds since 1970.
        credential: Ids of the blocks of the credential that it comes of; none without one.
    """

    role: str
    not_after: float = math.inf
    credential: tuple[str, ...] = ()


def limited_secret(
    secret: str, session: str, role: str, not_after: float, credential: Iterable[str] = ()
) -> str:
    """Return a proof of one role in a session until some time.

    Args:
        secret: Of the session.
        session: Its id.
        role: What its holder may be at most.
        not_after: When it ends, seconds since 1970.
        credential: Ids of the blocks of the credential that it comes of.

    Example:
        >>> made = limited_secret("abc", "5b9a", "watch", 2000.0, ["aa", "bb"])
        >>> role_shown(made, "abc", "5b9a", 1000.0)
        ShownSecret(role='watch', not_after=2000.0, credential=('aa', 'bb'))
    """
    told = f"{role}:{not_after!r}:{'.'.join(credential)}"
    return f"{told}:{_mark(secret, session, told)}"


def role_shown(
    shown: str,
    secret: str,
    session: str,
    now: float,
    denied: Callable[[tuple[str, ...]], str] = lambda _ids: "",
) -> ShownSecret:
    """Return the role that a proof gives, and its end.

    Args:
        shown: What they show.
        secret: Of the session.
        session: Its id.
        now: The time, seconds since 1970.
        denied: Returns one of some ids that was revoked; empty if none was.

    Raises:
        SecurityError: It is nothing of this session, too late, or its credential was revoked.
    """
    if hmac.compare_digest(shown.encode(), secret.encode()):
        return ShownSecret(ALL_ROLES)
    told, _, mark = shown.rpartition(":")
    if not hmac.compare_digest(mark.encode(), _mark(secret, session, told).encode()):
        raise SecurityError(
            "the credential is not one of this session",
            hint=f"{command('session', 'show', session)} on the head's machine shows its handle",
        )
    role, end, ids = told.split(":")
    not_after, credential = float(end), tuple(ids.split(".")) if ids else ()
    if now >= not_after:
        raise SecurityError(
            "the credential of the session has expired",
            hint=f"{command('session', 'credential', session)} shows another one",
        )
    revoked = denied(credential)
    if revoked:
        raise SecurityError("the credential was revoked", where=revoked)
    return ShownSecret(role, not_after, credential)


def _mark(secret: str, session: str, told: str) -> str:
    text = f"sapwood-session/2/{session}/{told}"
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()
