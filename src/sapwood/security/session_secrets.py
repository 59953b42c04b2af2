"""What lets front ends on other machines attach to a session: its secret, or less than that.

The head and the root of a session know the secret. Who has the secret itself may do everything with
the session, as long as it lives. Who may do less gets a text that the head makes of the secret: it
names one role, an end and a credential. The root sees by its last part that the head has made it.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Sequence
from typing import NamedTuple

from sapwood.core.errors import SecurityError

ALL_ROLES = ""
"""Stands for every role."""


class ShownRole(NamedTuple):
    """What somebody may be to a session.

    Attributes:
        role: The role; :data:`ALL_ROLES` for all of them.
        not_after: When that ends, seconds since 1970.
        ids: The credential that the head was shown for it: each of its blocks may be revoked.
    """

    role: str
    not_after: float
    ids: tuple[str, ...] = ()


def limited_secret(
    secret: str, session: str, role: str, not_after: float, ids: Sequence[str] = ()
) -> str:
    """Return what lets somebody be one thing to a session until some time.

    Args:
        secret: Of the session.
        session: Its id.
        role: What its holder may be at most.
        not_after: When it ends, seconds since 1970.
        ids: Of the credential for which it is made; it ends when one of them is revoked.

    Example:
        >>> made = limited_secret("abc", "5b9a", "watch", 2000.0, ["c1"])
        >>> role_shown(made, "abc", "5b9a", 1000.0)
        ShownRole(role='watch', not_after=2000.0, ids=('c1',))
    """
    told = f"{role}:{not_after!r}:{','.join(ids)}"
    return f"{told}:{_mark(secret, session, told)}"


def role_shown(shown: str, secret: str, session: str, now: float) -> ShownRole:
    """Return what somebody may be who shows something, and until when.

    Args:
        shown: What they show.
        secret: Of the session.
        session: Its id.
        now: The time, seconds since 1970.

    Raises:
        SecurityError: It is nothing of this session, or too late.
    """
    if hmac.compare_digest(shown.encode(), secret.encode()):
        return ShownRole(ALL_ROLES, math.inf)
    told, _, mark = shown.rpartition(":")
    if not hmac.compare_digest(mark.encode(), _mark(secret, session, told).encode()):
        raise SecurityError(
            "the credential is not one of this session",
            hint="`sapwood session show` on the head's machine shows its handle",
        )
    role, end, ids = told.split(":")
    not_after = float(end)
    if now >= not_after:
        raise SecurityError(
            "the credential of the session has expired",
            hint="`sapwood session credential` shows another one",
        )
    return ShownRole(role, not_after, tuple(ids.split(",")) if ids else ())


def _mark(secret: str, session: str, told: str) -> str:
    text = f"sapwood-session/2/{session}/{told}"
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()
