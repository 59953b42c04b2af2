"""Speculative execution: others map the items of a late agent, and the first answer counts."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

import msgspec

from sapwood.activity import agent_requests
from sapwood.activity.delegation import (
    DelegationOptions,
    Rates,
    SpeculativeRange,
    Substitute,
    late,
    late_at,
)
from sapwood.activity.run_record import LateChunk, RunRecorder
from sapwood.comm import plain, values
from sapwood.comm.reduction import Accumulator
from sapwood.core.errors import SapwoodError
from sapwood.core.futures import when_done
from sapwood.environment.logs import logger
from sapwood.session.interface import RequestFuture, SessionInterface

ANSWER_TIME = 0.1
"""Seconds that agents get to answer before what is known of them counts."""

DIVISIBLE = frozenset({"sum", "min", "max"})
"""Reductions of which several agents' answers for the items of one can be put together."""

MakeOrder = Callable[[int, range], agent_requests.OpenRun]
"""Returns what an agent needs to open some items: ``order(rank, items)``."""

_log = logger("activity")


def _no_order(_rank: int, _items: range) -> agent_requests.OpenRun:
    raise SapwoodError("the run has not begun")


class WatchedCut(msgspec.Struct, frozen=True, kw_only=True):
    """Which agent has which items, from one cut to the next.

    Attributes:
        run: The context of the stream.
        given: What each agent has.
        after: The iteration before the first wave of the stream.
        order: Returns what an agent needs to open some items.
        planned: Iterations that are planned.
        chunk: Items that stay together.
    """

    run: str = ""
    given: dict[int, range] = {}
    after: int = 0
    order: MakeOrder = _no_order
    planned: int | None = None
    chunk: int = 1


class CurrentWave(msgspec.Struct, frozen=True, gc=False):
    """The wave that a run waits for: its number in the stream, its state, when it was sent."""

    number: int
    state: Any
    sent: float


class Help(msgspec.Struct, eq=False):
    """What others do for a late agent in one wave.

    Attributes:
        wave: The wave.
        sent: When that was sent.
        rank: The late agent.
        items: How many items it has.
        substitute: Collects the answers.
        asked: The requests to the others.
        notes: Their numbers in the record.
        result: What stands for all items, once it is there.
        delivery: The request that tells the late agent of it.
        settled: Whether that has said which answer was first.
    """

    wave: int
    sent: float
    rank: int
    items: int
    substitute: Substitute[Any]
    asked: dict[int, RequestFuture] = {}
    notes: list[int] = []
    result: Any = None
    delivery: RequestFuture | None = None
    settled: bool = False


class Speculation:
    """Has the items of late agents mapped by others; the threads of run and watch use it.

    Args:
        session: Where the agents live.
        recorder: Gets what they do.
        options: How items are given to agents.
        reduce: The named reduction of each field of the program.
        own: Whether code of the program puts results together, so that nothing here can.
        helped: Whether others may map the items of a late agent.
        hurry: Set when the watch is to look again at once.

    Attributes:
        rates: What agents were measured to do.
        helping: Whether some map the items of others in this wave.
        helped_last: Whether some did so in the last wave.
    """

    def __init__(
        self,
        session: SessionInterface,
        recorder: RunRecorder,
        options: DelegationOptions,
        reduce: Mapping[str, str],
        *,
        own: bool,
        helped: bool,
        hurry: threading.Event,
    ) -> None:
        self.rates = Rates()
        self.helping = False
        self.helped_last = False
        self._session = session
        self._recorder = recorder
        self._options = options
        self._reduce = dict(reduce)
        self._divisible = not own and set(reduce.values()) <= DIVISIBLE
        self._helped = helped
        self._hurry = hurry
        self._lock = threading.RLock()
        self._cut = WatchedCut()
        self._began = 0.0
        self._wave: CurrentWave | None = None
        self._help: dict[int, Help] = {}

    def begin(self, cut: WatchedCut, began: float) -> None:
        """Look after the agents of a cut.

        Args:
            cut: The items of each agent.
            began: When the run began, by ``time.perf_counter``.
        """
        self._cut, self._began = cut, began
        self._wave = None

    def end(self) -> None:
        """The stream of the cut is over."""
        self._wave = None

    def wave_begins(self, iteration: int, state: Any, now: float) -> None:
        """Note which wave the run waits for from now on."""
        self.helped_last = False
        self._wave = CurrentWave(iteration - self._cut.after, state, now)

    def wave_over(self) -> None:
        """What others do for late agents is not needed any more."""
        with self._lock:
            over, self._help = list(self._help.values()), {}
            self.helping = False
            for one in over:
                one.substitute.failed()
            self.helped_last |= bool(over)
        # The slow agents are known before items may be cut again.
        wait([one.delivery for one in over if one.delivery is not None], ANSWER_TIME)
        for one in over:
            if one.delivery is not None and one.delivery.done():
                self._delivered(one, one.delivery)
            self._end_help(one)

    def seconds_until_late(self) -> float:
        """Return when an agent may be late in this wave: 0 if it may be by now."""
        wave = self._wave
        if wave is None or not self._helped:
            return math.inf
        limit = late_at(
            self._cut.given, self.rates.at_least(sorted(self._cut.given)), self._options
        )
        return max(0.0, wave.sent + limit - time.perf_counter())

    def see_to(self, pulses: Mapping[int, agent_requests.Pulse]) -> None:
        """Have late agents helped.

        Args:
            pulses: What each agent has said last.
        """
        wave = self._wave
        if wave is None or not self._helped:
            return
        over = time.perf_counter() - wave.sent
        if over < self._options.late_after:
            return
        with self._lock:
            helps = list(self._help.values())
            known = set(self._help)
            idle = {
                rank
                for rank, pulse in pulses.items()
                if pulse.wave == wave.number and pulse.busy < 0
            }
            helping = {
                rank for one in helps for rank, future in one.asked.items() if not future.done()
            }
        for one in helps:
            if one.result is not None and one.delivery is None:
                self._deliver(one)
        rates = self.rates.at_least(sorted(self._cut.given))
        while self._wave is wave:
            given = {
                rank: part
                for rank, part in self._cut.given.items()
                if rank not in known and (rank not in helping or rank not in idle)
            }
            busy = {rank: over for rank in given if rank not in idle}
            found = late(given, busy, rates, self._options, divisible=self._divisible)
            if found is None:
                return
            self._have_helped(wave, *found)
            known.add(found[0])
            helping |= {piece.by for piece in found[1]}

    def _have_helped(
        self, wave: CurrentWave, rank: int, pieces: Sequence[SpeculativeRange], reason: str
    ) -> None:
        """Have others map the items of a late agent."""
        merge = partial(_merged, self._reduce)
        one = Help(
            wave.number, wave.sent, rank, len(self._cut.given[rank]), Substitute(pieces, merge)
        )
        try:
            state = values.encode(wave.state)
        except Exception as error:  # noqa: BLE001 - the program may change it when the wave is over
            _log.debug("state not encoded", run=self._cut.run, reason=str(error))
            return
        orders = [
            (piece, self._cut.order(piece.by, range(piece.start, piece.stop))) for piece in pieces
        ]
        with self._lock:
            if self._wave is not wave:
                return
            self._help[rank] = one
            self.helping = True
        for piece, order in orders:
            if one.substitute.over:  # the wave ended, or one of them has failed already
                break
            chunk = LateChunk(
                at=time.perf_counter() - self._began,
                iteration=self._cut.after + wave.number,
                agent=rank,
                by=piece.by,
                start=piece.start,
                stop=piece.stop,
                outcome="running",
                reason=reason,
            )
            note = self._recorder.late(chunk)
            body = plain.encode(
                msgspec.to_builtins(
                    agent_requests.HelpRun(order, state.body), builtin_types=(bytes,)
                )
            )
            future = self._session.ask_encoded(piece.by, agent_requests.HELP, body, state)
            with self._lock:
                one.notes.append(note)
                one.asked[piece.by] = future
            when_done(future, partial(self._mapped, one, piece))
        _log.info("late agent helped", run=self._cut.run, agent=rank, by=len(pieces), reason=reason)
        if self._wave is not wave:
            self.wave_over()
        with self._lock:
            ended = rank not in self._help
        if ended:
            self._end_help(one)  # requests after that

    def _end_help(self, one: Help) -> None:
        """Let the others leave what they do for a late agent."""
        with self._lock:
            asked, notes = list(one.asked.values()), list(one.notes)
        for future in asked:
            if not future.done():
                self._session.withdraw(future)
        for note in notes:
            self._recorder.late_over(note, "late")

    def _mapped(self, one: Help, piece: SpeculativeRange, done: Future[Any]) -> None:
        """Another agent has mapped items of a late one, or cannot; on any thread."""
        self._hurry.set()  # it may map items of another one now
        with self._lock:
            if one.substitute.over:
                return
            if done.cancelled() or done.exception() is not None:
                one.substitute.failed()
                for note in one.notes:
                    self._recorder.late_over(note, "failed")
                return
            one.result = one.substitute.answered(piece, done.result())
        if one.result is not None:
            try:
                self._deliver(one)
            except SapwoodError as error:
                _log.debug("not delivered", run=self._cut.run, agent=one.rank, reason=error.what)

    def _deliver(self, one: Help) -> None:
        encoded = values.encode(one.result)
        order = agent_requests.DeliverRun(self._cut.run, one.wave, encoded.body)
        body = plain.encode(msgspec.to_builtins(order, builtin_types=(bytes,)))
        one.delivery = self._session.ask_encoded(one.rank, agent_requests.DELIVER, body, encoded)
        when_done(one.delivery, partial(self._delivered, one))

    def _delivered(self, one: Help, done: Future[Any]) -> None:
        """A late agent has said which answer was first; what it says is taken in once."""
        failed = done.cancelled() or done.exception() is not None
        answer = agent_requests.NOT_WANTED if failed else done.result()
        with self._lock:
            if one.settled or one.delivery is not done:
                return
            if answer == agent_requests.NOT_WANTED:
                one.delivery = None  # a new process may not have the wave yet: it is tried again
                return
            one.settled = True
        if answer == agent_requests.USED:
            # It would have taken longer, perhaps twice as long: an agent that is always helped
            # must be known as slow, too.
            self.rates.note(one.rank, one.items, 2 * (time.perf_counter() - one.sent))
        for note in one.notes:
            self._recorder.late_over(note, "used" if answer == agent_requests.USED else "late")


def _merged(reduce: Mapping[str, str], results: Sequence[Any]) -> Any:
    """Put the results of the parts of one slice together, as a junction does."""
    if len(results) == 1:
        return results[0]
    together = Accumulator(reduce)
    for rank, result in enumerate(results, start=1):
        together.add(result, rank, 1.0)
    return together.partial()
