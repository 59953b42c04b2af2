"""What goes into the protocol core (events) and what comes out of it (effects).

The core is ``Node.step(now, event) -> list[Effect]``. It does no I/O, reads no clock and makes
no random numbers: whoever drives it, a transport or a test with virtual time, does that.

Several of these have the same fields (``Ask`` and ``Asked``, ``Contribute`` and ``WaveArrived``).
They are separate classes, because the class of an event or effect selects its handler.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sapwood.comm.messages import AnyMessage, FilterAt, PlaceStatistics, StreamSpec
from sapwood.comm.payload import Payload
from sapwood.core.errors import ErrorRecord
from sapwood.core.rankset import Ranges
from sapwood.core.topology import Tree


class Event(msgspec.Struct, frozen=True, gc=False):
    """Base of what happens to a node."""


class Begin(Event, frozen=True):
    """The process runs: look for a parent."""


class ChangeTree(Event, frozen=True):
    """Root: the tree of the next epoch."""

    tree: Tree


class WavesPassed(Event, frozen=True):
    """Root: waves of a stream were exchanged by a shortcut, and are over."""

    stream: int
    waves: int


class Unreachable(Event, frozen=True):
    """No process accepts connections at a place that :class:`Connect` wanted.

    If it is absent, not even its machine answers, so waiting for it is useless.
    """

    rank: int
    absent: bool = False


class TryAgain(Event, frozen=True):
    """A place above may be reached now that could not be before."""

    rank: int


class LinkOpened(Event, frozen=True):
    """A transport has a new connection."""

    link: int
    initiator: bool


class Received(Event, frozen=True):
    """A frame arrived on a link."""

    link: int
    message: AnyMessage
    payload: Payload | None


class LinkClosed(Event, frozen=True):
    """A connection ended."""

    link: int
    reason: str


class Tick(Event, frozen=True):
    """Time passed."""


class OpenStream(Event, frozen=True):
    """Root: open a stream to its members.

    Attributes:
        spec: What it is.
        paced: Whether agents are to send of themselves no faster than :class:`Read` says.
        partial: Whether its waves end with what a junction would pass on, because another process
            combines that with more.
    """

    spec: StreamSpec
    paced: bool = False
    partial: bool = False


class Read(Event, frozen=True):
    """Root: a client has read ``count`` values that an agent had pushed."""

    stream: int
    rank: int
    count: int


class CloseStream(Event, frozen=True):
    """Root: close a stream; its agents drop what they do for it."""

    stream: int


class Broadcast(Event, frozen=True):
    """Root: begin the next wave of a stream."""

    stream: int
    body: bytes
    payload: Payload | None


class Contribute(Event, frozen=True):
    """Agent: contribute to a wave."""

    stream: int
    wave: int
    weight: float
    body: bytes
    payload: Payload | None


class Fail(Event, frozen=True):
    """Agent: cannot contribute to a wave."""

    stream: int
    wave: int
    error: ErrorRecord


class Emit(Event, frozen=True):
    """Agent: contribute to a stream without having been asked."""

    stream: int
    weight: float
    body: bytes
    payload: Payload | None


class SweepStream(Event, frozen=True):
    """Root: flush, quiesce, resume or query a stream, or stage ``filters`` at its places.

    :class:`SweepDone` tells the end.
    """

    stream: int
    number: int
    action: str
    filters: tuple[FilterAt, ...] = ()


class ConfigureStream(Event, frozen=True):
    """Root: give the filters of a stream other parameters, from the next wave on.

    With ``code`` it also gives them the code that is staged under that name.
    """

    stream: int
    parameters: bytes
    code: str = ""


class FilterStaged(Event, frozen=True):
    """The answer to :class:`FilterStaging`: own filters are loaded, or why they are not."""

    stream: int
    number: int
    error: ErrorRecord | None = None


class TimeUp(Event, frozen=True):
    """The time is over that :class:`Wake` asked for."""

    stream: int


class Filtered(Event, frozen=True):
    """An own filter has answered a :class:`FilterWanted`; an empty body is nothing to pass on."""

    stream: int
    ticket: int
    body: bytes
    payload: Payload | None
    seconds: float = 0.0
    error: ErrorRecord | None = None


class Ask(Event, frozen=True):
    """Send an active message to a place; its answer comes as :class:`Answered`."""

    destination: int
    handler: str
    number: int
    body: bytes
    payload: Payload | None


class Answer(Event, frozen=True):
    """Answer an active message."""

    destination: int
    number: int
    body: bytes
    payload: Payload | None
    error: ErrorRecord | None = None


class Leave(Event, frozen=True):
    """Say goodbye on every link."""

    reason: str = ""


class Effect(msgspec.Struct, frozen=True, gc=False):
    """Base of what a node wants done."""


class Transmit(Effect, frozen=True):
    """Send one message on several links; encode it once."""

    links: tuple[int, ...]
    message: AnyMessage
    payload: Payload | None = None


class Disconnect(Effect, frozen=True):
    """Close a link after what was sent."""

    link: int
    reason: str


class ParentUp(Effect, frozen=True):
    """The link to the parent stands."""


class EpochBegun(Effect, frozen=True):
    """Below the root: the tree has a new epoch."""

    tree: Tree


class Connect(Effect, frozen=True):
    """Connect to a place after a pause, seconds; :class:`Unreachable` says that it failed."""

    rank: int
    pause: float = 0.0


class ParentLost(Effect, frozen=True):
    """No place of the tree takes this one any more: its process is to end."""

    reason: str


class PlaceJoined(Effect, frozen=True):
    """Root: a place of the tree is there, for the first time or again."""

    rank: int
    incarnation: int
    pid: int


class PlacesLost(Effect, frozen=True):
    """Root: the way to places is gone; they may come back by another one.

    It is the link of ``top`` that is gone, and -1 where that is not known; if ``condemned``, its
    parent has taken the process there for dead, and it does not come back.
    """

    ranks: Ranges
    reason: str
    top: int = -1
    condemned: bool = False


class LinkChanged(Effect, frozen=True):
    """The link to a neighbour lost its connection, or continues over a new one.

    ``reason`` says why it has none; it is empty if it continues. A link that ends after that is
    reported by other effects.
    """

    rank: int
    reason: str


class PlaceSilent(Effect, frozen=True):
    """Nothing was heard of a neighbour for longer than the failure time."""

    rank: int
    link: int
    seconds: float


class StreamOpened(Effect, frozen=True):
    """Agent: a stream begins."""

    spec: StreamSpec


class StreamClosed(Effect, frozen=True):
    """Agent: a stream ends; work for it is to be cancelled."""

    stream: int


class WaveArrived(Effect, frozen=True):
    """Agent: a wave wants a contribution."""

    spec: StreamSpec
    wave: int
    attempt: int
    body: bytes
    payload: Payload | None


class WaveCompleted(Effect, frozen=True):
    """Root: a wave is over; its value is in ``total``, or encoded in ``body`` and ``payload``.

    ``ranks`` contributed to it, and ``late`` to earlier waves what is in it as well.
    """

    stream: int
    wave: int
    total: Any
    ranks: Ranges
    weight: float
    late: Ranges = ()
    body: bytes = b""
    payload: Payload | None = None
    version: int = 0


class WaveFailed(Effect, frozen=True):
    """Root: a member could not contribute."""

    stream: int
    wave: int
    rank: int
    error: ErrorRecord


class Contributed(Effect, frozen=True):
    """Root: a contribution to a stream that does not wait; of wave 0 if it was not requested."""

    stream: int
    wave: int
    ranks: Ranges
    weight: float
    body: bytes
    payload: Payload | None


class SweepDone(Effect, frozen=True):
    """Root: a sweep has come back from all that are there."""

    stream: int
    number: int
    reached: Ranges
    reports: tuple[PlaceStatistics, ...]


class StreamResumed(Effect, frozen=True):
    """Agent: a stream that was quiet, or had too much under way, moves again."""

    stream: int


class Wake(Effect, frozen=True):
    """Give this place a :class:`TimeUp` after a time."""

    stream: int
    seconds: float


class PartialContribution(msgspec.Struct, frozen=True, gc=False):
    """One value for a filter: of the place or places from ``rank`` on."""

    rank: int
    weight: float
    body: bytes
    payload: Payload | None


class FilterWanted(Effect, frozen=True):
    """Have an own filter called; its answer comes as :class:`Filtered`.

    Attributes:
        spec: The stream.
        ticket: What the answer is to name.
        upward: Whether contributions are put together; else one value goes down.
        wave: Number of the wave; 0 for none.
        parts: The values.
        version: Of the parameters and of the code.
        parameters: The parameters, encoded.
        own: The filters of this place in that version.
        code: Their name, made of their hash.
        child: The child that the value goes down to; -1 for all of them.
    """

    spec: StreamSpec
    ticket: int
    upward: bool
    wave: int
    parts: tuple[PartialContribution, ...]
    version: int
    parameters: bytes
    own: FilterAt
    code: str
    child: int = -1


class FilterStaging(Effect, frozen=True):
    """Have own filters loaded that a later version may use; :class:`FilterStaged` answers."""

    stream: int
    number: int
    own: FilterAt
    code: str


class FilterUnused(Effect, frozen=True):
    """No wave uses these own filters of a stream any more."""

    stream: int
    code: str


class Asked(Effect, frozen=True):
    """An active message arrived."""

    source: int
    handler: str
    number: int
    body: bytes
    payload: Payload | None


class Answered(Effect, frozen=True):
    """The answer to an active message arrived, or it is known that none will come."""

    number: int
    body: bytes
    payload: Payload | None
    error: ErrorRecord | None


class Released(Effect, frozen=True):
    """A payload is no longer needed: its memory may be reused."""

    payload: Payload
