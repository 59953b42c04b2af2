"""What a client and the server of its session say to each other, as bytes.

Both speak the events and effects of the protocol core: a client gives the server events, as if
the server were in its own process, and gets the effects that are its own. Numbers of streams,
requests and messages are the client's; the server translates them. Besides there are some
messages about the session itself.

The framing is that of :mod:`sapwood.comm.framing`; the kind of a frame says which message it is. A
payload in memory that both can map is named in the message, and does not travel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import framing, plain
from sapwood.comm.framing import Buffers, MessageReader
from sapwood.comm.groups import events as gev
from sapwood.comm.messages import StreamSpec
from sapwood.comm.messaging import events as mev
from sapwood.comm.payload import Blocks, Payload
from sapwood.comm.shared_memory import SharedRef
from sapwood.core import typed
from sapwood.core.errors import ErrorRecord
from sapwood.core.topology import Tree
from sapwood.session.interface import ProcessView
from sapwood.session.options import PlacesChanged

VERSION = 4
"""Of this protocol. The kinds and the fields of what travels are fixed by it."""

MAX_MESSAGE = 64 * 2**20
"""Bytes of one message, without its payload."""

MAX_EVENT = plain.MAX_BODY + 2**19
"""Bytes of an event that a client sends into the tree: it has to fit into a message there."""

FIRST_EVENT = 16
"""The first kind of message that is an event."""

MAX_PAYLOAD = 2**40
"""Bytes of one payload of a session server; ``comm.max_payload`` bounds those of clients."""

MAX_STRANGE = 64 * 1024
"""Bytes of a message, with its payload, of a client that was not let in yet."""


class AskToAttach(msgspec.Struct, frozen=True, kw_only=True):
    """The first message of a client.

    Attributes:
        version: Of the protocol.
        session: The id of the session that it wants.
        secret: What proves that it may; empty where the kernel says who it is.
        role: What it wants to be: see :class:`~sapwood.session_server.rights.ClientRole`.
        machine: Which memory it sees; empty for none that it would share.
        pid: Its process.
        label: What users call it.
        owned: Whether the session belongs to this owner: it ends soon after the owner is gone
            without a word, unless another owner attaches.
    """

    version: int
    session: str
    secret: str = ""
    role: str = "owner"
    machine: str = ""
    pid: int = 0
    label: str = ""
    owned: bool = False


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """The root takes a client in.

    Attributes:
        session: The id of the session.
        name: Its name.
        tree: Its tree.
        platforms: Architecture and C library of each kind of processes.
        pythons: Versions of their Pythons.
        processes: The processes of all its places.
        hosts: The machine of each place, by rank, 0 for the server's; none for one machine.
        shares_memory: Whether both map each other's memory.
        failure: Why places stay lost.
        number: Which client of the session this is.
        largest: Bytes of the largest payload that it may send.
    """

    session: str
    name: str
    tree: Tree
    platforms: tuple[tuple[str, str], ...]
    processes: tuple[ProcessView, ...]
    hosts: tuple[int, ...]
    shares_memory: bool
    failure: ErrorRecord | None = None
    number: int = 0
    largest: int = MAX_PAYLOAD
    pythons: tuple[str, ...] = ()


class NotAdmitted(msgspec.Struct, frozen=True):
    """The root does not take a client in."""

    error: ErrorRecord


class SessionCall(msgspec.Struct, frozen=True):
    """The client wants something of the root itself; number 0 wants no answer."""

    number: int
    name: str
    value: Any = None
    payload: Payload | None = None


class SessionAnswer(msgspec.Struct, frozen=True):
    """The outcome of a call."""

    number: int
    value: Any = None
    error: ErrorRecord | None = None


class MemoryTaken(msgspec.Struct, frozen=True):
    """A payload of the root was read: its memory may be used again.

    Attributes:
        descriptor: The server's descriptor of the block.
    """

    descriptor: int


class KeptStream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream that was open when the last owner left.

    Attributes:
        spec: What it is, under the number that the last owner gave it.
        paced: Whether agents push no faster than the client reads.
        begun: Waves that were broadcast so far.
        waiting: Waves that are not over, or whose results follow, by number.
        dropped: Number of results that were dropped meanwhile.
    """

    spec: StreamSpec
    paced: bool
    begun: int
    waiting: tuple[int, ...]
    dropped: int = 0


class StreamsKept(msgspec.Struct, frozen=True):
    """The streams that were open when the last owner left; their results since then follow."""

    streams: tuple[KeptStream, ...]


class AllHandedOver(msgspec.Struct, frozen=True):
    """The whole detached buffer was sent; the client confirms that.

    Attributes:
        streams: How many streams it was.
    """

    streams: int


class SweepRefused(msgspec.Struct, frozen=True):
    """A sweep cannot be made: the stream is in another state."""

    stream: int
    number: int
    error: ErrorRecord


class PlaceWrote(msgspec.Struct, frozen=True):
    """User code at a place has printed something."""

    rank: int
    data: bytes


class OutputDropped(msgspec.Struct, frozen=True):
    """Output of places was dropped, because no client received it.

    Attributes:
        nbytes: How much, by rank.
    """

    nbytes: dict[int, int]


class TreeNews(msgspec.Struct, frozen=True):
    """Places of the tree are not what they were.

    Attributes:
        change: How they changed.
        tree: The tree of a new epoch; None if it is the same.
        processes: The processes of places as they are now.
        failure: Why places stay lost.
    """

    change: PlacesChanged
    tree: Tree | None
    processes: tuple[ProcessView, ...]
    failure: ErrorRecord | None = None


class SessionEnds(msgspec.Struct, frozen=True):
    """The session ends, or continues without this client.

    Attributes:
        reason: Why the session ends.
        error: Why this client was cut off; None where the session ends.
    """

    reason: str
    error: ErrorRecord | None = None


TO_SERVER: Mapping[int, type[msgspec.Struct]] = {
    1: AskToAttach,
    2: SessionCall,
    3: MemoryTaken,
    16: ev.OpenStream,
    17: ev.Broadcast,
    18: ev.CloseStream,
    19: ev.ConfigureStream,
    20: ev.Read,
    21: ev.SweepStream,
    22: ev.Ask,
    23: mev.CancelRequest,
    24: mev.SendTagged,
    25: mev.CancelSend,
    26: mev.PostReceive,
    27: gev.EnterGroup,
    28: gev.CallGroup,
    29: gev.BreakGroup,
}
"""What a client says."""

TO_CLIENT: Mapping[int, type[msgspec.Struct]] = {
    1: Admitted,
    2: NotAdmitted,
    3: SessionAnswer,
    4: PlaceWrote,
    5: OutputDropped,
    6: TreeNews,
    7: SessionEnds,
    8: SweepRefused,
    9: StreamsKept,
    15: AllHandedOver,
    16: ev.WaveCompleted,
    17: ev.WaveFailed,
    18: ev.Contributed,
    19: ev.SweepDone,
    20: ev.Answered,
    21: mev.TaggedArrived,
    22: mev.ReceiveFailed,
    23: mev.SendEnded,
    24: mev.Progressed,
    25: gev.GroupEntered,
    26: gev.GroupFinished,
    27: gev.GroupBroken,
    28: ev.Released,
    29: gev.Discarded,
}
"""What a session server says."""

_CODES = {
    **{kind: code for code, kind in TO_SERVER.items()},
    **{kind: code for code, kind in TO_CLIENT.items()},
}


class _PayloadPlace(msgspec.Struct, frozen=True, array_like=True):
    """Where a payload is: in memory that both can map, or behind the message."""

    nbytes: int
    memory: SharedRef | None = None


def _shared(value: Any) -> Any:
    if isinstance(value, Payload):
        return _PayloadPlace(value.nbytes, value.ref)
    raise TypeError(f"{type(value).__name__} does not travel")


def _inline(value: Any) -> Any:
    if isinstance(value, Payload):
        return _PayloadPlace(value.nbytes)
    raise TypeError(f"{type(value).__name__} does not travel")


_encode_shared = msgspec.msgpack.Encoder(enc_hook=_shared).encode
_encode_inline = msgspec.msgpack.Encoder(enc_hook=_inline).encode


def printable(text: str) -> str:
    r"""Return what a stranger calls something, safe to show and to log.

    Example:
        >>> printable("night\x1b[2J")
        'night?[2J'
    """
    return "".join(one if one.isprintable() else "?" for one in text)


def pack(message: msgspec.Struct, *, sharing: bool) -> Buffers:
    """Return the buffers of a frame.

    Args:
        message: The message.
        sharing: Whether the other side can map memory of this machine.

    Raises:
        ProtocolError: It is too long.
    """
    payload: Payload | None = getattr(message, "payload", None)
    travels = payload is not None and payload.nbytes and not (sharing and payload.ref is not None)
    behind = bytes(payload.view) if payload is not None and travels else b""
    encode = _encode_shared if sharing else _encode_inline
    return framing.packed(_CODES, message, MAX_MESSAGE, behind, encode)


class WireReader(MessageReader[msgspec.Struct]):
    """Reads the frames of the other side.

    Args:
        kinds: What it may say.
        blocks: Maps its memory; None where that is not shared.
        own: Makes the owner of a payload in its memory.
        limit: Bytes of a payload at most.

    Attributes:
        blocks: Likewise.
    """

    __slots__ = ("_behind", "_own", "blocks")

    def __init__(
        self,
        kinds: Mapping[int, type[msgspec.Struct]],
        blocks: Blocks | None = None,
        own: Callable[[SharedRef], Any] = lambda _: None,
        limit: int = MAX_PAYLOAD,
    ) -> None:
        super().__init__(kinds, MAX_MESSAGE, limit)
        self.blocks = blocks
        self._own = own
        self._behind = memoryview(b"")

    def limits(self, kind: int) -> tuple[int, int]:
        """Return how many bytes message and payload of a frame may have."""
        longest, payload = super().limits(kind)
        if self._kinds is TO_SERVER and kind >= FIRST_EVENT:
            longest = MAX_EVENT
        return min(longest, payload), payload

    def decoder(self, message: type[msgspec.Struct]) -> Callable[[memoryview], Any]:
        """Return what reads a message with its payload."""
        return typed.unpacker_with(message, self._payload)

    def read(self, kind: int, header: memoryview, payload: memoryview) -> msgspec.Struct:
        """Return the message of a frame, whose payload is a copy: it is counted by its size."""
        self._behind = memoryview(bytes(payload))
        return super().read(kind, header, payload)

    def _payload(self, kind: type[Any], value: Any) -> Any:
        if kind is not Payload:
            raise ValueError(f"{kind.__name__} does not travel")
        place = typed.convert(value, _PayloadPlace)
        if place.memory is None:
            if place.nbytes != len(self._behind):
                raise ValueError("a payload of another size than announced")
            return Payload(self._behind)
        if self.blocks is None:
            raise ValueError("a payload in memory that is not shared")
        return Payload.mapped(place.memory, self.blocks, self._own(place.memory))
