"""What front ends of a session may do."""

from __future__ import annotations

import enum
import math
import time
from collections.abc import Callable, Container

import msgspec

from sapwood.core.errors import SecurityError
from sapwood.roots.wire import AskToAttach
from sapwood.security.session_secrets import ALL_ROLES, role_shown


class FrontEndRole(enum.Enum):
    """What a front end is to a session.

    Attributes:
        OWNER: It may do everything; there is one at a time, and without one the session is idle.
        USER: It works with the agents: streams, requests, messages, groups.
        WATCHER: It sees what agents print, and how the session is.
    """

    OWNER = "owner"
    USER = "user"
    WATCHER = "watch"


class Allowed(msgspec.Struct, frozen=True):
    """What a front end may be, and until when.

    Attributes:
        roles: What it may be.
        not_after: When that ends, seconds since 1970.
        ids: Of the credential by which it may; none where that is the session's own secret.
    """

    roles: frozenset[FrontEndRole]
    not_after: float = math.inf
    ids: tuple[str, ...] = ()


Verify = Callable[[AskToAttach], Allowed]
"""Returns what a front end may be, by what it shows.

Raises:
    SecurityError: It may be nothing.
"""

ALL = Allowed(frozenset(FrontEndRole))

_RISING = (FrontEndRole.WATCHER, FrontEndRole.USER, FrontEndRole.OWNER)
"""Each may do what those before it may."""


def same_user(asked: AskToAttach) -> Allowed:
    """Let in a process of the session's user, as the kernel says it is: it may be anything."""
    del asked
    return ALL


def secret_holder(
    secret: str,
    clock: Callable[[], float] = time.time,
    denied: Container[str] = frozenset(),
) -> Verify:
    """Return what lets in who knows the secret of a session, or has something made of it.

    Args:
        secret: The secret.
        clock: The time, seconds since 1970.
        denied: The ids of credentials that were revoked.
    """

    def verify(asked: AskToAttach) -> Allowed:
        shown = role_shown(asked.secret, secret, asked.session, clock())
        if any(one in denied for one in shown.ids):
            raise SecurityError("the credential was revoked", hint="ask for a new one")
        if shown.role == ALL_ROLES:
            return ALL
        highest = _RISING.index(FrontEndRole(shown.role))
        return Allowed(frozenset(_RISING[: highest + 1]), shown.not_after, shown.ids)

    return verify
