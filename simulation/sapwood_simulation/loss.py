"""Messages that go astray: dropped, doubled and overtaken between the links and what orders them.

Links lose nothing as long as both of their ends live. This module also loses, at any time, what is
otherwise lost only when junctions end and places move: message ordering must recover from it.
"""

from __future__ import annotations

import random
from typing import Protocol

import msgspec

from sapwood.comm import events as ev
from sapwood.comm.messages import AnyMessage
from sapwood.comm.messages.messaging import Acknowledgement, Multicast, RoutedMessage
from sapwood.comm.node import Node
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects
from sapwood_simulation.links import ClockLoop

ASTRAY = (RoutedMessage, Acknowledgement, Multicast)
"""Messages that may go astray: those that are numbered end to end."""

OVERTAKEN_SECONDS = 0.02
"""Mean virtual time by which a message is late that others overtake."""


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """How often messages go astray, at each place they come by.

    Attributes:
        drop: Part that is lost.
        duplicate: Part that comes twice.
        reorder: Part that later ones overtake.
    """

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0

    @property
    def any(self) -> bool:
        """Whether anything is to go astray."""
        return bool(self.drop or self.duplicate or self.reorder)


class Counts:
    """How many messages went astray."""

    def __init__(self) -> None:
        self.dropped = self.duplicated = self.reordered = 0

    @property
    def astray(self) -> int:
        """All of them."""
        return self.dropped + self.duplicated + self.reordered


class LossyNetwork(Protocol):
    """The network that a place is part of."""

    loss: Loss
    astray: Counts
    chance: random.Random
    clock_loop: ClockLoop
    nodes: dict[int, Node]

    def is_paused(self, rank: int) -> bool:
        """Whether a process is stopped."""

    def post(self, rank: int, event: ev.Event) -> None:
        """Give a place an event and do what it wants done."""


class LossyNode(Node):
    """The protocol core of a place at which messages go astray."""

    world: LossyNetwork

    def receive(
        self, now: float, number: int, message: AnyMessage, payload: Payload | None
    ) -> Effects:
        """Take a message in, or not, or twice, or later."""
        if not isinstance(message, ASTRAY):
            return super().receive(now, number, message, payload)
        world = self.world
        drawn, loss = world.chance.random(), world.loss
        if drawn < loss.drop:
            world.astray.dropped += 1
            return []
        if drawn < loss.drop + loss.duplicate:
            world.astray.duplicated += 1
            first = super().receive(now, number, message, payload)
            return first + super().receive(now, number, message, payload)
        if drawn < loss.drop + loss.duplicate + loss.reorder:
            world.astray.reordered += 1
            kept = Payload(bytes(payload.view)) if payload is not None else None
            seconds = world.chance.expovariate(1 / OVERTAKEN_SECONDS)
            world.clock_loop.later(seconds, self._arrives, ev.Received(number, message, kept))
            return []
        return super().receive(now, number, message, payload)

    def _arrives(self, event: ev.Event) -> None:
        world = self.world
        if world.nodes.get(self.rank) is self and not world.is_paused(self.rank):
            world.post(self.rank, event)
