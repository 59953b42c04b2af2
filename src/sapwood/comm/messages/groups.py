"""Messages of groups (collectives): tags 60 to 69."""

import msgspec

from sapwood.comm.messages.base import WireMessage
from sapwood.core.errors import ErrorRecord
from sapwood.core.rankset import Ranges

GroupNumber = tuple[int, int, int]
"""Names a group: the place that numbered it, that place's incarnation, and a counter."""

NO_GROUP: GroupNumber = (-1, 0, 0)
"""Number of a group that not all members have entered."""

Key = tuple[Ranges, str]
"""What a group is called before it has a number: its members and its name."""

MAX_ROUNDS = 64
"""Rounds of one group that are under way at a time."""

MAX_NAME = 1024
"""Bytes of the name of a group."""

FIELD = "x"
"""Field of a contribution that holds the value."""

LEFT = "left"
"""Detail of the error of a group that a member left; its own error may say why."""

ONCE = "once:"
"""Prefix of names that are used once: entering such a group after its end is an error."""


class GroupCall(msgspec.Struct, frozen=True, array_like=True):
    """An operation of a group; all members of a round must call the same one.

    Attributes:
        operation: ``barrier``, ``broadcast``, ``scatter``, ``gather``, ``allgather``,
            ``reduce``, ``allreduce`` or ``leave``.
        reduce: How the values are put together, where they are.
        root: The member that gives or gets the value, where one does; -1 otherwise.
        whole: Type and shape of the array of which this round has a piece; empty if it has none.
    """

    operation: str
    reduce: str = ""
    root: int = -1
    whole: str = ""

    def __str__(self) -> str:
        words = [repr(self.reduce)] if self.reduce else []
        if self.root >= 0:
            words.append(f"root={self.root}")
        if self.whole:
            words.append(self.whole)
        return f"{self.operation}({', '.join(words)})"


LEAVE = GroupCall("leave")
"""The last operation of every member."""


class GroupJoin(WireMessage, tag=60, frozen=True):
    """Members ``ranks`` at or below the sender have entered a group, upwards.

    It is said when all that are attached there have, and again whenever there are more.
    """

    members: Ranges
    name: str
    ranks: Ranges


class GroupJoined(WireMessage, tag=61, frozen=True):
    """All members have entered a group; its number, downwards."""

    members: Ranges
    name: str
    group: GroupNumber


class GroupPart(WireMessage, tag=62, frozen=True):
    """What the members at or below the sender give to a round, upwards.

    ``taken`` is the last round whose result all of them have read. A ``settled`` one is the
    result of an earlier attempt that one of them has already.
    """

    group: GroupNumber
    round: int
    call: GroupCall
    ranks: Ranges
    taken: int
    body: bytes
    attempt: int = 0
    settled: bool = False


class GroupResult(WireMessage, tag=63, frozen=True):
    """The result of a round; downwards.

    The memory of the rounds up to ``confirmed`` may be used again.
    """

    group: GroupNumber
    round: int
    confirmed: int
    body: bytes
    attempt: int = 0


class GroupEnded(WireMessage, tag=64, frozen=True):
    """A group is to end with an error (upwards), or has (downwards).

    ``missing`` is who has not called ``round``, as far as the places on the way up know.
    """

    group: GroupNumber
    members: Ranges
    name: str
    error: ErrorRecord
    round: int = 0
    missing: Ranges = ()


class GroupJoinCancelled(WireMessage, tag=65, frozen=True):
    """A :class:`GroupJoin` of these ranks does not hold any more, upwards."""

    members: Ranges
    name: str
    ranks: Ranges


class GroupDisturbed(WireMessage, tag=66, frozen=True):
    """The way to members of a group has changed, upwards: the client is to put it together."""

    group: GroupNumber
    members: Ranges
    name: str
    attempt: int


class GroupRestart(WireMessage, tag=67, frozen=True):
    """The next attempt of a group begins, downwards: members give again what is not confirmed."""

    group: GroupNumber
    members: Ranges
    name: str
    attempt: int
