"""Requests of members to their groups (events), and their outcomes (effects)."""

from __future__ import annotations

from sapwood.comm.events import Effect, Event
from sapwood.comm.messages.groups import GroupCall, GroupNumber
from sapwood.comm.payload import Payload
from sapwood.core.errors import ErrorRecord
from sapwood.core.rankset import Ranges


class EnterGroup(Event, frozen=True):
    """Enter a group; :class:`GroupEntered` or :class:`GroupBroken` follows.

    Attributes:
        members: Agents, and rank 0 for the client; this place is among them.
        name: Tells groups of the same members apart.
    """

    members: Ranges
    name: str


class CallGroup(Event, frozen=True):
    """Take part in a round; :class:`GroupFinished` or :class:`GroupBroken` follows.

    Attributes:
        group: Number of the group.
        round: Counts the calls of this member from 1.
        call: The operation.
        taken: The last round whose result this member has read: its memory, and the memory of
            earlier rounds, may be reused.
        body: The value, encoded; empty where the operation takes none of this member.
        payload: Its arrays.
    """

    group: GroupNumber
    round: int
    call: GroupCall
    taken: int
    body: bytes
    payload: Payload | None


class BreakGroup(Event, frozen=True):
    """End a group, or the wait for one, with an error at every member.

    Attributes:
        group: Its number; :data:`~sapwood.comm.messages.groups.NO_GROUP` before it was entered.
        members: Its members.
        name: Its name.
        error: The error.
        round: In which round this member waits: the error will name who has not called.
    """

    group: GroupNumber
    members: Ranges
    name: str
    error: ErrorRecord
    round: int = 0


class MissResult(Event, frozen=True):
    """The memory of a result is gone with its maker: it is wanted again."""

    group: GroupNumber
    round: int


class ForgetGroups(Event, frozen=True):
    """This place ends: give up the memory that it keeps for groups."""


class GroupEntered(Effect, frozen=True):
    """All members have entered."""

    members: Ranges
    name: str
    group: GroupNumber


class GroupFinished(Effect, frozen=True):
    """A round ended: the result for this member, empty where it gets none."""

    group: GroupNumber
    round: int
    body: bytes
    payload: Payload | None


class GroupBroken(Effect, frozen=True):
    """A group, or the wait for one, ended with an error."""

    group: GroupNumber
    members: Ranges
    name: str
    error: ErrorRecord


class Discarded(Effect, frozen=True):
    """A payload is given up: its owner is to be closed.

    Its memory is not used again, as user code may have mapped what it got.
    """

    payload: Payload
