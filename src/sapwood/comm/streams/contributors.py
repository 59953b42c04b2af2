"""What single agents do in a stream: state at the agent, and at the root. State only."""

from __future__ import annotations

from collections import deque

from sapwood.comm.messages import Up
from sapwood.comm.payload import Payload

EPOCH = 2**32
"""Numbers of one process of an agent; a later process continues above them."""


class PushSent:
    """What an agent has pushed to a stream.

    Attributes:
        last: Number of the last one.
        kept: Those that the root has not confirmed, in order.
        may_send: Whether the present parent knows the stream.
        waited_for: Whether a caller waits for room.
    """

    __slots__ = ("kept", "last", "may_send", "waited_for")

    def __init__(self, incarnation: int) -> None:
        self.last = incarnation * EPOCH
        self.kept: deque[tuple[Up, Payload | None]] = deque()
        self.may_send = True
        self.waited_for = False


class PushReceived:
    """What the root has of the pushes of one agent.

    Attributes:
        last: Number of the last one.
        told: The last number that was confirmed to the agent.
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


class AgentSide:
    """The waves that an agent works on, and its pushes.

    Attributes:
        pending: Attempt in which each wave is wanted that the agent works on.
        pushed: What it has sent without being asked; None before the first.
    """

    __slots__ = ("pending", "pushed")

    def __init__(self) -> None:
        self.pending: dict[int, int] = {}
        self.pushed: PushSent | None = None


class Arrivals:
    """Contributions to a stream that does not wait, at its root, by agent.

    Attributes:
        pushed: What each agent has pushed.
        refused: Agents whose contributions to a wave came in a quiet time, by wave.
        paced: Whether a pushed value is confirmed only when it was read.
    """

    __slots__ = ("paced", "pushed", "refused")

    def __init__(self) -> None:
        self.pushed: dict[int, PushReceived] = {}
        self.refused: dict[int, set[int]] = {}
        self.paced = False
