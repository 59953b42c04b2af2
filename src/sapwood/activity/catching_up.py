"""What an agent does when waves have passed it: everybody learns what passed, from its bytes.

The last two waves go through the place and the runner's host as if they came now, and what these
then want to send must be, byte for byte, what was sent. Those before them left nothing behind
but counts and messages that are kept for the case that the link breaks: each is confirmed by
a later one, and the memory of its result was given back. So there is one protocol, and one
description of it.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from sapwood.activity.relay_library import Record, RecordKind
from sapwood.code.runner import calls
from sapwood.code.runner.host import RunnerHost
from sapwood.comm import frames
from sapwood.comm import messages as msg
from sapwood.comm.channel import MESSAGE_COST, Buffers
from sapwood.comm.lines import Line
from sapwood.comm.streams.counters import Counters
from sapwood.core.errors import SapwoodError
from sapwood.session.agent import Agent

REPEATED = 2
"""Waves of a journal that are gone through again, all that they leave behind with them."""


class PassedCall(msgspec.Struct, frozen=True, gc=False):
    """A call that passed: when it was asked for and answered, what the runner took, its bytes."""

    asked: float
    answered: float
    seconds: float
    bytes_in: int
    bytes_out: int


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
        """Return the memory that the runner was told it may use again."""
        return calls.decode_call(self.call.data).free if self.call is not None else ()


class CatchingUp:
    """Goes through a journal.

    Args:
        agent: The agent.
        runner: Its runner.
        line: The connection to its parent.
        account: Told of the calls that only count.
        counters: What the agent counts of the stream, if it does.
    """

    def __init__(
        self,
        agent: Agent,
        runner: RunnerHost,
        line: Line,
        account: Callable[[PassedCall], None],
        counters: Counters | None,
    ) -> None:
        self._place = agent.place
        self._loop = agent.loop
        self._runner = runner
        self._line = line
        self._account = account
        self._counters = counters
        self._sent: deque[Record] = deque()

    def learn(self, records: Iterable[Record]) -> None:
        """Let everybody know what passed.

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
        self._line.channel.passed([(went, cost)], len(wave.frame.data))
        if self._counters is not None:
            self._counters.exchanged(wave.frame.amount, 1, (result or wave.frame).amount)
        if result is not None:
            self._runner.number += 1
            asked, answered = wave.frame.time, sent.time
            amounts = wave.frame.amount, result.amount
            self._account(PassedCall(asked, answered, result.seconds, *amounts))

    def _repeat(self, waves: list[PassedWave]) -> None:
        place, runner, loop, channel = self._place, self._runner, self._loop, self._line.channel
        clock, write, call = loop.time, channel.write, runner.write

        def write_again(buffers: list[bytes | memoryview]) -> None:
            sent = self._sent
            if sent and sent[0].data == b"".join(buffers):
                sent.popleft()
            else:
                write(buffers)

        def call_again(data: bytes) -> None:
            sent = self._sent
            if not sent or sent.popleft().data != data:
                raise SapwoodError("a call was relayed that should have been another")

        self._sent = deque(record for wave in waves for record in _sent_in(wave))
        channel.write, runner.write = write_again, call_again
        try:
            for wave in waves:
                loop.time = functools.partial(float, wave.frame.time)
                place.bytes_received(self._line.number, wave.frame.data)
                if wave.result is not None:
                    loop.time = functools.partial(float, wave.result.time)
                    runner.take(wave.result.data)
        finally:
            loop.time, channel.write, runner.write = clock, write, call
        if self._sent:
            raise SapwoodError(f"{len(self._sent)} messages were relayed that should not have been")


def _sent_in(wave: PassedWave) -> Iterable[Record]:
    return [record for record in (wave.call, wave.sent) if record is not None]
