"""What front ends of a session may do."""

from __future__ import annotations

import enum
import math
import time
from collections.abc import Callable

import msgspec

from sapwood.roots.wire import AskToAttach
from sapwood.security.denials import Denials
from sapwood.security.session_secrets import ALL_ROLES, role_shown


class FrontEndRole(enum.Enum):
    """What a front end is to a session.

    Attributes:
        OWNER: It may do everything; there is one at a time, and without one the session is idle.
        USER: It works with the agents: streams, requests, messages, groups.
        WATCHER: It sees what agents print, and how the session is.
        MERGER: The root of another session, whose streams the agents take part in.
    """

    OWNER = "owner"
    USER = "user"
    WATCHER = "watch"
    MERGER = "merge"


class Allowed(msgspec.Struct, frozen=True):
    """What a front end may be, and until when.

    Attributes:
        roles: What it may be.
        not_after: When that ends, seconds since 1970.
        credential: Ids of the blocks of the credential by which it may; none without one.
    """

    roles: frozenset[FrontEndRole]
    not_after: float = math.inf
    credential: tuple[str, ...] = ()


Verify = Callable[[AskToAttach], Allowed]
"""Returns what a front end may be, by what it shows.

Raises:
    SecurityError: It may be nothing.
"""

ALL = Allowed(frozenset(FrontEndRole))
NOTHING = Allowed(frozenset())

_RISING = (FrontEndRole.WATCHER, FrontEndRole.USER, FrontEndRole.OWNER)
"""Each may do what those before it may."""


def same_user(asked: AskToAttach) -> Allowed:
    """Let in a process of the session's user, as the kernel says it is: it may be anything."""
    del asked
    return ALL


def secret_holder(
    secret: str, clock: Callable[[], float] = time.time, denials: Denials | None = None
) -> Verify:
    """Return what lets in who knows the secret of a session, or has something made of it.

    Args:
        secret: Of the session.
        clock: The time, seconds since 1970.
        denials: The credentials that were revoked.
    """
    denied = (Denials() if denials is None else denials).any_of

    def verify(asked: AskToAttach) -> Allowed:
        shown = role_shown(asked.secret, secret, asked.session, clock(), denied)
        if shown.role == ALL_ROLES:
            return ALL
        if shown.role == FrontEndRole.MERGER.value:
            return Allowed(frozenset({FrontEndRole.MERGER}), shown.not_after, shown.credential)
        highest = _RISING.index(FrontEndRole(shown.role))
        return Allowed(frozenset(_RISING[: highest + 1]), shown.not_after, shown.credential)

    return verify
