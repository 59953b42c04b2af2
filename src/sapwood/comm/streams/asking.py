"""Who is asked for a contribution, and again when the tree changes. No I/O.

A place asks a child for exactly the ranks that it has not yet and nobody else was asked for.
When a child is lost, or answers without some of them, those are missing, and asked for wherever
they are attached by then: here, or by a place above. What is asked for twice is given twice
from memory, and computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from sapwood.comm import messages as msg
from sapwood.comm.messages.pieces import Offer
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.filtering import Filtering, sent_to
from sapwood.comm.streams.sending import Sending, split, told
from sapwood.comm.streams.stream import NOT_WANTED, Stream
from sapwood.comm.streams.wave import Kept, Wave
from sapwood.core.rankset import from_ranges
from sapwood.core.topology import ROOT

NOTHING_YET = Kept(frozenset(), (), 0.0, b"", None)
"""The answer for those who are late."""

OnFull = Callable[[Stream, Wave], Effects]


class Asking:
    """Asks, and is asked.

    Args:
        near: The neighbours.
        sending: Sends waves down.
        filtering: Own filters on the way down.
        full: Passes a wave on that nobody is waited for any more.
    """

    def __init__(
        self, near: PeerTable, sending: Sending, filtering: Filtering, full: OnFull
    ) -> None:
        self._near = near
        self._sending = sending
        self._filtering = filtering
        self._full = full

    # --- asking ---------------------------------------------------------------------------------

    def look_for(self, stream: Stream, wave: Wave, ranks: Iterable[int]) -> Effects:
        """Ask for missing ranks that are below this place at present."""
        if wave.given_up:
            wave.missing -= wave.given_up
            ranks = wave.missing.intersection(ranks)
        if stream.quiet or (wave.filtering and wave.number not in stream.late_waves):
            return []
        message = msg.Down(
            stream.spec.stream,
            wave.number,
            wave.attempt,
            wave.body,
            self._confirmed(stream),
            version=wave.version,
        )
        effects: Effects = []
        filters: Effects = []
        for child, several in split(self._near.router, ranks):
            if stream.waits:
                ask = wave.ask(child, several)
                asked = msgspec.structs.replace(message, attempt=ask.attempt, ranks=ask.ranges)
            else:
                asked = told(message, several)
            sent = sent_to(stream, wave, child)
            if sent is None:
                filters += self._filtering.down_for(stream, wave, message, child)
                continue
            made = msgspec.structs.replace(asked, body=sent[0])
            effects += self._sending.to((child,), made, sent[1])
        return filters + (effects if stream.outbox is None else stream.outbox.put(effects))

    def look_elsewhere(self, stream: Stream, wave: Wave, child: int) -> Effects:
        """Ask for those whom the answer of a child lacks and who are not below it by now.

        For those that are, it answers as they come.
        """
        lacking, wave.lacking = wave.lacking, set()
        if not lacking or not stream.counts_late:
            return []
        next_hop = self._near.router.next_hop
        moved = {one for one in lacking if one in wave.missing and next_hop(one) != child}
        return self.look_for(stream, wave, moved)

    def _confirmed(self, stream: Stream) -> int:
        return stream.confirmed() if self._near.rank == ROOT else stream.confirmed_to

    def when_complete(self, stream: Stream, wave: Wave) -> Effects:
        """Pass a wave on, or end it, if nobody is left to wait for."""
        if stream.waves.get(wave.number) is not wave or wave.waiting or wave.filtering:
            return []
        if self._near.rank == ROOT and wave.missing:
            return []
        return self._full(stream, wave)

    # --- being asked ----------------------------------------------------------------------------

    def part_wanted(self, stream: Stream, message: msg.Down, payload: Payload | None) -> Effects:
        """Junction: the parent asks for some ranks, or for a wave that was asked for before."""
        ranks = set(
            from_ranges(message.ranks) & stream.members if message.ranks else stream.members
        )
        number, attempt = message.wave, message.attempt
        wave = stream.waves.get(number)
        if wave is None:
            for kept in stream.kept.get(number, ()):
                if kept.ranks == ranks:
                    return self.give(stream, number, attempt, kept)
            return self._begin_part(stream, message, payload, ranks)
        if wave.wanted:  # one answer is for both; the parent does not ask twice for the same
            new = ranks - wave.scope()
        else:  # another parent asked for what is under way here
            scope = wave.scope()
            if not scope <= ranks or wave.filtering:
                before = wave.later[1] if wave.later is not None else set()
                wave.later = (attempt, before | ranks)
                return []
            new = ranks - scope
        wave.wanted, wave.attempt = True, attempt
        wave.missing |= new
        return self.look_for(stream, wave, new) + self.when_complete(stream, wave)

    def _begin_part(
        self, stream: Stream, message: msg.Down, payload: Payload | None, ranks: set[int]
    ) -> Effects:
        late = stream.late_waves.get(message.wave) if stream.counts_late else None
        if late is not None:
            return self._rest_of_late(stream, late, message.attempt, ranks)
        wave = stream.begin_part(message.wave, message.attempt, message.body, payload, ranks)
        wave.version = message.version
        effects = self.look_for(stream, wave, tuple(wave.missing))
        return effects + self.when_complete(stream, wave)

    def _rest_of_late(self, stream: Stream, wave: Wave, attempt: int, ranks: set[int]) -> Effects:
        """Give what is kept of a wave whose time is over; what comes of it is given as it comes."""
        pieces: list[Kept] = []
        for kept in stream.kept.get(wave.number, ()):
            if kept.ranks <= ranks:
                pieces.append(kept)
                ranks = ranks - kept.ranks
        answer = pieces.pop(0) if pieces else NOTHING_YET
        effects = self.give(stream, wave.number, attempt, answer)
        for kept in pieces:
            effects += self.give_unasked(stream, wave.number, kept)
        wave.missing |= ranks - wave.unanswered()
        return effects + self.look_for(stream, wave, wave.missing.intersection(ranks))

    def rest_wanted(self, stream: Stream, wave: Wave) -> Effects:
        """Begin what the present parent asked for while something else was under way."""
        if wave.later is None:
            return []
        attempt, ranks = wave.later
        number = stream.spec.stream
        message = msg.Down(number, wave.number, attempt, wave.body, version=wave.version)
        return self._begin_part(stream, message, wave.payload, ranks)

    def give(self, stream: Stream, wave: int, attempt: int, kept: Kept) -> Effects:
        """Send a contribution to the parent, if it wants it."""
        return self._send(stream, wave, attempt, kept) if attempt != NOT_WANTED else []

    def give_unasked(self, stream: Stream, wave: int, kept: Kept) -> Effects:
        """Send a contribution to the parent, which misses it, as far as is known here."""
        return self._send(stream, wave, NOT_WANTED, kept)

    def _send(self, stream: Stream, wave: int, attempt: int, kept: Kept) -> Effects:
        number = stream.spec.stream
        if kept.error is not None:
            failed = msg.Failed(number, wave, attempt, self._near.rank, kept.error)
            return self._near.to_parent(failed)
        payload = kept.payload
        if kept.confluence is not None or (
            payload is not None
            and payload.nbytes > self._near.timing.piece
            and not self._near.shares_with_parent
        ):
            return self._offer(number, wave, attempt, kept)
        message = msg.Up(number, wave, attempt, kept.ranges, kept.weight, kept.body)
        return self._near.to_parent(message, payload)

    def _offer(self, number: int, wave: int, attempt: int, kept: Kept) -> Effects:
        """Tell the parent of a large contribution: it draws the arrays."""
        size = kept.confluence.size if kept.confluence is not None else 0
        if kept.payload is not None:
            size = kept.payload.nbytes
        ranks, weight = kept.ranges, kept.weight
        offer = Offer(number, wave, attempt, ranks, weight, kept.body, size)
        return self._near.to_parent(offer)

    # --- the tree changes -----------------------------------------------------------------------

    def child_left(self, stream: Stream, child: int, *, lost: bool) -> Effects:
        """A child will not answer any more: what it was asked for is missing."""
        effects: Effects = []
        for wave in list(stream.late_waves.values()):
            asked = wave.drop(child)
            if stream.counts_late:
                effects += self.look_for(stream, wave, asked)
        lost = (
            lost and stream.spec.on_loss != msg.REPLACE and self._near.router.tree.is_agent(child)
        )
        for wave in tuple(stream.waves.values()):
            if wave.concerns(child):
                if lost:
                    wave.given_up.add(child)
                effects += self.look_for(stream, wave, wave.drop(child))
                effects += self.when_complete(stream, wave)
        return effects

    def places_came(self, stream: Stream, ranks: Sequence[int]) -> Effects:
        """Places are below this one: they are asked for what is missing of them."""
        stream.absent.difference_update(ranks)
        effects: Effects = []
        waves = [*stream.waves.values()]
        if stream.counts_late:
            waves += stream.late_waves.values()
        for wave in waves:
            if wave.missing:
                effects += self.look_for(stream, wave, wave.missing.intersection(ranks))
        return effects

    def moves_again(self, stream: Stream) -> Effects:
        """A stream is no longer quiet: ask for what is missing, pass on what is complete."""
        effects: Effects = []
        refused, stream.refused = stream.refused, {}
        for wave in tuple(stream.waves.values()):
            ranks = wave.missing if stream.waits else refused.get(wave.number, ())
            effects += self.look_for(stream, wave, tuple(ranks))
            effects += self.when_complete(stream, wave)
        for wave in stream.late_waves.values() if stream.counts_late else ():
            effects += self.look_for(stream, wave, tuple(wave.missing))
        return effects

    def parent_changed(self, stream: Stream) -> None:
        """What the former parent asked for is kept, until the new one asks for it."""
        stream.pending = dict.fromkeys(stream.pending, NOT_WANTED)
        for wave in stream.waves.values():
            wave.wanted, wave.later = False, None
