"""Runner RPC for groups: the requests of a runner. Agents load this, so it needs no numpy."""

from __future__ import annotations

import msgspec

from sapwood.comm.messages.groups import GroupCall, GroupNumber
from sapwood.core.rankset import Ranges

STAY = "group.stay"
"""Request that is never answered: cancelling it leaves the group. Its value is a token."""

ENTER = "group.enter"
"""Request whose answer is the group's number; its value is an :class:`EnterOrder`."""

CALL = "group.call"
"""Request whose answer is the result of a round: a :class:`CallOrder` and a value behind it."""


class EnterOrder(msgspec.Struct, frozen=True):
    """Enter a group.

    Attributes:
        token: The question :data:`STAY` that holds it.
        members: Its members.
        name: Its name.
        timeout: Seconds that the others may take.
    """

    token: int
    members: Ranges
    name: str
    timeout: float | None


class CallOrder(msgspec.Struct, frozen=True):
    """Take part in a round.

    Attributes:
        group: The group's number.
        round: Counts this member's calls from 1.
        call: The operation.
        taken: The last round whose result was read.
        timeout: Seconds that the others may take.
    """

    group: GroupNumber
    round: int
    call: GroupCall
    taken: int
    timeout: float | None
