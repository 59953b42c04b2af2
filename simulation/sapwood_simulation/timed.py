"""A whole tree under virtual time, in which every message takes as long as its link says.

Nothing is left to chance and nothing goes wrong here: the protocol cores of production are given
each message when it is due. That is fast enough for a hundred thousand places.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.link import Identity, LinkTiming
from sapwood.comm.messages import AnyMessage
from sapwood.comm.node import Node
from sapwood.comm.payload import Payload
from sapwood.comm.reduction import gathering
from sapwood.core.topology import ROOT, Tree

Latency = Callable[[int, int], float]
"""``latency(source, target)`` is how long a message takes between two neighbours, seconds."""


class TimedTree:
    """The places of a tree, connected by links that take time.

    Args:
        tree: Its shape.
        latency: Seconds that a link takes, or a function of both of its ends.
        handling: Seconds that a place is busy with each message; others wait meanwhile.
        bandwidth: Bytes that a link carries in a second; further data waits.
        answer: What agents answer to waves: ``answer(rank, value)``.

    Attributes:
        now: The time, seconds.
        delivered: Messages that arrived.
        on_effect: Told of what places want done, besides sending and answering waves.

    Example:
        >>> from sapwood.comm.messages import StreamSpec
        >>> from sapwood.core.topology import kary
        >>> timed = TimedTree(kary(16, 4), latency=1e-4)
        >>> timed.start()
        >>> timed.post(ROOT, ev.OpenStream(StreamSpec(1, "test", ((1, 17),), {"x": "sum"})))
        >>> round(timed.wave(1, {"x": 1}) * 1e6), timed.totals[-1]  # two links down, two up
        (400, {'x': 16})
    """

    def __init__(
        self,
        tree: Tree,
        latency: float | Latency = 1e-4,
        handling: float = 0.0,
        bandwidth: float = math.inf,
        answer: Callable[[int, Any], Any] = lambda _rank, value: value,
    ) -> None:
        self.tree = tree
        self.now = 0.0
        self.delivered = 0
        self.totals: list[Any] = []
        self.on_effect: Callable[[int, ev.Effect], None] = _ignored
        self.nodes = [
            Node(Identity("cluster", rank, 1, 1000 + rank, "here"), tree, LinkTiming(), gathering())
            for rank in range(tree.size)
        ]
        self._latency: Latency = latency if callable(latency) else lambda _from, _to: latency
        self._handling = handling
        self._bandwidth = bandwidth
        self._link_free_at: dict[tuple[int, int], float] = {}
        self._answer = answer
        self._free_at = [0.0] * tree.size
        self._due: list[tuple[float, int, int, int, AnyMessage | None, Payload | None]] = []
        self._queues: dict[int, deque[tuple[int, AnyMessage, Payload | None]]] = {}
        self._count = 0

    def start(self) -> None:
        """Let all places find their neighbours."""
        for rank in range(1, self.tree.size):
            self.post(rank, ev.Begin())
        self.run()

    def post(self, rank: int, event: ev.Event) -> None:
        """Give a place an event, and do what it wants done."""
        self._perform(rank, self.nodes[rank].step(self.now, event), self.now)

    def wave(self, stream: int, value: Any) -> float:
        """Run a wave of an open stream; return the seconds that it took."""
        begin = self.now
        encoded = values.encode(value)
        payload = Payload(encoded.payload()) if encoded.nbytes else None
        before = len(self.totals)
        self.post(ROOT, ev.Broadcast(stream, encoded.body, payload))
        self.run()
        if len(self.totals) == before:
            raise RuntimeError("the wave did not complete")
        return self.now - begin

    def run(self) -> None:
        """Deliver messages until none is under way."""
        due = self._due
        while due:
            at, _, rank, link, message, payload = heapq.heappop(due)
            queue = self._queues.get(rank)
            if message is None:
                assert queue is not None
                self._handle(at, rank, *queue.popleft())
                if queue:
                    self._wake(rank)
                else:
                    del self._queues[rank]
            elif queue is not None:
                queue.append((link, message, payload))
            elif at < self._free_at[rank]:
                self._queues[rank] = deque([(link, message, payload)])
                self._wake(rank)
            else:
                self._handle(at, rank, link, message, payload)
        last = max(self._free_at)
        self.now = max(self.now, last)

    def _handle(
        self, at: float, rank: int, link: int, message: AnyMessage, payload: Payload | None
    ) -> None:
        self.now = at
        self.delivered += 1
        done = self._free_at[rank] = at + self._handling
        self._perform(rank, self.nodes[rank].receive(at, link, message, payload), done)

    def _wake(self, rank: int) -> None:
        """Make a busy place process its next message when it is free."""
        self._count += 1
        heapq.heappush(self._due, (self._free_at[rank], self._count, rank, 0, None, None))

    def _perform(self, rank: int, effects: list[ev.Effect], at: float) -> None:
        for effect in effects:
            if isinstance(effect, ev.Transmit):
                for target in effect.links:
                    self._count += 1
                    sent = self._sent(rank, target, at, effect.payload)
                    arrives = sent + self._latency(rank, target)
                    entry = (arrives, self._count, target, rank, effect.message, effect.payload)
                    heapq.heappush(self._due, entry)
            elif isinstance(effect, ev.Connect):
                # At each place a link has the rank of its other end as its number.
                self.post(effect.rank, ev.LinkOpened(rank, initiator=False))
                self.post(rank, ev.LinkOpened(effect.rank, initiator=True))
            elif isinstance(effect, ev.WaveArrived):
                self._perform(rank, self._contribution(rank, effect), at)
            elif isinstance(effect, ev.WaveCompleted):
                self.totals.append(effect.total)
            else:
                self.on_effect(rank, effect)

    def _sent(self, rank: int, target: int, at: float, payload: Payload | None) -> float:
        """Return when the last byte of a message has left; small ones take no time."""
        if payload is None or self._bandwidth == math.inf:
            return at
        begin = max(at, self._link_free_at.get((rank, target), 0.0))
        end = self._link_free_at[(rank, target)] = begin + payload.nbytes / self._bandwidth
        return end

    def _contribution(self, rank: int, wave: ev.WaveArrived) -> list[ev.Effect]:
        view = wave.payload.view if wave.payload is not None else b""
        encoded = values.encode(self._answer(rank, values.decode(wave.body, view)))
        payload = Payload(encoded.payload()) if encoded.nbytes else None
        event = ev.Contribute(wave.spec.stream, wave.wave, 1.0, encoded.body, payload)
        return self.nodes[rank].step(self.now, event)


def _ignored(_rank: int, _effect: ev.Effect) -> None:
    pass
