"""Events and effects of messages from place to place; the others are in ``comm/events.py``."""

from __future__ import annotations

from sapwood.comm.events import Effect, Event
from sapwood.comm.payload import Payload
from sapwood.core.errors import ErrorRecord


class CancelRequest(Event, frozen=True):
    """Take an active message back that was not answered yet."""

    number: int


class SendTagged(Event, frozen=True):
    """Send a tagged message to places; the end of each comes as :class:`SendEnded`."""

    number: int
    destinations: tuple[int, ...]
    tag: int
    body: bytes
    payload: Payload | None


class CancelSend(Event, frozen=True):
    """Take a tagged message back; where that is possible, :class:`SendEnded` says so."""

    number: int
    destination: int


class PostReceive(Event, frozen=True):
    """Wait for a tagged message: :class:`TaggedArrived` or :class:`ReceiveFailed` will come."""

    number: int
    source: int
    tag: int


class AnnounceMembership(Event, frozen=True):
    """Root: tell all places whose process is gone, as (rank, incarnation), and who is back."""

    gone: tuple[tuple[int, int], ...]
    back: tuple[int, ...] = ()
    reason: str = ""


class RequestCancelled(Effect, frozen=True):
    """Whoever sent an active message does not want its answer any more."""

    source: int
    number: int


class TaggedArrived(Effect, frozen=True):
    """A receive has its message; what its payload refers to is held by the sender until now."""

    number: int
    source: int
    tag: int
    body: bytes
    payload: Payload | None


class ReceiveFailed(Effect, frozen=True):
    """A receive will not get a message."""

    number: int
    error: ErrorRecord


class SendEnded(Effect, frozen=True):
    """A tagged message has arrived at a place, or it is known that it will not."""

    number: int
    destination: int
    error: ErrorRecord | None


class Progressed(Effect, frozen=True):
    """So many bytes of a large message have arrived; ``number`` is of its channel."""

    channel: int
    number: int
    outgoing: bool
    done: int
    total: int
