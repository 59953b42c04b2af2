"""Polls the agents of a run, and moves work to where it is done fastest.

It is a separate thread beside the run's, so that iterations take no longer for it, and it
asks seldom enough to cost next to nothing. What agents say goes into the record of the run, and
to :mod:`sapwood.activity.delegation`, which decides: items are cut anew between iterations (the
thread of the run does that when ``wanted`` is set), and items of late agents are mapped by others,
too (this thread sees to that).
"""

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
    Decision,
    DelegationOptions,
    Rates,
    Regret,
    SpeculativeRange,
    Substitute,
    decide,
    late,
    late_at,
)
from sapwood.activity.run_record import AgentShare, LateChunk, Loss, RunRecorder
from sapwood.comm import plain, values
from sapwood.comm.reduction import Accumulator
from sapwood.core import typed
from sapwood.core.errors import SapwoodError
from sapwood.core.failures import new_thread
from sapwood.core.futures import when_done
from sapwood.environment.logs import logger
from sapwood.session.port import PlacesChanged, RequestFuture, SessionPort

INTERVAL = 0.5
"""Seconds between two times that agents are asked."""

FIRST_INTERVAL = 0.02
"""Seconds until they are asked first, after each cut and where one is late; then it doubles."""

MAX_ASKED = 64
"""Agents that are asked in a second: where there are more, each is asked less often."""

HURRY = 20
"""Times as many that are asked in a second after a cut, and where one is late."""

ANSWER_TIME = 0.1
"""Seconds that agents get to answer before what is known of them counts."""

LOOK_SHARE = 0.003
"""Of the time of a run in which it waits between iterations to hear from its agents."""

SURPRISED_SHARE = 0.006
"""The same of an iteration that took longer or shorter than usual, besides."""

UNKNOWN_SHARE = 0.02
"""The same of an iteration after which not all agents have been heard."""

MAX_CREDIT = 0.05
"""Seconds of such waiting that are saved up at most."""

FIRST_LOOK = 0.002
"""Seconds that this is taken to need before it was measured."""

FIRST_COST = 0.05
"""Seconds that cutting items anew is taken to need before it was measured."""

END_TIME = 5.0
"""Seconds that the end of a run waits for its watch."""

DIVISIBLE = frozenset({"sum", "min", "max"})
"""Reductions of which several agents' answers for the items of one can be put together."""

MakeOrder = Callable[[int, range], agent_requests.OpenRun]
"""Returns what an agent needs to open some items: ``order(rank, items)``."""

_log = logger("activity")


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


class RunWatch:
    """Knows what the agents of one run do, and decides who does what.

    Args:
        session: Where they live.
        recorder: Gets what they say.
        began: When the run began, by ``time.perf_counter``.
        options: How items are given to agents.
        reduce: The named reduction of each field of the program.
        own: Whether code of the program puts results together, so that nothing here can.
        helped: Whether others may map the items of a late agent.

    Attributes:
        rates: What agents were measured to do.
        wanted: How items are to be cut anew; None while they are to stay.
        movable: Whether items may be cut anew.
        cost: Seconds that cutting them again takes, by the last measurement.
        helping: Whether some map the items of others in this wave.
    """

    def __init__(
        self,
        session: SessionPort,
        recorder: RunRecorder,
        began: float,
        options: DelegationOptions,
        reduce: Mapping[str, str],
        *,
        own: bool,
        helped: bool,
    ) -> None:
        self.rates = Rates()
        self.wanted: Decision | None = None
        self.movable = False
        self.cost = FIRST_COST
        self.helping = False
        self._session = session
        self._recorder = recorder
        self._began = began
        self._options = options
        self._reduce = dict(reduce)
        self._divisible = not own and set(reduce.values()) <= DIVISIBLE
        self._helped = helped
        self._lock = threading.RLock()
        self._run = ""
        self._asked: dict[int, Future[Any]] = {}
        self._given: dict[int, range] = {}
        self._chunk = 1
        self._order: MakeOrder = _no_order
        self._after = 0
        self._regret = Regret()
        self._helped_last = False
        self._credit = 0.0
        self._usual = 0.0
        self._planned: int | None = None
        self._pulses: dict[int, agent_requests.Pulse] = {}
        self._noted: dict[int, int] = {}
        self._wave: CurrentWave | None = None
        self._help: dict[int, Help] = {}
        self._look_took = FIRST_LOOK
        self._ended = threading.Event()
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None
        self._unsubscribe = _nothing

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._began

    def guess(self, rates: Mapping[int, float]) -> None:
        """Take rates for those of agents until they are measured."""
        self.rates = Rates(rates)

    # --- for the thread of the run -------------------------------------------------------------

    def begin(
        self,
        run: str,
        given: Mapping[int, range],
        after: int,
        order: MakeOrder,
        *,
        planned: int | None,
        chunk: int,
    ) -> None:
        """Watch agents whose stream begins now.

        Args:
            run: The context of the stream.
            given: What each agent has.
            after: The iteration before its first wave.
            order: Returns what an agent needs to open some items.
            planned: Iterations that are planned.
            chunk: Items that stay together.
        """
        self._run, self._after, self._planned, self._order = run, after, planned, order
        self._given, self._chunk = dict(given), chunk
        self._regret, self._usual = Regret(after), 0.0
        self.wanted = None
        self._asked.clear()
        self._pulses.clear()
        self._noted.clear()
        self._wave = None
        self._ended = threading.Event()
        self._hurry.clear()
        self._unsubscribe = self._session.subscribe(self._changed)
        self._thread = new_thread("sapwood-watch", self._watch)
        self._thread.start()

    def end(self) -> None:
        """Watch them no more."""
        self._ended.set()
        self._hurry.set()
        self._wave = None
        self._unsubscribe()
        self._unsubscribe = _nothing
        if self._thread is not None:
            self._thread.join(END_TIME)  # an interrupted run does not wait for it for ever
            self._thread = None
        self.wave_over()

    def cut_took(self, seconds: float) -> None:
        """Record the cost of a cut, unless a runner had to restart meanwhile."""
        if not self._helped_last:
            self.cost = seconds

    def wave_begins(self, iteration: int, state: Any, now: float) -> None:
        """Note which wave the run waits for from now on."""
        self._helped_last = False
        self._wave = CurrentWave(iteration - self._after, state, now)

    def wave_over(self) -> None:
        """What others do for late agents is not needed any more."""
        with self._lock:
            over, self._help = list(self._help.values()), {}
            self.helping = False
            for one in over:
                one.substitute.failed()
            self._helped_last |= bool(over)
        # The slow agents are known before items may be cut again.
        wait([one.delivery for one in over if one.delivery is not None], ANSWER_TIME)
        for one in over:
            if one.delivery is not None and one.delivery.done():
                self._delivered(one, one.delivery)
            self._end_help(one)

    def look(self, iteration: int, seconds: float) -> None:
        """Hear from agents before the next iteration, if this one was so long that it costs little.

        Args:
            iteration: The iteration that is over.
            seconds: What it took.
        """
        if not self.movable:
            return
        self._credit = min(self._credit + seconds * LOOK_SHARE, MAX_CREDIT)
        share = 0.0
        if not all(map(self.rates.measured, self._given)):
            share = UNKNOWN_SHARE
        elif abs(seconds - self._usual) > self._options.least_gain * self._usual:
            share = SURPRISED_SHARE
        allowed = max(self._credit, seconds * share)
        if allowed >= self._look_took:
            begin = time.perf_counter()
            with self._lock:
                self._asked.clear()
            wait(self._ask(), max(self._look_took, allowed))
            self._take_in()
            self._look_took = time.perf_counter() - begin
            self._credit = max(0.0, self._credit - self._look_took)
            self._usual = seconds
        elif not self._helped_last:
            return
        self._decide(iteration)

    def heard(self, rank: int, pulse: agent_requests.Pulse) -> None:
        """Take in what an agent says."""
        now = self.now
        with self._lock:
            noted = self._noted.get(rank, 0)
            for call in pulse.recent:
                if call.wave <= noted:
                    continue
                share = AgentShare(
                    agent=rank,
                    started=now - call.age,
                    seconds=call.seconds,
                    waited=call.waited,
                    items=call.items,
                    bytes_up=call.bytes_up,
                )
                self._recorder.shares(self._after + call.wave, (share,))
                self.rates.note(rank, call.items, call.seconds)
            self._noted[rank] = max([noted, *(call.wave for call in pulse.recent)])
            self._pulses[rank] = pulse

    # --- the thread of the watch ---------------------------------------------------------------

    def _watch(self) -> None:
        ended = self._ended
        longest = max(INTERVAL, len(self._given) / MAX_ASKED)
        shortest = max(FIRST_INTERVAL, longest / HURRY)
        interval, asked, was_late = shortest, time.perf_counter(), False
        while True:
            due = asked + interval - time.perf_counter()
            hurry = self._hurry.wait(max(0.0, min(due, self._seconds_until_late() or due)))
            self._hurry.clear()
            if ended.is_set():
                return
            is_late = self._seconds_until_late() == 0
            begins = hurry or (is_late and not was_late)
            was_late = is_late
            if not begins and time.perf_counter() < asked + interval:
                continue  # the wave is over in which an agent might have been late
            asked = time.perf_counter()
            interval = shortest if begins else min(longest, 2 * interval)
            try:
                wait(self._ask(), ANSWER_TIME)
                self._recorder.measured(list(self.rates.of(sorted(self._given)).items()))
                self._decide(self._recorder.done)
                self._see_to_late()
            except SapwoodError as error:
                # The session ends, and so does the run; or it continues unchanged.
                _log.debug("run not watched", run=self._run, reason=error.what)
                if self._session.closed:
                    return

    def _seconds_until_late(self) -> float:
        """Return when an agent may be late in this wave: 0 if it may be by now."""
        wave = self._wave
        if wave is None or not self._helped:
            return math.inf
        limit = late_at(self._given, self.rates.at_least(sorted(self._given)), self._options)
        return max(0.0, wave.sent + limit - time.perf_counter())

    def _ask(self) -> list[Future[Any]]:
        """Ask all agents that have answered the last time what they do."""
        for rank in self._given:
            with self._lock:
                if rank in self._asked and not self._asked[rank].done():
                    continue
            future = self._session.ask(rank, agent_requests.PULSE, self._run)
            with self._lock:
                self._asked[rank] = future
            when_done(future, partial(self._answered, self._run, rank))
        with self._lock:
            return list(self._asked.values())

    def _take_in(self) -> None:
        """Take in what agents have said by now: callbacks may come after those who wait."""
        with self._lock:
            asked = list(self._asked.items())
        for rank, future in asked:
            if future.done():
                self._answered(self._run, rank, future)

    def _answered(self, run: str, rank: int, done: Future[Any]) -> None:
        if self._ended.is_set() or run != self._run:
            return
        if done.cancelled() or done.exception() is not None:
            return  # the loss of an agent is reported elsewhere
        self.heard(rank, typed.convert(done.result(), agent_requests.Pulse))

    def _decide(self, done: int) -> None:
        """Say how items are to be cut anew, if that pays."""
        if not self.movable or self.wanted is not None or done <= self._after:
            return
        if not all(map(self.rates.measured, self._given)):
            return
        # Unplanned work is expected to last as long again as it has lasted.
        ahead = done if self._planned is None else self._planned - done
        found = decide(
            self._given,
            self.rates.of(sorted(self._given)),
            self._options,
            cost=self.cost,
            ahead=ahead,
            chunk=self._chunk,
        )
        with self._lock:  # both threads come here
            lost = self._regret.after(done, 0.0 if found is None else found.before - found.after)
        if lost >= self.cost:
            self.wanted = found

    # --- late agents -----------------------------------------------------------------------------

    def _see_to_late(self) -> None:
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
                for rank, pulse in self._pulses.items()
                if pulse.wave == wave.number and pulse.busy < 0
            }
            helping = {
                rank for one in helps for rank, future in one.asked.items() if not future.done()
            }
        for one in helps:
            if one.result is not None and one.delivery is None:
                self._deliver(one)
        rates = self.rates.at_least(sorted(self._given))
        while self._wave is wave:
            given = {
                rank: part
                for rank, part in self._given.items()
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
        one = Help(wave.number, wave.sent, rank, len(self._given[rank]), Substitute(pieces, merge))
        try:
            state = values.encode(wave.state)
        except Exception as error:  # noqa: BLE001 - the program may change it when the wave is over
            _log.debug("state not encoded", run=self._run, reason=str(error))
            return
        orders = [
            (piece, self._order(piece.by, range(piece.start, piece.stop))) for piece in pieces
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
                at=self.now,
                iteration=self._after + wave.number,
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
        _log.info("late agent helped", run=self._run, agent=rank, by=len(pieces), reason=reason)
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
                _log.debug("not delivered", run=self._run, agent=one.rank, reason=error.what)

    def _deliver(self, one: Help) -> None:
        encoded = values.encode(one.result)
        order = agent_requests.DeliverRun(self._run, one.wave, encoded.body)
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

    def _changed(self, change: PlacesChanged) -> None:
        what = "lost"
        if change.removed:
            what = "removed"
        elif change.disconnected:
            what = "attached" if change.back else "cut off"
        elif change.back:
            what = "replaced"
        for rank in change.agents:
            if rank not in self._given:
                continue
            with self._lock:
                self._pulses.pop(rank, None)
            self._recorder.loss(
                Loss(
                    at=self.now,
                    iteration=self._recorder.done + 1,
                    agent=rank,
                    what=what,
                    reason=change.reason,
                )
            )


def _merged(reduce: Mapping[str, str], results: Sequence[Any]) -> Any:
    """Put the results of the parts of one slice together, as a junction does."""
    if len(results) == 1:
        return results[0]
    together = Accumulator(reduce)
    for rank, result in enumerate(results, start=1):
        together.add(result, rank, 1.0)
    return together.partial()


def _nothing() -> None:
    pass


def _no_order(_rank: int, _items: range) -> agent_requests.OpenRun:
    raise SapwoodError("the run has not begun")
