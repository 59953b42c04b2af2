"""A whole tree in one process: the same protocol cores, queues for sockets, virtual time.

Everything that production leaves to chance is drawn from a seed here: whose message arrives
next, and when an agent answers. The same seed gives the same course of events, so a failure
can be had again.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import frames, values
from sapwood.comm.link import Identity, LinkTiming
from sapwood.comm.messages import AnyMessage, StreamSpec
from sapwood.comm.node import Node
from sapwood.comm.payload import Payload
from sapwood.comm.reduction import gathering
from sapwood.core.clock import VirtualClock
from sapwood.core.errors import ProtocolError, SapwoodError
from sapwood.core.rankset import to_ranges
from sapwood.core.topology import ROOT, Tree

E = TypeVar("E", bound=ev.Effect)

Answer = Callable[[int, Any], Any]
"""``answer(rank, value)`` is what an agent makes of a wave or a request; it may raise."""

MAX_STEPS = 1_000_000
"""Deliveries after which a network that does not come to rest is taken for an endless loop."""


class Observation(msgspec.Struct, frozen=True):
    """An effect that a place wanted done, besides sending."""

    rank: int
    effect: Any


class Channel:
    """One direction of a connection: bytes in the order in which they were sent.

    Args:
        source: The end that sends, as (rank, link).
        target: The end that receives.
    """

    __slots__ = ("decoder", "pieces", "source", "target")

    def __init__(self, source: tuple[int, int], target: tuple[int, int]) -> None:
        self.source = source
        self.target = target
        self.pieces: deque[bytes | None] = deque()
        self.decoder = frames.FrameDecoder()


class Lottery:
    """Channels of which one is drawn at a time, each with the same chance.

    Args:
        chance: Where the draws come from.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._channels: list[Channel] = []

    def add(self, channel: Channel) -> None:
        """Put a channel in; it must not be in yet."""
        self._channels.append(channel)

    def draw(self) -> Channel:
        """Take one out."""
        number = self._chance.randrange(len(self._channels))
        last = self._channels.pop()
        if number == len(self._channels):
            return last
        drawn, self._channels[number] = self._channels[number], last
        return drawn

    def __len__(self) -> int:
        return len(self._channels)


class Network:
    """The places of a tree, connected by queues.

    Args:
        tree: Its shape.
        seed: Decides in which order things happen.
        answer: What agents answer to waves and requests; by default what they are sent.
        timing: When links speak and worry, in virtual seconds.

    Attributes:
        nodes: The protocol cores of the places that live.
        observations: What places wanted done, in order, besides sending.
        problems: What peers did that the protocol does not allow.
        clock: The time.
        on_end: Told of places whose process ends.

    Example:
        >>> from sapwood.core.topology import kary
        >>> network = Network(kary(4, 2), answer=lambda rank, value: {"x": rank * value["x"]})
        >>> network.start()
        >>> network.open_stream(1, {"x": "sum"})
        >>> network.broadcast(1, {"x": 10})
        >>> network.run()
        >>> network.observed(ev.WaveCompleted)[0].total
        {'x': 100}
    """

    def __init__(
        self,
        tree: Tree,
        seed: int = 0,
        answer: Answer = lambda _rank, value: value,
        timing: LinkTiming | None = None,
    ) -> None:
        self.tree = tree
        self.clock = VirtualClock()
        self.nodes: dict[int, Node] = {}
        self.observations: list[Observation] = []
        self.problems: list[str] = []
        self._answer = answer
        self._timing = timing or LinkTiming()
        self._random = random.Random(seed)  # noqa: S311 - chance that can be repeated is the point
        self._incarnations = dict.fromkeys(range(tree.size), 0)
        self._ends: dict[tuple[int, int], Channel] = {}
        self._links: dict[int, set[tuple[int, int]]] = {}
        self._waiting = Lottery(self._random)
        self._answers: list[tuple[int, Any]] = []
        self._paused: set[int] = set()
        self._held: dict[int, list[Channel]] = {}
        self._next_link = 1
        self.on_end: Callable[[int], None] = _nobody_cares

    # --- places ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all places and let them find each other."""
        self.begin(self.tree.subtree(ROOT))
        self.run()

    def begin(self, ranks: Iterable[int]) -> None:
        """Start processes at places, parents first; they connect when the network runs."""
        for rank in ranks:
            self._incarnations[rank] += 1
            self.launch(rank, self._incarnations[rank], 1000 + rank)
            if rank != ROOT:
                self.connect(rank)

    def launch(self, rank: int, incarnation: int, pid: int) -> None:
        """Start a process at a place; it is alone until it connects."""
        identity = Identity("cluster", rank, incarnation, pid, "here")
        self.nodes[rank] = Node(identity, self.tree, self._timing, gathering())

    def kill(self, rank: int) -> None:
        """End a process at once; its neighbours notice after what it had sent."""
        if self.nodes.pop(rank, None) is None:
            return
        self.on_end(rank)
        self.resume(rank)
        self._answers = [entry for entry in self._answers if entry[0] != rank]
        for end in list(self._links.get(rank, ())):
            self._hang_up(end)

    def pause(self, rank: int) -> None:
        """Stop a process; what is sent to it waits."""
        self._paused.add(rank)

    def resume(self, rank: int) -> None:
        """Let a stopped process go on."""
        self._paused.discard(rank)
        for channel in self._held.pop(rank, []):
            self._waiting.add(channel)

    def is_paused(self, rank: int) -> bool:
        """Whether a process is stopped."""
        return rank in self._paused

    # --- what happens ------------------------------------------------------------------------

    def post(self, rank: int, event: ev.Event) -> None:
        """Give a place an event and do what it wants done."""
        node = self.nodes.get(rank)
        if node is None:
            return
        for effect in node.step(self.clock.now(), event):
            self._perform(rank, effect)

    def open_stream(
        self, stream: int, reduce: dict[str, str], members: Iterable[int] | None = None
    ) -> None:
        """Open a stream at the root."""
        ranks = range(1, self.tree.agents + 1) if members is None else members
        self.post(ROOT, ev.OpenStream(StreamSpec(stream, "test", to_ranges(ranks), reduce)))

    def broadcast(self, stream: int, value: Any) -> None:
        """Begin a wave at the root."""
        encoded = values.encode(value)
        payload = Payload(encoded.payload(), owner=ROOT) if encoded.nbytes else None
        self.post(ROOT, ev.Broadcast(stream, encoded.body, payload))

    def ask(self, source: int, destination: int, number: int, value: Any) -> None:
        """Send a request from one place to another."""
        encoded = values.encode(value)
        payload = Payload(encoded.payload()) if encoded.nbytes else None
        self.post(source, ev.Ask(destination, "test", number, encoded.body, payload))

    def send(self, source: int, destination: int, message: AnyMessage) -> None:
        """Have a place send a neighbour a message that its own core would not send."""
        for channel in self._ends.values():
            if channel.source[0] == source and channel.target[0] == destination:
                self._put(channel, _joined(message, None))
                return
        raise KeyError(f"rank {source} has no link to rank {destination}")

    def step(self) -> bool:
        """Let one thing happen, whichever the seed says; return whether there was any."""
        while self._waiting or self._answers:
            chosen = self._random.randrange(len(self._waiting) + len(self._answers))
            if chosen < len(self._waiting):
                channel = self._waiting.draw()
                target = channel.target[0]
                if target in self._paused:
                    self._held.setdefault(target, []).append(channel)
                    continue
                self._deliver(channel)
                return True
            number = chosen - len(self._waiting)
            entry = self._answers[number]
            if entry[0] in self._paused:
                number = next(
                    (i for i, one in enumerate(self._answers) if one[0] not in self._paused), -1
                )
                if number < 0:
                    if not self._waiting:
                        return False
                    continue
                entry = self._answers[number]
            self._answers[number] = self._answers[-1]
            self._answers.pop()
            self._give_answer(*entry)
            return True
        return False

    def run(self, steps: int | None = None) -> None:
        """Let things happen until nothing is under way, or a number of steps was made."""
        for _ in range(MAX_STEPS if steps is None else steps):
            if not self.step():
                return
        if steps is None:
            raise RuntimeError(f"the network does not come to rest in {MAX_STEPS} steps")

    def advance(self, seconds: float) -> None:
        """Let time pass, and with it what links do by themselves."""
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            self.clock.advance(min(self._timing.heartbeat / 2, end - self.clock.now()))
            for rank in list(self.nodes):
                if rank not in self._paused:
                    self.post(rank, ev.Tick())
            self.run()

    def observed(self, kind: type[E], rank: int | None = None) -> list[E]:
        """Return the effects of a kind so far, of one place or of all."""
        return [
            seen.effect
            for seen in self.observations
            if isinstance(seen.effect, kind) and rank in {None, seen.rank}
        ]

    # --- inside ------------------------------------------------------------------------------

    def connect(self, rank: int) -> None:
        """Connect a process to the one at its parent's place, which must be there."""
        parent = self.tree.parents[rank]
        near, far = (rank, self._next_link), (parent, self._next_link + 1)
        self._next_link += 2
        self._ends[near], self._ends[far] = Channel(near, far), Channel(far, near)
        for end in (near, far):
            self._links.setdefault(end[0], set()).add(end)
        self.post(parent, ev.LinkOpened(far[1], initiator=False))
        self.post(rank, ev.LinkOpened(near[1], initiator=True))

    def _put(self, channel: Channel, piece: bytes | None) -> None:
        channel.pieces.append(piece)
        if len(channel.pieces) == 1:
            self._waiting.add(channel)

    def _drop(self, end: tuple[int, int]) -> None:
        if self._ends.pop(end, None) is not None:
            self._links[end[0]].discard(end)

    def _deliver(self, channel: Channel) -> None:
        piece = channel.pieces.popleft()
        if channel.pieces:
            self._waiting.add(channel)
        rank, link = channel.target
        if piece is None:
            self._drop(channel.source)
            self._drop(channel.target)
            self.post(rank, ev.LinkClosed(link, "the connection was closed"))
            return
        try:
            for frame in channel.decoder.feed(piece):
                payload = Payload(frame.payload) if frame.payload is not None else None
                self.post(rank, ev.Received(link, frame.message, payload))
        except ProtocolError as error:
            self.problems.append(str(error))
            self._disconnect(rank, link, str(error))

    def _perform(self, rank: int, effect: ev.Effect) -> None:
        if isinstance(effect, ev.Transmit):
            self._transmit(rank, effect)
            return
        self.observations.append(Observation(rank, effect))
        if isinstance(effect, ev.Disconnect):
            self._disconnect(rank, effect.link, effect.reason)
        elif isinstance(effect, ev.ParentLost):
            self.kill(rank)
        elif isinstance(effect, ev.WaveArrived | ev.Asked):
            self._answers.append((rank, effect))

    def _transmit(self, rank: int, effect: ev.Transmit) -> None:
        data = _joined(effect.message, effect.payload)
        for number in effect.links:
            channel = self._ends.get((rank, number))
            node = self.nodes.get(rank)
            if channel is not None and node is not None:
                self._put(channel, data)
                node.links[number].last_sent = self.clock.now()

    def _disconnect(self, rank: int, link: int, reason: str) -> None:
        if (rank, link) in self._ends:
            self._hang_up((rank, link))
            self.post(rank, ev.LinkClosed(link, reason))

    def _hang_up(self, end: tuple[int, int]) -> None:
        """Close an end: the other one reads what was sent, then the end of it."""
        self._put(self._ends[end], None)

    def _give_answer(self, rank: int, effect: ev.WaveArrived | ev.Asked) -> None:
        view = effect.payload.view if effect.payload is not None else b""
        try:
            encoded = values.encode(self._answer(rank, values.decode(effect.body, view)))
        except SapwoodError as error:
            self.post(rank, _failure(effect, error))
            return
        owner = (rank, effect.wave) if isinstance(effect, ev.WaveArrived) else None
        payload = Payload(encoded.payload(), owner=owner) if encoded.nbytes else None
        self.post(rank, _success(effect, encoded.body, payload))


def _nobody_cares(_rank: int) -> None:
    pass


def _success(effect: ev.WaveArrived | ev.Asked, body: bytes, payload: Payload | None) -> ev.Event:
    if isinstance(effect, ev.Asked):
        return ev.Answer(effect.source, effect.number, body, payload)
    stream, wave, attempt = effect.spec.stream, effect.wave, effect.attempt
    return ev.Contribute(stream, wave, attempt, 1.0, body, payload)


def _failure(effect: ev.WaveArrived | ev.Asked, error: SapwoodError) -> ev.Event:
    record = error.to_record()
    if isinstance(effect, ev.Asked):
        return ev.Answer(effect.source, effect.number, b"", None, record)
    return ev.Fail(effect.spec.stream, effect.wave, effect.attempt, record)


def _joined(message: AnyMessage, payload: Payload | None) -> bytes:
    return b"".join(frames.encode(message, payload, share=False))
