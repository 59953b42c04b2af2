"""The detached buffer of a session server: output and answers while no client is attached. No I/O.

The buffer is sent to the next client, and kept until the client confirms that it has
it. If it is gone before, the one after it gets the same. So a connection that breaks while
a client attaches loses nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.messages import NO_WAIT, StreamSpec
from sapwood.comm.payload import Payload
from sapwood.environment.settings import DisconnectPolicy
from sapwood.session_server import wire

EFFECT_COST = 256
"""Bytes that a kept result costs beyond its own."""


class KeptOutput:
    """Output of agents without an attached client: the last of it, and the size of the rest.

    Args:
        limit: Bytes that are kept of each agent.

    Attributes:
        dropped: Bytes that were left out, by agent.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: dict[int, deque[bytes]] = {}
        self._sizes: dict[int, int] = {}
        self.dropped: dict[int, int] = {}
        self._handed: dict[int, tuple[dict[int, deque[bytes]], dict[int, int]]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes that are kept."""
        return sum(self._sizes.values())

    def add(self, rank: int, data: bytes) -> None:
        """Keep what a place has printed, and drop what is older if that is too much."""
        kept = data[-self._limit :] if self._limit else b""
        parts = self._parts.setdefault(rank, deque())
        if kept:
            parts.append(kept)
        self._sizes[rank] = self._sizes.get(rank, 0) + len(kept)
        self._trim(rank, len(data) - len(kept))

    def change(self, limit: int) -> None:
        """Keep another number of bytes of each agent from now on."""
        self._limit = limit
        for rank in self._parts:
            self._trim(rank, 0)

    def take(self, client: int) -> Iterable[msgspec.Struct]:
        """Hand it over to a client as messages; see :meth:`taken` and :meth:`given_back`."""
        parts, dropped = self._parts, self.dropped
        self._parts, self._sizes, self.dropped = {}, {}, {}
        self._handed[client] = parts, dropped
        if dropped:
            yield wire.OutputDropped(dropped)
        for rank, several in sorted(parts.items()):
            if several:
                yield wire.PlaceWrote(rank, b"".join(several))

    def taken(self, client: int) -> None:
        """Forget what a client has by now."""
        self._handed.pop(client, None)

    def given_back(self, client: int) -> None:
        """Keep again what a client was given and never had: it is older than all the rest."""
        parts, dropped = self._handed.pop(client, ({}, {}))
        for rank, lost in dropped.items():
            self.dropped[rank] = self.dropped.get(rank, 0) + lost
        for rank, several in parts.items():
            newer = self._parts.setdefault(rank, deque())
            newer.extendleft(reversed(several))
            self._sizes[rank] = self._sizes.get(rank, 0) + sum(map(len, several))
            self._trim(rank, 0)

    def _trim(self, rank: int, lost: int) -> None:
        parts = self._parts[rank]
        while self._sizes[rank] > self._limit:
            oldest = len(parts.popleft())
            self._sizes[rank] -= oldest
            lost += oldest
        if lost:
            self.dropped[rank] = self.dropped.get(rank, 0) + lost


class ServedStream:
    """A stream that a client has opened.

    A paced stream needs reports of reads. The server sends them itself for values that it
    keeps (``owed``), and for what was on its way to a client that is gone (``unread``).

    Attributes:
        number: What the server calls it.
        spec: What it is, under the client's number.
        paced: Whether agents push no faster than the client reads.
        begun: Waves that were broadcast.
        waiting: Those that are not over.
        owed: What the client will read and the server has read before, by agent.
        unread: What the client got and has not read, by agent.
    """

    __slots__ = ("begun", "number", "owed", "paced", "spec", "unread", "waiting")

    def __init__(self, number: int, spec: StreamSpec, *, paced: bool) -> None:
        self.number = number
        self.spec = spec
        self.paced = paced
        self.begun = 0
        self.waiting: set[int] = set()
        self.owed: Counter[int] = Counter()
        self.unread: Counter[int] = Counter()

    def over(self, effect: Any) -> None:
        """Note that a wave is over, if that is what happened."""
        if isinstance(effect, ev.WaveCompleted | ev.WaveFailed):
            self.waiting.discard(effect.wave)

    def source_of(self, effect: Any) -> int:
        """Return the agent that waits until this is read; 0 for none."""
        return effect.ranks[0][0] if self.paced and _is_pushed(effect) else 0

    def record(self, effect: Any, *, read: bool = False) -> None:
        """Record what is sent to the client; ``read`` says whether the root has read it before."""
        source = self.source_of(effect)
        if source:
            (self.owed if read else self.unread)[source] += 1

    def read(self, rank: int, count: int) -> int:
        """Note that the client has read; return of how much the core is to know."""
        owed = min(self.owed[rank], count)
        self.owed[rank] -= owed
        self.unread[rank] = max(0, self.unread[rank] - (count - owed))
        return count - owed

    def left(self) -> Mapping[int, int]:
        """Return what the client got and has not read, by agent; it is gone."""
        unread = +self.unread
        self.owed.clear()
        self.unread.clear()
        return unread


class _Kept(msgspec.Struct):
    """Something that came of a stream.

    Attributes:
        effect: The result.
        nbytes: What it costs.
        read: Whether the server has said that it was read.
    """

    effect: Any
    nbytes: int
    read: bool = False


class KeptResults:
    """The last results of a stream without an owner.

    Attributes:
        kept: It, in order.
        nbytes: What it costs.
        dropped: How much was left out.
    """

    def __init__(self) -> None:
        self.kept: deque[_Kept] = deque()
        self.nbytes = 0
        self.dropped = 0


class KeptStreams:
    """The streams of a session without an owner, and their results.

    Args:
        keeping: How much of it is kept.
        post: Gives the core of the server an event.

    Attributes:
        streams: The streams without an owner, by the number that their last owner gave them.
    """

    def __init__(self, keeping: DisconnectPolicy, post: Callable[[ev.Event], None]) -> None:
        self._keeping = keeping
        self._post = post
        self.streams: dict[int, ServedStream] = {}
        self._results: dict[int, KeptResults] = {}
        self._handed: dict[int, ServedStream] = {}

    @property
    def nbytes(self) -> int:
        """Bytes that are kept."""
        return sum(one.nbytes for one in self._results.values())

    @property
    def dropped(self) -> int:
        """How many undelivered results were dropped."""
        return sum(one.dropped for one in self._results.values())

    def change(self, keeping: DisconnectPolicy) -> None:
        """Act by another policy from now on, also with what is kept.

        Agents that wait after a push continue if they need not wait any more.
        """
        self._keeping = keeping
        for mine, stream in self.streams.items():
            for one in self._results[mine].kept:
                self._read_by_root(stream, one)
            self._leave_out(stream, self._results[mine])

    def take(self, streams: Mapping[int, ServedStream]) -> None:
        """Take over the streams of an owner that is gone, with what it was given and never had."""
        for mine, stream in streams.items():
            self.streams[mine] = stream
            if mine not in self._handed:
                self._results[mine] = KeptResults()
            again = list(self._results[mine].kept)
            unread = Counter(stream.source_of(one.effect) for one in again if not one.read)
            for rank, count in stream.left().items():
                if count > unread[rank]:  # it was on its way to the owner, and will not be read
                    self._post(ev.Read(stream.number, rank, count - unread[rank]))
            for one in again:
                self._read_by_root(stream, one)
        for mine in set(self._handed) - set(streams):
            del self._results[mine]  # the owner had closed it
        self._handed = {}

    def hand_over(self) -> tuple[wire.StreamsKept, list[Any]]:
        """Return what the next owner is to know, and what came meanwhile; see :meth:`taken`."""
        streams, effects = [], []
        for mine, stream in sorted(self.streams.items()):
            kept = self._results[mine]
            waves = {one.effect.wave for one in kept.kept}
            waiting = stream.waiting if stream.spec.sync.kind == NO_WAIT else stream.waiting | waves
            streams.append(
                wire.KeptStream(
                    spec=stream.spec,
                    paced=stream.paced,
                    begun=stream.begun,
                    waiting=tuple(sorted(waiting)),
                    dropped=kept.dropped,
                )
            )
            for one in kept.kept:
                stream.record(one.effect, read=one.read)
                effects.append(one.effect)
        self._handed, self.streams = self.streams, {}
        return wire.StreamsKept(tuple(streams)), effects

    def taken(self) -> None:
        """Forget what was handed over: the new owner has it."""
        for mine in self._handed:
            del self._results[mine]
        self._handed = {}

    def also_deliver(self, mine: int, effect: Any) -> None:
        """Keep results for the new owner until it confirms the rest."""
        stream = self._handed.get(mine)
        if stream is not None and _is_kept(stream, effect):
            self._add(self._results[mine], effect)
            self._trim(stream, self._results[mine])

    def was_read(self, mine: int, rank: int, count: int) -> None:
        """Forget what the new owner has read before it says that it has the rest."""
        stream = self._handed.get(mine)
        if stream is None:
            return
        results = self._results[mine]
        for one in [one for one in results.kept if stream.source_of(one.effect) == rank][:count]:
            results.kept.remove(one)
            results.nbytes -= one.nbytes

    def refused(self, effect: Any) -> None:
        """Handle a sweep whose requester is gone."""

    def served(self, stream: int) -> ServedStream:
        """Return a stream, by the number that its last owner gave it."""
        return self.streams[stream]

    def hear(self, stream: int, effect: Any) -> None:
        """Keep results of a stream by the policy; count dropped ones."""
        served, results = self.streams[stream], self._results[stream]
        served.over(effect)
        if not _is_kept(served, effect):
            return
        self._read_by_root(served, self._add(results, effect))
        self._leave_out(served, results)

    def _add(self, results: KeptResults, effect: Any) -> _Kept:
        if isinstance(effect, ev.WaveCompleted) and not effect.body and effect.total is not None:
            encoded = values.encode(effect.total)
            payload = Payload(bytes(encoded.payload())) if encoded.nbytes else None
            effect = msgspec.structs.replace(effect, total=None, body=encoded.body, payload=payload)
        elif getattr(effect, "payload", None) is not None:
            effect = msgspec.structs.replace(effect, payload=_own(effect.payload))
        nbytes = EFFECT_COST + len(getattr(effect, "body", b""))
        nbytes += effect.payload.nbytes if getattr(effect, "payload", None) is not None else 0
        kept = _Kept(effect, nbytes)
        results.kept.append(kept)
        results.nbytes += nbytes
        return kept

    def _read_by_root(self, stream: ServedStream, kept: _Kept) -> None:
        """Let the agent of a waiting value continue, unless the policy makes it wait."""
        source = stream.source_of(kept.effect)
        if source and not kept.read and self._keeping.output != "block":
            kept.read = True
            self._post(ev.Read(stream.number, source, 1))

    def _leave_out(self, stream: ServedStream, results: KeptResults) -> None:
        """Drop the oldest results beyond the bound."""
        for one in self._trim(stream, results) if results.kept else ():
            if not one.read and (source := stream.source_of(one.effect)):
                self._post(ev.Read(stream.number, source, 1))

    def _trim(self, stream: ServedStream, results: KeptResults) -> list[_Kept]:
        """Drop what is too much, and return it."""
        limit, fewest = self._keeping.buffer, 1
        if self._keeping.output == "drop":
            limit, fewest = 0, 0
        elif self._keeping.output == "block" and (
            stream.paced or not _is_pushed(results.kept[-1].effect)
        ):
            return []  # its agents send no more than there is room for, and waves were asked for
        dropped = []
        while results.nbytes > limit and len(results.kept) > fewest:
            dropped.append(results.kept.popleft())
            results.nbytes -= dropped[-1].nbytes
            results.dropped += 1
        return dropped


def _is_kept(stream: ServedStream, effect: Any) -> bool:
    """Whether a result is for the next owner; some only say to the last one what it has asked."""
    if isinstance(effect, ev.WaveCompleted):
        # Without waiting it only says that the agents are done: what they have sent came before.
        return stream.spec.sync.kind != NO_WAIT
    return not isinstance(effect, ev.SweepDone)


def _is_pushed(effect: Any) -> bool:
    """Whether an agent has sent this of itself."""
    return isinstance(effect, ev.Contributed) and not effect.wave


def _own(payload: Payload) -> Payload:
    return Payload(bytes(payload.view))
