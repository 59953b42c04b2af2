"""A place at work: a node driven by an event loop over a transport."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import frames
from sapwood.comm.loop import Loop, Timer
from sapwood.comm.node import Node
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import MappedBlocks
from sapwood.comm.transport.base import Connection
from sapwood.core.errors import ProtocolError

Handlers = Mapping[type[ev.Effect], Callable[[Any], None]]
"""What the layer above does with each kind of effect that concerns it."""


class Place:
    """Drives a node: bytes in, effects out.

    Args:
        node: The protocol core.
        handlers: What to do with the effects that are not about connections.
        loop: The event loop; all calls happen on its thread.
        on_problem: Told what was wrong with a peer that broke the protocol.
    """

    def __init__(
        self,
        node: Node,
        handlers: Handlers,
        loop: Loop,
        on_problem: Callable[[str], None],
    ) -> None:
        self.node = node
        self.blocks = MappedBlocks()
        self._loop = loop
        self._on_problem = on_problem
        self._connections: dict[int, tuple[Connection, frames.FrameDecoder]] = {}
        self._next_number = 1
        self._queue: deque[ev.Effect] = deque()
        self._performing = False
        self._timer: Timer | None = None
        self._handlers: dict[type[ev.Effect], Callable[[Any], None]] = {
            **handlers,
            ev.Transmit: self._transmit,
            ev.Disconnect: self._disconnect,
        }

    def start(self) -> None:
        """Begin to tick."""
        self._tick()

    def post(self, event: ev.Event) -> None:
        """Give the node an event and do what it wants done."""
        effects = self.node.step(self._loop.time(), event)
        if effects:
            self._perform(effects)

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Take a new connection in and return a number for it."""
        number = self._next_number
        self._next_number += 1
        self._connections[number] = (connection, frames.FrameDecoder())
        self.post(ev.LinkOpened(number, initiator))
        return number

    def bytes_received(self, number: int, data: bytes) -> None:
        """Take bytes in; a peer that breaks the protocol is cut off."""
        entry = self._connections.get(number)
        if entry is None:
            return
        try:
            for frame in entry[1].feed(data):
                payload = self._payload(frame)
                effects = self.node.receive(self._loop.time(), number, frame.message, payload)
                if effects:
                    self._perform(effects)
        except ProtocolError as error:
            self._on_problem(f"{self.node.links.get(number)}: {error}")
            self._drop(number, str(error))

    def connection_closed(self, number: int, reason: str) -> None:
        """Note that a connection ended."""
        if self._connections.pop(number, None) is not None:
            self.post(ev.LinkClosed(number, reason))

    def cut(self, number: int, reason: str) -> None:
        """Close a connection at once, as if it had broken."""
        self._drop(number, reason)

    def close(self) -> None:
        """Close all connections at once."""
        if self._timer is not None:
            self._timer.cancel()
        for connection, _ in self._connections.values():
            connection.abort()
        self._connections.clear()
        self.blocks.forget()

    def _payload(self, frame: frames.Frame) -> Payload | None:
        if frame.shared is not None:
            return Payload.mapped(frame.shared, self.blocks)
        return Payload(frame.payload) if frame.payload is not None else None

    def _perform(self, effects: list[ev.Effect]) -> None:
        """Do what the node wants; what a handler causes comes after what was wanted before."""
        if self._performing:
            self._queue.extend(effects)
            return
        self._performing = True
        handlers, queue = self._handlers, self._queue
        try:
            for effect in effects:
                handler = handlers.get(type(effect))
                if handler is not None:
                    handler(effect)
            while queue:
                effect = queue.popleft()
                handler = handlers.get(type(effect))
                if handler is not None:
                    handler(effect)
        finally:
            self._performing = False

    def _transmit(self, effect: ev.Transmit) -> None:
        now = self._loop.time()
        encoded: dict[bool, list[bytes | memoryview]] = {}
        for number in effect.links:
            entry = self._connections.get(number)
            link = self.node.links.get(number)
            if entry is None or link is None:
                continue
            share = link.same_machine
            buffers = encoded.get(share)
            if buffers is None:
                buffers = frames.encode(effect.message, effect.payload, share=share)
                encoded[share] = buffers
            link.last_sent = now
            entry[0].write(buffers)

    def _disconnect(self, effect: ev.Disconnect) -> None:
        entry = self._connections.pop(effect.link, None)
        if entry is not None:
            entry[0].close()
            self.post(ev.LinkClosed(effect.link, effect.reason))

    def _drop(self, number: int, reason: str) -> None:
        entry = self._connections.pop(number, None)
        if entry is not None:
            entry[0].abort()
            self.post(ev.LinkClosed(number, reason))

    def _tick(self) -> None:
        self.post(ev.Tick())
        self._timer = self._loop.call_later(self.node.timing.heartbeat / 2, self._tick)
