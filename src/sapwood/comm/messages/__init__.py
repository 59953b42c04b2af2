"""Every message of the protocol: frozen, tagged, versioned.

Rules of evolution: a tag is never reused; a field is only added at the end and has a default;
what changes a meaning raises :data:`PROTOCOL_VERSION`. On the wire a message is a msgpack
array ``[tag, field, …]``; ``docs/reference/protocol.md`` gives the bytes.
"""

from collections.abc import Callable

import msgspec

from sapwood.comm.messages.base import WireMessage
from sapwood.comm.messages.groups import (
    GroupDisturbed,
    GroupEnded,
    GroupJoin,
    GroupJoinCancelled,
    GroupJoined,
    GroupPart,
    GroupRestart,
    GroupResult,
)
from sapwood.comm.messages.messaging import (
    Acknowledgement,
    MembershipNotice,
    Multicast,
    RoutedMessage,
)
from sapwood.comm.messages.pieces import Announced, Draw, Offer, Piece, Retracted
from sapwood.comm.messages.push import Taken
from sapwood.comm.messages.tree import NOBODY as NOBODY
from sapwood.comm.messages.tree import Attached as Attached
from sapwood.comm.messages.tree import Detached as Detached
from sapwood.comm.messages.tree import OpenStreams as OpenStreams
from sapwood.comm.messages.tree import Placed as Placed
from sapwood.comm.messages.tree import Release as Release
from sapwood.comm.messages.tree import Return as Return
from sapwood.comm.messages.tree import TreeChanged as TreeChanged
from sapwood.core import typed
from sapwood.core.errors import ErrorRecord, ProtocolError
from sapwood.core.rankset import Ranges

PROTOCOL_VERSION = 6

WINDOW = 4 * 2**20
"""Cost of the messages on one link that may be sent and not yet consumed, bytes."""

WAIT_FOR_ALL = "all"
TIME_OUT = "time-out"
NO_WAIT = "none"
"""When a place passes a wave on: see :class:`Synchronisation`."""

LATE_IN_NEXT = "next"
"""Late contributions count, in a later wave."""

REPLACE = "replace"
PARTIAL = "partial"
FAIL = "fail"
"""What becomes of a wave when a place is lost: see :class:`StreamSpec`."""


class Synchronisation(msgspec.Struct, frozen=True, array_like=True):
    """When a vertex passes a wave on.

    ``all``, ``time-out`` after some seconds, or ``none``; and how it handles late contributions.

    Attributes:
        kind: ``all``: when all of them have; ``time-out``: then, or when the time is over;
            ``none``: each contribution alone, at once.
        seconds: The time, at the root; places below it pass on a little earlier.
        late: Contributions after the time are dropped and counted (``drop``), or go into the
            next wave that the place passes on (``next``).
    """

    kind: str = WAIT_FOR_ALL
    seconds: float = 0.0
    late: str = "drop"


class FilterAt(msgspec.Struct, frozen=True, array_like=True):
    """User-defined filters of the vertices that ``where`` names.

    ``rank N``, ``depth N`` or ``*`` for all.

    Attributes:
        where: ``rank N``, ``depth N`` (the root has depth 0) or ``*`` for all; the first of
            these that fits a place counts.
        up: What puts contributions together; empty for the reductions of the stream.
        down: What a broadcast value goes through; empty for nothing.
        per_child: Whether ``down`` makes a separate value for each child.
    """

    where: str
    up: bytes = b""
    down: bytes = b""
    per_child: bool = False


class StreamSpec(msgspec.Struct, frozen=True, array_like=True):
    """What a stream is when it opens.

    It names its members, says whether it follows changes of the tree, what agents do with a wave
    (``handler``, ``code``), and how contributions are reduced.

    Attributes:
        stream: Identifier, unique in its cluster and never reused.
        handler: What the agents do with a wave, for example ``map`` or ``echo``.
        members: Agents that take part.
        reduce: Reduction of each field of a contribution; empty for no reduction.
        context: What the handler belongs to, for example a run.
        code: What the handler runs; the tree does not look into it.
        sync: When places pass waves on.
        on_loss: Treatment of a wave that waits for a lost place: it waits for the
            replacement (``replace``), continues without it (``partial``) or fails (``fail``).
        filters: Own filters.
        parameters: Parameters of the filters by version, encoded; those that waves still use.
        counted: Whether places count what passes.
        follows: Whether agents that join later take part, from the first wave after they have
            joined, and the stream continues without agents that leave.
        updates: Own filters that take the place of ``filters``, by the version from which on.
        staged: Own filters that places have, and no version has yet.
        first: Offset of the ranks of members that reductions and filters see, because
            agents of another tree take part, too.
    """

    stream: int
    handler: str
    members: Ranges
    reduce: dict[str, str] = {}
    context: str = ""
    code: bytes = b""
    sync: Synchronisation = Synchronisation()
    on_loss: str = REPLACE
    filters: tuple[FilterAt, ...] = ()
    parameters: dict[int, bytes] = {}
    counted: bool = False
    follows: bool = False
    updates: dict[int, tuple[FilterAt, ...]] = {}
    staged: tuple[FilterAt, ...] = ()
    first: int = 0


class PlaceStatistics(msgspec.Struct, frozen=True, array_like=True):
    """The state of a stream at one vertex.

    Open waves, counts of messages, bytes and filter calls, and the names of the filters that it
    uses and has staged, or why it cannot load these.

    Attributes:
        rank: The place.
        state: Life of the stream there: see ``streams/life.py``.
        waves_open: Waves that wait for contributions, or for a filter.
        held: Own contributions that are kept until they are confirmed.
        queued: Messages that wait behind a filter, or for the end of a quiet time.
        messages_down: Waves that came from above; at the root, that were broadcast.
        bytes_down: Their bytes.
        messages_up: Contributions that came from below; at an agent, that it made.
        bytes_up: Their bytes.
        filtered: Calls of own filters.
        filter_seconds: Time in them, seconds.
        late: Contributions that came after their time.
        repeated: Contributions that came twice, or in an attempt that is over.
        code: Name of the own filters that new waves use there, made of their hash.
        staged: That of those that are staged there.
        problem: Why those that were to be staged cannot be loaded there.
        relayed: Waves that passed an agent by a shortcut, without its interpreter.
    """

    rank: int
    state: str
    waves_open: int = 0
    held: int = 0
    queued: int = 0
    messages_down: int = 0
    bytes_down: int = 0
    messages_up: int = 0
    bytes_up: int = 0
    filtered: int = 0
    filter_seconds: float = 0.0
    late: int = 0
    repeated: int = 0
    code: str = ""
    staged: str = ""
    problem: ErrorRecord | None = None
    relayed: int = 0


class Hello(WireMessage, tag=1, frozen=True):
    """First message of the side that connects.

    Its identity, its protocol version, its window, its number for this link, how often this process
    has asked to be attached, and which epoch of the tree it knows.
    """

    version: int
    cluster: str
    rank: int
    incarnation: int
    pid: int
    machine: str
    credential: bytes = b""
    window: int = WINDOW
    link: int = 0
    attachment: int = 1
    epoch: int = 0


class Welcome(WireMessage, tag=2, frozen=True):
    """Answer to a ``Hello`` that is accepted.

    The identity of the accepting side, and its window.
    """

    version: int
    rank: int
    pid: int
    machine: str
    window: int = WINDOW


class Refused(WireMessage, tag=3, frozen=True):
    """Answer to a ``Hello`` or ``Resume`` that is not accepted; the connection closes."""

    reason: str


class Heartbeat(WireMessage, tag=4, frozen=True):
    """The sender is alive.

    The time on its clock, the ``clock`` of the heartbeat that it received last (0.0 if it has
    echoed that before), and the seconds since it received that.
    """

    clock: float = 0.0
    echo: float = 0.0
    held: float = 0.0


class Goodbye(WireMessage, tag=5, frozen=True):
    """The sender ends the link on purpose: the link must not be resumed.

    With ``all_end``, or from the client, the receiver ends as well.
    """

    reason: str = ""
    all_end: bool = False


class Credit(WireMessage, tag=6, frozen=True):
    """How many counted messages of this link the sender has consumed in all."""

    consumed: int


class Resume(WireMessage, tag=7, frozen=True):
    """First message of a connection that resumes a link.

    Which link, and how many counted messages the sender has received on it.
    """

    version: int
    cluster: str
    rank: int
    incarnation: int
    link: int
    received: int
    credential: bytes = b""


class Resumed(WireMessage, tag=8, frozen=True):
    """Answer to a ``Resume`` that is accepted: how many counted messages this side has received."""

    received: int


class Open(WireMessage, tag=10, frozen=True):
    """Downwards: makes a stream known to all vertices with members at home at or below them.

    The root numbers streams in the order in which it opens them.
    """

    spec: StreamSpec


class Close(WireMessage, tag=11, frozen=True):
    """Downwards: the stream ends, and agents cancel their work for it."""

    stream: int


class Down(WireMessage, tag=12, frozen=True):
    """Downwards: a wave.

    ``confirmed`` is the highest wave such that the root has it and all waves before it; ``version``
    names the filter parameters to use; ``ranks`` are asked for their contributions; if it is empty,
    all ``members`` of the stream's ``Open`` that are at home at or below the receiver are asked.
    """

    stream: int
    wave: int
    attempt: int
    body: bytes
    confirmed: int = 0
    ranks: Ranges = ()
    version: int = 0


class Up(WireMessage, tag=13, frozen=True):
    """Upwards: the contribution of the agents ``ranks``.

    ``weight`` is the number of items behind it; an empty body adds nothing. Wave 0 was not asked
    for; ``attempt`` is its number: the incarnation of the agent's process times 2^32, plus a count
    from 1.
    """

    stream: int
    wave: int
    attempt: int
    ranks: Ranges
    weight: float
    body: bytes


class Failed(WireMessage, tag=14, frozen=True):
    """Upwards: the agent ``rank`` cannot contribute to a wave, and why."""

    stream: int
    wave: int
    attempt: int
    rank: int
    error: ErrorRecord


class Sweep(WireMessage, tag=30, frozen=True):
    """Downwards, after all earlier messages: a request to each vertex of a stream.

    ``action`` is ``flush``, ``quiesce``, ``resume``, ``query`` or ``stage``; the answer repeats the
    number. ``stage`` brings ``filters`` for a later version.
    """

    stream: int
    number: int
    action: str
    filters: tuple[FilterAt, ...] = ()


class Swept(WireMessage, tag=31, frozen=True):
    """Upwards, after all earlier messages: the answer of a subtree to a ``Sweep``.

    It has the agents that were reached, and the reports of vertices.
    """

    stream: int
    number: int
    reached: Ranges
    reports: tuple[PlaceStatistics, ...] = ()


class Abandon(WireMessage, tag=32, frozen=True):
    """Downwards: a wave has failed, and needs no further contributions.

    ``confirmed`` is as in ``Down``.
    """

    stream: int
    wave: int
    confirmed: int = 0


class Without(WireMessage, tag=15, frozen=True):
    """Downwards: a wave continues without these ranks, whose processes are lost."""

    stream: int
    wave: int
    ranks: Ranges


class Configure(WireMessage, tag=33, frozen=True):
    """Downwards, after all earlier messages: a version of the filters' parameters.

    Waves that name the version use these encoded parameters, and the staged filters of the name
    ``code``; without a name, the filters of the previous version. Later waves name no version
    before ``oldest``.
    """

    stream: int
    version: int
    parameters: bytes
    oldest: int = 0
    code: str = ""


AnyMessage = (
    Hello
    | Welcome
    | Refused
    | Heartbeat
    | Goodbye
    | Credit
    | Resume
    | Resumed
    | Open
    | Close
    | Down
    | Up
    | Failed
    | Attached
    | Detached
    | Release
    | Return
    | OpenStreams
    | TreeChanged
    | Sweep
    | Swept
    | Abandon
    | Without
    | Configure
    | Offer
    | Announced
    | Draw
    | Piece
    | Retracted
    | Taken
    | GroupJoin
    | GroupJoined
    | GroupPart
    | GroupResult
    | GroupEnded
    | GroupJoinCancelled
    | GroupDisturbed
    | GroupRestart
    | RoutedMessage
    | Acknowledgement
    | Multicast
    | MembershipNotice
)

CONTROL: frozenset[type[WireMessage]] = frozenset(
    {Hello, Welcome, Refused, Heartbeat, Goodbye, Credit, Resume, Resumed}
)
"""Messages of a link itself: neither counted nor paid for."""

encode = msgspec.msgpack.Encoder().encode
_decode: Callable[[bytes | memoryview], AnyMessage] = typed.unpacker(AnyMessage)


def decode(data: bytes | memoryview) -> AnyMessage:
    """Return the message that the bytes hold.

    Raises:
        ProtocolError: The bytes are not a message of this protocol.

    Example:
        >>> decode(encode(Close(7)))
        Close(stream=7)
    """
    try:
        return _decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError(f"malformed message: {error}") from error
