"""Connections between clients and roots without sockets: bytes arrive in parts, or are lost."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from sapwood.comm.transport.base import ConnectionHandler
from sapwood_simulation.processes import VirtualLoop

WAY = 0.001
"""Mean virtual seconds that bytes take."""

SILENCE = 10.0
"""Virtual seconds after which it is noticed that a machine is cut off: ``tls.UNHEARD_TIMEOUT``."""


class WireEnd:
    """One end of a connection, as whoever writes to it has it.

    Args:
        wire: The connection.
        side: Which end.
    """

    peer = ""
    unsent = 0

    def __init__(self, wire: SimulatedWire, side: int) -> None:
        self._wire = wire
        self._side = side

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Send buffers, in order."""
        self._wire.send(self._side, b"".join(buffers))

    def close(self) -> None:
        """Close after what was sent."""
        self._wire.end(self._side)

    def abort(self) -> None:
        """Close at once."""
        self._wire.end(self._side)


class SimulatedWire:
    """A connection; side 0 has made it, side 1 has taken it.

    Args:
        loop: What happens later happens on it.
        chance: Where draws come from.

    Attributes:
        written: Told of all bytes that a side writes.
        arrived: Told of all bytes of a side that arrive.
    """

    def __init__(self, loop: VirtualLoop, chance: random.Random) -> None:
        self._loop = loop
        self._chance = chance
        self._handlers: list[ConnectionHandler] = []
        self._numbers = [0, 0]
        self._under_way: list[deque[bytes | None]] = [deque(), deque()]
        self._deaf = [False, False]  # which side hears nothing more
        self._mute = [False, False]  # which side can send nothing more
        self.written: Callable[[int, bytes], None] = lambda _side, _data: None
        self.arrived: Callable[[int, bytes], None] = lambda _side, _data: None

    def open(self, first: ConnectionHandler, second: ConnectionHandler) -> None:
        """Connect two."""
        self._handlers = [first, second]
        for side in (1, 0):
            number = self._handlers[side].connection_opened(
                cast("Any", WireEnd(self, side)), initiator=side == 0
            )
            self._numbers[side] = number

    def send(self, side: int, data: bytes) -> None:
        """Have bytes on their way."""
        self.written(side, data)  # who writes does not know yet that it was cut
        if not self._mute[side]:
            self._put(side, data)

    def end(self, side: int) -> None:
        """One side ends the connection: what it has sent arrives, and it hears nothing more."""
        self._deaf[side] = True
        if not self._mute[side]:
            self._mute[side] = True
            self._put(side, None)

    def cut(self) -> None:
        """Lose data under way, from some byte on; each side notices that separately."""
        for side in (0, 1):
            if self._mute[side]:
                continue
            self._mute[side] = True
            under_way = self._under_way[side]
            rest = b"".join(one for one in under_way if one is not None)
            under_way.clear()
            kept = rest[: self._chance.randint(0, len(rest))]
            if kept:
                self._put(side, kept)
            silence = self._chance.choice([0.0, 0.0, SILENCE]) * self._chance.random()
            self._loop.call_later(silence, self._put, side, None)

    def _put(self, side: int, data: bytes | None) -> None:
        under_way = self._under_way[side]
        under_way.append(data)
        if len(under_way) == 1:
            self._loop.call_later(self._chance.expovariate(1 / WAY), self._arrive, side)

    def _arrive(self, side: int) -> None:
        """Let some of what one side has sent arrive at the other one."""
        under_way, other = self._under_way[side], 1 - side
        if not under_way:
            return  # it was cut meanwhile
        piece = under_way.popleft()
        if piece and self._chance.random() < 0.3:
            position = self._chance.randint(1, len(piece))
            if position < len(piece):
                under_way.appendleft(piece[position:])
                piece = piece[:position]
        if under_way:
            self._loop.call_later(self._chance.expovariate(1 / WAY), self._arrive, side)
        if self._deaf[other]:
            return
        if piece is not None:
            self.arrived(side, piece)
            if self._deaf[other]:
                return  # whoever hears of it has just ended that side
            self._handlers[other].bytes_received(self._numbers[other], piece)
            return
        self._deaf[other] = True
        self._handlers[other].connection_closed(self._numbers[other], "the connection was closed")
