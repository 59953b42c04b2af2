"""Letters that somebody else exchanges: what they look like, and that they passed. No I/O.

A request and its answer cost little beside the change of threads that a front end needs to have
them sent and taken in. So the thread that waits may do both (``session/express/``), and what it
did is counted here afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sapwood.comm.letters.ordering import Inbox, Outbox
from sapwood.comm.letters.parcel import Absence, Parcel

Key = tuple[int, int]
"""Channel, and the place at the other end."""


class Outlook(msgspec.Struct, frozen=True, gc=False):
    """What two places write to each other next.

    Attributes:
        epoch: Of the letters from here.
        peer: Incarnation of the process there, as far as it is known.
        number: Of the next letter from here.
        room: Letters that may be on their way.
        epoch_there: Of the letters from there.
        number_there: Of the next letter from there.
    """

    epoch: int
    peer: int
    number: int
    room: int
    epoch_there: int
    number_there: int


class Exchange:
    """Letters that go there and back without this place.

    Args:
        outboxes: What is sent, by channel and place.
        inboxes: What comes.
        under_way: Where something is to be acknowledged.
        owing: To whom a receipt is owed.
        gone: Places without a process.
    """

    def __init__(
        self,
        outboxes: Mapping[Key, Outbox[Parcel]],
        inboxes: Mapping[Key, Inbox[Any]],
        under_way: set[Key],
        owing: set[Key],
        gone: Mapping[int, Absence],
    ) -> None:
        self._outboxes = outboxes
        self._inboxes = inboxes
        self._under_way = under_way
        self._owing = owing
        self._gone = gone

    def outlook(self, channel: int, rank: int) -> Outlook | None:
        """Return what is written next between here and a place; None where that is not known."""
        outbox, inbox = self._outboxes.get((channel, rank)), self._inboxes.get((channel, rank))
        if outbox is None or inbox is None or inbox.early or self._gone:
            return None
        return Outlook(
            outbox.epoch, outbox.peer, outbox.next, outbox.room, inbox.epoch, inbox.upto + 1
        )

    def count(self, now: float, channel: int, rank: int, parcels: Sequence[Parcel]) -> None:
        """Count letters that were sent while somebody else did this, and as many that came."""
        key = (channel, rank)
        outbox, inbox = self._outboxes[key], self._inboxes[key]
        self._under_way.add(key)
        for parcel in parcels:
            outbox.post(now, parcel)
            inbox.passed()
        self._owing.add(key)
