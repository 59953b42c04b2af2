"""End-to-end messages, from any place to any other, and who is gone: tags 50 to 59."""

import msgspec

from sapwood.comm.messages.base import WireMessage
from sapwood.core.errors import ErrorRecord


class RoutedMessage(WireMessage, tag=50, frozen=True):
    """A message from any place to any other, exactly once and in order on its channel.

    Attributes:
        source: Where it is from.
        destination: Where it goes.
        channel: 0 requests and their answers, 1 tagged messages, 2 pieces of large ones.
        epoch: Under which it is numbered: the source's incarnation * 2**32 + a count.
        peer: Incarnation of the destination's process, as far as the source knows; else 0.
        number: Its place in the order, from 1.
        hops: Places that passed it on.
        kind: What it is; see ``docs/reference/protocol.md``.
        tag: Number of a request, tag of a message, or which large one this is about.
        label: Handler of a request.
        body: Encoded value.
        size: Bytes of a large payload, which may be left behind on the way; else 0.
        large: By which name the source knows the large payload.
        error: In place of an answer.
    """

    source: int
    destination: int
    channel: int
    epoch: int
    peer: int
    number: int
    hops: int
    kind: int
    tag: int
    label: str = ""
    body: bytes = b""
    size: int = 0
    large: int = 0
    error: ErrorRecord | None = None


class Acknowledgement(WireMessage, tag=51, frozen=True):
    """Acknowledges the messages up to a number, and names those above it that are missing."""

    source: int
    destination: int
    channel: int
    epoch: int
    incarnation: int
    hops: int
    upto: int
    missing: tuple[int, ...] = ()


class MulticastAddress(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What differs in the copies of a multicast."""

    destination: int
    epoch: int
    peer: int
    number: int
    large: int = 0


class Multicast(WireMessage, tag=52, frozen=True):
    """One message to several places; it travels each link once."""

    message: RoutedMessage
    addresses: tuple[MulticastAddress, ...]


class MembershipNotice(WireMessage, tag=53, frozen=True):
    """From the client to all: places whose process is gone, and places that are back.

    Attributes:
        gone: Each as (rank, incarnation of the process that is gone).
        back: Ranks that have a new process, also if ``gone`` says that the one before has ended.
        reason: Why they are gone.
        anew: Whether earlier notices are to be forgotten, because they may be out of date.
    """

    gone: tuple[tuple[int, int], ...]
    back: tuple[int, ...] = ()
    reason: str = ""
    anew: bool = False
