"""Connections without sockets: bytes that wait until chance delivers them, and may be cut."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

from sapwood.comm.transport.base import ConnectionHandler
from sapwood.core.clock import VirtualClock

MAX_OFFSET = 1e6
"""Seconds by which the clocks of two processes differ at most, where they do."""

SLOWNESS = 0.9
"""Part of the draws that a slow place lets pass."""

PAUSE_STEP = 0.05
"""Virtual seconds after which a stopped process is looked at again."""


def raise_it(_doing: str, exception: BaseException) -> None:
    """Raise an unexpected exception of a place: it ends the simulation."""
    raise exception


class SimulatedLink:
    """One direction of a connection: bytes in the order in which they were sent.

    Args:
        scheduler: Draws the link that delivers next.
        source: The place that sends.
        target: The place that receives.

    Attributes:
        pieces: The pieces under way, in order.
        due: When each of them arrives, where that takes time.
        back: The other direction.
        number: What the receiving place calls the connection.
        handler: What it calls it by that number.
        closed: Whether the receiving place hears no more of it.
        broken: Whether what is sent is lost.
        clogged: Whether what is sent waits, and nothing arrives.
        parked: Whether something waits that is to be delivered once it is clogged no more.
    """

    __slots__ = (
        "_scheduler",
        "back",
        "broken",
        "clogged",
        "closed",
        "due",
        "handler",
        "number",
        "parked",
        "pieces",
        "source",
        "target",
    )

    def __init__(self, scheduler: Scheduler, source: int, target: int) -> None:
        self._scheduler = scheduler
        self.source = source
        self.target = target
        self.pieces: deque[bytes | None] = deque()
        self.due: deque[float] = deque()
        self.number = -1
        self.closed = False
        self.broken = False
        self.clogged = False
        self.parked = False
        self.back: SimulatedLink = self
        self.handler: ConnectionHandler = cast("ConnectionHandler", None)

    def put(self, piece: bytes | None) -> None:
        """Send bytes, or None for the end of them."""
        if self.broken:
            return
        self.broken = piece is None
        self.pieces.append(piece)
        self._scheduler.sent(self)
        if len(self.pieces) == 1:
            self._scheduler.add(self)

    def take(self) -> bytes | None:
        """Take out what arrives first."""
        if self.due:
            self.due.popleft()
        return self.pieces.popleft()

    def take_part(self, chance: random.Random) -> bytes | None:
        """Take out what a reader gets at once: a part of a write, or of two that came together."""
        due = self.due.popleft() if self.due else None
        piece = self.pieces.popleft()
        if not piece:
            return piece
        if due is None and self.pieces and self.pieces[0] is not None and chance.random() < 0.5:
            piece += self.pieces.popleft() or b""
        position = chance.randint(1, len(piece))
        if position < len(piece):
            self.pieces.appendleft(piece[position:])
            if due is not None:
                self.due.appendleft(due)
        return piece[:position]

    @property
    def is_in_use(self) -> bool:
        """Whether something can be sent on it, or comes still on the way back."""
        return not (self.broken and self.back.closed)

    def unclog(self) -> None:
        """Let what waits arrive."""
        self.clogged = False
        if self.parked:
            self.parked = False
            self._scheduler.add(self)

    def cut(self, chance: random.Random) -> None:
        """Lose what is under way from some byte on; the end of the connection follows."""
        under_way = b"".join(piece for piece in self.pieces if piece is not None)
        kept = under_way[: chance.randint(0, len(under_way))]
        known = bool(self.pieces)
        self.pieces = deque([kept, None] if kept else [None])
        self.due.clear()
        self.broken = True
        if not known:
            self._scheduler.add(self)


class LinkEnd:
    """What a place writes to, for a link: a connection without a socket."""

    peer = ""

    def __init__(self, link: SimulatedLink) -> None:
        self._link = link

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Send buffers, in order."""
        self._link.put(b"".join(buffers))

    def close(self) -> None:
        """Close after what was sent."""
        self.abort()

    def abort(self) -> None:
        """Close: the other end reads what was sent, this one nothing more."""
        self._link.put(None)
        self._link.back.closed = True


class ClockLoop:
    """What a place asks an event loop for here: the time, and to be called later.

    Attributes:
        time: Returns the virtual time, seconds.
        later: Has a function called later; to be replaced by whoever has other timers, too.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self.time = clock.now
        self.later: Callable[..., object] = self._remember
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[..., object], tuple[object, ...]]] = []

    def run_due(self) -> None:
        """Call what is due."""
        while self._due and self._due[0][0] <= self.time():
            _, _, function, args = heapq.heappop(self._due)
            function(*args)

    def _remember(self, delay: float, function: Callable[..., object], *args: object) -> None:
        heapq.heappush(self._due, (self.time() + delay, next(self._order), function, args))


class PlaceLoop:
    """The loop of one place: what it asks for happens only while its process lives and runs.

    Args:
        loop: The loop of all places.
        lives: Whether the process lives.
        paused: Whether it is stopped.
        time: The clock of the process.
    """

    def __init__(
        self,
        loop: ClockLoop,
        lives: Callable[[], bool],
        paused: Callable[[], bool],
        time: Callable[[], float],
    ) -> None:
        self.time = time
        self._loop = loop
        self._lives = lives
        self._paused = paused

    def call_later(self, delay: float, function: Callable[..., object], *args: object) -> None:
        """Have a function called later."""
        self._loop.later(delay, self._call, function, args)

    def _call(self, function: Callable[..., object], args: tuple[object, ...]) -> None:
        if not self._lives():
            return
        if self._paused():
            self._loop.later(PAUSE_STEP, self._call, function, args)
        else:
            function(*args)


def skewed_clock(clock: VirtualClock, chance: random.Random, skew: float) -> Callable[[], float]:
    """Return the clock of a process: it began at some time, and goes a little wrong."""
    if not skew:
        return clock.now
    offset, rate = chance.uniform(0.0, MAX_OFFSET), 1.0 + chance.uniform(-skew, skew)
    return lambda: offset + rate * clock.now()


class Scheduler:
    """Links of which one is drawn at a time, each with the same chance.

    Args:
        chance: Where the draws come from.

    Attributes:
        slow: Places that read less often than others.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._links: list[SimulatedLink] = []
        self._clock: ClockLoop | None = None
        self._latency = self._jitter = 0.0
        self.slow: set[int] = set()

    def take_time(self, clock: ClockLoop, latency: float, jitter: float) -> None:
        """Delay the arrival of all pieces.

        Args:
            clock: The time.
            latency: Median virtual seconds.
            jitter: How far it scatters: the sigma of a log-normal distribution.
        """
        self._clock, self._latency, self._jitter = clock, latency, jitter

    def sent(self, link: SimulatedLink) -> None:
        """Something was sent on a link: draw when it is there, after what was sent before."""
        if self._clock is None:
            return
        seconds = self._latency * self._chance.lognormvariate(0.0, self._jitter)
        there = self._clock.time() + seconds
        link.due.append(max(there, link.due[-1]) if link.due else there)

    def add(self, link: SimulatedLink) -> None:
        """Put a link in, now or when something is there; it must not be in yet."""
        clock = self._clock
        if clock is not None and link.due and link.due[0] > clock.time():
            clock.later(link.due[0] - clock.time(), self._links.append, link)
        else:
            self._links.append(link)

    def draw(self) -> SimulatedLink | None:
        """Take one out; None if nothing arrives on it yet."""
        link = self._draw()
        if link.clogged:
            link.parked = True
            return None
        if link.target in self.slow and self._chance.random() < SLOWNESS:
            self._links.append(link)
            return None
        return link

    def _draw(self) -> SimulatedLink:
        number = self._chance.randrange(len(self._links))
        last = self._links.pop()
        if number == len(self._links):
            return last
        drawn, self._links[number] = self._links[number], last
        return drawn

    def __len__(self) -> int:
        return len(self._links)
