"""What an agent does when waves have passed it: everybody learns what passed, from its bytes.

The last two waves go through the place and the runner's host as if they came now, and what these
then want to send must be, byte for byte, what was sent. Those before them left nothing behind
but counts and messages that are kept for the case that the link breaks: each is confirmed by
a later one, and the memory of its result was given back. So there is one protocol, and one
description of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sapwood.activity.measure import PassedCall
from sapwood.code.runner import calls
from sapwood.code.runner.host import RunnerHost
from sapwood.comm import frames
from sapwood.comm import messages as msg
from sapwood.comm.frames import Buffers
from sapwood.comm.link import MESSAGE_COST
from sapwood.comm.links import LinkConnection
from sapwood.comm.replay import Sent
from sapwood.comm.streams.stream import Counters
from sapwood.fastpath.relay_library import Record, RecordKind
from sapwood.session.agent import Agent

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
        line: LinkConnection,
        account: Callable[[PassedCall], None],
        counters: Counters | None,
    ) -> None:
        self._place = agent.place
        self._loop = agent.loop
        self._runner = runner
        self._line = line
        self._account = account
        self._counters = counters

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
            self._runner.passed(1)
            asked, answered = wave.frame.time, sent.time
            amounts = wave.frame.amount, result.amount
            self._account(PassedCall(asked, answered, result.seconds, *amounts))

    def _repeat(self, waves: list[PassedWave]) -> None:
        place, runner, loop = self._place, self._runner, self._loop
        answers = [wave.sent.data for wave in waves if wave.sent is not None]
        calls_made = [wave.call.data for wave in waves if wave.call is not None]
        channel = self._line.channel
        try:
            with (
                channel.replay([Sent(data, len(data)) for data in answers]),
                runner.replay(calls_made),
            ):
                for wave in waves:
                    loop.replayed = wave.frame.time
                    place.bytes_received(self._line.number, wave.frame.data)
                    if wave.result is not None:
                        loop.replayed = wave.result.time
                        runner.take(wave.result.data)
        finally:
            loop.replayed = None
