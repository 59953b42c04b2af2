"""Messages about who is attached to whom."""

import msgspec

from sapwood.comm.messages.base import WireMessage
from sapwood.core.rankset import Ranges

NOBODY = -1
"""Where a rank is expected and there is none."""


class Placed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a vertex is attached.

    The process there, how often it was attached, and to which vertex.
    """

    rank: int
    incarnation: int
    attachment: int
    pid: int
    parent: int


class Attached(WireMessage, tag=40, frozen=True):
    """Upwards: where vertices at or below the sender are attached.

    Vertices that were below ``anew`` before are detached, unless a later message attaches them
    again.
    """

    places: tuple[Placed, ...]
    anew: int = NOBODY


class Detached(WireMessage, tag=41, frozen=True):
    """Upwards: the link to a vertex is gone, and with it all vertices below.

    A ``condemned`` process was silent for too long, and no vertex admits it again.
    """

    rank: int
    incarnation: int
    attachment: int
    reason: str
    condemned: bool = False


class Release(WireMessage, tag=42, frozen=True):
    """Downwards: the vertex is attached elsewhere.

    A vertex that has it by an older attachment releases it.
    """

    rank: int
    incarnation: int
    attachment: int


class Return(WireMessage, tag=43, frozen=True):
    """To a vertex that attached to a farther ancestor: it must return to ``parent``.

    ``parent`` is nearer to its home, and available again.
    """

    parent: int


class OpenStreams(WireMessage, tag=44, frozen=True):
    """To a newly attached vertex, and from there to all below it: the open streams.

    ``quiet`` names those that are quiet. The receiver closes any other stream whose number is not
    above ``newest``, and stops or resumes the open streams as the message says. A stream with a
    higher number stays open, because the sender does not know it yet. The ``Open`` of each stream
    that concerns a vertex comes before.
    """

    streams: tuple[int, ...]
    quiet: tuple[int, ...] = ()
    newest: int = 0


class TreeChanged(WireMessage, tag=45, frozen=True):
    """From the client to all vertices: the tree of an epoch.

    ``homes`` says for the ranks from 1, in order, how many in a row have which parent; ``added``
    are the agents in addition to those up to ``planned``, ``removed`` are the vertices that left.

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
