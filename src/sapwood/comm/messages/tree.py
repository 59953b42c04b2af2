"""Messages about who is attached to whom."""

import msgspec

from sapwood.comm.messages.base import WireMessage
from sapwood.core.rankset import Ranges

NOBODY = -1
"""Where a rank is expected and there is none."""


class Placed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a place is: the process, how often it was attached, and to whom."""

    rank: int
    incarnation: int
    attachment: int
    pid: int
    parent: int


class Attached(WireMessage, tag=40, frozen=True):
    """Places at or below the sender; they replace those below ``anew``."""

    places: tuple[Placed, ...]
    anew: int = NOBODY


class Detached(WireMessage, tag=41, frozen=True):
    """The link to a place below the sender is gone, and with it all that is below that place.

    A ``condemned`` process is taken for dead by its parent and never let in again.
    """

    rank: int
    incarnation: int
    attachment: int
    reason: str
    condemned: bool = False


class Release(WireMessage, tag=42, frozen=True):
    """A place is attached elsewhere by now: the holder of an older attachment drops it."""

    rank: int
    incarnation: int
    attachment: int


class Return(WireMessage, tag=43, frozen=True):
    """To a place that was taken over: the place below which its home is, is there again."""

    parent: int


class OpenStreams(WireMessage, tag=44, frozen=True):
    """To a place that was attached: all streams that concern it, and which of them are quiet.

    Any other stream up to the number ``newest`` has ended: the sender may not have heard of newer
    ones yet.
    """

    streams: tuple[int, ...]
    quiet: tuple[int, ...] = ()
    newest: int = 0


class TreeChanged(WireMessage, tag=45, frozen=True):
    """From the client to all: the tree of an epoch, before any wave of that epoch.

    Attributes:
        epoch: Which one.
        planned: Agents of the first epoch.
        homes: Parent of every rank that was ever given, from rank 1: how many ranks in a row have
            it, and which it is.
        spares: Spare junctions.
        added: Agents that came later.
        removed: Places that left for good.
    """

    epoch: int
    planned: int
    homes: tuple[tuple[int, int], ...]
    spares: Ranges = ()
    added: Ranges = ()
    removed: Ranges = ()
