"""What clients of a session may do."""

from __future__ import annotations

import enum
import math
import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from sapwood.core.errors import SecurityError
from sapwood.security.denials import Denials
from sapwood.security.session_secrets import ALL_ROLES, role_shown
from sapwood.session_server import session_calls
from sapwood.session_server.wire import AskToAttach


class ClientRole(enum.Enum):
    """What a client is to a session.

    Attributes:
        OWNER: It may do everything; there is one at a time, and without one the session is idle.
        USER: It works with the agents: streams, requests, messages, groups.
        WATCHER: It sees what agents print, and how the session is.
        MERGER: The server of another session, whose streams the agents take part in.
    """

    OWNER = "owner"
    USER = "user"
    WATCHER = "watch"
    MERGER = "merge"


class Allowed(msgspec.Struct, frozen=True):
    """What a client may be, and until when.

    Attributes:
        roles: What it may be.
        not_after: When that ends, seconds since 1970.
        credential: Ids of the blocks of the credential by which it may; none without one.
    """

    roles: frozenset[ClientRole]
    not_after: float = math.inf
    credential: tuple[str, ...] = ()


class CallNeed(enum.Enum):
    """What a client must be to make a call of a session's root.

    Attributes:
        ATTACHED: Attached in any role.
        CONTENT: One that works with the agents, or a session that this one is merged into.
        WORKING: One that works with the agents: the owner, or a user.
        INVITING: Attached in any role, with a credential by which it may own the session.
        OWNING: One that works with the agents, with a credential by which it may own the session.
        OWNER: The owner.
    """

    ATTACHED = "attached"
    CONTENT = "content"
    WORKING = "working"
    INVITING = "inviting"
    OWNING = "owning"
    OWNER = "owner"


NEED_OF_CALL: Final[Mapping[str, CallNeed]] = {
    session_calls.STATUS: CallNeed.ATTACHED,
    session_calls.MACHINES: CallNeed.ATTACHED,
    session_calls.STACKS: CallNeed.ATTACHED,
    session_calls.PROFILE: CallNeed.ATTACHED,
    session_calls.DETACH: CallNeed.ATTACHED,
    session_calls.TAKEN: CallNeed.ATTACHED,
    session_calls.MERGED: CallNeed.ATTACHED,
    session_calls.OFFER: CallNeed.CONTENT,
    session_calls.WITHDRAW: CallNeed.CONTENT,
    session_calls.OFFER_MEMORY: CallNeed.WORKING,  # and only in memory that both processes share
    session_calls.OFFER_FILE: CallNeed.WORKING,  # likewise
    session_calls.CANCEL_RECEIVE: CallNeed.WORKING,
    session_calls.INVITE: CallNeed.INVITING,
    session_calls.INVITATIONS: CallNeed.INVITING,
    session_calls.REVOKE_INVITATION: CallNeed.INVITING,
    session_calls.EXPAND: CallNeed.OWNING,
    session_calls.CONTRACT: CallNeed.OWNING,
    session_calls.MERGE: CallNeed.OWNING,
    session_calls.SPLIT: CallNeed.OWNING,
    session_calls.END: CallNeed.OWNER,
}
"""What each call needs."""

WORKING: Final = frozenset({ClientRole.OWNER, ClientRole.USER})
"""Roles that work with the agents."""


def require_call(call: str, role: ClientRole | None, allowed: Allowed) -> None:
    """Refuse a call that a client may not make.

    Args:
        call: Its name; an unknown one is refused later.
        role: What the client is to the session.
        allowed: What its credential lets it be.

    Raises:
        SecurityError: It may not make it.
    """
    need = NEED_OF_CALL.get(call, CallNeed.WORKING)
    if need is CallNeed.ATTACHED:
        return
    works = role in WORKING or (need is CallNeed.CONTENT and role is ClientRole.MERGER)
    if need is not CallNeed.INVITING and not works:
        what = "merges" if role is ClientRole.MERGER else "watches"
        raise SecurityError(f"a client that only {what} may not change the session")
    if need is CallNeed.OWNER and role is not ClientRole.OWNER:
        raise SecurityError("only the owner of a session may end it", hint="attach as its owner")
    owns = ClientRole.OWNER in allowed.roles
    if need in {CallNeed.INVITING, CallNeed.OWNING} and not owns:
        raise SecurityError(
            "only an owner of the session may change its agents, invitations and merges",
            hint="attach as its owner, or as its user with a credential of its owner",
        )


Verify = Callable[[AskToAttach], Allowed]
"""Returns what a client may be, by what it shows.

Raises:
    SecurityError: It may be nothing.
"""

ALL = Allowed(frozenset(ClientRole))
NOTHING = Allowed(frozenset())

_RISING = (ClientRole.WATCHER, ClientRole.USER, ClientRole.OWNER)
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
        if shown.role == ClientRole.MERGER.value:
            return Allowed(frozenset({ClientRole.MERGER}), shown.not_after, shown.credential)
        highest = _RISING.index(ClientRole(shown.role))
        return Allowed(frozenset(_RISING[: highest + 1]), shown.not_after, shown.credential)

    return verify
