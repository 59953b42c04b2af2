"""End-to-end messages, from any place to any other, and who is gone: tags 50 to 59."""

import msgspec

from sapwood.comm.messages.base import WireMessage
from sapwood.core.errors import ErrorRecord


class RoutedMessage(WireMessage, tag=50, frozen=True):
    """To any rank, exactly once and in order on its channel.

    The clauses N1 and N2 explain the fields.

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
    """Back to the source of messages, which is the ``destination`` here.

    All messages of its ``epoch`` up to ``upto`` have arrived; ``missing`` names those above
    ``upto`` that have not. ``source`` sends the acknowledgement, and ``incarnation`` is the
    incarnation of its process.
    """

    source: int
    destination: int
    channel: int
    epoch: int
    incarnation: int
    hops: int
    upto: int
    missing: tuple[int, ...] = ()


class MulticastAddress(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where one copy of a ``Multicast`` goes, and the numbers that replace its numbers."""

    destination: int
    epoch: int
    peer: int
    number: int
    large: int = 0


class Multicast(WireMessage, tag=52, frozen=True):
    """One message to several ranks, divided where their routes part.

    The addresses have the fields that differ.
    """

    message: RoutedMessage
    addresses: tuple[MulticastAddress, ...]


class MembershipNotice(WireMessage, tag=53, frozen=True):
    """From the client to all: processes that are gone, and ranks that have a new one.

    ``gone`` has pairs of rank and incarnation; ``anew``: earlier notices are out of date.

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
