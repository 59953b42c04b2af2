"""What front ends of a session may do."""

from __future__ import annotations

import enum
import hmac
from collections.abc import Callable

from sapwood.core.errors import SecurityError
from sapwood.roots.wire import AskToAttach


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


Verify = Callable[[AskToAttach], frozenset[FrontEndRole]]
"""Returns what a front end may be, by what it shows.

Raises:
    SecurityError: It may be nothing.
"""

ALL = frozenset(FrontEndRole)


def same_user(asked: AskToAttach) -> frozenset[FrontEndRole]:
    """Let in a process of the session's user, as the kernel says it is: it may be anything."""
    del asked
    return ALL


def secret_holder(secret: str) -> Verify:
    """Return what lets in who knows the secret of a session."""

    def verify(asked: AskToAttach) -> frozenset[FrontEndRole]:
        if not hmac.compare_digest(asked.secret.encode(), secret.encode()):
            raise SecurityError(
                "the credential is not one of this session",
                hint="`sapwood session show` on the head's machine shows its handle",
            )
        return ALL

    return verify
