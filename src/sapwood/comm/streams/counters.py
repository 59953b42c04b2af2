"""What a place counts of a stream, where somebody wants to know."""

from __future__ import annotations

from sapwood.comm.payload import Payload


class Counters:
    """Messages, bytes and time in own filters of one stream at one place.

    The names are those of :class:`~sapwood.comm.messages.PlaceReport`.
    """

    __slots__ = (
        "bytes_down",
        "bytes_up",
        "filter_seconds",
        "filtered",
        "late",
        "messages_down",
        "messages_up",
        "repeated",
    )

    def __init__(self) -> None:
        self.messages_down = self.bytes_down = 0
        self.messages_up = self.bytes_up = 0
        self.filtered = 0
        self.filter_seconds = 0.0
        self.late = self.repeated = 0

    def down(self, body: bytes, payload: Payload | None) -> None:
        """Count a wave on its way to the agents."""
        self.messages_down += 1
        self.bytes_down += len(body) + (payload.nbytes if payload is not None else 0)

    def up(self, body: bytes, payload: Payload | None) -> None:
        """Count a contribution on its way to the root."""
        self.messages_up += 1
        self.bytes_up += len(body) + (payload.nbytes if payload is not None else 0)

    def exchanged(self, nbytes_down: int, answers: int, nbytes_up: int) -> None:
        """Count a wave and the answers to it, which others have passed on."""
        self.messages_down += 1
        self.bytes_down += nbytes_down
        self.messages_up += answers
        self.bytes_up += nbytes_up

    def offered(self, body: bytes, size: int) -> None:
        """Count a contribution whose arrays are drawn."""
        self.messages_up += 1
        self.bytes_up += len(body) + size
