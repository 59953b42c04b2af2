"""The protocol core of one place: ``step(now, event) -> effects``. No I/O.

Front end, junctions and agents run the same core; what they do follows from their rank in
the tree. It puts the layers together: links (``link.py``), next hops (``routing.py``), streams
(``stream.py``, ``reduction.py``) and requests (``requests.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.link import Identity, Link, LinkEvent, LinkState, LinkTiming
from sapwood.comm.payload import Payload
from sapwood.comm.requests import Requests, unreachable
from sapwood.comm.routing import Router
from sapwood.comm.stream import Gathering, NewGathering, Stream, Wave
from sapwood.core.errors import ProtocolError, SapwoodError
from sapwood.core.rankset import from_ranges, to_ranges
from sapwood.core.topology import ROOT, Tree

Effects = list[ev.Effect]

MAX_STREAMS = 4096
"""Streams that are open at one place at a time."""


def _nothing_to_gather(_reduce: Mapping[str, str]) -> Gathering:
    raise ProtocolError("this place does not reduce")


class Node:
    """State of one place.

    Args:
        identity: Who this place is.
        tree: The tree it is part of.
        timing: When links speak and worry.
        gather: Makes what puts contributions together; agents, which only contribute, need none.
    """

    def __init__(
        self,
        identity: Identity,
        tree: Tree,
        timing: LinkTiming | None = None,
        gather: NewGathering = _nothing_to_gather,
    ) -> None:
        self.identity = identity
        self.tree = tree
        self.rank = identity.rank
        self.is_agent = tree.is_agent(identity.rank)
        self.router = Router(tree, self.rank)
        self.timing = timing or LinkTiming()
        self.links: dict[int, Link] = {}
        self.neighbours: dict[int, Link] = {}
        self.streams: dict[int, Stream] = {}
        self.requests = Requests()
        self._gather = gather
        self._last_tick: float | None = None
        self._on_event: dict[type[ev.Event], Callable[[float, Any], Effects]] = {
            ev.Received: self._received,
            ev.LinkOpened: self._link_opened,
            ev.LinkClosed: self._link_closed,
            ev.Tick: self._tick,
            ev.OpenStream: self._open_stream,
            ev.CloseStream: self._close_stream,
            ev.Broadcast: self._broadcast,
            ev.Rejoin: self._rejoin,
            ev.Contribute: self._contribute,
            ev.Fail: self._fail,
            ev.Ask: self._ask,
            ev.Answer: self._answer,
            ev.Leave: self._leave,
        }
        self._on_message: dict[type[Any], Callable[[Link, Any, Payload | None], Effects]] = {
            msg.Heartbeat: self._on_heartbeat,
            msg.Goodbye: self._on_goodbye,
            msg.Open: self._on_open,
            msg.Close: self._on_close,
            msg.Down: self._on_down,
            msg.Up: self._on_up,
            msg.Failed: self._on_failed,
            msg.Lost: self._on_lost,
            msg.Joined: self._on_joined,
            msg.Request: self._on_request,
            msg.Reply: self._on_reply,
        }

    def step(self, now: float, event: ev.Event) -> Effects:
        """Take one event in and return what is to be done, in order.

        Raises:
            ProtocolError: A peer broke the protocol; the driver closes its link.
        """
        return self._on_event[type(event)](now, event)

    # --- links -----------------------------------------------------------------------------

    def _link_opened(self, now: float, event: ev.LinkOpened) -> Effects:
        link = self.links[event.link] = Link(event.link, initiator=event.initiator, now=now)
        link.advance(LinkEvent.OPENED)
        if event.initiator:
            return [ev.Transmit((link.number,), self.identity.hello())]
        return []

    def _received(self, now: float, event: ev.Received) -> Effects:
        return self.receive(now, event.link, event.message, event.payload)

    def receive(
        self, now: float, number: int, message: msg.AnyMessage, payload: Payload | None
    ) -> Effects:
        """Take a message in: ``step`` of :class:`~events.Received`, without the event.

        Raises:
            ProtocolError: The peer broke the protocol; the driver closes its link.
        """
        link = self.links.get(number)
        if link is None:
            return []
        link.heard(now)
        if not link.usable:
            return self._greeting(link, message)
        handler = self._on_message.get(type(message))
        if handler is None:
            raise ProtocolError(f"unexpected {type(message).__name__} after the handshake")
        return handler(link, message, payload)

    def _greeting(self, link: Link, message: msg.AnyMessage) -> Effects:
        if link.initiator and isinstance(message, msg.Welcome):
            link.greet(message, self.identity)
            if link.rank != self.router.parent:
                raise ProtocolError(f"expected rank {self.router.parent}, met {link.rank}")
            self.neighbours[link.rank] = link
            return [ev.ParentUp()]
        if link.initiator and isinstance(message, msg.Refused):
            return [ev.Disconnect(link.number, message.reason), ev.ParentLost(message.reason)]
        if not link.initiator and isinstance(message, msg.Hello):
            return self._admit(link, message)
        raise ProtocolError(f"unexpected {type(message).__name__} before the handshake")

    def _admit(self, link: Link, hello: msg.Hello) -> Effects:
        reason = self._refusal(hello)
        if not reason:
            try:
                link.greet(hello, self.identity)
            except ProtocolError as error:
                reason = str(error)
        if reason:
            return [
                ev.Transmit((link.number,), msg.Refused(reason)),
                ev.Disconnect(link.number, reason),
            ]
        self.neighbours[link.rank] = link
        effects: Effects = [ev.Transmit((link.number,), self.identity.welcome())]
        return effects + self._joined(msg.Joined(link.rank, link.incarnation, link.pid))

    def _refusal(self, hello: msg.Hello) -> str:
        if hello.rank not in self.router.children:
            return f"rank {hello.rank} is no child of rank {self.rank}"
        if hello.credential != self.identity.credential:
            return "wrong credential"
        present = self.neighbours.get(hello.rank)
        if present is not None and present.incarnation >= hello.incarnation:
            return f"rank {hello.rank} is taken by a newer process"
        return ""

    def _link_closed(self, _now: float, event: ev.LinkClosed) -> Effects:
        link = self.links.pop(event.link, None)
        if link is None:
            return []
        link.advance(LinkEvent.CLOSED)
        if self.neighbours.get(link.rank) is not link:
            return []
        del self.neighbours[link.rank]
        if link.rank == self.router.parent:
            return [ev.ParentLost(event.reason)]
        ranks = to_ranges(self.router.covered(link.rank))
        return self._lost(msg.Lost(ranks, event.reason))

    def _tick(self, now: float, _event: ev.Tick) -> Effects:
        effects: Effects = []
        if self._last_tick is not None:
            # A process that was stopped must not blame its neighbours for the silence.
            late = now - self._last_tick - self.timing.heartbeat
            if late > self.timing.heartbeat:
                for link in self.links.values():
                    link.forgive(late)
        self._last_tick = now
        quiet: list[int] = []
        for link in self.links.values():
            if link.usable and now - link.last_sent >= self.timing.heartbeat / 2:
                link.last_sent = now
                quiet.append(link.number)
            silence = now - link.last_heard
            if silence > self.timing.failure_after and link.state is not LinkState.SUSPECT:
                link.advance(LinkEvent.SILENT)
                effects.append(ev.PlaceSilent(link.rank, link.number, silence))
        if quiet:
            effects.append(ev.Transmit(tuple(quiet), msg.Heartbeat()))
        return effects

    def _leave(self, _now: float, event: ev.Leave) -> Effects:
        links = tuple(link.number for link in self.links.values() if link.usable)
        effects: Effects = [ev.Transmit(links, msg.Goodbye(event.reason))] if links else []
        return effects + [ev.Disconnect(number, event.reason) for number in self.links]

    def _on_heartbeat(self, _link: Link, _message: msg.Heartbeat, _payload: Any) -> Effects:
        return []

    def _on_goodbye(self, link: Link, message: msg.Goodbye, _payload: Any) -> Effects:
        return [ev.Disconnect(link.number, message.reason or "the other side left")]

    # --- membership ------------------------------------------------------------------------

    def _joined(self, message: msg.Joined) -> Effects:
        if self.rank == ROOT:
            return [ev.PlaceJoined(message.rank, message.incarnation, message.pid)]
        return self._to_parent(message)

    def _lost(self, message: msg.Lost) -> Effects:
        if self.rank != ROOT:
            return self._to_parent(message)
        effects: Effects = [ev.PlacesLost(message.ranks, message.reason)]
        gone = from_ranges(message.ranks)
        effects.extend(self.requests.lost(gone, message.reason))
        return effects

    def _on_joined(self, link: Link, message: msg.Joined, _payload: Any) -> Effects:
        self._must_be_below(link, message.rank)
        return self._joined(message)

    def _on_lost(self, link: Link, message: msg.Lost, _payload: Any) -> Effects:
        for rank in from_ranges(message.ranks):
            self._must_be_below(link, rank)
        return self._lost(message)

    def _must_be_below(self, link: Link, rank: int) -> None:
        if link.rank not in self.router.children or rank not in self.router.covered(link.rank):
            raise ProtocolError(f"rank {link.rank} speaks of rank {rank}, which is not below it")

    def _to_parent(self, message: msg.AnyMessage, payload: Payload | None = None) -> Effects:
        parent = self.neighbours.get(self.router.parent)
        return [ev.Transmit((parent.number,), message, payload)] if parent is not None else []

    def _links_to(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        neighbours = self.neighbours
        return tuple(neighbours[rank].number for rank in ranks if rank in neighbours)

    # --- streams ---------------------------------------------------------------------------

    def _open_stream(self, _now: float, event: ev.OpenStream) -> Effects:
        stream = self._new_stream(event.spec)
        return [ev.Transmit(self._links_to(stream.children), msg.Open(event.spec))]

    def _new_stream(self, spec: msg.StreamSpec) -> Stream:
        if len(self.streams) >= MAX_STREAMS:
            raise ProtocolError(f"more than {MAX_STREAMS} streams are open")
        stream = Stream(spec, self.router.towards(spec.members), self._gather)
        self.streams[spec.stream] = stream
        return stream

    def _close_stream(self, _now: float, event: ev.CloseStream) -> Effects:
        stream = self.streams.pop(event.stream, None)
        if stream is None:
            return []
        payloads = [wave.payload for wave in stream.waves.values()]
        effects: Effects = [ev.Transmit(self._links_to(stream.children), msg.Close(event.stream))]
        return effects + [ev.Released(payload) for payload in payloads if payload is not None]

    def _broadcast(self, _now: float, event: ev.Broadcast) -> Effects:
        stream = self.streams[event.stream]
        confirmed = stream.confirmed()
        wave = stream.begin(stream.last_wave + 1, 0, event.body, event.payload)
        message = msg.Down(event.stream, wave.number, 0, event.body, confirmed)
        return [ev.Transmit(self._links_to(stream.children), message, event.payload)]

    def _rejoin(self, _now: float, event: ev.Rejoin) -> Effects:
        """Bring a place that is back into a stream it is a member of."""
        child = self.router.next_hop(event.rank)
        stream = self.streams.get(event.stream)
        if stream is None or child not in stream.children:
            return []
        links = self._links_to((child,))
        effects: Effects = [ev.Transmit(links, msg.Open(stream.spec, event.rank))]
        for wave in stream.waves.values():
            if child in wave.waiting:
                effects.append(self._repeat(stream, wave, child, event.rank, links))
        return effects

    def _repeat(
        self, stream: Stream, wave: Wave, child: int, target: int, links: tuple[int, ...]
    ) -> ev.Effect:
        wave.attempt += 1
        if child == target:
            wave.waiting[child] = wave.attempt
        message = msg.Down(
            stream.spec.stream, wave.number, wave.attempt, wave.body, stream.confirmed(), target
        )
        return ev.Transmit(links, message, wave.payload)

    def _on_open(self, link: Link, message: msg.Open, _payload: Any) -> Effects:
        self._must_be_parent(link)
        effects: Effects = []
        if message.target == msg.WHOLE_STREAM or message.target == self.rank:  # noqa: PLR1714 - hot
            stream = self._new_stream(message.spec)
            if self.is_agent:
                effects.append(ev.StreamOpened(message.spec))
            links = self._links_to(stream.children)
            forward = msg.Open(message.spec)
        else:
            links = self._links_to((self.router.next_hop(message.target),))
            forward = message
        if links:
            effects.append(ev.Transmit(links, forward))
        return effects

    def _on_close(self, link: Link, message: msg.Close, _payload: Any) -> Effects:
        self._must_be_parent(link)
        stream = self.streams.pop(message.stream, None)
        if stream is None:
            return []
        effects: Effects = [ev.Released(payload) for payload in stream.held.values()]
        if self.is_agent:
            effects.append(ev.StreamClosed(message.stream))
        links = self._links_to(stream.children)
        if links:
            effects.append(ev.Transmit(links, message))
        return effects

    def _on_down(self, link: Link, message: msg.Down, payload: Payload | None) -> Effects:
        self._must_be_parent(link)
        stream = self.streams.get(message.stream)
        if stream is None:
            return []
        effects: Effects = []
        if stream.held:
            effects += [ev.Released(kept) for kept in stream.release(message.confirmed)]
        if message.target == msg.WHOLE_STREAM or message.target == self.rank:  # noqa: PLR1714 - hot
            if self.is_agent:
                effects.append(
                    ev.WaveArrived(
                        stream.spec, message.wave, message.attempt, message.body, payload
                    )
                )
                return effects
            stream.begin(message.wave, message.attempt, message.body, payload)
            forward = message if message.target == msg.WHOLE_STREAM else _to_all(message)
            effects.append(ev.Transmit(self._links_to(stream.children), forward, payload))
            return effects
        return effects + self._repeat_below(stream, message, payload)

    def _repeat_below(self, stream: Stream, message: msg.Down, payload: Payload | None) -> Effects:
        child = self.router.next_hop(message.target)
        wave = stream.waves.get(message.wave)
        if wave is None or child not in wave.waiting:
            return []  # what was lost had been contributed before
        if child == message.target:
            wave.waiting[child] = message.attempt
        return [ev.Transmit(self._links_to((child,)), message, payload)]

    def _contribute(self, _now: float, event: ev.Contribute) -> Effects:
        stream = self.streams.get(event.stream)
        if stream is None:
            return [ev.Released(event.payload)] if event.payload is not None else []
        if event.payload is not None:
            stream.held[event.wave] = event.payload
        message = msg.Up(
            event.stream,
            event.wave,
            event.attempt,
            ((self.rank, self.rank + 1),),
            event.weight,
            event.body,
        )
        return self._to_parent(message, event.payload)

    def _on_up(self, link: Link, message: msg.Up, payload: Payload | None) -> Effects:
        stream = self.streams.get(message.stream)
        wave = stream.waves.get(message.wave) if stream is not None else None
        if stream is None or wave is None or not wave.accepts(link.rank, message.attempt):
            return []
        if not message.ranks or not self._covers(link, message.ranks):
            raise ProtocolError(f"rank {link.rank} contributes for ranks that are not below it")
        try:
            last = wave.add(link.rank, message, payload)
        except SapwoodError as error:
            return self._wave_failed(
                msg.Failed(
                    message.stream, message.wave, message.attempt, link.rank, error.to_record()
                )
            )
        return self._wave_full(stream, wave) if last else []

    def _covers(self, link: Link, ranks: tuple[tuple[int, int], ...]) -> bool:
        if len(ranks) == 1 and ranks[0] == (link.rank, link.rank + 1):
            return True
        return from_ranges(ranks) <= self.router.covered(link.rank)

    def _wave_full(self, stream: Stream, wave: Wave) -> Effects:
        del stream.waves[wave.number]
        number = stream.spec.stream
        if self.rank == ROOT:
            try:
                total = wave.gathering.total()
            except SapwoodError as error:
                return self._wave_failed(
                    msg.Failed(number, wave.number, wave.attempt, self.rank, error.to_record())
                )
            done = ev.WaveCompleted(number, wave.number, total, wave.ranks, wave.weight)
            return [done] if wave.payload is None else [ev.Released(wave.payload), done]
        body, payload = wave.gathering.partial()
        if payload is not None:
            stream.held[wave.number] = payload
        message = msg.Up(number, wave.number, wave.attempt, wave.ranks, wave.weight, body)
        return self._to_parent(message, payload)

    def _fail(self, _now: float, event: ev.Fail) -> Effects:
        return self._wave_failed(
            msg.Failed(event.stream, event.wave, event.attempt, self.rank, event.error)
        )

    def _on_failed(self, link: Link, message: msg.Failed, _payload: Any) -> Effects:
        self._must_be_below(link, message.rank)
        return self._wave_failed(message)

    def _wave_failed(self, message: msg.Failed) -> Effects:
        if self.rank != ROOT:
            return self._to_parent(message)
        if message.stream not in self.streams:
            return []
        return [ev.WaveFailed(message.stream, message.wave, message.rank, message.error)]

    def _must_be_parent(self, link: Link) -> None:
        if link.rank != self.router.parent:
            raise ProtocolError(f"rank {link.rank} is not the parent of rank {self.rank}")

    # --- requests --------------------------------------------------------------------------

    def _ask(self, _now: float, event: ev.Ask) -> Effects:
        self.requests.asked(event.number, event.destination)
        message = msg.Request(self.rank, event.destination, event.handler, event.number, event.body)
        return self._forward(message, event.payload)

    def _answer(self, _now: float, event: ev.Answer) -> Effects:
        message = msg.Reply(self.rank, event.destination, event.number, event.body, event.error)
        return self._forward(message, event.payload)

    def _forward(self, message: msg.Request | msg.Reply, payload: Payload | None) -> Effects:
        hop = self.neighbours.get(self.router.next_hop(message.destination))
        if hop is not None:
            return [ev.Transmit((hop.number,), message, payload)]
        if isinstance(message, msg.Reply):
            return []
        return self._on_reply(None, unreachable(message, self.rank), None)

    def _on_request(self, _link: Link, message: msg.Request, payload: Payload | None) -> Effects:
        if message.destination != self.rank:
            return self._forward(message, payload)
        return [ev.Asked(message.source, message.handler, message.number, message.body, payload)]

    def _on_reply(self, _link: Link | None, message: msg.Reply, payload: Payload | None) -> Effects:
        if message.destination != self.rank:
            return self._forward(message, payload)
        if not self.requests.answered(message.number):
            return []
        return [ev.Answered(message.number, message.body, payload, message.error)]


def _to_all(message: msg.Down) -> msg.Down:
    return msg.Down(message.stream, message.wave, message.attempt, message.body, message.confirmed)
