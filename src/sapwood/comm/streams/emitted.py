"""What an agent remembers of what it has sent of itself, and the root of what it has of it."""

from __future__ import annotations

from collections import deque

from sapwood.comm import messages as msg
from sapwood.comm.payload import Payload

WINDOW = 64
"""Contributions of one agent to one stream that it keeps before it is to wait."""

EPOCH = 2**32
"""Numbers of one process of an agent; a later one goes on above them."""


class Sent:
    """What an agent has sent of itself in a stream.

    Attributes:
        last: Number of the last one.
        kept: Those that the root has not confirmed, in order.
        may_send: Whether the present parent knows the stream.
        waited_for: Whether somebody waits for room.
    """

    __slots__ = ("kept", "last", "may_send", "waited_for")

    def __init__(self, incarnation: int) -> None:
        self.last = incarnation * EPOCH
        self.kept: deque[tuple[msg.Up, Payload | None]] = deque()
        self.may_send = True
        self.waited_for = False


class Heard:
    """What the root has of one agent.

    Attributes:
        last: Number of the last one.
        told: The last number that the agent was told of.
        unread: How many wait here to be read, where that is what counts.
    """

    __slots__ = ("last", "told", "unread")

    def __init__(self) -> None:
        self.last = self.told = self.unread = 0

    def takes(self, number: int) -> bool:
        """Take the next number, or the first one of a later process; no other."""
        later = number // EPOCH > self.last // EPOCH and number % EPOCH == 1
        if number != self.last + 1 and not later:
            return False
        self.last = number
        return True
