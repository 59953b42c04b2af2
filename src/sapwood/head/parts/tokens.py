"""The join tokens of a cluster: lines of text with which machines join it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from sapwood.core.errors import ConfigurationError
from sapwood.head.protocol.call import HeadPart, call
from sapwood.security.invitations import LIFETIME
from sapwood.security.rights import ADMIN

if TYPE_CHECKING:
    from sapwood.nodes.control import ControlTree

SHORTEST_LIFE: Final = 1.0
LONGEST_LIFE: Final = 30 * 24 * 3600.0
"""Seconds that a join token may live."""

MOST_USES: Final = 100_000
"""How often a join token may be used at most."""


class JoinLine(msgspec.Struct, frozen=True):
    """What another machine needs to join.

    Attributes:
        id: Of the token.
        text: ``TOKEN@host:port,host:port``: what ``sapwood node join`` takes.
        expires: When it ends, seconds since 1970.
    """

    id: str
    text: str
    expires: float


class TokenFacts(msgspec.Struct, frozen=True):
    """A token, without its secret.

    Attributes:
        id: Of the token.
        uses: How often it may still be used.
        expires: When it ends, seconds since 1970.
        names: Pattern of the names that nodes may have, as of a shell.
    """

    id: str
    uses: int
    expires: float
    names: str


class JoinTokens(HeadPart):
    """The join tokens of a cluster.

    Args:
        control: The control tree that machines join.
        addresses: Returns where the head is reached, ``host:port`` each.
    """

    def __init__(self, control: ControlTree, addresses: Callable[[], list[str]]) -> None:
        self._control = control
        self._addresses = addresses

    @call("token.create", right=ADMIN, slow=True)
    def create(self, uses: int = 1, lifetime: float = LIFETIME, names: str = "*") -> JoinLine:
        """Return a new line with which machines join.

        Args:
            uses: How many machines may use it.
            lifetime: For how many seconds.
            names: Pattern of their names, as of a shell.

        Raises:
            ConfigurationError: It would live too long or too short, or have too many uses.
        """
        if not SHORTEST_LIFE <= lifetime <= LONGEST_LIFE:
            raise ConfigurationError(
                "a join token lives between a second and 30 days", where=f"{lifetime:g} s"
            )
        if not 1 <= uses <= MOST_USES:
            raise ConfigurationError(f"a join token has 1 to {MOST_USES} uses")
        token = self._control.desk.create_token(uses=uses, lifetime=lifetime, names=names)
        line = f"{token.text}@{','.join(self._addresses())}"
        return JoinLine(token.id, line, time.time() + lifetime)

    @call("token.list", right=ADMIN, slow=True)
    def usable(self) -> list[TokenFacts]:
        """Return the tokens that can be used."""
        return [
            TokenFacts(one.id, one.uses, one.expires, one.names)
            for one in self._control.desk.tokens
        ]

    @call("token.revoke", right=ADMIN, slow=True)
    def revoke(self, token: str) -> bool:
        """Revoke a join token; return whether it existed.

        Args:
            token: Its id.
        """
        return self._control.desk.revoke_token(token)
