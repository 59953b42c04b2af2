"""What a place knows of one of its links: the figures for people who look after a tree."""

from __future__ import annotations

import msgspec

from sapwood.comm.transport.base import ConnectionFacts


class LinkFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One link, seen from one of its ends. Times in seconds; messages of the link itself excluded.

    Attributes:
        rank: The place at the other end.
        state: ``up``, ``suspect``, or while it has no connection ``broken`` or ``resuming``.
        silent: Since when nothing was heard.
        round_trip: How long a message takes there and back, smoothed; None until it is known.
        round_trip_variation: The mean distance of single ones from that.
        round_trip_least: The least that was measured.
        messages_sent: How many.
        bytes_sent: Their bytes; data in shared memory count as the reference to them.
        messages_received: How many.
        bytes_received: Their bytes.
        unacknowledged: Messages that were sent and that the peer has not said to have consumed.
        waiting: Messages that wait for the peer's credit.
        queued: Their bytes.
        dropped: Messages that still waited when an earlier link to this place ended.
        resumptions: How often it continued over a new connection.
        connection: What the connection is made of; None while there is none, or it does not say.
    """

    rank: int
    state: str
    silent: float
    round_trip: float | None
    round_trip_variation: float | None
    round_trip_least: float | None
    messages_sent: int
    bytes_sent: int
    messages_received: int
    bytes_received: int
    unacknowledged: int
    waiting: int
    queued: int
    dropped: int
    resumptions: int
    connection: ConnectionFacts | None
