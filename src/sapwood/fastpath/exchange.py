"""Waves that the waiting thread sends and gathers itself, while the event loop sleeps.

A wave costs the client two changes of threads, and for each child Python twice: once to send,
once to take its answer in. As long as one stream has one wave after the other, all that is not
needed. So the event loop, before it sleeps, lets a library have the connections to the children
(``native/fastpath.c``): the thread that wants a wave sends one frame to all of them and
takes one from each. When anything else happens, and from time to time, the event loop takes
everything back, and replays what passed; a wave that was under way goes through the place as if
its bytes came now, and what the place wants to send must be what was sent. So there is one
protocol, and one description of it.

::

    Reactor.wait -> armed -> sleep ... -> taken back -> replayed -> what happened is dealt with
                      |                     ^
                      +- caller: begin, wait, commit, begin, wait, commit ...
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from operator import add
from time import monotonic, sleep

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm import values
from sapwood.comm.driver import NodeDriver
from sapwood.comm.frames import FrameDecoder
from sapwood.comm.framing import Buffers
from sapwood.comm.link import MESSAGE_COST
from sapwood.comm.links import LinkConnection
from sapwood.comm.payload import Payload
from sapwood.comm.replay import Sent
from sapwood.comm.streams.stream import Counters, NodeStream
from sapwood.core.errors import ResourceError, SapwoodError
from sapwood.environment.cores import usable_cores
from sapwood.environment.logs import logger
from sapwood.fastpath.carriers import SharedSocket, socket_of
from sapwood.fastpath.exchange_library import MAX_FD, MAX_PEERS, READY, ExchangeLibrary
from sapwood.fastpath.gathering import Answers, gather
from sapwood.session.shared_reactor import SharedReactor
from sapwood.session.shortcut import WaveHandle
from sapwood.session.wave_result import WaveResult

_log = logger("fastpath")


FLOWING = 2
"""Consecutive awaited waves after which the next ones are exchanged."""

PATIENCE = 8
"""Times that nothing was exchanged before something happened, before that is no longer tried."""


class ArmedStream:
    """Waves of a stream may be exchanged.

    Args:
        carriers: The connections to the children.
        ticket: What the library knows it by.
        handle: The stream, as users have it.
        stream: The stream, as the root has it.
        answers: Reads the answers of the children.
        calls: The last call of each who has begun a wave.
    """

    __slots__ = ("answers", "calls", "carriers", "first", "handle", "stream", "ticket")

    def __init__(
        self,
        carriers: tuple[LinkConnection, ...],
        ticket: int,
        handle: WaveHandle,
        stream: NodeStream,
        answers: Answers,
        calls: Mapping[int, WaveCall],
    ) -> None:
        self.carriers = carriers
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


class WaveCall:
    """A caller that waits for waves; if the event loop continues with one, a future has its result.

    Attributes:
        is_over: Whether that has happened: the next wave is another call.
    """

    __slots__ = ("_future", "_lock", "is_over")

    def __init__(self, lock: threading.Lock) -> None:
        self.is_over = False
        self._lock = lock
        self._future: Future[WaveResult] | None = None

    def future(self, handle: WaveHandle) -> Future[WaveResult]:
        """Return the future, which is made at its first use, on either side."""
        with self._lock:
            if self._future is None:
                self.is_over = True
                self._future = handle.new_future()
                # A wave cannot be taken back; its stream can.
                self._future.set_running_or_notify_cancel()
            return self._future


def arm(
    handle: WaveHandle,
    driver: NodeDriver,
    library: ExchangeLibrary,
    last: ArmedStream | None,
    calls: Mapping[int, WaveCall],
) -> ArmedStream | None:
    """Tell the library how things stand; None where waves are to go the common way.

    Args:
        handle: The stream, as users have it.
        driver: The driver of the root.
        library: What will exchange waves.
        last: The former wave, which knows the layout of answers.
        calls: The last call of each who has begun a wave.
    """
    stream = driver.node.streams.get(handle.spec.stream)
    if stream is None or handle.open_waves or not stream.at_rest:
        return None
    roster = stream.roster
    if sum(stop - start for start, stop in handle.spec.members) != len(roster.members):
        return None  # one that the tree does not have is missing in every wave
    if roster.members is not roster.named:
        return None  # they are others than at its opening
    shares = roster.shares()
    if not shares.whole or shares.missing or shares.partly or len(shares.whole) > MAX_PEERS:
        return None
    carriers, sockets = carriers_to(driver, shares.whole)
    if len(carriers) < len(shares.whole):
        return None
    channels = [carrier.channel for carrier in carriers]
    room = min(channel.room for channel in channels)
    budget = min(one.credit_at - one.unpaid for one in (channel.incoming for channel in channels))
    ranges = tuple(shares.asks[child][0].ranges for child in shares.whole)
    before = (last.handle, last.carriers, last.answers.ranges) if last is not None else None
    if last is not None and before == (handle, carriers, ranges):
        answers = last.answers
    else:
        answers = Answers(ranges, driver.blocks, library)
    number, first = handle.spec.stream, stream.last_wave + 1
    descriptors = [one.fileno() for one in sockets]
    functions = [one.functions for one in sockets]
    ticket = library.arm(descriptors, room, budget, number, first, functions)
    return ArmedStream(carriers, ticket, handle, stream, answers, calls)


def carriers_to(
    driver: NodeDriver, children: Sequence[int]
) -> tuple[tuple[LinkConnection, ...], list[SharedSocket]]:
    """Return the connections to children, of those that are at rest, and their sockets."""
    found: dict[int, tuple[LinkConnection, SharedSocket]] = {}
    for carrier in driver.links.connections.values():
        link = carrier.channel.link
        socket = None if link.initiator else socket_of(carrier)
        if socket is not None and socket.fileno() < MAX_FD:
            found[link.rank] = carrier, socket
    there = [found[child] for child in children if child in found]
    return tuple(carrier for carrier, _ in there), [socket for _, socket in there]


def replay(library: ExchangeLibrary, driver: NodeDriver, armed: ArmedStream) -> None:
    """Replay what passed since the library was armed, so that everybody knows it.

    Waves that are done have left nothing behind but counts, and frames to be kept for the case
    that a link breaks. One that is under way goes through the place from its beginning; what this
    wants to send must be what was sent, and what the children have answered so far comes to it
    afterwards.

    Args:
        library: The library; it was taken back.
        driver: The driver of the root.
        armed: What it was armed for.

    Raises:
        SapwoodError: Something passed that should not have.
    """
    carriers, peers = armed.carriers, library.memory.peers
    if library.memory.waves:
        _count(library, driver, armed)
    is_under_way = library.memory.frame_size > 0
    if is_under_way:
        _begin_again(library, armed)
    for number, frame in library.aside():
        driver.bytes_received(carriers[number].number, frame)
    if is_under_way:
        for number, carrier in enumerate(carriers):
            if peers[number].got:
                driver.bytes_received(carrier.number, library.answer(number))


def _count(library: ExchangeLibrary, driver: NodeDriver, armed: ArmedStream) -> None:
    """Count the waves that are done."""
    memory = library.memory
    sent: list[tuple[Buffers, int]] = []
    arrived = [0] * len(armed.carriers)
    for wave in library.passed():
        sent.append(([wave.frame], len(wave.frame) + MESSAGE_COST))
        arrived = list(map(add, arrived, wave.sizes))
    for carrier, nbytes in zip(armed.carriers, arrived, strict=True):
        carrier.channel.passed(sent, nbytes)
        carrier.channel.link.last_sent = memory.time
        carrier.channel.link.heard(memory.time)
    driver.post(ev.WavesPassed(armed.stream.spec.stream, len(sent)))
    armed.handle.exchanged(len(sent))


def _begin_again(library: ExchangeLibrary, armed: ArmedStream) -> None:
    """Let the place begin the wave that is under way, of which something was sent.

    The rest of it is sent first: no other message may come between. With TLS these are the bytes
    that were tried, as they must be. A connection is closed if it is unknown what it took; its link
    continues on another one.
    """
    frame, peers = library.under_way(), library.memory.peers
    with ExitStack() as replays:
        for number, carrier in enumerate(armed.carriers):
            sent = peers[number].sent
            if peers[number].tls.lost:
                carrier.connection.abort()
            elif sent < len(frame):
                carrier.connection.write([frame[sent:]])
            replays.enter_context(carrier.channel.replay([Sent(frame, len(frame))]))
        armed.go_on(library.memory.owner, frame)


class WaveExchange:
    """Exchanges the waves of one stream at a time.

    Args:
        loop: The session's event loop.
        inline_limit: Bytes up to which arrays travel in the message.
        spin: Seconds to look for the last answers to a wave before sleeping.

    Attributes:
        passed: Waves that were exchanged so far, as far as the event loop has heard.
        on_flowing: Called once, when waves flow; on the loop's thread.
    """

    def __init__(self, loop: SharedReactor, inline_limit: int, spin: float) -> None:
        self.passed = 0
        self.on_flowing: Callable[[], None] = _nothing
        self._loop = loop
        self._inline_limit = inline_limit
        self._spin = spin
        self._futures = threading.Lock()
        self._armed: ArmedStream | None = None
        self._last: ArmedStream | None = None
        self._calls: dict[int, WaveCall] = {}
        self._candidate: WaveHandle | None = None
        self._in_a_row = 0
        self._in_vain = 0
        # No more than waves that the library takes before the event loop hears of them.
        self._counted: deque[tuple[Counters, int, int, int]] = deque()
        self._done: deque[Callable[[], None]] = deque()
        self._library: ExchangeLibrary | None = None
        self._outer: select.epoll | None = None
        self._driver: NodeDriver | None = None

    # --- any thread ------------------------------------------------------------------------------

    def exchange(
        self,
        handle: WaveHandle,
        encoded: values.Encoded,
        timeout: float | None,
        meanwhile: Callable[[], object],
    ) -> WaveResult | Future[WaveResult] | None:
        """Send a value to all members of a stream and gather their answers, if that can be now.

        Args:
            handle: The stream.
            encoded: The value.
            timeout: Seconds to wait.
            meanwhile: Called when the value is on its way.

        Returns:
            The result; or its future, where the event loop continues with the wave; None where
            nothing was done.
        """
        armed = self._armed
        fits = encoded.nbytes <= self._inline_limit and not self._loop.has_to_do
        if armed is None or armed.handle is not handle or not fits:
            return None
        library = self._library
        assert library is not None  # noqa: S101 - it was armed
        owner = threading.get_ident()
        call = self._calls.get(owner)
        if call is None or call.is_over:
            if library.memory.state != READY:
                return None  # perhaps with an earlier call, which is not to be forgotten
            call = self._calls[owner] = WaveCall(self._futures)
        body, payload = encoded.body, encoded.message_payload()
        try:
            begun = library.begin_wave(owner, armed.ticket, body, len(body), payload, len(payload))
            if not begun:
                return None
            meanwhile()
        except BaseException:
            library.abandon(owner)
            raise
        try:
            end = None if timeout is None else monotonic() + timeout
            result = None
            if begun > 0:
                result = gather(library, handle.spec, armed.answers, armed.first, owner, end)
        except BaseException as error:
            is_own = library.abandon(owner)
            if not isinstance(error, Exception) or (is_own and not isinstance(error, SapwoodError)):
                raise
            result = None  # the event loop says what is wrong with the answers, if anything is
        if result is None:
            future = call.future(handle)
            return future if end is None else future.result(max(0.0, end - monotonic()))
        found, nbytes = result
        if armed.stream.spec.counted:  # the counters are the event loop's
            counters = armed.stream.counters
            self._counted.append((counters, len(body) + len(payload), len(armed.carriers), nbytes))
        return found

    # --- the event loop --------------------------------------------------------------------------

    def start(self, driver: NodeDriver) -> bool:
        """Exchange waves from now on; return whether that can be.

        Args:
            driver: The driver of the root, whose loop waits here from now on.
        """
        if self._library is not None:
            return True
        loop = self._loop
        main = loop.fileno()
        outer = select.epoll()
        try:
            library = self._library = ExchangeLibrary(outer.fileno(), main, loop.bell)
        except ResourceError as error:
            outer.close()
            _log.debug("waves are not exchanged", reason=str(error))
            return False
        # As long as other cores are at work this one is not needed by them.
        library.memory.spare, library.memory.spin = usable_cores() - 1, self._spin
        outer.register(main, select.EPOLLIN)
        outer.register(loop.bell, select.EPOLLIN)  # heard also while a wave is under way
        self._outer, self._driver = outer, driver
        loop.idle_hook = self._wait
        return True

    def close(self) -> None:
        """Exchange no more; called when the loop does not run."""
        self._deliver()
        if self._outer is not None:
            self._outer.close()
            self._outer = None
        self._last = None

    def flows(self) -> None:
        """Record that waves flow, so that the library for them can be loaded."""
        flowing, self.on_flowing = self.on_flowing, _nothing
        flowing()

    def wanted(self, handle: WaveHandle) -> None:
        """Record that a caller waits for the next wave of a stream, which uses the event loop."""
        if handle is self._candidate:
            self._in_a_row += 1
        else:
            self._candidate, self._in_a_row, self._in_vain = handle, 1, 0

    def deliver(self, handle: WaveHandle, future: Future[WaveResult], result: WaveResult) -> None:
        """Give a caller the result of a wave, as soon as the next one can be exchanged."""
        if self._library is not None and handle is self._candidate:
            self._done.append(partial(future.set_result, result))
        else:
            future.set_result(result)

    def _deliver(self) -> None:
        while self._done:
            self._done.popleft()()

    def _wait(self, patience: float) -> list[tuple[int, int]]:
        """Wait as the loop would, and let callers exchange waves meanwhile."""
        library, driver, outer = self._library, self._driver, self._outer
        assert library is not None  # noqa: S101 - start() sets all three
        assert driver is not None  # noqa: S101 - as above
        assert outer is not None  # noqa: S101 - as above
        armed = self._arm(driver, library) if patience else None
        if self._done:
            self._deliver()
            if self._loop.has_to_do:  # callbacks of the results
                patience = 0.0
        if armed is None:
            return self._loop.wait(patience)
        outer.poll(patience)
        if not library.take_back():
            os.eventfd_write(self._loop.bell, 1)  # wakes a thread in the library
            while not library.take_back():
                sleep(0)
        self._armed, self._last = None, armed
        self._note(library.memory.waves)
        replay(library, driver, armed)
        while self._counted:
            counters, *figures = self._counted.popleft()
            counters.exchanged(*figures)
        return self._loop.wait(0)

    def _arm(self, driver: NodeDriver, library: ExchangeLibrary) -> ArmedStream | None:
        """Start to exchange waves."""
        handle = self._candidate if self._in_a_row >= FLOWING else None
        if handle is not None and handle.spec.stream not in driver.node.streams:
            # Closed: bytes that were read of it are dropped, too.
            handle = self._candidate = self._last = None
        if handle is not None:
            self._armed = arm(handle, driver, library, self._last, self._calls)
        return self._armed

    def _note(self, waves: int) -> None:
        """Note how many waves were exchanged while that was possible."""
        self.passed += waves
        self._in_vain = 0 if waves else self._in_vain + 1
        if self._in_vain > PATIENCE:
            self._candidate, self._in_a_row = None, 0


def _nothing() -> None:
    pass
