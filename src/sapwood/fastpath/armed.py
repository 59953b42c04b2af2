"""What may be exchanged at present: waves of one stream, and with whom."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from sapwood.comm import messages as msg
from sapwood.comm.driver import NodeDriver
from sapwood.comm.frames import FrameDecoder
from sapwood.comm.links import LinkConnection
from sapwood.comm.payload import Payload
from sapwood.comm.streams.stream import Stream
from sapwood.comm.transport.unix import UnixConnection
from sapwood.fastpath.answers import Answers
from sapwood.fastpath.exchange_library import MAX_FD, MAX_PEERS, ExchangeLibrary
from sapwood.session.shortcut import WaveHandle
from sapwood.session.wave_result import WaveResult

FLOWING = 2
"""Waves that somebody has waited for in a row when the next ones are exchanged."""

PATIENCE = 8
"""Times that nothing was exchanged before something happened, before that is no longer tried."""


class ArmedStream:
    """Waves of a stream may be exchanged.

    Args:
        lines: The connections to the children.
        ticket: What the library knows it by.
        handle: The stream, as users have it.
        stream: The stream, as the root has it.
        answers: Reads the answers of the children.
        calls: The last call of each who has begun a wave.
    """

    __slots__ = ("answers", "calls", "first", "handle", "lines", "stream", "ticket")

    def __init__(
        self,
        lines: tuple[LinkConnection, ...],
        ticket: int,
        handle: WaveHandle,
        stream: Stream,
        answers: Answers,
        calls: Mapping[int, Call],
    ) -> None:
        self.lines = lines
        self.ticket = ticket
        self.handle = handle
        self.stream = stream
        self.first = stream.last_wave + 1
        self.answers = answers
        self.calls = calls

    def go_on(self, owner: int, frame: bytes) -> None:
        """Begin a wave again."""
        (found,) = FrameDecoder().feed(frame)
        assert isinstance(found.message, msg.Down)  # noqa: S101 - as the library has made it
        payload = Payload(found.payload) if found.payload is not None else None
        self.handle.go_on(found.message.body, payload, self.calls[owner].future(self.handle))


class Call:
    """Somebody wants waves; if the event loop goes on with one, a future tells what comes of it.

    Attributes:
        is_over: Whether that has happened: the next wave is another call.
    """

    __slots__ = ("_future", "_lock", "is_over")

    def __init__(self, lock: threading.Lock) -> None:
        self.is_over = False
        self._lock = lock
        self._future: Future[WaveResult] | None = None

    def future(self, handle: WaveHandle) -> Future[WaveResult]:
        """Return the future, which is made when somebody asks for it, on either side."""
        with self._lock:
            if self._future is None:
                self.is_over = True
                self._future = handle.new_future()
                # A wave cannot be taken back; its stream can.
                self._future.set_running_or_notify_cancel()
            return self._future


def arm(
    handle: WaveHandle,
    place: NodeDriver,
    library: ExchangeLibrary,
    last: ArmedStream | None,
    calls: Mapping[int, Call],
) -> ArmedStream | None:
    """Tell the library how things stand; None where waves are to go the common way.

    Args:
        handle: The stream, as users have it.
        place: The root.
        library: What will exchange waves.
        last: What was armed before, which knows what answers look like.
        calls: The last call of each who has begun a wave.
    """
    stream = place.node.streams.get(handle.spec.stream)
    if stream is None or handle.open_waves or stream.waves or stream.sweeps:
        return None
    shares = stream.shares()
    at_rest = stream.passes and not stream.quiet and not stream.detained and shares.whole
    if sum(stop - start for start, stop in handle.spec.members) != len(stream.members):
        return None  # one that the tree does not have is missing in every wave
    if not at_rest or shares.missing or shares.partly or len(shares.whole) > MAX_PEERS:
        return None
    lines, descriptors = lines_to(place, shares.whole)
    if len(lines) < len(shares.whole):
        return None
    channels = [line.channel for line in lines]
    room = min(channel.room for channel in channels)
    budget = min(channel.credit_at - channel.unpaid for channel in channels)
    ranges = tuple(shares.asks[child][0].ranges for child in shares.whole)
    before = (last.handle, last.lines, last.answers.ranges) if last is not None else None
    if last is not None and before == (handle, lines, ranges):
        answers = last.answers
    else:
        answers = Answers(ranges, place.blocks, library)
    number, first = handle.spec.stream, stream.last_wave + 1
    ticket = library.arm(descriptors, room, budget, number, first)
    return ArmedStream(lines, ticket, handle, stream, answers, calls)


def lines_to(
    place: NodeDriver, children: Sequence[int]
) -> tuple[tuple[LinkConnection, ...], list[int]]:
    """Return the connections to children, of those that are at rest, and their descriptors."""
    found: dict[int, tuple[LinkConnection, int]] = {}
    for line in place.links.connections.values():
        channel, connection = line.channel, line.connection
        if (
            channel.ready
            and not channel.queued
            and channel.link.same_machine
            and not channel.link.initiator
            and line.decoder.empty
            and isinstance(connection, UnixConnection)
            and connection.flushed
            and connection.fileno() < MAX_FD
        ):
            found[channel.link.rank] = line, connection.fileno()
    there = [found[child] for child in children if child in found]
    return tuple(line for line, _ in there), [descriptor for _, descriptor in there]
