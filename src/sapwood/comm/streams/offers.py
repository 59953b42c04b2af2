"""What a place does with large contributions that its children offer, and with its own. No I/O.

An offer answers what a child was asked, without the bytes. When nobody is waited for any more, the
root draws them; a junction offers what it will put together, and draws from its children what its
parent draws from it. So a sum of any size passes a junction that holds a window of it. What cannot
be put together piece by piece is drawn as a whole first.

A place whose child is lost takes back what it has offered of it: whoever is above drops what it
drew, and asks again for who is missing, as the next attempt. Agents keep their contributions until
the wave is confirmed, so nothing is lost, and nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from sapwood.comm import messages as msg
from sapwood.comm.link import Link
from sapwood.comm.messages.pieces import Draw, Offer, Retracted
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.confluence import Basin, OneByOne, River
from sapwood.comm.streams.draws import Assembly, Draws, pieces_of, too_large
from sapwood.comm.streams.offered import Blend, Confluence, Offered
from sapwood.comm.streams.stream import Stream
from sapwood.comm.streams.wave import Wave
from sapwood.core.errors import ProtocolError, ResourceError, SapwoodError
from sapwood.core.rankset import Ranges
from sapwood.core.topology import ROOT


class Host(Protocol):
    """What goes on with waves at this place."""

    def on_up(self, link: Link, message: msg.Up, payload: Payload | None) -> Effects:
        """Take a contribution in that has been drawn as a whole."""

    def incomplete(self, stream: Stream, wave: Wave, child: int) -> Effects:
        """Ask for who is missing in a wave."""

    def full(self, stream: Stream, wave: Wave) -> Effects:
        """Pass a wave on."""

    def put_together(self, stream: Stream, wave: Wave, total: Any) -> Effects:
        """End a wave with its result, which is here."""

    def passes(self, stream: Stream, wave: Wave, body: bytes, river: Confluence) -> Effects:
        """End a wave whose result is to be drawn by the parent."""

    def wave_failed(self, message: msg.Failed) -> Effects:
        """Fail a wave."""


class Offers:
    """Large contributions at one place.

    Args:
        near: The neighbours.
        streams: The open streams.
        draws: What this place draws.
        host: Goes on with waves.
    """

    def __init__(
        self, near: PeerTable, streams: dict[int, Stream], draws: Draws, host: Host
    ) -> None:
        self.open = streams
        self.draws = draws
        self._near = near
        self._host = host

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
            return self._host.wave_failed(msg.Failed(number, wave, message.attempt, rank, error))
        if not stream.blends or not message.wave:
            return self._assemble(link, message)
        wave_open = stream.waves.get(message.wave)
        if wave_open is None or not wave_open.accepts(link.rank, message.attempt):
            stream.repeated()
            return []
        if stream.counters is not None:
            stream.counters.offered(message.body, message.size)
        missing = len(wave_open.missing)
        wave_open.offered(link.rank, message)
        if len(wave_open.missing) > missing:
            return self._host.incomplete(stream, wave_open, link.rank)
        if wave_open.waiting or (wave_open.missing and self._near.rank == ROOT):
            return []
        return self._host.full(stream, wave_open)

    def _assemble(self, link: Link, message: Offer) -> Effects:
        """Draw a contribution, and take it in as if it had come by itself."""

        def whole(payload: Payload) -> Effects:
            up = msg.Up(
                message.stream,
                message.wave,
                message.attempt,
                message.ranks,
                message.weight,
                message.body,
            )
            return self._host.on_up(link, up, payload)

        assembly = Assembly(self.draws, whole)
        key = (message.stream, message.wave)
        flow = self.draws.begin(link.rank, key, message.ranks, message.size, assembly)
        return self.draws.more(flow, 0)

    def full(self, stream: Stream, wave: Wave) -> Effects:
        """Nobody is waited for any more, and there are offers: put them together.

        Raises:
            SapwoodError: They do not fit together.
        """
        current, offers = wave.confluence, wave.offers
        if current is not None and current.sources == offers:
            return []  # under way
        if current is not None:
            current.stop()
        key = (stream.spec.stream, wave.number)
        blend = wave.gathering.blend(offers) if not wave.values else None
        if blend is None:
            return self._one_by_one(stream, wave, key)
        if self._near.rank != ROOT and not self._near.shares_with_parent:
            river = River(self._near, self.draws, key, offers, blend)
            wave.settle()
            return self._host.passes(stream, wave, blend.body, river)
        basin = Basin(self.draws, key, offers, blend, self._blended(stream, wave, blend))
        wave.confluence = basin
        return basin.start()

    def _blended(self, stream: Stream, wave: Wave, blend: Blend) -> Callable[[bytearray], Effects]:
        def done(result: bytearray) -> Effects:
            sources, wave.confluence = wave.confluence, None
            if not self._is_at_rest(stream, wave) or sources is None:
                return []
            wave.settle()
            return self._host.put_together(stream, wave, blend.total(result))

        return done

    def _one_by_one(self, stream: Stream, wave: Wave, key: tuple[int, int]) -> Effects:
        def done(offer: Offered, payload: Payload) -> Effects:
            if stream.waves.get(wave.number) is not wave:
                return []
            try:
                wave.drawn(offer, payload)
            except SapwoodError as error:
                record = error.to_record()
                failed = msg.Failed(*key, wave.attempt, offer.rank, record)
                return self._host.wave_failed(failed)
            if wave.offers or not self._is_at_rest(stream, wave):
                return []
            wave.confluence = None
            return self._host.full(stream, wave)

        drawing = wave.confluence = OneByOne(self.draws, key, wave.offers, done)
        return drawing.start()

    def _is_at_rest(self, stream: Stream, wave: Wave) -> bool:
        """Whether nobody is waited for, and the wave is not over."""
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
            return self._host.incomplete(stream, wave, link.rank)
        return self._take_back(stream, message.wave, link.rank, message.ranks)

    def child_left(self, stream: Stream, child: int) -> Effects:
        """A child is lost: what was offered of it does not hold."""
        effects: Effects = []
        for number in list(stream.kept):
            effects += self._take_back(stream, number, child, None)
        return effects

    def _take_back(self, stream: Stream, number: int, child: int, ranks: Ranges | None) -> Effects:
        effects: Effects = []
        for kept in stream.kept.get(number, []):
            river = kept.confluence
            if river is not None and any(
                one.child == child and ranks in {None, one.ranks} for one in river.sources
            ):
                river.stop()
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

    def drawn(self, link: Link, message: Draw) -> Effects:
        """The parent draws what was offered to it."""
        stream = self.open.get(message.stream)
        for kept in stream.kept.get(message.wave, ()) if stream is not None else ():
            if kept.ranges != message.ranks:
                continue
            if kept.confluence is not None:
                return kept.confluence.drawn(link, message)
            if kept.payload is not None:
                return pieces_of(link, message, kept.payload)
        return []  # it was taken back meanwhile, or is confirmed

    def parent_changed(self, stream: Stream) -> None:
        """The former parent draws no more."""
        for several in stream.kept.values():
            for kept in several:
                if kept.confluence is not None:
                    kept.confluence.stop()
