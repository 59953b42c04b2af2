"""What a client and the server of its session say of sessions that are merged into it."""

from __future__ import annotations

import msgspec

from sapwood.core.rankset import Ranges

FIRST = 2_000_000
"""Offset of the ranks of the first session that is merged into another; more than any rank
of the other session. The next one gets twice that, and so on."""


class MergeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Which session is to be merged into this one.

    Attributes:
        credential: What its server is shown, as text: it says where that is, too.
        socket: Or where it listens on this machine, for sessions of the same user.
        session: Its id, with a socket.
        name: Its name, with a socket.
    """

    credential: str = ""
    socket: str = ""
    session: str = ""
    name: str = ""


class SplitOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Which session is to be let go.

    Attributes:
        session: Its id, name or both.
        seconds: How long open waves may take still.
    """

    session: str
    seconds: float


class MergedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that is merged into another one.

    Attributes:
        id: Its id.
        name: Its name.
        first: Offset of its ranks, so that they are different from all others here.
        agents: The ranks of its agents in that session.
        platforms: Architecture and C library of each kind of its processes.
        pythons: Versions of their Pythons.
        since: Since when, seconds since 1970.
        streams: Streams over both that are open.
    """

    id: str
    name: str
    first: int
    agents: Ranges
    platforms: tuple[tuple[str, str], ...] = ()
    since: float = 0.0
    streams: int = 0
    pythons: tuple[str, ...] = ()

    @property
    def handle(self) -> str:
        """What names it for ever: ``name#id``."""
        return f"{self.name}#{self.id}"
