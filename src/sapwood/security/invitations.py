"""Invitations: a line of text that lets a process become an agent of a session.

``swa1.<id>.<secret>.<pin>@<host:port>,…``: the id names the invitation, the secret proves that it
was given, the pin identifies the root of the session before the secret is sent, and
the rest says where that root is. The session keeps a hash of the secret only.
"""

from __future__ import annotations

import hashlib
import re
import secrets

import msgspec

from sapwood.core.errors import SecurityError

VERSION = "swa1"
"""How invitations begin; another form gets another number."""

_FORM = re.compile(rf"{VERSION}\.([a-z2-7]{{8}})\.([a-z2-7]{{52}})\.([0-9a-f]{{64}})")

_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


class AgentInvitation(msgspec.Struct, frozen=True):
    """What a process needs to become an agent.

    Attributes:
        id: Which invitation it is; no secret.
        secret: What proves that it was given, 260 random bits.
        pin: Of the session's authority.
        places: Where the root of the session is, ``host:port`` each.

    Example:
        >>> made = AgentInvitation.create("0" * 64, ("n1:7700", "10.0.0.1:7700"))
        >>> AgentInvitation.parse(made.line) == made
        True
    """

    id: str
    secret: str
    pin: str
    places: tuple[str, ...]

    @classmethod
    def create(cls, pin: str, places: tuple[str, ...]) -> AgentInvitation:
        """Make a new one."""
        return cls(_random(8), _random(52), pin, places)

    @property
    def token(self) -> str:
        """What the process shows to the root."""
        return f"{VERSION}.{self.id}.{self.secret}.{self.pin}"

    @property
    def line(self) -> str:
        """The invitation as people copy it."""
        return f"{self.token}@{','.join(self.places)}"

    @property
    def digest(self) -> bytes:
        """What the session keeps of the secret: its SHA-256."""
        return hashlib.sha256(self.secret.encode()).digest()

    @classmethod
    def parse(cls, text: str) -> AgentInvitation:
        """Return the invitation of a line; without places, if it names none.

        Raises:
            SecurityError: It is none.
        """
        token, _, places = text.strip().partition("@")
        match = _FORM.fullmatch(token)
        if match is None:
            raise SecurityError(
                "not an invitation of a session",
                hint=f"copy the whole line; it begins with {VERSION}.",
            )
        named = tuple(one for one in places.split(",") if one)
        return cls(match[1], match[2], match[3], named)

    def __repr__(self) -> str:
        return f"<AgentInvitation {self.id}>"


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))
