"""The wave engine: how a place takes a wave from the broadcast to the total. No I/O.

A wave enters this file once at each place on its way down, and once for each contribution on its
way up. :class:`WaveEngine` finds the stream and hands the wave to the stream's *policy*, which was
chosen when the stream opened:

- :class:`PlainWaves`: all members contribute, and who is lost is replaced. *Down* and *up*, and
  *recovery*: whoever is missing is requested again when the tree changes (re-request, the
  retransmission of this protocol);
- :class:`GeneralWaves`: also *user-defined filters*, which values and contributions go through,
  and the *loss policy*: the treatment of waves when an agent is lost;
- :class:`TimedWaves`: also *time-outs*: a wave is passed on when its time is over, and later
  contributions are not lost;
- :class:`UnsynchronisedWaves`: each contribution is passed on alone, at once;
- :class:`AgentWaves`: the waves of a leaf, which works on values and contributes.

``stream.py`` and ``wave.py`` hold the state of a stream and of one wave. What only one policy needs
is a part of a stream: ``filters.py``, ``late.py``, ``contributors.py``.
``bulk.py`` moves arrays that a link cannot share, and calls this module when they have arrived.

A place asks a child for exactly the ranks that are missing and requested from no other child. When
a child is lost, or answers without some of them, those are missing, and asked for wherever they
are attached by then: here, or by a place above. A repeated request is answered from the retained
contribution; nothing is computed twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.link import Link
from sapwood.comm.messages.pieces import Offer
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.routing import Router
from sapwood.comm.streams.bulk import BulkTransfers
from sapwood.comm.streams.contributors import EPOCH
from sapwood.comm.streams.filters import ALL, Parts
from sapwood.comm.streams.push import PushContributions
from sapwood.comm.streams.roster import Shares
from sapwood.comm.streams.stream import UNSOLICITED, NodeStream, StreamState, WavePolicy
from sapwood.comm.streams.wave import Kept, PassThrough, Wave
from sapwood.core.errors import AgentLostError, ProtocolError, SapwoodError
from sapwood.core.rankset import check_ranges, fold, from_ranges, to_ranges
from sapwood.core.topology import ROOT

NOTHING_YET = Kept(frozenset(), (), 0.0, b"", None)
"""The answer for those who are late."""

Advertise = Callable[[Collection[int], msg.Down, Payload], Effects]
"""Tells children of a value whose bytes they are to fetch."""


class WaveEngine:
    """The waves of all streams of one place.

    Args:
        near: The neighbours.
        streams: The open streams.
        push: What agents push without a wave.
        is_agent: Whether this place is a leaf.

    Attributes:
        open: The open streams.
        bulk: Arrays that links cannot share, on their way.
    """

    def __init__(
        self,
        near: PeerTable,
        streams: dict[int, NodeStream],
        push: PushContributions,
        *,
        is_agent: bool,
    ) -> None:
        self.open = streams
        self._near = near
        bulk = self.bulk = BulkTransfers(near, streams, self, is_agent=is_agent)
        down = Downstream(near, bulk.forwarding.advertise)
        self._at_agent = AgentWaves(near, bulk) if is_agent else None
        self._plain = PlainWaves(near, bulk, down)
        self._general = GeneralWaves(near, bulk, down)
        self._timed = TimedWaves(near, bulk, down)
        self._unsynchronised = UnsynchronisedWaves(near, bulk, down, push)

    def policy_of(self, stream: NodeStream) -> WavePolicy:
        """Choose what a stream does with its waves."""
        if self._at_agent is not None:
            return self._at_agent
        if stream.passes:
            return self._plain
        if not stream.waits:
            return self._unsynchronised
        return self._timed if stream.late.timeout else self._general

    # --- down ------------------------------------------------------------------------------------

    def broadcast(self, now: float, event: ev.Broadcast) -> Effects:
        """Root: begin the next wave of a stream."""
        stream = self.open[event.stream]
        if stream.quiet:
            stream.quiet_time.deferred.append(event)
            return []
        if stream.roster.left:
            return self._refuse(stream, event)
        number, confirmed = stream.last_wave + 1, stream.confirmed()
        message = msg.Down(
            event.stream, number, 0, event.body, confirmed, version=stream.filters.version
        )
        return stream.policy.begin(now, stream, message, event.payload)

    def _refuse(self, stream: NodeStream, event: ev.Broadcast) -> Effects:
        """Root: fail a wave of a stream that can do nothing without members that have left."""
        stream.last_wave += 1
        error = AgentLostError(
            f"{fold('agent', stream.roster.left)} left the session",
            hint='open a stream to present agents; on_loss="partial" continues without lost ones',
        ).to_record()
        failed = ev.WaveFailed(event.stream, stream.last_wave, min(stream.roster.left), error)
        return [failed] if event.payload is None else [ev.Released(event.payload), failed]

    def waves_passed(self, _now: float, event: ev.WavesPassed) -> Effects:
        """Root: waves were exchanged by a shortcut; the next one has the next number."""
        self.open[event.stream].last_wave += event.waves
        return []

    def on_down(self, link: Link, message: msg.Down, payload: Payload | None) -> Effects:
        """A wave on its way to the agents."""
        self._near.must_be_parent(link)
        if message.ranks:
            check_ranges(message.ranks)
        stream = self.open.get(message.stream)
        if stream is None:
            return []
        effects: Effects = []
        if stream.filters.is_over(stream.spec, message.version):
            return []
        if stream.filters.newest is not None and self._at_agent is None:
            stream.filters.at(message.version)  # else it would be missed at the end of the wave
        if message.confirmed > stream.confirmed_to:
            stream.forget_abandoned(message.confirmed)
            if self.bulk.incoming.touched:
                self.bulk.over(message.stream, message.confirmed.__ge__)
            effects = _released(stream.release(message.confirmed))
        return effects + stream.policy.on_down(link.last_heard, stream, message, payload)

    def configure(self, _now: float, event: ev.ConfigureStream) -> Effects:
        """Root: give the user-defined filters other parameters, or code, from the next wave on.

        Each set of parameters has a version, and each wave names the one it began with: all places
        use the same for the same wave, however far apart they are. Places learn of a version before
        any wave names it, and of what is in it behind all waves that name another one: what they
        forget then is asked for no more.
        """
        stream = self.open.get(event.stream)
        if stream is None:
            return []
        version = stream.filters.version + 1
        oldest = stream.oldest_version()
        message = msg.Configure(event.stream, version, event.parameters, oldest, event.code)
        return self._configure(stream, message)

    def on_configure(self, link: Link, message: msg.Configure, _payload: Any) -> Effects:
        """The filters have other parameters from now on."""
        self._near.must_be_parent(link)
        stream = self.open.get(message.stream)
        if stream is None or self._at_agent is not None:
            return []
        return self._configure(stream, message)

    def _configure(self, stream: NodeStream, message: msg.Configure) -> Effects:
        unused = stream.configure(message)
        over = set(stream.forget_versions())
        if over:
            self.bulk.over(message.stream, over.__contains__)
        links = self._near.links_to(stream.roster.children)
        effects = stream.filters.outbox.put([ev.Transmit(links, message)]) if links else []
        return effects + [ev.FilterUnused(stream.spec.stream, code) for code in unused]

    # --- up --------------------------------------------------------------------------------------

    def contribute(self, _now: float, event: ev.Contribute) -> Effects:
        """Agent: contribute to a wave."""
        stream = self.open.get(event.stream)
        if stream is None:
            return _free(event.payload)
        if stream.quiet:
            stream.quiet_time.deferred.append(event)
            return []
        return stream.policy.contribute(stream, event)

    def fail(self, _now: float, event: ev.Fail) -> Effects:
        """Agent: cannot contribute to a wave."""
        stream = self.open.get(event.stream)
        if stream is None:
            return []
        if stream.quiet:
            stream.quiet_time.deferred.append(event)
            return []
        return stream.policy.fail(stream, event)

    def on_up(self, link: Link, message: msg.Up, payload: Payload | None) -> Effects:
        """A contribution of a child."""
        stream = self.open.get(message.stream)
        return stream.policy.on_up(link, stream, message, payload) if stream is not None else []

    def filtered(self, _now: float, event: ev.Filtered) -> Effects:
        """Go on with what a user-defined filter made."""
        stream = self.open.get(event.stream)
        if stream is None:
            return _free(event.payload)
        stream.counters.filter_called(event.seconds)
        return stream.policy.filtered(stream, event)

    def time_up(self, now: float, event: ev.TimeUp) -> Effects:
        """Pass on the waves whose time is over."""
        stream = self.open.get(event.stream)
        if stream is None:
            return []
        stream.late.wake_at = -math.inf
        if stream.quiet:
            return []  # a quiet stream is looked at again when it moves
        return stream.policy.time_up(now, stream)

    # --- waves that fail, or continue without some agents ----------------------------------------

    def on_failed(self, link: Link, message: msg.Failed, _payload: Any) -> Effects:
        """A place below could not contribute."""
        self._near.must_be_below(link, message.rank)
        return self.fail_wave(message)

    def fail_wave(self, message: msg.Failed) -> Effects:
        """Tell the root of a failure; there, end the wave everywhere."""
        stream = self.open.get(message.stream)
        if stream is not None:
            return stream.policy.fail_wave(stream, message)
        return self._near.to_parent(message) if self._near.rank != ROOT else []

    def on_abandon(self, link: Link, message: msg.Abandon, _payload: Any) -> Effects:
        """A wave failed elsewhere: forget it."""
        self._near.must_be_parent(link)
        stream = self.open.get(message.stream)
        if stream is None:
            return []
        stream.abandon(message.wave)
        self.bulk.over(message.stream, message.wave.__eq__)
        effects = _released(stream.forget(message.wave))
        links = self._near.links_to(stream.roster.children)
        return effects + (stream.filters.outbox.put([ev.Transmit(links, message)]) if links else [])

    def on_without(self, link: Link, message: msg.Without, _payload: Any) -> Effects:
        """Continue a wave without lost agents."""
        self._near.must_be_parent(link)
        stream = self.open.get(message.stream)
        wave = stream.waves.get(message.wave) if stream is not None else None
        if stream is None or wave is None:
            return []
        return stream.policy.go_on_without(stream, wave, from_ranges(message.ranks))


class BaseWaves(WavePolicy):
    """What is the same for the waves of all streams: contributions to the parent, and failures.

    Args:
        near: The neighbours.
        bulk: Arrays that links cannot share.
    """

    def __init__(self, near: PeerTable, bulk: BulkTransfers) -> None:
        self._near = near
        self._bulk = bulk

    # --- contributions to the parent -------------------------------------------------------------

    def _answer(self, stream: NodeStream, wave: int, attempt: int, kept: Kept) -> Effects:
        """Send a contribution to the parent, if it wants it."""
        return (
            self._send_contribution(stream, wave, attempt, kept) if attempt != UNSOLICITED else []
        )

    def _send_contribution(
        self, stream: NodeStream, wave: int, attempt: int, kept: Kept
    ) -> Effects:
        number = stream.spec.stream
        if kept.error is not None:
            failed = msg.Failed(number, wave, attempt, self._near.rank, kept.error)
            return self._near.to_parent(failed)
        payload = kept.payload
        if kept.pass_through is not None or (
            payload is not None
            and payload.nbytes > self._near.timing.piece
            and not self._near.shares_with_parent
        ):
            return self._advertise(number, wave, attempt, kept)
        message = msg.Up(number, wave, attempt, kept.ranges, kept.weight, kept.body)
        return self._near.to_parent(message, payload)

    def _advertise(self, number: int, wave: int, attempt: int, kept: Kept) -> Effects:
        """Tell the parent of a large contribution: it fetches the arrays."""
        size = kept.pass_through.size if kept.pass_through is not None else 0
        if kept.payload is not None:
            size = kept.payload.nbytes
        ranks, weight = kept.ranges, kept.weight
        offer = Offer(number, wave, attempt, ranks, weight, kept.body, size)
        return self._near.to_parent(offer)

    # --- failures --------------------------------------------------------------------------------

    def fail_wave(self, stream: NodeStream, message: msg.Failed) -> Effects:
        """Tell the root of a failure; there, end the wave everywhere."""
        wave = stream.waves.pop(message.wave, None)
        if wave is not None:
            self._bulk.over(message.stream, message.wave.__eq__)
        if self._near.rank != ROOT:
            return self._near.to_parent(message)
        if wave is None and message.wave:
            self._failed_late(stream, message)
            return []
        stream.late.waves.pop(message.wave, None)
        failed = ev.WaveFailed(message.stream, message.wave, message.rank, message.error)
        if wave is None:
            return [failed]
        links = self._near.links_to(stream.roster.children)
        abandon = msg.Abandon(message.stream, message.wave, stream.confirmed())
        return [
            *stream.filters.outbox.put([ev.Transmit(links, abandon)]),
            *_free(wave.value.payload),
            failed,
        ]

    def _failed_late(self, stream: NodeStream, message: msg.Failed) -> None:
        """Handle an agent that could not contribute to a wave that is over."""

    def _fail_for(self, stream: NodeStream, wave: Wave, rank: int, error: SapwoodError) -> Effects:
        number, record = stream.spec.stream, error.to_record()
        return self.fail_wave(stream, msg.Failed(number, wave.number, wave.attempt, rank, record))


class AgentWaves(BaseWaves):
    """The waves of a leaf: it works on values, and contributes."""

    def __init__(self, near: PeerTable, bulk: BulkTransfers) -> None:
        super().__init__(near, bulk)
        self._myself = frozenset((near.rank,))
        self._my_ranges = ((near.rank, near.rank + 1),)

    def on_down(
        self, _now: float, stream: NodeStream, message: msg.Down, payload: Payload | None
    ) -> Effects:
        """Contribute again what is kept, else work on it, once."""
        number = message.wave
        for kept in stream.kept.get(number, ()):
            return self._answer(stream, number, message.attempt, kept)
        known = number in stream.agent.pending
        stream.agent.pending[number] = message.attempt
        if known:
            return []
        stream.counters.down(message.body, payload)
        return [ev.WaveArrived(stream.spec, number, message.attempt, message.body, payload)]

    def on_up(
        self, _link: Link, _stream: NodeStream, _message: msg.Up, _payload: Payload | None
    ) -> Effects:
        """Drop messages that a leaf may not receive."""
        return []

    def contribute(self, stream: NodeStream, event: ev.Contribute) -> Effects:
        """Contribute to a wave."""
        stream.counters.up(event.body, event.payload)
        kept = Kept(self._myself, self._my_ranges, event.weight, event.body, event.payload)
        return self._keep_and_answer(stream, event.wave, kept)

    def fail(self, stream: NodeStream, event: ev.Fail) -> Effects:
        """Answer a wave with the error that replaces the contribution."""
        kept = Kept(self._myself, self._my_ranges, 0.0, b"", None, event.error)
        return self._keep_and_answer(stream, event.wave, kept)

    def _keep_and_answer(self, stream: NodeStream, wave: int, kept: Kept) -> Effects:
        attempt = stream.agent.pending.pop(wave, None)
        if attempt is None or wave <= stream.confirmed_to:
            if attempt is not None:
                stream.counters.came_late()
            return _free(kept.payload)
        stream.keep(wave, kept)
        return self._answer(stream, wave, attempt, kept)


class PlainWaves(BaseWaves):
    """The waves of a stream to which all members contribute, and whose lost ones are replaced.

    Args:
        near: The neighbours.
        bulk: Arrays that links cannot share.
        downstream: Sends waves to children.
    """

    def __init__(self, near: PeerTable, bulk: BulkTransfers, downstream: Downstream) -> None:
        super().__init__(near, bulk)
        self._downstream = downstream

    # --- down ------------------------------------------------------------------------------------

    def begin(
        self, _now: float, stream: NodeStream, message: msg.Down, payload: Payload | None
    ) -> Effects:
        """Begin a wave of all members, and pass it on."""
        stream.counters.down(message.body, payload)
        wave = stream.begin_whole(message.wave, message.body, payload)
        effects = self._downstream.ask_all(stream.roster.shares(), message, payload)
        return effects if wave.waiting else effects + self._complete_if_ready(stream, wave)

    def on_down(
        self, now: float, stream: NodeStream, message: msg.Down, payload: Payload | None
    ) -> Effects:
        """Junction: begin a wave of the parent, or one more part of it."""
        number = message.wave
        if message.ranks or number in stream.waves or number in stream.kept:
            return self._requested_again(now, stream, message, payload)
        return self.begin(now, stream, message, payload)

    # --- up --------------------------------------------------------------------------------------

    def on_up(
        self, link: Link, stream: NodeStream, message: msg.Up, payload: Payload | None
    ) -> Effects:
        """Take the contribution of a child in."""
        stream.counters.up(message.body, payload)
        wave = stream.waves.get(message.wave)
        if wave is None or wave.filtering or not wave.accepts(link.rank, message.attempt):
            return self._take_stray(link, stream, message, payload)
        return self._add(link, stream, wave, message, payload)

    def _take_stray(
        self, _link: Link, stream: NodeStream, _message: msg.Up, _payload: Payload | None
    ) -> Effects:
        """Drop a contribution that came before."""
        stream.counters.came_twice()
        return []

    def _add(
        self, link: Link, stream: NodeStream, wave: Wave, message: msg.Up, payload: Payload | None
    ) -> Effects:
        missing = len(wave.missing)
        try:
            last = wave.add(link.rank, message, payload)
        except ProtocolError:
            raise  # not to be read, or its memory is gone: the child is cut off and replaced
        except SapwoodError as error:
            number, record = message.stream, error.to_record()
            failed = msg.Failed(number, message.wave, message.attempt, link.rank, record)
            return self.fail_wave(stream, failed)
        if len(wave.missing) > missing:
            return self.incomplete(stream, wave, link.rank)
        if not last or (wave.missing and self._near.rank == ROOT):
            return []
        return self.complete(stream, wave)

    def incomplete(self, stream: NodeStream, wave: Wave, _child: int) -> Effects:
        """Ask for those whom the answer of a child lacks."""
        effects = self.request_missing(stream, wave, tuple(wave.missing))
        return effects + self._complete_if_ready(stream, wave)

    def complete(self, stream: NodeStream, wave: Wave) -> Effects:
        """Reduce what all have contributed, and pass it on."""
        if stream.quiet:
            return []  # a place was lost in a quiet time: when the stream moves again
        return self._reduce(stream, wave)

    def _complete_if_ready(self, stream: NodeStream, wave: Wave) -> Effects:
        """Pass a wave on, or end it, if no contribution is missing."""
        if stream.waves.get(wave.number) is not wave or wave.waiting or wave.filtering:
            return []
        if self._near.rank == ROOT and wave.missing:
            return []
        return self.complete(stream, wave)

    def _reduce(self, stream: NodeStream, wave: Wave) -> Effects:
        try:
            if wave.offers:
                made = self._bulk.contributions.reduce(stream, wave)
                if isinstance(made, list):
                    return made
                return self._send_result(stream, wave, made.body, None, made)
            if self._near.rank == ROOT and not stream.partial:
                total = wave.gathering.total() if wave.added else None
                return self._wave_completed(stream, wave, total)
            body, payload = wave.gathering.partial() if wave.added else (b"", None)
        except SapwoodError as error:
            return self._fail_for(stream, wave, self._near.rank, error)
        return self._send_result(stream, wave, body, payload)

    def reduced(self, stream: NodeStream, wave: Wave, total: Any) -> Effects:
        """Large contributions have been put together here."""
        if self._near.rank == ROOT:
            return self._wave_completed(stream, wave, total)
        try:
            body, payload = wave.gathering.placed(total)
        except SapwoodError as error:
            return self._fail_for(stream, wave, self._near.rank, error)
        return self._send_result(stream, wave, body, payload)

    def _send_result(
        self,
        stream: NodeStream,
        wave: Wave,
        body: bytes,
        payload: Payload | None,
        pass_through: PassThrough | None = None,
    ) -> Effects:
        """Send the result of a wave on."""
        if self._near.rank == ROOT:
            return self._wave_completed(stream, wave, None, body, payload)
        del stream.waves[wave.number]
        ranks = wave.ranks
        kept = Kept(
            frozenset(from_ranges(ranks)), ranks, wave.weight, body, payload, None, pass_through
        )
        if ranks:
            stream.keep(wave.number, kept)
        elif payload is not None:
            stream.loaned.append((wave.number, payload))
        effects: Effects = []
        if wave.wanted:
            effects = self._answer(stream, wave.number, wave.attempt, kept)
        effects += self._request_overdue(stream, wave)
        return effects + self._begin_rest(stream, wave)

    def _wave_completed(
        self,
        stream: NodeStream,
        wave: Wave,
        total: Any,
        body: bytes = b"",
        payload: Payload | None = None,
    ) -> Effects:
        del stream.waves[wave.number]
        number, ranks, late = stream.spec.stream, wave.ranks, wave.late
        done = ev.WaveCompleted(
            number, wave.number, total, ranks, wave.weight, late, body, payload, wave.value.version
        )
        if wave.value.payload is None or (stream.late.counts and wave.number in stream.late.waves):
            return [done]  # stragglers may have to be asked again
        return [ev.Released(wave.value.payload), done]

    # --- recovery: missing contributions are requested again -------------------------------------

    def request_missing(self, stream: NodeStream, wave: Wave, ranks: Iterable[int]) -> Effects:
        """Ask for missing ranks that are below this place at present."""
        effects: Effects = []
        for child, message in self._requests(stream, wave, ranks):
            effects += self._downstream.to((child,), message, wave.value.payload)
        return stream.filters.outbox.put(effects)

    def _requests(
        self, stream: NodeStream, wave: Wave, ranks: Iterable[int]
    ) -> list[tuple[int, msg.Down]]:
        """Return who is to be asked for missing ranks, and how."""
        if wave.given_up:
            wave.missing -= wave.given_up
            ranks = wave.missing.intersection(ranks)
        if stream.quiet or (wave.filtering and wave.number not in stream.late.waves):
            return []
        message = msg.Down(
            stream.spec.stream,
            wave.number,
            wave.attempt,
            wave.value.body,
            stream.confirmed() if self._near.rank == ROOT else stream.confirmed_to,
            version=wave.value.version,
        )
        children = split(self._near.router, ranks)
        return [(child, self._request(wave, message, child, some)) for child, some in children]

    def _request(self, wave: Wave, message: msg.Down, child: int, ranks: set[int]) -> msg.Down:
        """Ask a child for some ranks, and note that."""
        ask = wave.ask(child, ranks)
        return msgspec.structs.replace(message, attempt=ask.attempt, ranks=ask.ranges)

    def _request_overdue(self, stream: NodeStream, wave: Wave) -> Effects:
        """A wave has been passed on: look for those who are late."""
        del stream, wave
        return []

    def _requested_again(
        self, now: float, stream: NodeStream, message: msg.Down, payload: Payload | None
    ) -> Effects:
        """Junction: the parent asks for some ranks, or for a wave that was asked for before."""
        ranks = set(
            stream.roster.among(from_ranges(message.ranks))
            if message.ranks
            else stream.roster.members
        )
        number, attempt = message.wave, message.attempt
        wave = stream.waves.get(number)
        if wave is None:
            for kept in stream.kept.get(number, ()):
                if kept.ranks == ranks:
                    return self._answer(stream, number, attempt, kept)
            begun = self._begin_part(stream, message, payload, ranks)
            return self._start_timeout(now, stream, number) + begun
        if wave.wanted:  # one answer is for both; the parent does not ask twice for the same
            new = ranks - wave.scope()
        else:  # another parent asked for what is under way here
            scope = wave.scope()
            if not scope <= ranks or wave.filtering:
                before = wave.later[1] if wave.later is not None else set()
                wave.later = (attempt, before | ranks)
                return self._start_timeout(now, stream, number)
            new = ranks - scope
        wave.wanted, wave.attempt = True, attempt
        wave.missing |= new
        return self.request_missing(stream, wave, new) + self._complete_if_ready(stream, wave)

    def _start_timeout(self, now: float, stream: NodeStream, wave: int) -> Effects:
        """Note when the time of a wave is over that begins here, or of one more part of it."""
        del now, stream, wave
        return []

    def _begin_part(
        self, stream: NodeStream, message: msg.Down, payload: Payload | None, ranks: set[int]
    ) -> Effects:
        wave = stream.begin_part(message.wave, message.attempt, message.body, payload, ranks)
        wave.value.version = message.version
        effects = self.request_missing(stream, wave, tuple(wave.missing))
        return effects + self._complete_if_ready(stream, wave)

    def _begin_rest(self, stream: NodeStream, wave: Wave) -> Effects:
        """Begin what the present parent asked for while something else was under way."""
        if wave.later is None:
            return []
        attempt, ranks = wave.later
        number = stream.spec.stream
        message = msg.Down(
            number, wave.number, attempt, wave.value.body, version=wave.value.version
        )
        return self._begin_part(stream, message, wave.value.payload, ranks)

    def child_left(self, stream: NodeStream, child: int, *, lost: bool) -> Effects:
        """Ask for what a child that will not answer was asked for, wherever that is by now."""
        del lost
        effects: Effects = []
        for wave in tuple(stream.waves.values()):
            if wave.concerns(child):
                effects += self.request_missing(stream, wave, wave.drop(child))
                effects += self._complete_if_ready(stream, wave)
        return effects

    def places_came(self, stream: NodeStream, ranks: Sequence[int]) -> Effects:
        """Ask places that are below this one for what is missing of them."""
        if stream.roster.absent:
            there = self._near.router.tree
            stream.roster.absent.difference_update(rank for rank in ranks if rank in there)
        if stream.spec.follows and self._near.rank == ROOT:
            stream.roster.places_came(ranks)
        effects: Effects = []
        for wave in [*stream.waves.values()]:
            if wave.missing:
                effects += self.request_missing(stream, wave, wave.missing.intersection(ranks))
        return effects

    def resumed(self, stream: NodeStream) -> Effects:
        """Ask for what is missing, pass on what is complete."""
        effects: Effects = []
        for wave in tuple(stream.waves.values()):
            effects += self.request_missing(stream, wave, self._unheard(stream, wave))
            effects += self._complete_if_ready(stream, wave)
        return effects

    def _unheard(self, _stream: NodeStream, wave: Wave) -> Collection[int]:
        """Return who is asked again after a quiet time."""
        return tuple(wave.missing)

    # --- agents that are lost, or leave -----------------------------------------------------------

    def agents_lost(
        self, stream: NodeStream, ranks: Iterable[int], reason: str, *, told: bool
    ) -> Effects:
        """Do not wait for agents that are lost just now, or that have left.

        Args:
            stream: In which stream.
            ranks: The agents.
            reason: Why.
            told: Whether their processes are gone for certain, and not only their links: then
                nothing more comes of those that were removed.
        """
        removed = self._near.router.tree.removed if told else ()
        left = set(removed).intersection(ranks) if removed else set()
        if stream.spec.on_loss == msg.REPLACE and not left:
            return []
        concerned = set[int]() if stream.spec.on_loss == msg.REPLACE else set(stream.roster.members)
        gone = (concerned.intersection(ranks) | left) - stream.roster.absent
        stream.roster.absent |= gone
        return self._give_up(stream, gone, reason)

    def _give_up(self, stream: NodeStream, gone: Collection[int], reason: str) -> Effects:
        effects: Effects = []
        for wave in list(stream.waves.values()):
            missed = wave.give_up(frozenset(gone))
            if missed:
                effects += self._go_on_without(stream, wave, missed, reason)
        return effects

    def _go_on_without(
        self, stream: NodeStream, wave: Wave, gone: Iterable[int], reason: str
    ) -> Effects:
        left = stream.spec.follows and all(
            rank not in self._near.router.tree for rank in gone
        )  # the tree no longer contains them
        if stream.spec.on_loss != msg.PARTIAL and not left:
            error = AgentLostError(
                f"{fold('agent', gone)} ended: {reason}",
                hint='on_loss="replace" waits for new processes, "partial" continues without',
            )
            return self._fail_for(stream, wave, min(gone), error)
        # Places below may have new processes there by now: they are not to wait for those.
        told = self._tell_without(stream, wave, wave.asked_for(set(gone)))
        return told + self._complete_if_ready(stream, wave)

    def go_on_without(self, stream: NodeStream, wave: Wave, ranks: set[int]) -> Effects:
        """Wait no more for some agents: the root decided that."""
        told = self._tell_without(stream, wave, wave.without(ranks))
        return told + self._complete_if_ready(stream, wave)

    def _tell_without(self, stream: NodeStream, wave: Wave, asked: dict[int, set[int]]) -> Effects:
        tree, number = self._near.router.tree, stream.spec.stream
        return [
            ev.Transmit(
                self._near.links_to((child,)), msg.Without(number, wave.number, to_ranges(ranks))
            )
            for child, ranks in sorted(asked.items())
            if not tree.is_agent(child)
        ]


class GeneralWaves(PlainWaves):
    """The waves of a stream that also has user-defined filters, or a loss policy.

    *Filters.* The core calls no user code: it asks for it with a ``FilterWanted`` effect, whoever
    drives the core has a process run it, and the answer comes as an event. Until then what follows
    waits in the outbox.

    *Loss policy.* With "replace" nothing happens here: the wave waits until the place is back and
    asked again. With "partial" it continues without, with "fail" it fails and names the lost
    agents; in both cases the place takes part again from the first wave after it is back. The root
    decides: agents that are only disconnected, because a junction above them is lost, are not lost.
    """

    def begin(
        self, now: float, stream: NodeStream, message: msg.Down, payload: Payload | None
    ) -> Effects:
        """Begin a wave, and pass it on, perhaps through a filter."""
        effects: Effects = []
        if self._near.rank == ROOT:
            effects = _released(stream.release(message.confirmed))
        stream.counters.down(message.body, payload)
        wave = self._begin_wave(stream, message, payload)
        wave.value.version = message.version
        effects += self._send_down(stream, message, payload)
        effects += self._start_timeout(now, stream, wave.number)
        effects += self._leave_out_absent(stream, wave)
        return effects + self._complete_if_ready(stream, wave)

    def _begin_wave(self, stream: NodeStream, message: msg.Down, payload: Payload | None) -> Wave:
        return stream.begin_whole(message.wave, message.body, payload)

    def complete(self, stream: NodeStream, wave: Wave) -> Effects:
        """Combine the contributions by the filter or the reduction, and pass the result on."""
        if stream.quiet:
            return []
        filtered = stream.filters.up and wave.added
        return self._filter_wave(stream, wave) if filtered else self._reduce(stream, wave)

    def _take_stray(
        self, link: Link, stream: NodeStream, message: msg.Up, payload: Payload | None
    ) -> Effects:
        self._must_cover(link, message)
        return super()._take_stray(link, stream, message, payload)

    def _must_cover(self, link: Link, message: msg.Up) -> None:
        ranks = message.ranks
        if len(ranks) == 1 and ranks[0] == (link.rank, link.rank + 1):
            return
        if (ranks or message.body) and not self._near.all_below(link, ranks):
            raise ProtocolError(f"rank {link.rank} contributes for ranks that are not below it")

    # --- loss policy -----------------------------------------------------------------------------

    def _leave_out_absent(self, stream: NodeStream, wave: Wave) -> Effects:
        """Do not wait for agents that are lost, in a new wave."""
        gone = wave.give_up(stream.roster.absent) if stream.roster.absent else set()
        return self._go_on_without(stream, wave, gone, "lost and not back yet") if gone else []

    def child_left(self, stream: NodeStream, child: int, *, lost: bool) -> Effects:
        """Ask for what a child was asked for; a lost agent is not waited for, perhaps."""
        is_agent = self._near.router.tree.is_agent(child)
        if lost and is_agent and stream.spec.on_loss != msg.REPLACE:
            for wave in stream.waves.values():
                if wave.concerns(child):
                    wave.given_up.add(child)
        return super().child_left(stream, child, lost=lost)

    # --- user-defined filters --------------------------------------------------------------------

    def request_missing(self, stream: NodeStream, wave: Wave, ranks: Iterable[int]) -> Effects:
        """Ask for missing ranks that are below this place, with what a filter made for them."""
        effects: Effects = []
        filters: Effects = []
        for child, message in self._requests(stream, wave, ranks):
            sent = stream.sent_to(wave, child)
            if sent is None:
                filters += self._filter_for(stream, wave, message, child)
                continue
            made = msgspec.structs.replace(message, body=sent[0])
            effects += self._downstream.to((child,), made, sent[1])
        return filters + stream.filters.outbox.put(effects)

    def _filter_wave(self, stream: NodeStream, wave: Wave) -> Effects:
        """Have the contributions to a wave put together."""
        wave.filtering = True
        gathering = wave.gathering
        assert isinstance(gathering, Parts)  # noqa: S101 - Stream.begin() saw to it
        parts = tuple(sorted(gathering.parts, key=_rank_of))
        return self._ask_filter(stream, wave, wave.number, wave.value.version, parts)

    def _filter_one(
        self, stream: NodeStream, message: msg.Up, payload: Payload | None, version: int
    ) -> Effects:
        """Have one contribution looked at, with some version of the parameters."""
        rank = message.ranks[0][0] + stream.spec.first
        part = ev.PartialContribution(rank, message.weight, message.body, payload)
        return self._ask_filter(stream, message, message.wave, version, (part,))

    def _send_down(self, stream: NodeStream, message: msg.Down, payload: Payload | None) -> Effects:
        """Send a value down, through the filter if there is one."""
        if not stream.filters.down:
            return stream.filters.outbox.put(self._spread(stream, message, payload))
        effects: Effects = []
        per_child = stream.filters.at(message.version).at.per_child
        for child in stream.roster.children if per_child else (ALL,):
            effects += self._filter_down(stream, message, payload, child)
        return effects

    def _spread(self, stream: NodeStream, message: msg.Down, payload: Payload | None) -> Effects:
        """Send a value to all children that lead to members."""
        return self._downstream.ask_all(stream.roster.shares(), message, payload)

    def _filter_for(self, stream: NodeStream, wave: Wave, message: msg.Down, child: int) -> Effects:
        """Have the value made for a child, unless that is under way."""
        whom = child if stream.filters.at(wave.value.version).at.per_child else ALL
        if whom in self._made_for(stream, wave.number):
            return []
        plain = msgspec.structs.replace(message, attempt=wave.attempt, ranks=())
        return self._filter_down(stream, plain, wave.value.payload, whom)

    def _made_for(self, stream: NodeStream, wave: int) -> set[int]:
        jobs = [job for job in stream.filters.jobs.values() if isinstance(job, tuple)]
        return {child for message, child in jobs if message.wave == wave}

    def _filter_down(
        self, stream: NodeStream, message: msg.Down, payload: Payload | None, child: int
    ) -> Effects:
        part = ev.PartialContribution(self._near.rank, 0.0, message.body, payload)
        job = (message, child)
        return self._ask_filter(stream, job, message.wave, message.version, (part,), child)

    def filtered(self, stream: NodeStream, event: ev.Filtered) -> Effects:
        """Go on with what a filter made."""
        job = stream.filters.jobs.pop(event.ticket, None)
        if job is None:
            return _free(event.payload)
        if isinstance(job, Wave):
            effects = self._wave_filtered(stream, job, event)
        elif isinstance(job, msg.Up):
            effects = self._one_filtered(stream, job, event)
        else:
            effects = self._value_filtered(stream, *job, event)
        return stream.filters.outbox.fill(event.ticket, effects)

    def _ask_filter(
        self,
        stream: NodeStream,
        job: Wave | msg.Up | tuple[msg.Down, int],
        wave: int,
        version: int,
        parts: tuple[ev.PartialContribution, ...],
        child: int = ALL,
    ) -> Effects:
        ticket = stream.filters.outbox.reserve()
        stream.filters.jobs[ticket] = job
        upward = not isinstance(job, tuple)
        own, parameters = stream.filters.at(version), stream.spec.parameters.get(version, b"")
        wanted = ev.FilterWanted(
            stream.spec, ticket, upward, wave, parts, version, parameters, own.at, own.code, child
        )
        return [wanted]

    def _wave_filtered(self, stream: NodeStream, wave: Wave, event: ev.Filtered) -> Effects:
        if stream.waves.get(wave.number) is not wave:  # it failed meanwhile
            return _free(event.payload)
        if event.error is not None:
            return self._filter_failed(stream, wave.number, wave.attempt, event)
        return self._send_result(stream, wave, event.body, event.payload)

    def _one_filtered(self, stream: NodeStream, message: msg.Up, event: ev.Filtered) -> Effects:
        if event.error is not None:
            failed = self._filter_failed(stream, message.wave, message.attempt, event)
            if message.wave:
                return failed
            # Pushed values are numbered: later ones are accepted after this one has arrived.
            return failed + self._hand_on(stream, msgspec.structs.replace(message, body=b""), None)
        passed = msgspec.structs.replace(message, body=event.body)
        return self._hand_on(stream, passed, event.payload)

    def _hand_on(self, stream: NodeStream, message: msg.Up, payload: Payload | None) -> Effects:
        """Pass one contribution on alone."""
        raise NotImplementedError  # this kind of stream passes none on alone

    def _value_filtered(
        self, stream: NodeStream, message: msg.Down, child: int, event: ev.Filtered
    ) -> Effects:
        if event.error is not None:
            return self._filter_failed(stream, message.wave, message.attempt, event)
        if event.payload is not None:
            stream.loaned.append((message.wave, event.payload))
        number = message.wave
        wave = stream.waves.get(number) or stream.late.waves.get(number)
        if wave is not None:
            wave.value.sent[child] = (event.body, event.payload)
        made = msgspec.structs.replace(message, body=event.body)
        return self._send_made(stream, wave, made, event.payload, child)

    def _send_made(
        self,
        stream: NodeStream,
        wave: Wave | None,
        message: msg.Down,
        payload: Payload | None,
        child: int,
    ) -> Effects:
        """Send the output of a filter to one child, or to all, as each was asked."""
        del stream
        effects: Effects = []
        waiting = wave.waiting if wave is not None else {}
        for each in waiting if child == ALL else (child,):
            for ask in waiting.get(each, ()):
                asked = msgspec.structs.replace(message, attempt=ask.attempt, ranks=ask.ranges)
                effects += self._downstream.to((each,), asked, payload)
        return effects

    def _filter_failed(
        self, stream: NodeStream, wave: int, attempt: int, event: ev.Filtered
    ) -> Effects:
        assert event.error is not None  # noqa: S101 - asked for by the callers
        message = msg.Failed(stream.spec.stream, wave, attempt, self._near.rank, event.error)
        return self.fail_wave(stream, message)


class TimedWaves(GeneralWaves):
    """The waves of a stream with a time-out: passed on when it is over.

    No clock is read here: times come with events, and Wake asks for one. A stream has one such
    request under way at a place, however many waves are open.

    A late contribution is passed on alone, as one more answer to its wave. Each place takes it from
    one child only, because it knows who is missing in the wave; the root adds it to the next wave
    that completes. A contribution is confirmed when the root has it, so whatever is lost on its way
    is asked for again, and nothing counts twice.
    """

    def _start_timeout(self, now: float, stream: NodeStream, wave: int) -> Effects:
        """Note when the time of a wave is over that begins here, or of one more part of it.

        A parent that lacks a place asks for the others by name, which is a part. Without a
        separate time-out it would wait for the slowest for ever, and all agents in it would be
        late above.
        """
        stream.late.deadlines.append((now + stream.late.timeout, wave))
        return self._wake(now, stream)

    def _wake(self, now: float, stream: NodeStream) -> Effects:
        """Ask to be woken when the time of the next wave is over, unless that is under way."""
        due = stream.late.next_deadline(stream.waves)
        if due == math.inf or now < stream.late.wake_at <= due:
            return []
        stream.late.wake_at = due
        return [ev.Wake(stream.spec.stream, max(0.0, due - now))]

    def time_up(self, now: float, stream: NodeStream) -> Effects:
        """Pass on the waves whose time is over."""
        effects: Effects = []
        while stream.late.deadlines and stream.late.deadlines[0][0] <= now:
            wave = stream.waves.get(stream.late.deadlines.popleft()[1])
            if wave is not None and not wave.filtering:
                effects += self.complete(stream, wave)
        return effects + self._wake(now, stream)

    def complete(self, stream: NodeStream, wave: Wave) -> Effects:
        """Pass a wave on with what has come, and note who is missing."""
        if stream.quiet:
            return []
        effects = self._add_late(stream, wave)
        if wave.number not in stream.waves:
            return effects  # a late error of another agent has failed it
        return effects + super().complete(stream, wave)

    def incomplete(self, stream: NodeStream, wave: Wave, child: int) -> Effects:
        """Pass a wave on without stragglers, because asking the child again would take too long."""
        effects = self._request_elsewhere(stream, wave, child)
        return effects if wave.waiting else effects + self.complete(stream, wave)

    def _request_elsewhere(self, stream: NodeStream, wave: Wave, child: int) -> Effects:
        """Ask for those whom the answer of a child lacks and who are not below it by now.

        For those that are, it answers as they come.
        """
        lacking, wave.lacking = wave.lacking, set()
        if not lacking or not stream.late.counts:
            return []
        next_hop = self._near.router.next_hop
        moved = {one for one in lacking if one in wave.missing and next_hop(one) != child}
        return self.request_missing(stream, wave, moved)

    def _request_overdue(self, stream: NodeStream, wave: Wave) -> Effects:
        """A wave has been passed on: look for those who were asked for while a filter had it."""
        if not stream.late.counts or not wave.missing or wave.number in stream.late.waves:
            return []
        effects = _released(stream.late.time_is_over(wave))
        return effects + self.request_missing(stream, wave, tuple(wave.missing))

    def _take_stray(
        self, link: Link, stream: NodeStream, message: msg.Up, payload: Payload | None
    ) -> Effects:
        self._must_cover(link, message)
        return self._take_late(stream, link.rank, message, payload)

    def _take_late(
        self, stream: NodeStream, child: int, message: msg.Up, payload: Payload | None
    ) -> Effects:
        """Handle a contribution that is not awaited: it is late, or came before."""
        ranks = from_ranges(message.ranks)
        wave = stream.waves.get(message.wave)
        if wave is not None and self._may_be_in_time(stream, wave, ranks):
            return self._take_in_time(stream, wave, message, payload)  # late below, but not here
        wave = stream.late.waves.get(message.wave)
        wanted = wave.owed_by(child, message.attempt, ranks) if wave is not None else set()
        late = bool(ranks) and wanted == ranks
        stream.counters.came_late(late)
        stream.counters.came_twice(not late)
        if wave is None:
            return []
        if stream.late.counts and (stream.quiet or not late):
            # Who else is in it has been counted by another way: the others are to answer alone.
            again = self.request_missing(stream, wave, wanted)
            return again + self._request_elsewhere(stream, wave, child)
        wave.missing -= wanted
        effects = _released(stream.late.drop_complete(wave))
        effects += self._request_elsewhere(stream, wave, child)
        if not stream.late.counts:
            return effects
        passed = msgspec.structs.replace(message, attempt=UNSOLICITED)
        if self._near.rank == ROOT:
            stream.late.for_next.append((passed, _copied(payload)))
        elif stream.filters.up and message.body:
            effects += self._filter_one(stream, passed, payload, wave.value.version)
        else:
            effects += stream.filters.outbox.put(self._hand_on(stream, passed, payload))
        return effects

    def _may_be_in_time(self, stream: NodeStream, wave: Wave, ranks: set[int]) -> bool:
        return stream.late.counts and not wave.filtering and bool(ranks) and ranks <= wave.missing

    def _take_in_time(
        self, stream: NodeStream, wave: Wave, message: msg.Up, payload: Payload | None
    ) -> Effects:
        try:
            wave.take(_kept(message, payload))
        except ProtocolError:
            raise
        except SapwoodError as error:
            return self._fail_for(stream, wave, message.ranks[0][0], error)
        return self._complete_if_ready(stream, wave)

    def _hand_on(self, stream: NodeStream, message: msg.Up, payload: Payload | None) -> Effects:
        """Junction: give a late contribution to the parent, and keep it until it is confirmed."""
        if message.wave <= stream.confirmed_to:
            return _free(payload)
        if payload is None or payload.owner is None:
            payload = _copied(payload)
        kept = _kept(message, payload)
        stream.keep(message.wave, kept)
        return self._send_late(stream, message.wave, kept)

    def _send_late(self, stream: NodeStream, wave: int, kept: Kept) -> Effects:
        """Send a contribution to the parent, which misses it, as far as is known here."""
        return self._send_contribution(stream, wave, UNSOLICITED, kept)

    def _add_late(self, stream: NodeStream, wave: Wave) -> Effects:
        """A wave is passed on: note who is missing; at the root, add what is late of others.

        A late contribution that could not be made, or does not fit, fails the wave.
        """
        effects = _released(stream.late.time_is_over(wave))
        late, stream.late.for_next = stream.late.for_next, []
        for index, (message, payload) in enumerate(late):
            if message.wave >= wave.number:
                stream.late.for_next.append((message, payload))
                continue
            try:
                if isinstance(message, msg.Failed):
                    raise SapwoodError.from_record(message.error)
                wave.add_late(message, payload)
            except SapwoodError as error:
                stream.late.for_next += late[index + 1 :]
                who = message.rank if isinstance(message, msg.Failed) else message.ranks[0][0]
                return effects + self._fail_for(stream, wave, who, error)
        return effects

    def _begin_part(
        self, stream: NodeStream, message: msg.Down, payload: Payload | None, ranks: set[int]
    ) -> Effects:
        late = stream.late.waves.get(message.wave) if stream.late.counts else None
        if late is not None:
            return self._send_rest_of_late(stream, late, message.attempt, ranks)
        return super()._begin_part(stream, message, payload, ranks)

    def _send_rest_of_late(
        self, stream: NodeStream, wave: Wave, attempt: int, ranks: set[int]
    ) -> Effects:
        """Send the kept contributions of a wave whose time is over; later ones follow."""
        pieces: list[Kept] = []
        for kept in stream.kept.get(wave.number, ()):
            if kept.ranks <= ranks:
                pieces.append(kept)
                ranks = ranks - kept.ranks
        answer = pieces.pop(0) if pieces else NOTHING_YET
        effects = self._answer(stream, wave.number, attempt, answer)
        for kept in pieces:
            effects += self._send_late(stream, wave.number, kept)
        wave.missing |= ranks - wave.unanswered()
        return effects + self.request_missing(stream, wave, wave.missing.intersection(ranks))

    def child_left(self, stream: NodeStream, child: int, *, lost: bool) -> Effects:
        """As for other waves, and for those whose time is over."""
        effects: Effects = []
        for wave in list(stream.late.waves.values()):
            asked = wave.drop(child)
            if stream.late.counts:
                effects += self.request_missing(stream, wave, asked)
        return effects + super().child_left(stream, child, lost=lost)

    def places_came(self, stream: NodeStream, ranks: Sequence[int]) -> Effects:
        """As for other waves, and for those whose time is over."""
        effects = super().places_came(stream, ranks)
        for wave in [*stream.late.waves.values()] if stream.late.counts else ():
            if wave.missing:
                effects += self.request_missing(stream, wave, wave.missing.intersection(ranks))
        return effects

    def resumed(self, stream: NodeStream) -> Effects:
        """As for other waves, and for those whose time is over."""
        effects = super().resumed(stream)
        for wave in stream.late.waves.values() if stream.late.counts else ():
            effects += self.request_missing(stream, wave, tuple(wave.missing))
        return effects

    def _give_up(self, stream: NodeStream, gone: Collection[int], reason: str) -> Effects:
        effects: Effects = []
        for wave in list(stream.late.waves.values()):
            wave.without(frozenset(gone))
            effects += _released(stream.late.drop_complete(wave))
        return effects + super()._give_up(stream, gone, reason)

    def _failed_late(self, stream: NodeStream, message: msg.Failed) -> None:
        """Record an agent that could not contribute to a wave whose time is over."""
        wave = stream.late.waves.get(message.wave)
        if wave is None or message.rank in wave.given_up:
            return
        wave.without({message.rank})
        stream.counters.came_late()
        if stream.late.counts:
            stream.late.for_next.append((message, None))


class UnsynchronisedWaves(GeneralWaves):
    """The waves of a stream without synchronisation: each contribution is passed on alone, at once.

    The root knows which agents have answered a wave, so each answer counts once, however often a
    place on its way was replaced. What agents push without a wave belongs to wave 0.

    Args:
        near: The neighbours.
        bulk: Arrays that links cannot share.
        downstream: Sends waves to children.
        push: What agents push without a wave.
    """

    def __init__(
        self,
        near: PeerTable,
        bulk: BulkTransfers,
        downstream: Downstream,
        push: PushContributions,
    ) -> None:
        super().__init__(near, bulk, downstream)
        self._push = push

    # --- down ------------------------------------------------------------------------------------

    def begin(
        self, now: float, stream: NodeStream, message: msg.Down, payload: Payload | None
    ) -> Effects:
        """Root: begin a wave that all members are to answer."""
        if stream.filters.newest is not None:
            stream.filters.use_version(message.wave, message.version, message.confirmed)
        return super().begin(now, stream, message, payload)

    def _begin_wave(self, stream: NodeStream, message: msg.Down, payload: Payload | None) -> Wave:
        return stream.begin(message.wave, message.body, payload, {}, set(stream.roster.members))

    def on_down(
        self, _now: float, stream: NodeStream, message: msg.Down, payload: Payload | None
    ) -> Effects:
        """Junction: pass a wave on, and keep nothing of it."""
        stream.counters.down(message.body, payload)
        if stream.filters.newest is not None:
            stream.filters.use_version(message.wave, message.version, message.confirmed)
        return self._send_down(stream, message, payload)

    def _spread(self, stream: NodeStream, message: msg.Down, payload: Payload | None) -> Effects:
        return self._downstream.pass_on(stream.roster.shares(), message, payload)

    def _send_made(
        self,
        stream: NodeStream,
        wave: Wave | None,
        message: msg.Down,
        payload: Payload | None,
        child: int,
    ) -> Effects:
        del wave
        if child == ALL:
            return self._downstream.pass_on(stream.roster.shares(), message, payload, whole=True)
        return self._downstream.to((child,), message, payload, whole=True)

    def _request(self, _wave: Wave, message: msg.Down, _child: int, ranks: set[int]) -> msg.Down:
        return told(message, ranks)

    def resumed(self, stream: NodeStream) -> Effects:
        """Ask again for what was refused in the quiet time."""
        effects = super().resumed(stream)
        stream.arrivals.refused = {}
        return effects

    def _unheard(self, stream: NodeStream, wave: Wave) -> Collection[int]:
        return tuple(stream.arrivals.refused.get(wave.number, ()))

    # --- up --------------------------------------------------------------------------------------

    def on_up(
        self, link: Link, stream: NodeStream, message: msg.Up, payload: Payload | None
    ) -> Effects:
        """Take one contribution in at the root, or pass it on."""
        self._must_be_of_one(link, message)
        stream.counters.up(message.body, payload)
        if self._near.rank == ROOT:
            if stream.state is StreamState.QUIET:  # from a place that had been away
                stream.arrivals.refused.setdefault(message.wave, set()).add(message.ranks[0][0])
                return []
            if not message.wave:
                return self._take_push(stream, message, payload)
        return self._pass_one_on(stream, message, payload)

    def _must_be_of_one(self, link: Link, message: msg.Up) -> None:
        """Raise ProtocolError unless a contribution is that of one agent at or below a child."""
        ((start, stop),) = message.ranks if len(message.ranks) == 1 else ((0, 0),)
        if stop != start + 1:
            raise ProtocolError(f"rank {link.rank} contributes for no agent, or for several")
        self._must_cover(link, message)

    def _take_push(self, stream: NodeStream, message: msg.Up, payload: Payload | None) -> Effects:
        """Root: what an agent has pushed, the next in order or something else."""
        if not self._push.is_next(stream, message):
            return []
        rank, incarnation = message.ranks[0][0], message.attempt // EPOCH
        begun_again = [
            wave
            for wave in stream.waves.values()
            if wave.lacks(rank) and wave.pushers.setdefault(rank, incarnation) != incarnation
        ]
        effects: Effects = []
        if begun_again:  # their first values were still on their way when the process was lost
            effects += self._fail_generators(stream, begun_again, rank, "its process was replaced")
        effects += self._pass_one_on(stream, message, payload)
        return effects + self._push.told_at_once(stream, rank)

    def agents_lost(
        self, stream: NodeStream, ranks: Iterable[int], reason: str, *, told: bool
    ) -> Effects:
        """Also fail waves whose generators end with their processes; see PlainWaves."""
        effects = super().agents_lost(stream, ranks, reason, told=told)
        for rank in ranks if told and stream.spec.on_loss == msg.REPLACE else ():
            waves = [one for one in stream.waves.values() if rank in one.pushers]
            pushing = [one for one in waves if one.lacks(rank)]
            effects += self._fail_generators(stream, pushing, rank, reason)
        return effects

    def _fail_generators(
        self, stream: NodeStream, waves: Sequence[Wave], rank: int, reason: str
    ) -> Effects:
        """Fail waves for which an agent has pushed values in a process that is gone.

        Another process would start the generator again, and send the same values or others. What
        an agent pushes counts for each wave that it has not answered yet.
        """
        error = AgentLostError(
            f"agent {rank} ended while its generator pushed values: {reason}",
            hint="the values that arrived are valid; broadcast again for others",
        )
        effects: Effects = []
        for wave in waves:
            effects += self._fail_for(stream, wave, rank, error)
        return effects

    def _pass_one_on(self, stream: NodeStream, message: msg.Up, payload: Payload | None) -> Effects:
        if not stream.filters.up or not message.body:
            return stream.filters.outbox.put(self._hand_on(stream, message, payload))
        if message.wave and message.wave not in stream.filters.wave_versions:
            stream.counters.came_twice()  # a wave that is over
            return []
        version = stream.filters.wave_versions.get(message.wave, stream.filters.version)
        return self._filter_one(stream, message, payload, version)

    def complete(self, stream: NodeStream, wave: Wave) -> Effects:
        """Root: end a wave that all have answered."""
        return [] if stream.quiet else self._all_answered(stream, wave)

    def _hand_on(self, stream: NodeStream, message: msg.Up, payload: Payload | None) -> Effects:
        """Send a contribution to the root, or take it in there."""
        if self._near.rank != ROOT:
            return self._send_one_up(stream, message, payload)
        if not message.wave:
            return [self._one_arrived(stream, message, payload)] if message.body else []
        wave = stream.waves.get(message.wave)
        rank = message.ranks[0][0]
        if wave is None or rank not in wave.missing:
            stream.counters.came_twice()
            return _free(payload)
        wave.missing.discard(rank)
        wave.add_rank(message)
        effects: Effects = [self._one_arrived(stream, message, payload)] if message.body else []
        return effects if wave.missing else effects + self._all_answered(stream, wave)

    def _all_answered(self, stream: NodeStream, wave: Wave) -> Effects:
        """Root: tell that all members have answered."""
        del stream.waves[wave.number]
        version = stream.filters.wave_versions.get(wave.number, 0)
        done = ev.WaveCompleted(
            stream.spec.stream, wave.number, None, wave.ranks, wave.weight, version=version
        )
        return [*_free(wave.value.payload), done]

    def _send_one_up(self, stream: NodeStream, message: msg.Up, payload: Payload | None) -> Effects:
        effects: Effects = []
        if payload is not None and payload.owner is not None:
            if message.wave:
                stream.loaned.append((message.wave, payload))
            else:  # nothing confirms it: its memory must not be needed
                effects.append(ev.Released(payload))
                payload = Payload(bytes(payload.view))
        return self._near.to_parent(message, payload) + effects

    def _one_arrived(
        self, stream: NodeStream, message: msg.Up, payload: Payload | None
    ) -> ev.Effect:
        number = stream.spec.stream
        if stream.arrivals.paced and not message.wave:
            stream.arrivals.pushed[message.ranks[0][0]].unread += 1
        return ev.Contributed(
            number, message.wave, message.ranks, message.weight, message.body, payload
        )


def split(router: Router, ranks: Iterable[int]) -> Iterator[tuple[int, set[int]]]:
    """Return the children that lead to ranks at present, each with its ranks."""
    found: dict[int, set[int]] = {}
    for rank in ranks:
        if router.is_below(rank):
            found.setdefault(router.next_hop(rank), set()).add(rank)
    yield from sorted(found.items())


def told(message: msg.Down, ranks: Iterable[int]) -> msg.Down:
    """Return a message that asks for some ranks."""
    return msgspec.structs.replace(message, ranks=to_ranges(ranks))


class Downstream:
    """Sends waves to the children of one place.

    Args:
        near: The neighbours.
        advertise: Tells children of a large value that they cannot map.
    """

    def __init__(self, near: PeerTable, advertise: Advertise) -> None:
        self._near = near
        self._advertise = advertise

    def ask_all(self, shares: Shares, message: msg.Down, payload: Payload | None) -> Effects:
        """Send a wave in its first attempt to all children that lead to members."""
        effects: Effects = []
        if shares.whole:
            effects += self.to(shares.whole, message, payload)
        for child in shares.partly:
            named = msgspec.structs.replace(message, ranks=shares.asks[child][0].ranges)
            effects += self.to((child,), named, payload)
        return effects

    def pass_on(
        self,
        shares: Shares,
        message: msg.Down,
        payload: Payload | None,
        *,
        whole: bool = False,
    ) -> Effects:
        """Send a value down whose answers are not gathered.

        Args:
            shares: The ranks below each child.
            message: The wave.
            payload: Its arrays.
            whole: Whether they travel in one message, because no process keeps them for a fetch.
        """
        if not message.ranks:
            return self.to(shares.concerned, message, payload, whole=whole)
        effects: Effects = []
        for child, ranks in split(self._near.router, from_ranges(message.ranks)):
            effects += self.to((child,), told(message, ranks), payload, whole=whole)
        return effects

    def to(
        self,
        children: Collection[int],
        message: msg.Down,
        payload: Payload | None,
        *,
        whole: bool = False,
    ) -> Effects:
        """Send a wave to the children of a list that are connected."""
        near = self._near
        if payload is not None and payload.nbytes > near.timing.piece and not whole:
            return self._large(children, message, payload)
        links = near.links_to(children)
        return [ev.Transmit(links, message, payload)] if links else []

    def _large(self, children: Collection[int], message: msg.Down, payload: Payload) -> Effects:
        """Send arrays to those that map them; tell the others of them."""
        neighbours = self._near.peers
        there = [child for child in children if child in neighbours]
        sharing = {child for child in there if payload.is_here and neighbours[child].same_machine}
        effects: Effects = []
        if sharing:
            links = self._near.links_to(sorted(sharing))
            effects.append(ev.Transmit(links, message, payload))
        others = [child for child in there if child not in sharing]
        return effects + self._advertise(others, message, payload) if others else effects


def _released(payloads: Iterable[Payload]) -> Effects:
    return [ev.Released(payload) for payload in payloads]


def _free(payload: Payload | None) -> Effects:
    """Release memory that is no longer needed, if there is any."""
    return [ev.Released(payload)] if payload is not None else []


def _copied(payload: Payload | None) -> Payload | None:
    """Return bytes that stay when the memory of whoever made them is used again."""
    return Payload(bytes(payload.view)) if payload is not None else None


def _kept(message: msg.Up, payload: Payload | None) -> Kept:
    ranks = message.ranks
    return Kept(frozenset(from_ranges(ranks)), ranks, message.weight, message.body, payload)


def _rank_of(part: ev.PartialContribution) -> int:
    return part.rank
