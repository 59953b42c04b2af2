"""Waves that pass an agent without its interpreter, as long as each is like the one before it.

A wave that comes to one of many agents on few cores finds the caches cold: what Python does for
it takes a tenth of the time when it is done again at once. So a library waits in its place
(``native/fastpath.c``), hands waves of one stream to the runner and its results to the parent,
and keeps a journal of all bytes. When anything else happens, and from time to time, Python
replays the journal: the same bytes go through the place and the runner's host as if they came
now, and what these then want to send must be what was sent. So there is one protocol, and one
description of it; the library knows no more of it than what one wave looks like.

::

    Reactor.wait -> arm -> library.wait ... -> replay -> what happened is dealt with
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from sapwood.activity import agent_requests
from sapwood.activity.agent_calls import AgentCalls
from sapwood.activity.measure import PassedCall
from sapwood.code.runner import calls as runner_calls
from sapwood.code.runner.leases import Lease
from sapwood.code.runner.runner_host import RunnerHost
from sapwood.comm import frames
from sapwood.comm import messages as msg
from sapwood.comm.framing import Buffers
from sapwood.comm.link import MESSAGE_COST
from sapwood.comm.links import LinkConnection
from sapwood.comm.replay import Sent
from sapwood.comm.streams.stream import Counters, NodeStream
from sapwood.fastpath.carriers import socket_of
from sapwood.fastpath.relay_library import (
    MAX_BLOCKS,
    MAX_NAMES,
    Block,
    KeptBlock,
    Record,
    RecordKind,
    RelayLibrary,
)
from sapwood.session.agent import Agent, Contribution

FLOWING = 2
"""Waves that a stream has had in a row when its next ones are relayed."""

PATIENCE = 8
"""Times that the library has nothing to relay before its stream no longer counts as flowing."""

ECHO = "echo"
"""Handler of a stream whose agents answer what they get."""

REPEATED = 2
"""Waves of a journal that are gone through again, all that they leave behind with them."""


class PassedWave:
    """The records of a wave, in order; of the last one, the answer may be missing."""

    __slots__ = ("call", "frame", "result", "sent")

    def __init__(self, frame: Record) -> None:
        self.frame = frame
        self.call: Record | None = None
        self.result: Record | None = None
        self.sent: Record | None = None

    def add(self, record: Record) -> None:
        """Take one more record in."""
        if record.kind is RecordKind.CALL_OUT:
            self.call = record
        elif record.kind is RecordKind.RESULT_IN:
            self.result = record
        else:
            self.sent = record

    def down(self) -> msg.Down:
        """Return the message that asked for it."""
        (frame,) = frames.FrameDecoder().feed(self.frame.data)
        assert isinstance(frame.message, msg.Down)  # noqa: S101 - the library takes no other
        return frame.message

    def free(self) -> tuple[int, ...]:
        """Return the memory that the runner may reuse."""
        return runner_calls.decode_call(self.call.data).free if self.call is not None else ()


class JournalReplay:
    """Replays a journal: everybody learns what passed, from its bytes.

    The last two waves go through the place and the runner's host as if they came now, and what
    these then want to send must be, byte for byte, what was sent. Those before them left nothing
    behind but counts and messages that are kept for the case that the link breaks: each is
    confirmed by a later one, and the memory of its result was given back.

    Args:
        agent: The agent.
        runner: Its runner.
        carrier: The connection to its parent.
        account: Told of the calls that only count.
        counters: What the agent counts of the stream.
    """

    def __init__(
        self,
        agent: Agent,
        runner: RunnerHost,
        carrier: LinkConnection,
        account: Callable[[PassedCall], None],
        counters: Counters,
    ) -> None:
        self._driver = agent.driver
        self._loop = agent.loop
        self._runner = runner
        self._carrier = carrier
        self._account = account
        self._counters = counters

    def replay(self, records: Iterable[Record]) -> None:
        """Replay what passed, so that everybody knows it.

        Raises:
            SapwoodError: Something passed that should not have.
        """
        waves: list[PassedWave] = []
        for record in records:
            if record.kind is RecordKind.FRAME_IN:
                waves.append(PassedWave(record))
            else:
                waves[-1].add(record)
        done = len(waves) - REPEATED
        if done > 0 and self._leaves_nothing(waves, done):
            for wave in waves[:done]:
                self._count(wave)
            del waves[:done]
        self._repeat(waves)

    def _leaves_nothing(self, waves: list[PassedWave], done: int) -> bool:
        """Whether nothing is left of the first waves but what :meth:`_count` does."""
        confirmed = waves[done].down().confirmed >= waves[done - 1].down().wave
        return confirmed and waves[0].free() == waves[done].free()

    def _count(self, wave: PassedWave) -> None:
        sent, result = wave.sent, wave.result
        assert sent is not None  # noqa: S101 - only the last wave can be without an answer
        went: Buffers = [sent.data]
        cost = len(sent.data) + MESSAGE_COST
        self._carrier.channel.passed([(went, cost)], len(wave.frame.data))
        self._counters.exchanged(wave.frame.amount, 1, (result or wave.frame).amount)
        if result is not None:
            self._runner.passed(1)
            asked, answered = wave.frame.time, sent.time
            amounts = wave.frame.amount, result.amount
            self._account(PassedCall(asked, answered, result.seconds, *amounts))

    def _repeat(self, waves: list[PassedWave]) -> None:
        driver, runner, loop = self._driver, self._runner, self._loop
        answers = [wave.sent.data for wave in waves if wave.sent is not None]
        calls_made = [wave.call.data for wave in waves if wave.call is not None]
        channel = self._carrier.channel
        try:
            with (
                channel.replay([Sent(data, len(data)) for data in answers]),
                runner.replay(calls_made),
            ):
                for wave in waves:
                    loop.replayed = wave.frame.time
                    driver.bytes_received(self._carrier.number, wave.frame.data)
                    if wave.result is not None:
                        loop.replayed = wave.result.time
                        runner.take(wave.result.data)
        finally:
            loop.replayed = None


class Relay:
    """Lets the waves of one stream at a time pass.

    Args:
        agent: The agent; its loop waits here from now on.
        runner: Its runner.
        calls: What it has its runner do.

    Attributes:
        passed: Waves that were relayed, by the context of their stream.

    Raises:
        ResourceError: The library is missing.
    """

    def __init__(self, agent: Agent, runner: RunnerHost, calls: AgentCalls) -> None:
        self.passed: Counter[str] = Counter()
        self._library = RelayLibrary()
        self._agent = agent
        self._runner = runner
        self._calls = calls
        self._stream = 0
        self._in_a_row = 0
        self._in_vain = 0
        memory = self._library.memory
        memory.epoll_fd = agent.loop.fileno()
        memory.rank, memory.pid = agent.rank, os.getpid()
        for handler in (ECHO, agent_requests.MAP, agent_requests.CALL):
            agent.waves[handler] = self._noting(agent.waves[handler])
        agent.loop.idle_hook = self._wait

    def _noting(self, handle: Callable[[Contribution], None]) -> Callable[[Contribution], None]:
        def noted(contribution: Contribution) -> None:
            stream = contribution.arrived.spec.stream
            if stream == self._stream:
                self._in_a_row += 1
            else:
                self._stream, self._in_a_row, self._in_vain = stream, 1, 0
            handle(contribution)

        return noted

    def _wait(self, patience: float) -> list[tuple[int, int]]:
        """Wait as the loop would, and relay meanwhile."""
        carrier = self._armed() if self._in_a_row >= FLOWING else None
        if carrier is None:
            return self._agent.loop.wait(patience)
        library = self._library
        try:
            library.wait(-1 if patience < 0 else int(patience * 1000) + 1)
        finally:
            self._catch_up(carrier)
        return library.events()

    def _catch_up(self, carrier: LinkConnection) -> None:
        """Learn of what passed, and continue with what did not."""
        library, memory = self._library, self._library.memory
        if memory.tls.lost:  # unknown what the connection took: its link continues on another one
            carrier.connection.abort()
        elif memory.unsent:  # before anything else is written
            carrier.connection.write([library.unsent()])
        if memory.journal_size:
            self._in_vain = 0
            self._replay(carrier)
        elif memory.frame_left or memory.result_left:
            self._in_vain += 1
            if self._in_vain > PATIENCE:
                self._in_a_row = 0
        if memory.result_left:
            self._runner.take(library.result_left())
        if memory.frame_left:
            self._agent.driver.bytes_received(carrier.number, library.frames_left())

    def _replay(self, carrier: LinkConnection) -> None:
        """Replay what passed, so that everybody knows it."""
        stream = self._agent.driver.node.streams[self._stream]
        context, counters = stream.spec.context, stream.counters
        self.passed[context] += self._library.memory.waves
        counters.passed(self._library.memory.waves)
        account = partial(self._calls.passed, context)
        journal = JournalReplay(self._agent, self._runner, carrier, account, counters)
        journal.replay(self._library.records())

    # --- before ----------------------------------------------------------------------------------

    def _armed(self) -> LinkConnection | None:
        """Tell the library how things stand; None where it could not know all that matters."""
        driver = self._agent.driver
        stream = driver.node.streams.get(self._stream)
        carrier = self._carrier_to_parent()
        if stream is None or carrier is None or not stream.at_rest:
            return None
        memory = self._library.memory
        memory.stream = stream.spec.stream
        memory.last_wave = max(stream.kept, default=stream.confirmed_to)
        memory.confirmed = stream.confirmed_to
        memory.room = carrier.channel.room
        memory.n_kept = memory.n_free = memory.n_blocks = 0
        if stream.spec.handler != ECHO:
            return carrier if self._runner_is_known(stream) else None
        memory.runner_fd, memory.weight = -1, 1.0
        return carrier

    def _carrier_to_parent(self) -> LinkConnection | None:
        driver = self._agent.driver
        parent = driver.node.router.parent
        for carrier in driver.links.connections.values():
            link = carrier.channel.link
            if link.rank == parent and link.initiator:
                socket = socket_of(carrier)
                if socket is not None:
                    self._library.use(socket.fileno(), socket.functions)
                    return carrier
        return None

    def _runner_is_known(self, stream: NodeStream) -> bool:
        call = self._calls.steady(stream.spec)
        if call is None:
            return False
        runner, memory = self._runner, self._library.memory
        socket = runner.resting(call.context)
        if socket < 0:
            return False
        names = msgspec.msgpack.encode(call.procedure) + msgspec.msgpack.encode(call.context)
        opened, returned = runner.leases.opened, runner.leases.returned
        kept = [
            (wave, one.payload.owner)
            for wave, several in stream.kept.items()
            for one in several
            if one.payload is not None and isinstance(one.payload.owner, Lease)
        ]
        foreign = any(lease.runner != runner.pid for _, lease in kept)
        if foreign or len(names) > MAX_NAMES or len(kept) + len(returned) > MAX_BLOCKS - 1:
            return False
        memory.runner_fd, memory.weight = socket, call.weight
        memory.number = runner.number
        memory.names_size = len(names)
        memory.names[: len(names)] = names
        for index, (inode, fd) in enumerate(list(opened.items())[-MAX_BLOCKS:]):
            memory.blocks[index] = Block(inode, fd)
        memory.n_blocks = min(len(opened), MAX_BLOCKS)
        for index, (wave, lease) in enumerate(kept):
            memory.kept[index] = KeptBlock(wave, lease.inode)
        memory.n_kept = len(kept)
        for index, inode in enumerate(returned):
            memory.free[index] = inode
        memory.n_free = len(returned)
        return True
