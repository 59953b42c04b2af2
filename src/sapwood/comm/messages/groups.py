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
    """An operation of a group.

    Its name, its reduction, the member that sends or receives the value, and type and shape of the
    array of which the round has a piece.

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
    """Upwards: the members ``ranks`` at or below the sender have entered a group."""

    members: Ranges
    name: str
    ranks: Ranges


class GroupJoined(WireMessage, tag=61, frozen=True):
    """Downwards: all members have entered, and the group has this number."""

    members: Ranges
    name: str
    group: GroupNumber


class GroupPart(WireMessage, tag=62, frozen=True):
    """Upwards: the contribution of the members ``ranks`` at or below the sender to a round.

    ``taken`` is the last round whose result they have read. A ``settled`` part is a result that one
    of them has already.
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
    """Downwards: the result of a round; the memory of rounds up to ``confirmed`` may be reused."""

    group: GroupNumber
    round: int
    confirmed: int
    body: bytes
    attempt: int = 0


class GroupEnded(WireMessage, tag=64, frozen=True):
    """Upwards: a group must end with an error; downwards: it has ended.

    ``missing`` are the members that have not called the round.
    """

    group: GroupNumber
    members: Ranges
    name: str
    error: ErrorRecord
    round: int = 0
    missing: Ranges = ()


class GroupJoinCancelled(WireMessage, tag=65, frozen=True):
    """Upwards: the ``GroupJoin`` of these members is withdrawn."""

    members: Ranges
    name: str
    ranks: Ranges


class GroupDisturbed(WireMessage, tag=66, frozen=True):
    """Upwards, to the client: the route to members has changed in or after this attempt."""

    group: GroupNumber
    members: Ranges
    name: str
    attempt: int


class GroupRestart(WireMessage, tag=67, frozen=True):
    """Downwards: this attempt begins."""

    group: GroupNumber
    members: Ranges
    name: str
    attempt: int
