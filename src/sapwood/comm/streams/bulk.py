"""Bulk transfers of one place: large arrays by rendezvous, in both directions. No I/O.

Where a link cannot share memory, an array is not sent eagerly. Its owner *advertises* it (the
rendezvous request), whoever wants it *fetches* it, and it travels in chunks.

- *Values* go down (:class:`AdvertisedValues`). An agent fetches what its parent advertises, and so
  does a place whose children map its memory or whose filter looks at it. Any other place passes the
  chunks on without keeping them (:class:`Forwarding`): a value of any size passes it.
- *Contributions* go up (:class:`AdvertisedContributions`). The root fetches them when no child is
  missing any more; a junction advertises what it will reduce, and fetches from its children
  what its parent fetches from it, so that a sum of any size passes a junction that holds one
  window of it (``bulk_reduce.py``).

``fetch.py`` has one fetch and its flow control.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.link import Link
from sapwood.comm.messages.pieces import Announced, Draw, Offer, Piece, Retracted
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.bulk_reduce import BufferedReduce, PassThroughReduce, WholeFetches
from sapwood.comm.streams.fetch import Assembly, Fetch, Fetches, check_fetch, chunks_of, too_large
from sapwood.comm.streams.stream import NodeStream
from sapwood.comm.streams.wave import Advertised, ChunkedReduction, PassThrough, Wave
from sapwood.core.errors import ProtocolError, ResourceError, SapwoodError
from sapwood.core.rankset import Ranges
from sapwood.core.topology import ROOT

OnMessage = Callable[[Link, Any, Payload | None], Effects]
OnDown = Callable[[Link, msg.Down, Payload | None], Effects]

Key = tuple[int, int]
"""Numbers of a stream and a wave."""


class Engine(Protocol):
    """What bulk transfers need of the wave engine, besides the policy of each stream."""

    def on_down(self, link: Link, message: msg.Down, payload: Payload | None) -> Effects:
        """Take a wave in whose value has been fetched, or is to pass by."""

    def on_up(self, link: Link, message: msg.Up, payload: Payload | None) -> Effects:
        """Take a contribution in that has been fetched as a whole."""

    def fail_wave(self, message: msg.Failed) -> Effects:
        """Fail a wave."""


class BulkTransfers:
    """Large arrays at one place.

    Args:
        near: The neighbours.
        streams: The open streams.
        engine: Goes on with waves.
        is_agent: Whether this place is a leaf.

    Attributes:
        incoming: What this place fetches. Its ``touched`` says whether anything large is there:
            without it, the wave engine does not call this module when waves are over.
        forwarding: Values that children fetch here.
        contributions: Contributions of children that this place fetches or reduces.
    """

    def __init__(
        self, near: PeerTable, streams: dict[int, NodeStream], engine: Engine, *, is_agent: bool
    ) -> None:
        self._near = near
        self._open = streams
        fetches = self.incoming = Fetches(near)
        self.forwarding = Forwarding(near, fetches)
        self._values = AdvertisedValues(
            near, streams, fetches, self.forwarding, engine.on_down, is_agent=is_agent
        )
        self.contributions = AdvertisedContributions(near, streams, fetches, engine)
        self.on_message: dict[type[Any], OnMessage] = {
            Offer: self.contributions.on_offer,
            Retracted: self.contributions.on_retracted,
            Announced: self._values.on_announced,
            Draw: self._on_draw,
            Piece: fetches.on_piece,
        }

    def __len__(self) -> int:
        return len(self.incoming) + len(self.forwarding) + len(self._values)

    def _on_draw(self, link: Link, message: Draw, _payload: Any) -> Effects:
        """A neighbour fetches: the parent a contribution, a child a value."""
        if link.rank == self._near.router.parent:
            return self.contributions.on_draw(link, message)
        return self._values.on_draw(link, message)

    def child_left(self, child: int) -> Effects:
        """A child is attached here no more."""
        effects: Effects = []
        for stream in list(self._open.values()):
            effects += self.contributions.child_left(stream, child)
        self.incoming.end_of(child)
        return effects + self.forwarding.child_left(child)

    def parent_changed(self) -> None:
        """The former parent fetches no more, and nothing more comes from it."""
        self.incoming.end_values()
        for stream in self._open.values():
            self.contributions.parent_changed(stream)

    def over(self, stream: int, is_over: Callable[[int], bool]) -> None:
        """Waves of a stream are over: nothing of them comes or goes any more."""
        if self.incoming.touched:
            for part in (self.incoming, self.forwarding, self._values):
                part.over(stream, is_over)
            self.incoming.touched = len(self) > 0


class IncomingValue:
    """A value that is being fetched.

    Attributes:
        message: The wave, as the present parent asks for it.
        link: The link to that.
        assembly: The bytes that have arrived.
        fetch: How the rest comes.
    """

    __slots__ = ("assembly", "fetch", "link", "message")

    def __init__(self, assembly: Assembly, fetch: Fetch, link: Link, message: msg.Down) -> None:
        self.assembly = assembly
        self.fetch = fetch
        self.link = link
        self.message = message


class AdvertisedValues:
    """Large values that come to one place.

    Args:
        near: The neighbours.
        streams: The open streams.
        fetches: What this place fetches.
        forwarding: Passes values on.
        on_down: Takes a wave in.
        is_agent: Whether this place is a leaf.
    """

    def __init__(
        self,
        near: PeerTable,
        streams: dict[int, NodeStream],
        fetches: Fetches,
        forwarding: Forwarding,
        on_down: OnDown,
        *,
        is_agent: bool,
    ) -> None:
        self.open = streams
        self._near = near
        self._fetches = fetches
        self._forwarding = forwarding
        self._on_down = on_down
        self._is_agent = is_agent
        self._coming: dict[Key, IncomingValue] = {}

    def __len__(self) -> int:
        return len(self._coming)

    def on_announced(self, link: Link, message: Announced, _payload: Any) -> Effects:
        """The parent has a large value for a wave."""
        self._near.must_be_parent(link)
        problem = too_large(self._near, message, link)
        stream = self.open.get(message.stream)
        if stream is None:
            return []
        if problem:
            error = ResourceError(problem).to_record()
            number, rank = message.stream, self._near.rank
            return self._near.to_parent(
                msg.Failed(number, message.wave, message.attempt, rank, error)
            )
        down = msg.Down(
            message.stream,
            message.wave,
            message.attempt,
            message.body,
            message.confirmed,
            message.ranks,
            message.version,
        )
        if self._is_agent or self._is_looked_at(stream):
            return self._wanted(link, stream, down, message.size)
        key = (message.stream, message.wave)
        before = self._forwarding.shared(key)
        effects = self._on_down(link, down, Payload.elsewhere(message.size))
        told = self._forwarding.shared(key) > before
        effects += self._forwarding.resume(key)
        return effects if told else effects + self._forwarding.decline(key)

    def _is_looked_at(self, stream: NodeStream) -> bool:
        """Whether the bytes must be here: children map them, or a filter works on them."""
        if stream.filters.down or not stream.waits:
            return stream.filters.down
        neighbours = self._near.peers
        return any(
            child in neighbours and neighbours[child].same_machine
            for child in stream.roster.children
        )

    def _wanted(self, link: Link, stream: NodeStream, message: msg.Down, size: int) -> Effects:
        key, number = (message.stream, message.wave), message.wave
        known = number in stream.waves or number in stream.agent.pending
        if known or (number in stream.kept and not stream.filters.down):
            effects = self._on_down(link, message, Payload.elsewhere(size))
            return effects + self._forwarding.decline(key)
        coming = self._coming.get(key)
        if coming is not None:
            coming.link, coming.message = link, message
            if self._fetches.is_open(coming.fetch):
                return self._forwarding.decline(key)
            start = coming.fetch.position
            coming.fetch = self._fetches.begin(
                link.rank, key, (), size, coming.assembly, start=start
            )
            return self._fetches.more(coming.fetch, start)
        assembly = Assembly(self._fetches, lambda payload: self._whole(key, payload))
        fetch = self._fetches.begin(link.rank, key, (), size, assembly)
        self._coming[key] = IncomingValue(assembly, fetch, link, message)
        return self._fetches.more(fetch, 0)

    def _whole(self, key: Key, payload: Payload) -> Effects:
        coming = self._coming.pop(key)
        return self._on_down(coming.link, coming.message, payload)

    # --- for the children -----------------------------------------------------------------------

    def on_draw(self, link: Link, message: Draw) -> Effects:
        """A child fetches a value."""
        stream = self.open.get(message.stream)
        wave = stream.waves.get(message.wave) if stream is not None else None
        if stream is None:
            return []
        sent = stream.sent_to(wave, link.rank) if wave is not None else None
        payload = sent[1] if sent is not None else None
        if payload is None or not payload.is_here:
            size = payload.nbytes if payload is not None else 0
            return self._forwarding.on_draw(link, message, size)
        return chunks_of(link, message, payload) if message.stop else []

    # --- ends -----------------------------------------------------------------------------------

    def over(self, stream: int, is_over: Callable[[int], bool]) -> None:
        """Waves of a stream are over."""
        for key in [key for key in self._coming if key[0] == stream and is_over(key[1])]:
            del self._coming[key]


class SharedFetch:
    """A large value that is fetched from the parent for some children, at the same time.

    Attributes:
        undecided: Children that have not said yet whether they want it.
        wanted: Children that fetch it: child, number of its draw, and the last part of it.
        position: Bytes up to which it was passed on.
        fetch: The transfer from the parent.
    """

    __slots__ = ("fetch", "position", "size", "undecided", "wanted")

    def __init__(self, children: Iterable[int], size: int) -> None:
        self.undecided = set(children)
        self.wanted: dict[tuple[int, int], Draw] = {}
        self.size = size
        self.position = 0
        self.fetch: Fetch | None = None

    def takes(self, child: int, start: int) -> bool:
        """Whether a child was notified and wants the bytes from the present position."""
        return child in self.undecided and (not self.wanted or self.position == start)

    def leave(self, child: int) -> bool:
        """Note that a child is gone; return whether it was waited for."""
        fetched = [key for key in self.wanted if key[0] == child]
        for key in fetched:
            del self.wanted[key]
        if child in self.undecided:
            self.undecided.discard(child)
            return True
        return bool(fetched)


class Forwarding:
    """Large values that go through one place, or begin there.

    Args:
        near: The neighbours.
        fetches: What this place fetches.
    """

    def __init__(self, near: PeerTable, fetches: Fetches) -> None:
        self._near = near
        self._fetches = fetches
        self._shared: dict[Key, list[SharedFetch]] = {}

    def __len__(self) -> int:
        return len(self._shared)

    def advertise(self, children: Collection[int], message: msg.Down, payload: Payload) -> Effects:
        """Tell children of a value, which they fetch if they want it."""
        announced = Announced(
            message.stream,
            message.wave,
            message.attempt,
            message.body,
            message.confirmed,
            message.ranks,
            message.version,
            payload.nbytes,
        )
        if not payload.is_here:
            self._fetches.touched = True
            shared = self._shared.setdefault((message.stream, message.wave), [])
            shared.append(SharedFetch(children, payload.nbytes))
        return [ev.Transmit(self._near.links_to(children), announced)]

    def shared(self, key: Key) -> int:
        """Return for how many groups of children a value is fetched, or may be."""
        return len(self._shared.get(key, ()))

    def on_draw(self, link: Link, message: Draw, size: int) -> Effects:
        """A child fetches a value that is not here, or says that it does not want it.

        Args:
            link: The child.
            message: What it fetches.
            size: Of the value; 0 if that is not known, as its wave is over, or is not kept.

        Raises:
            ProtocolError: It fetches what there is not.
        """
        key, child = (message.stream, message.wave), link.rank
        shared = self._shared.get(key, [])
        size = size or (shared[0].size if shared else 0)
        mine = (child, message.number)
        if message.stop and size:
            check_fetch(link, message, size)
        for shared_fetch in shared:
            if mine in shared_fetch.wanted:
                if message.stop:
                    shared_fetch.wanted[mine] = message
                else:
                    del shared_fetch.wanted[mine]
                return self._go_on(key, shared_fetch)
        if not size or (message.number and not message.stop):
            return []  # it is over
        told = next((one for one in shared if child in one.undecided), None)
        if message.stop:
            fits = next((one for one in shared if one.takes(child, message.start)), None)
            shared_fetch = fits or SharedFetch((), size)
            told = fits or told
            if fits is None:
                self._shared.setdefault(key, shared).append(shared_fetch)
            shared_fetch.position = message.start
            shared_fetch.wanted[mine] = message
        if told is not None:
            told.undecided.discard(child)
        effects = self._go_on(key, shared_fetch) if message.stop else []
        if told is not None and not (message.stop and told is shared_fetch):
            effects += self._go_on(key, told)
        return effects

    def _go_on(self, key: Key, shared_fetch: SharedFetch) -> Effects:
        """Fetch from the parent what all that want it have asked for."""
        if shared_fetch.undecided:
            return []
        if not shared_fetch.wanted:
            # No notified child wants it, so this place does not need it either.
            self._forget(key, shared_fetch)
            fetch = shared_fetch.fetch
            return self.decline(key, fetch.number if fetch is not None else 0)
        parent = self._near.router.parent
        if parent not in self._near.peers:
            return []  # a new one says when it has the value
        draws = list(shared_fetch.wanted.values())
        fetch = shared_fetch.fetch
        if fetch is None or not self._fetches.is_open(fetch):
            fetch = shared_fetch.fetch = self._fetches.begin(
                parent,
                key,
                (),
                shared_fetch.size,
                _Forward(self, shared_fetch),
                start=shared_fetch.position,
                piece=draws[0].piece,
            )
        return self._fetches.ask(fetch, min(draw.stop for draw in draws))

    def decline(self, key: Key, number: int = 0) -> Effects:
        """Tell the parent that the bytes of a value are not wanted, or no more."""
        return self._near.to_parent(Draw(*key, (), number, 0, 0, 0))

    def _forget(self, key: Key, shared_fetch: SharedFetch) -> None:
        if shared_fetch.fetch is not None:
            self._fetches.end(shared_fetch.fetch)
        left = [one for one in self._shared.get(key, ()) if one is not shared_fetch]
        if left:
            self._shared[key] = left
        else:
            self._shared.pop(key, None)

    def forward(
        self, shared_fetch: SharedFetch, fetch: Fetch, start: int, view: memoryview
    ) -> Effects:
        """Bytes of a value have come: pass them on."""
        payload = Payload(view)
        shared_fetch.position = start + len(view)
        effects: Effects = []
        for child, number in shared_fetch.wanted:
            links = self._near.links_to((child,))
            piece = Piece(fetch.stream, fetch.wave, number, start)
            effects.append(ev.Transmit(links, piece, payload))
        if shared_fetch.position == shared_fetch.size:
            self._forget((fetch.stream, fetch.wave), shared_fetch)
        return effects

    def resume(self, key: Key) -> Effects:
        """Continue from a new parent where the former one stopped."""
        shared = list(self._shared.get(key, ()))
        return [effect for shared_fetch in shared for effect in self._go_on(key, shared_fetch)]

    def child_left(self, child: int) -> Effects:
        """A child is attached here no more."""
        effects: Effects = []
        for key, shared in list(self._shared.items()):
            for shared_fetch in list(shared):
                if shared_fetch.leave(child):
                    effects += self._go_on(key, shared_fetch)
        return effects

    def over(self, stream: int, is_over: Callable[[int], bool]) -> None:
        """Waves of a stream are over."""
        for key in [key for key in self._shared if key[0] == stream and is_over(key[1])]:
            for shared_fetch in self._shared[key]:
                self._forget(key, shared_fetch)


class _Forward:
    """Where the bytes of a shared fetch go."""

    __slots__ = ("_forwarding", "_shared_fetch")

    def __init__(self, forwarding: Forwarding, shared_fetch: SharedFetch) -> None:
        self._forwarding = forwarding
        self._shared_fetch = shared_fetch

    def arrived(self, fetch: Fetch, start: int, view: memoryview) -> Effects:
        """Pass bytes on."""
        return self._forwarding.forward(self._shared_fetch, fetch, start, view)


class AdvertisedContributions:
    """Large contributions at one place.

    An offer answers a request without the bytes. A value that cannot be reduced in chunks is
    fetched as a whole first.

    A place whose child is lost withdraws its offer: the parent drops what it
    fetched, and asks again for the missing ranks in another attempt. Agents keep their
    contributions until the wave is confirmed, so nothing is lost, and nothing is counted twice.

    Args:
        near: The neighbours.
        streams: The open streams.
        fetches: What this place fetches.
        engine: Goes on with waves.
    """

    def __init__(
        self, near: PeerTable, streams: dict[int, NodeStream], fetches: Fetches, engine: Engine
    ) -> None:
        self.open = streams
        self.fetches = fetches
        self._near = near
        self._engine = engine

    # --- below ----------------------------------------------------------------------------------

    def on_offer(self, link: Link, message: Offer, _payload: Any) -> Effects:
        """A child has a large contribution."""
        self._must_cover(link, message.ranks)
        stream = self.open.get(message.stream)
        problem = too_large(self._near, message, link)
        if stream is None:
            return []
        if problem:
            error = ResourceError(problem).to_record()
            number, wave, rank = message.stream, message.wave, message.ranks[0][0]
            return self._engine.fail_wave(msg.Failed(number, wave, message.attempt, rank, error))
        if not stream.chunked or not message.wave:
            return self._assemble(link, message)
        wave_open = stream.waves.get(message.wave)
        if wave_open is None or not wave_open.accepts(link.rank, message.attempt):
            stream.counters.came_twice()
            return []
        stream.counters.offered(message.body, message.size)
        missing = len(wave_open.missing)
        wave_open.offered(link.rank, message)
        if len(wave_open.missing) > missing:
            return stream.policy.incomplete(stream, wave_open, link.rank)
        if wave_open.waiting or (wave_open.missing and self._near.rank == ROOT):
            return []
        return stream.policy.complete(stream, wave_open)

    def _assemble(self, link: Link, message: Offer) -> Effects:
        """Fetch a contribution, and treat it as if it had been sent at once."""

        def whole(payload: Payload) -> Effects:
            up = msg.Up(
                message.stream,
                message.wave,
                message.attempt,
                message.ranks,
                message.weight,
                message.body,
            )
            return self._engine.on_up(link, up, payload)

        assembly = Assembly(self.fetches, whole)
        key = (message.stream, message.wave)
        fetch = self.fetches.begin(link.rank, key, message.ranks, message.size, assembly)
        return self.fetches.more(fetch, 0)

    def reduce(self, stream: NodeStream, wave: Wave) -> Effects | PassThrough:
        """Combine the offers, once no child is missing.

        Returns:
            What fetches them; or what will put them together as the parent fetches the result.

        Raises:
            SapwoodError: They do not fit together.
        """
        current, offers = wave.fetching, wave.offers
        if current is not None and current.sources == offers:
            return []  # under way
        if current is not None:
            current.stop()
        key = (stream.spec.stream, wave.number)
        reduction = wave.gathering.chunked(offers) if not wave.added else None
        if reduction is None:
            return self._one_by_one(stream, wave, key)
        if self._near.rank != ROOT and not self._near.shares_with_parent:
            pass_through = PassThroughReduce(self._near, self.fetches, key, offers, reduction)
            wave.settle()
            return pass_through
        buffered = BufferedReduce(
            self.fetches, key, offers, reduction, self._reduced_in_chunks(stream, wave, reduction)
        )
        wave.fetching = buffered
        return buffered.start()

    def _reduced_in_chunks(
        self, stream: NodeStream, wave: Wave, reduction: ChunkedReduction
    ) -> Callable[[bytearray], Effects]:
        def done(result: bytearray) -> Effects:
            sources, wave.fetching = wave.fetching, None
            if not self._is_at_rest(stream, wave) or sources is None:
                return []
            wave.settle()
            return stream.policy.reduced(stream, wave, reduction.total(result))

        return done

    def _one_by_one(self, stream: NodeStream, wave: Wave, key: tuple[int, int]) -> Effects:
        def done(offer: Advertised, payload: Payload) -> Effects:
            if stream.waves.get(wave.number) is not wave:
                return []
            try:
                wave.fetched(offer, payload)
            except SapwoodError as error:
                record = error.to_record()
                failed = msg.Failed(*key, wave.attempt, offer.rank, record)
                return self._engine.fail_wave(failed)
            if wave.offers or not self._is_at_rest(stream, wave):
                return []
            wave.fetching = None
            return stream.policy.complete(stream, wave)

        fetching = wave.fetching = WholeFetches(self.fetches, key, wave.offers, done)
        return fetching.start()

    def _is_at_rest(self, stream: NodeStream, wave: Wave) -> bool:
        """Whether no child is missing, and the wave is not over."""
        missing = wave.missing and self._near.rank == ROOT
        return stream.waves.get(wave.number) is wave and not (wave.waiting or missing)

    def on_retracted(self, link: Link, message: Retracted, _payload: Any) -> Effects:
        """A child takes back what it has offered."""
        self._must_cover(link, message.ranks)
        stream = self.open.get(message.stream)
        if stream is None:
            return []
        wave = stream.waves.get(message.wave)
        if wave is not None and wave.withdraw(link.rank, message.ranks):
            return stream.policy.incomplete(stream, wave, link.rank)
        return self._take_back(stream, message.wave, link.rank, message.ranks)

    def child_left(self, stream: NodeStream, child: int) -> Effects:
        """Withdraw offers that contain parts of a lost child."""
        effects: Effects = []
        for number in list(stream.kept):
            effects += self._take_back(stream, number, child, None)
        return effects

    def _take_back(
        self, stream: NodeStream, number: int, child: int, ranks: Ranges | None
    ) -> Effects:
        effects: Effects = []
        for kept in stream.kept.get(number, []):
            pass_through = kept.pass_through
            if pass_through is not None and any(
                one.child == child and ranks in {None, one.ranks} for one in pass_through.sources
            ):
                pass_through.stop()
                stream.kept[number] = [one for one in stream.kept[number] if one is not kept]
                retracted = Retracted(stream.spec.stream, number, kept.ranges)
                effects += self._near.to_parent(retracted)
        if not stream.kept.get(number, True):
            del stream.kept[number]
        return effects

    def _must_cover(self, link: Link, ranks: Ranges) -> None:
        if not ranks or not self._near.all_below(link, ranks):
            raise ProtocolError(f"rank {link.rank} offers for ranks that are not below it")

    # --- above ----------------------------------------------------------------------------------

    def on_draw(self, link: Link, message: Draw) -> Effects:
        """The parent fetches what was offered to it."""
        stream = self.open.get(message.stream)
        for kept in stream.kept.get(message.wave, ()) if stream is not None else ():
            if kept.ranges != message.ranks:
                continue
            if kept.pass_through is not None:
                return kept.pass_through.on_draw(link, message)
            if kept.payload is not None:
                return chunks_of(link, message, kept.payload)
        return []  # it was taken back meanwhile, or is confirmed

    def parent_changed(self, stream: NodeStream) -> None:
        """The former parent fetches no more."""
        for several in stream.kept.values():
            for kept in several:
                if kept.pass_through is not None:
                    kept.pass_through.stop()
