"""What is sent from place to place before it is a letter, and who sends and gets it."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import msgspec

from sapwood.comm.letters.ordering import Inbox, Outbox
from sapwood.comm.link import Link
from sapwood.comm.messages import letters as msg
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects
from sapwood.core.errors import AgentLostError, ErrorRecord, SapwoodError

EAGER = 64 * 1024
"""Bytes of a payload up to which it always travels with its letter."""


class Absence(NamedTuple):
    """A place without a process: which one it was, and why it is gone."""

    incarnation: int
    reason: str


class Parcel:
    """What is to be sent, before it is addressed and numbered.

    Attributes:
        kind: What it is.
        tag: Number of a request, tag of a message, or which large one this is about.
        label: Handler of a request.
        body: Encoded value.
        payload: Its arrays.
        error: In place of an answer.
        handle: By which the channel's user knows it.
        large: By which name a large payload is known; 0 where it is small.
    """

    __slots__ = ("body", "error", "handle", "kind", "label", "large", "payload", "tag")

    def __init__(
        self,
        kind: int,
        tag: int,
        *,
        label: str = "",
        body: bytes = b"",
        payload: Payload | None = None,
        error: ErrorRecord | None = None,
        handle: Any = None,
        large: int = 0,
    ) -> None:
        self.kind = kind
        self.tag = tag
        self.label = label
        self.body = body
        self.payload = payload
        self.error = error
        self.handle = handle
        self.large = large


class ChannelUser(Protocol):
    """What a channel is used for.

    Attributes:
        window: Letters to one place that may be on their way at a time.
        prompt: Letters after which a receipt is sent at once; before, it may wait for a tick.
    """

    window: int
    prompt: int

    def arrived(self, now: float, letter: msg.Letter, payload: Payload | None) -> Effects | None:
        """Take a letter in, or return None where there is no room: it is offered again."""

    def ended(
        self, now: float, destination: int, parcel: Parcel, error: SapwoodError | None
    ) -> Effects:
        """A parcel has arrived, or never will."""

    def lost(self, now: float, rank: int, error: SapwoodError) -> Effects:
        """A place is gone, after all parcels to it have ended."""


def written(
    source: int, destination: int, channel: int, outbox: Outbox[Parcel], number: int, parcel: Parcel
) -> msg.Letter:
    """Return the letter that a parcel becomes."""
    payload = parcel.payload
    return msg.Letter(
        source,
        destination,
        channel,
        outbox.epoch,
        outbox.peer,
        number,
        0,
        parcel.kind,
        parcel.tag,
        parcel.label,
        parcel.body,
        payload.nbytes if parcel.large and payload is not None else 0,
        parcel.large,
        parcel.error,
    )


def receipt_for(
    rank: int, incarnation: int, source: int, channel: int, inbox: Inbox[Any], *missing: int
) -> msg.Receipt:
    """Note that what an inbox has taken is acknowledged now; return what says so."""
    upto = inbox.acknowledged()
    return msg.Receipt(rank, source, channel, inbox.epoch, incarnation, 0, upto, missing)


def addressed(letter: msg.Letter, address: msg.Address) -> msg.Letter:
    """Return a letter to several places as the one that goes to one of them."""
    return msgspec.structs.replace(
        letter,
        destination=address.destination,
        epoch=address.epoch,
        peer=address.peer,
        number=address.number,
        large=address.large,
    )


def fitting(hop: Link, letter: msg.Letter | msg.Receipt, payload: Payload | None) -> Payload | None:
    """Leave a large payload behind where the next place cannot map it: it is fetched in pieces."""
    if payload is None or isinstance(letter, msg.Receipt) or not letter.size:
        return payload
    return payload if payload.ref is not None and hop.same_machine else None


def lost_error(rank: int, reason: str) -> SapwoodError:
    """Return the error of what was under way with a place that is gone."""
    return AgentLostError(f"agent {rank} is gone: {reason}")
