"""What a session says about agents that others start."""

from __future__ import annotations

import msgspec


class InvitationInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of an invitation to be an agent.

    Attributes:
        id: Which one it is; no secret.
        state: ``open``, ``joining``, ``joined``, ``revoked`` or ``expired``.
        expires: Until when it lets processes in, seconds since 1970.
        rank: The agent that is there by it; 0 for none.
        host: What that process' machine calls itself.
        pid: Its process id there.
        since: When it joined, seconds since 1970.
        joined: How many processes have joined by it so far.
    """

    id: str
    state: str
    expires: float
    rank: int = 0
    host: str = ""
    pid: int = 0
    since: float = 0.0
    joined: int = 0


class AgentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to agents that others start.

    Attributes:
        number: Counts the events of a session.
        kind: ``agent.joined``, ``agent.lost``, ``agent.left`` or ``agent.refused``.
        text: What happened, for people.
        facts: More about it, by name.
    """

    number: int
    kind: str
    text: str
    facts: dict[str, str] = {}
