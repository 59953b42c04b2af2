"""A whole tree in one process: the same protocol cores, queues for sockets, virtual time.

Everything that production leaves to chance is drawn from a seed here: whose message arrives
next, and when an agent answers. The same seed gives the same course of events, so a failure
can be had again.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import math
import random
import struct
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import frames, values
from sapwood.comm.driver import NodeDriver
from sapwood.comm.link import MESSAGE_COST, Identity, LinkTiming
from sapwood.comm.messages import CONTROL, REPLACE, AnyMessage, StreamSpec
from sapwood.comm.node import Node
from sapwood.comm.payload import Payload
from sapwood.comm.reduction import gathering
from sapwood.comm.transport.base import ConnectionHandler
from sapwood.core.clock import VirtualClock
from sapwood.core.errors import SapwoodError
from sapwood.core.rankset import to_ranges
from sapwood.core.topology import ROOT, Tree
from sapwood_simulation.links import (
    ClockLoop,
    LinkEnd,
    PlaceLoop,
    Scheduler,
    SimulatedLink,
    raise_it,
    skewed_clock,
)
from sapwood_simulation.loss import Counts, Loss, LossyNode

E = TypeVar("E", bound=ev.Effect)

Answer = Callable[[int, Any], Any]
"""``answer(rank, value)`` is what an agent makes of a wave or a request; it may raise."""

Loads = Callable[[int, ev.FilterStaging], None]
"""``loads(rank, effect)`` loads a filter that is staged; it may raise."""

OwnFilter = Callable[[int, ev.FilterWanted, list[Any]], Any]
"""``own(rank, effect, values)`` is what a filter makes of values; it may raise."""

Told = Callable[[], None]
"""Called when a process has ended."""

PAUSED_RETRY = 0.01
"""Virtual seconds after which it is looked at again whether a process runs that is to connect."""

MAX_STEPS = 1_000_000
"""Deliveries after which a network that does not come to rest is taken for an endless loop."""


_DELIVERY = struct.Struct("<iid")


class ProcessLife(msgspec.Struct):
    """One process at a place: its number, and when it was there, in virtual seconds."""

    pid: int
    begin: float
    end: float = math.inf


class Observation(msgspec.Struct, frozen=True):
    """An effect that a place wanted done, besides sending."""

    rank: int
    effect: Any


class ConnectAttempts:
    """Pending attempts to connect, and their times.

    Args:
        time: Returns the time, seconds.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._due: list[tuple[float, int, int, int]] = []
        self._order = itertools.count()

    def add(self, rank: int, to: int, pause: float) -> None:
        """Have a place connect to another one after a pause, seconds."""
        heapq.heappush(self._due, (self._time() + pause, next(self._order), rank, to))

    def forget(self, rank: int) -> None:
        """Drop what a place was about to do."""
        self._due = [entry for entry in self._due if entry[2] != rank]
        heapq.heapify(self._due)

    def __bool__(self) -> bool:
        """Whether any place is about to connect, now or later."""
        return bool(self._due)

    def take(self) -> tuple[int, int] | None:
        """Take out who is to connect to whom now."""
        if not self._due or self._due[0][0] > self._time():
            return None
        _, _, rank, to = heapq.heappop(self._due)
        return rank, to

    def next_due(self) -> float:
        """Return when the next one is due; infinite if there is none."""
        return self._due[0][0] if self._due else math.inf


class ProcessWatchers:
    """The places that watch the processes of others."""

    def __init__(self) -> None:
        self._of: dict[int, list[tuple[int, Told]]] = {}
        self._unheard: dict[int, list[Told]] = {}

    def add(self, rank: int, pid: int, ended: Told) -> Told:
        """Have a place told of the end of a process; return what takes that back."""
        entry = (rank, ended)
        watchers = self._of.setdefault(pid, [])
        watchers.append(entry)
        return lambda: watchers.remove(entry) if entry in watchers else None

    def forget(self, rank: int) -> None:
        """A place ends, and hears of nothing more."""
        self._unheard.pop(rank, None)

    def ended(self, pid: int, living: Container[int], paused: Container[int]) -> None:
        """Notify living watchers at once, and stopped ones when they resume."""
        for watcher, told in self._of.pop(pid, []):
            if watcher in paused:
                self._unheard.setdefault(watcher, []).append(told)
            elif watcher in living:
                told()

    def resumed(self, rank: int) -> None:
        """Send a resumed place the notices that it has missed."""
        for told in self._unheard.pop(rank, []):
            told()


class SimulatedFilters:
    """The filters of all places.

    Args:
        post: Gives a place an event.

    Attributes:
        own: What filters make of values.
        loads: Loads filters that are staged.
    """

    def __init__(self, post: Callable[[int, ev.Event], None]) -> None:
        self._post = post
        self._wanted: dict[int, deque[ev.FilterWanted | ev.FilterStaging]] = {}
        self.own: OwnFilter = _no_filter
        self.loads: Loads = lambda _rank, _effect: None

    def wanted(self, rank: int, effect: ev.FilterWanted | ev.FilterStaging) -> None:
        """Note that a filter is to be called."""
        self._wanted.setdefault(rank, deque()).append(effect)

    def forget(self, rank: int) -> None:
        """The process of a place ended."""
        self._wanted.pop(rank, None)

    def call_next(self, rank: int) -> None:
        """Call the filter that was wanted first at a place."""
        effect = self._wanted[rank].popleft()
        if isinstance(effect, ev.FilterStaging):
            self._load(rank, effect)
            return
        number, ticket = effect.spec.stream, effect.ticket
        try:
            parts = [
                values.decode(part.body, part.payload.view if part.payload is not None else b"")
                for part in effect.parts
            ]
            encoded = values.encode(self.own(rank, effect, parts))
        except SapwoodError as error:
            self._post(rank, ev.Filtered(number, ticket, b"", None, 0.0, error.to_record()))
            return
        payload = Payload(encoded.payload()) if encoded.nbytes else None
        self._post(rank, ev.Filtered(number, ticket, encoded.body, payload))

    def _load(self, rank: int, effect: ev.FilterStaging) -> None:
        problem = None
        try:
            self.loads(rank, effect)
        except SapwoodError as error:
            problem = error.to_record()
        self._post(rank, ev.FilterStaged(effect.stream, effect.number, problem))


def _no_filter(rank: int, _effect: ev.FilterWanted, _values: list[Any]) -> Any:
    raise SapwoodError(f"rank {rank} has no filter")


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
        apart: Whether no two places are on one machine, so that no place maps another's memory;
            or which places are alone on one, while the others share a machine.
        skew: By how much the clocks of processes go wrong at most, as a part of the time.
        answer: What agents answer.
        split: How often a reader gets a part of what was written, or of two writes together.
        lives: The processes of each place so far, in order.
        loss: How often messages go astray.
        astray: How many did.
        partition: Places that the others do not hear at present.
        apart_links: The links on which nothing arrives because of that.
        clock: The time.
        filters: The own filters of streams.
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
        self.clock_loop = ClockLoop(self.clock)
        self.nodes: dict[int, Node] = {}
        self.observations: list[Observation] = []
        self.problems: list[str] = []
        self.places: dict[int, NodeDriver] = {}
        self.breaks = 0
        self.apart: bool | Collection[int] = False
        self.skew = 0.0
        self.split = 0.0
        self.lives: dict[int, list[ProcessLife]] = {rank: [] for rank in range(tree.size)}
        self._course = hashlib.blake2b(digest_size=16)
        self.loss = Loss()
        self.astray = Counts()
        self.partition: frozenset[int] = frozenset()
        self.apart_links: list[SimulatedLink] = []
        self.answer = answer
        self._timing = timing or LinkTiming()
        self.chance = random.Random(seed)  # noqa: S311 - chance that can be repeated is the point
        self.scheduler = Scheduler(self.chance)
        self._incarnations = dict.fromkeys(range(tree.size), 0)
        self._place_of: dict[int, int] = {}  # of each process that was ever started
        self._links: dict[int, list[SimulatedLink]] = {}
        self._answers: list[tuple[int, Any]] = []
        self.connects = ConnectAttempts(self.clock.now)
        self._paused: set[int] = set()
        self._held: dict[int, list[SimulatedLink]] = {}
        self._watchers = ProcessWatchers()
        self.filters = SimulatedFilters(self.post)
        self.on_end: Callable[[int], None] = lambda _rank: None

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
                self.post(rank, ev.Begin())

    def change(self, tree: Tree) -> None:
        """Have the root begin the epoch of another tree; processes of new places come later."""
        for rank in range(self.tree.size, tree.size):
            self.lives[rank] = []
            self._incarnations[rank] = 0
        self.tree = tree
        self.post(ROOT, ev.ChangeTree(tree))

    def launch(self, rank: int, incarnation: int, pid: int) -> None:
        """Start a process at a place; it is alone until it connects."""
        apart = self.apart if isinstance(self.apart, bool) else rank in self.apart
        machine = f"machine {rank}" if apart else "here"
        identity = Identity("cluster", rank, incarnation, pid, machine)
        kind = LossyNode if self.loss.any else Node
        node = self.nodes[rank] = kind(identity, self.tree, self._timing, gathering())
        self._place_of[pid] = rank
        self.lives[rank].append(ProcessLife(pid, self.clock.now()))
        if isinstance(node, LossyNode):
            node.world = self
        observe = partial(self._observe, rank)
        lives = partial(self._is_at, rank, node)
        skewed = skewed_clock(self.clock, self.chance, self.skew)
        self.places[rank] = NodeDriver(
            node,
            dict.fromkeys(ev.Effect.__subclasses__(), observe),
            cast("Any", PlaceLoop(self.clock_loop, lives, partial(self.is_paused, rank), skewed)),
            self.problems.append,
            partial(self._reconnect, rank),
            partial(self._watch, rank),
            log=raise_it,
        )

    def kill(self, rank: int) -> None:
        """End a process at once; its neighbours notice after what it had sent."""
        node = self.nodes.pop(rank, None)
        if node is None:
            return
        del self.places[rank]
        self.lives[rank][-1].end = self.clock.now()
        self.on_end(rank)
        self._watchers.forget(rank)
        self.resume(rank)
        self._answers = [entry for entry in self._answers if entry[0] != rank]
        self.filters.forget(rank)
        self.connects.forget(rank)
        for link in self._links.pop(rank, []):
            LinkEnd(link).abort()
        self._watchers.ended(node.identity.pid, self.nodes, self._paused)

    def sever(self, rank: int) -> bool:
        """Break the connection of a place to its parent, both processes living.

        Data under way is lost from some byte on, in each direction.

        Returns:
            Whether there was a connection.
        """
        for link in self._links.get(rank, []):
            if link.target == self.nodes[rank].router.parent and not link.broken:
                self.breaks += 1
                for direction in (link, link.back):
                    direction.cut(self.chance)
                return True
        return False

    def links(self, rank: int) -> list[SimulatedLink]:
        """Return the links on which a place sends."""
        return [link for link in self._links.get(rank, []) if not link.broken]

    def pause(self, rank: int) -> None:
        """Stop a process; data that is sent to it waits."""
        self._paused.add(rank)

    def resume(self, rank: int) -> None:
        """Resume a stopped process."""
        self._paused.discard(rank)
        for link in self._held.pop(rank, []):
            self.scheduler.add(link)
        self._watchers.resumed(rank)

    def _is_at(self, rank: int, node: Node) -> bool:
        return self.nodes.get(rank) is node

    def is_paused(self, rank: int) -> bool:
        """Whether a process is stopped."""
        return rank in self._paused

    # --- what happens ------------------------------------------------------------------------

    def post(self, rank: int, event: ev.Event) -> None:
        """Give a place an event and do what it wants done."""
        place = self.places.get(rank)
        if place is None:
            return
        if isinstance(event, ev.Tick):
            place.tick()
        else:
            place.post(event)

    def open_stream(
        self,
        stream: int,
        reduce: dict[str, str],
        members: Iterable[int] | None = None,
        *,
        follows: bool = False,
        on_loss: str = REPLACE,
    ) -> None:
        """Open a stream at the root."""
        ranks = to_ranges(self.tree.agent_ranks if members is None else members)
        spec = StreamSpec(stream, "test", ranks, reduce, follows=follows, on_loss=on_loss)
        self.post(ROOT, ev.OpenStream(spec))

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
        for channel in self.places[source].channels.values():
            if channel.link.rank == destination:
                buffers = frames.encode(message, None, share=False)
                if type(message) in CONTROL:
                    channel.write(buffers)
                else:
                    channel.send(buffers, MESSAGE_COST)
                return
        raise KeyError(f"rank {source} has no link to rank {destination}")

    def step(self) -> bool:
        """Let one thing happen, whichever the seed says; return whether there was any."""
        scheduler, answers, connects = self.scheduler, self._answers, self.connects
        while True:
            if connects and self._try_to_connect():
                return True
            ready = len(scheduler)
            if not ready and not answers:
                return False
            chosen = self.chance.randrange(ready + len(answers))
            if chosen < ready:
                link = scheduler.draw()
                if link is None:
                    continue
                if link.target in self._paused:
                    self._held.setdefault(link.target, []).append(link)
                    continue
                self._deliver(link)
                return True
            number = chosen - ready
            entry = answers[number]
            if entry[0] in self._paused:
                runs = (i for i, one in enumerate(answers) if one[0] not in self._paused)
                number = next(runs, -1)
                if number < 0:
                    if not scheduler:
                        return False
                    continue
                entry = answers[number]
            answers[number] = answers[-1]
            answers.pop()
            self._give_answer(*entry)
            return True

    def run(self, steps: int | None = None) -> None:
        """Let things happen until nothing is under way, or a number of steps was made."""
        for _ in range(MAX_STEPS if steps is None else steps):
            if not self.step():
                return
        if steps is None:
            raise RuntimeError(f"the network does not come to rest in {MAX_STEPS} steps")

    def advance(self, seconds: float) -> None:
        """Let time pass, including the timed actions of links."""
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            self.clock.advance(min(self._timing.heartbeat / 2, end - self.clock.now()))
            self.clock_loop.run_due()
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

    @property
    def digest(self) -> str:
        """What tells this course of events from others: all bytes that came, where and when."""
        return self._course.hexdigest()

    # --- inside ------------------------------------------------------------------------------

    def _try_to_connect(self) -> bool:
        """Let the place connect whose time it is; return whether there was one."""
        rank, to = self.connects.take() or (-1, -1)
        if rank < 0:
            return False
        if rank in self._paused:
            self.connects.add(rank, to, PAUSED_RETRY)
            return self._try_to_connect()
        if to in self.places:
            self._lay_links(rank, to, self.places[rank])
        else:
            self.post(rank, ev.Unreachable(to))
        return True

    def _lay_links(self, rank: int, parent: int, handler: ConnectionHandler) -> None:
        up, down = (
            SimulatedLink(self.scheduler, rank, parent),
            SimulatedLink(self.scheduler, parent, rank),
        )
        up.back, down.back = down, up
        for link in (up, down):
            former = self._links.get(link.source, [])
            self._links[link.source] = [*(one for one in former if one.is_in_use), link]
            link.clogged = link.source in self.partition and link.target not in self.partition
            if link.clogged:
                self.apart_links.append(link)
        up.handler, down.handler = self.places[parent], handler
        up.number = up.handler.connection_opened(LinkEnd(down), initiator=False)
        down.number = handler.connection_opened(LinkEnd(up), initiator=True)

    def _reconnect(self, rank: int, link: int, _attempt: int) -> None:
        place = self.places.get(rank)
        if place is None or link not in place.channels:
            return
        parent = place.channels[link].link.rank
        if parent in self.places:
            self._lay_links(rank, parent, place.resumption(link))
        else:
            place.give_up(link, "no process listens any more")

    def _watch(self, rank: int, pid: int, ended: Callable[[], None]) -> Callable[[], None]:
        watched = self.nodes.get(self._place_of.get(pid, -1))
        if watched is None or watched.identity.pid != pid:
            ended()
            return lambda: None
        return self._watchers.add(rank, pid, ended)

    def _deliver(self, link: SimulatedLink) -> None:
        if self.split and self.chance.random() < self.split:
            piece = link.take_part(self.chance)
        else:
            piece = link.take()
        if link.pieces:
            self.scheduler.add(link)
        self._course.update(_DELIVERY.pack(link.source, link.target, self.clock.now()))
        self._course.update(piece or b"")
        if link.closed or link.target not in self.places:
            return
        if piece is not None:
            link.handler.bytes_received(link.number, piece)
            return
        link.closed = link.back.broken = True
        link.handler.connection_closed(link.number, "the connection was closed")

    def _observe(self, rank: int, effect: ev.Effect) -> None:
        self.observations.append(Observation(rank, effect))
        if isinstance(effect, ev.ParentLost):
            self.kill(rank)
        elif isinstance(effect, ev.Connect):
            self.connects.add(rank, effect.rank, effect.pause)
        elif isinstance(effect, ev.WaveArrived | ev.Asked):
            self._answers.append((rank, effect))
        elif isinstance(effect, ev.FilterWanted | ev.FilterStaging):
            self.filters.wanted(rank, effect)
            self._answers.append((rank, None))

    def _give_answer(self, rank: int, effect: ev.WaveArrived | ev.Asked | None) -> None:
        if effect is None:
            self.filters.call_next(rank)
            return
        view = effect.payload.view if effect.payload is not None else b""
        try:
            encoded = values.encode(self.answer(rank, values.decode(effect.body, view)))
        except SapwoodError as error:
            self.post(rank, failure(effect, error))
            return
        owner = (rank, effect.wave) if isinstance(effect, ev.WaveArrived) else None
        payload = Payload(encoded.payload(), owner=owner) if encoded.nbytes else None
        self.post(rank, success(effect, encoded.body, payload))


def success(effect: ev.WaveArrived | ev.Asked, body: bytes, payload: Payload | None) -> ev.Event:
    """Return the event by which an agent answers."""
    if isinstance(effect, ev.Asked):
        return ev.Answer(effect.source, effect.number, body, payload)
    return ev.Contribute(effect.spec.stream, effect.wave, 1.0, body, payload)


def failure(effect: ev.WaveArrived | ev.Asked, error: SapwoodError) -> ev.Event:
    """Return the event by which an agent says why it does not."""
    record = error.to_record()
    if isinstance(effect, ev.Asked):
        return ev.Answer(effect.source, effect.number, b"", None, record)
    return ev.Fail(effect.spec.stream, effect.wave, record)
