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

PROTOCOL_VERSION = 5

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
    """When a place passes on what its children contribute.

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
    """The own filters of some places; the tree does not look into them.

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
    """What a stream is.

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


class PlaceReport(msgspec.Struct, frozen=True, array_like=True):
    """What one place knows of a stream.

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


class Hello(WireMessage, tag=1, frozen=True):
    """First message of the side that connects: who it is and what it speaks."""

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
    """Answer to an accepted :class:`Hello`."""

    version: int
    rank: int
    pid: int
    machine: str
    window: int = WINDOW


class Refused(WireMessage, tag=3, frozen=True):
    """Answer to a :class:`Hello` that is not accepted; the link closes."""

    reason: str


class Heartbeat(WireMessage, tag=4, frozen=True):
    """Says that the sender lives; with what both ends need to measure the round trip.

    ``clock`` is the sender's; ``echo`` the clock of the heartbeat that it heard last, 0.0 if that
    was echoed before, and ``held`` the seconds since then.
    """

    clock: float = 0.0
    echo: float = 0.0
    held: float = 0.0


class Goodbye(WireMessage, tag=5, frozen=True):
    """The sender closes the link on purpose; with it the whole tree ends, if it says so."""

    reason: str = ""
    all_end: bool = False


class Credit(WireMessage, tag=6, frozen=True):
    """The sender has consumed so many messages of this link in all; room for more."""

    consumed: int


class Resume(WireMessage, tag=7, frozen=True):
    """First message of a new connection that continues a link: which one, and where."""

    version: int
    cluster: str
    rank: int
    incarnation: int
    link: int
    received: int
    credential: bytes = b""


class Resumed(WireMessage, tag=8, frozen=True):
    """Answer to an accepted :class:`Resume`: how many messages had arrived on this side."""

    received: int


class Open(WireMessage, tag=10, frozen=True):
    """Opens a stream, downwards."""

    spec: StreamSpec


class Close(WireMessage, tag=11, frozen=True):
    """Closes a stream, downwards; work that is under way for it is cancelled."""

    stream: int


class Down(WireMessage, tag=12, frozen=True):
    """A wave on its way to the agents; the value is in body and payload.

    It asks for the contributions of ``ranks``; empty for all members whose home is at or below
    the receiver.
    """

    stream: int
    wave: int
    attempt: int
    body: bytes
    confirmed: int = 0
    ranks: Ranges = ()
    version: int = 0


class Up(WireMessage, tag=13, frozen=True):
    """The answer to all :class:`Down` of a wave up to an attempt: the contribution of ``ranks``.

    Ranks that were asked for and are not in it must be asked for again, wherever they are now,
    unless the stream has a time-out. An empty body says that there is nothing to add. Wave 0 is
    what agents send without being asked; ``attempt`` counts it.
    """

    stream: int
    wave: int
    attempt: int
    ranks: Ranges
    weight: float
    body: bytes


class Failed(WireMessage, tag=14, frozen=True):
    """An agent could not contribute to a wave."""

    stream: int
    wave: int
    attempt: int
    rank: int
    error: ErrorRecord


class Sweep(WireMessage, tag=30, frozen=True):
    """Goes through a stream behind all that was sent before it, and comes back.

    ``action`` is ``flush``, ``quiesce``, ``resume``, ``query`` or ``stage``: that brings own
    filters, which places load and keep.
    """

    stream: int
    number: int
    action: str
    filters: tuple[FilterAt, ...] = ()


class Swept(WireMessage, tag=31, frozen=True):
    """The answer of a subtree to a :class:`Sweep`, behind all that it sent before."""

    stream: int
    number: int
    reached: Ranges
    reports: tuple[PlaceReport, ...] = ()


class Abandon(WireMessage, tag=32, frozen=True):
    """A wave failed, and needs no further contributions; downwards."""

    stream: int
    wave: int
    confirmed: int = 0


class Without(WireMessage, tag=15, frozen=True):
    """A wave continues without these ranks, whose processes are lost; downwards."""

    stream: int
    wave: int
    ranks: Ranges


class Configure(WireMessage, tag=33, frozen=True):
    """What the filters have in the waves that name this version, downwards.

    Its code is staged under the name ``code``, or is unchanged. No wave
    names a version before ``oldest`` any more.
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
