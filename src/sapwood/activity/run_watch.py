"""Polls the agents of a run, and moves work to where it is done fastest.

It is a separate thread beside the run's, so that iterations take no longer for it, and it
asks seldom enough to cost next to nothing. What agents say goes into the record of the run, and
to :mod:`sapwood.activity.delegation`, which decides: items are cut anew between iterations (the
thread of the run does that when ``wanted`` is set), and items of late agents are mapped by others,
too (this thread sees to that).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

from sapwood.activity import agent_requests
from sapwood.activity.delegation import Decision, DelegationOptions, Rates, Regret, decide
from sapwood.activity.run_record import AgentShare, Loss, RunRecorder
from sapwood.activity.speculation import ANSWER_TIME, Speculation, WatchedCut
from sapwood.core import typed
from sapwood.core.errors import SapwoodError
from sapwood.core.failures import new_thread
from sapwood.core.futures import when_done
from sapwood.environment.logs import logger
from sapwood.session.interface import PlacesChanged, SessionInterface

INTERVAL = 0.5
"""Seconds between two times that agents are asked."""

FIRST_INTERVAL = 0.02
"""Seconds until they are asked first, after each cut and where one is late; then it doubles."""

MAX_ASKED = 64
"""Agents that are asked in a second: where there are more, each is asked less often."""

HURRY = 20
"""Times as many that are asked in a second after a cut, and where one is late."""

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

_log = logger("activity")


class LookBudget:
    """How long a run may wait between iterations to hear from its agents."""

    def __init__(self) -> None:
        self._took = FIRST_LOOK
        self._credit = 0.0
        self._usual = 0.0

    def begin(self) -> None:
        """Begin with a new cut: no iteration is usual yet."""
        self._usual = 0.0

    def allowed(self, seconds: float, least_gain: float, *, known: bool) -> float:
        """Return how long it may wait now; 0 for not at all.

        Args:
            seconds: What the last iteration took.
            least_gain: The share of its time by which an iteration is a surprise.
            known: Whether all agents have been heard.
        """
        self._credit = min(self._credit + seconds * LOOK_SHARE, MAX_CREDIT)
        share = 0.0
        if not known:
            share = UNKNOWN_SHARE
        elif abs(seconds - self._usual) > least_gain * self._usual:
            share = SURPRISED_SHARE
        allowed = max(self._credit, seconds * share)
        return max(self._took, allowed) if allowed >= self._took else 0.0

    def looked(self, took: float, seconds: float) -> None:
        """Note what waiting took after an iteration."""
        self._took = took
        self._credit = max(0.0, self._credit - took)
        self._usual = seconds


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
        speculation: Has the items of late agents mapped by others.
    """

    def __init__(
        self,
        session: SessionInterface,
        recorder: RunRecorder,
        began: float,
        options: DelegationOptions,
        reduce: Mapping[str, str],
        *,
        own: bool,
        helped: bool,
    ) -> None:
        self._hurry = threading.Event()
        self.speculation = Speculation(
            session, recorder, options, reduce, own=own, helped=helped, hurry=self._hurry
        )
        self.rates = self.speculation.rates
        self.wanted: Decision | None = None
        self.movable = False
        self.cost = FIRST_COST
        self._session = session
        self._recorder = recorder
        self._began = began
        self._options = options
        self._lock = threading.Lock()
        self._cut = WatchedCut()
        self._asked: dict[int, Future[Any]] = {}
        self._regret = Regret()
        self._looks = LookBudget()
        self._pulses: dict[int, agent_requests.Pulse] = {}
        self._noted: dict[int, int] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._unsubscribe = _nothing

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._began

    def guess(self, rates: Mapping[int, float]) -> None:
        """Take rates for those of agents until they are measured."""
        self.rates = self.speculation.rates = Rates(rates)

    # --- for the thread of the run -------------------------------------------------------------

    def begin(self, cut: WatchedCut) -> None:
        """Watch agents whose stream begins now."""
        self._cut = cut
        self._regret = Regret(cut.after)
        self._looks.begin()
        self.wanted = None
        self._asked.clear()
        self._pulses.clear()
        self._noted.clear()
        self.speculation.begin(cut, self._began)
        self._ended = threading.Event()
        self._hurry.clear()
        self._unsubscribe = self._session.subscribe(self._changed)
        self._thread = new_thread("sapwood-watch", self._watch)
        self._thread.start()

    def end(self) -> None:
        """Watch them no more."""
        self._ended.set()
        self._hurry.set()
        self.speculation.end()
        self._unsubscribe()
        self._unsubscribe = _nothing
        if self._thread is not None:
            self._thread.join(END_TIME)  # an interrupted run does not wait for it for ever
            self._thread = None
        self.speculation.wave_over()

    def cut_took(self, seconds: float) -> None:
        """Record the cost of a cut, unless a runner had to restart meanwhile."""
        if not self.speculation.helped_last:
            self.cost = seconds

    def look(self, iteration: int, seconds: float) -> None:
        """Hear from agents before the next iteration, if this one was so long that it costs little.

        Args:
            iteration: The iteration that is over.
            seconds: What it took.
        """
        if not self.movable:
            return
        known = all(map(self.rates.measured, self._cut.given))
        allowed = self._looks.allowed(seconds, self._options.least_gain, known=known)
        if allowed:
            begin = time.perf_counter()
            with self._lock:
                self._asked.clear()
            wait(self._ask(), allowed)
            self._take_in()
            self._looks.looked(time.perf_counter() - begin, seconds)
        elif not self.speculation.helped_last:
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
                self._recorder.shares(self._cut.after + call.wave, (share,))
                self.rates.note(rank, call.items, call.seconds)
            self._noted[rank] = max([noted, *(call.wave for call in pulse.recent)])
            self._pulses[rank] = pulse

    # --- the thread of the watch ---------------------------------------------------------------

    def _watch(self) -> None:
        ended, until_late = self._ended, self.speculation.seconds_until_late
        longest = max(INTERVAL, len(self._cut.given) / MAX_ASKED)
        shortest = max(FIRST_INTERVAL, longest / HURRY)
        interval, asked, was_late = shortest, time.perf_counter(), False
        while True:
            due = asked + interval - time.perf_counter()
            hurry = self._hurry.wait(max(0.0, min(due, until_late() or due)))
            self._hurry.clear()
            if ended.is_set():
                return
            is_late = until_late() == 0
            begins = hurry or (is_late and not was_late)
            was_late = is_late
            if not begins and time.perf_counter() < asked + interval:
                continue  # the wave is over in which an agent might have been late
            asked = time.perf_counter()
            interval = shortest if begins else min(longest, 2 * interval)
            try:
                wait(self._ask(), ANSWER_TIME)
                self._recorder.measured(list(self.rates.of(sorted(self._cut.given)).items()))
                self._decide(self._recorder.done)
                with self._lock:
                    pulses = dict(self._pulses)
                self.speculation.see_to(pulses)
            except SapwoodError as error:
                # The session ends, and so does the run; or it continues unchanged.
                _log.debug("run not watched", run=self._cut.run, reason=error.what)
                if self._session.closed:
                    return

    def _ask(self) -> list[Future[Any]]:
        """Ask all agents that have answered the last time what they do."""
        for rank in self._cut.given:
            with self._lock:
                if rank in self._asked and not self._asked[rank].done():
                    continue
            future = self._session.ask(rank, agent_requests.PULSE, self._cut.run)
            with self._lock:
                self._asked[rank] = future
            when_done(future, partial(self._answered, self._cut.run, rank))
        with self._lock:
            return list(self._asked.values())

    def _take_in(self) -> None:
        """Take in what agents have said by now: callbacks may come after those who wait."""
        with self._lock:
            asked = list(self._asked.items())
        for rank, future in asked:
            if future.done():
                self._answered(self._cut.run, rank, future)

    def _answered(self, run: str, rank: int, done: Future[Any]) -> None:
        if self._ended.is_set() or run != self._cut.run:
            return
        if done.cancelled() or done.exception() is not None:
            return  # the loss of an agent is reported elsewhere
        self.heard(rank, typed.convert(done.result(), agent_requests.Pulse))

    def _decide(self, done: int) -> None:
        """Say how items are to be cut anew, if that pays."""
        if not self.movable or self.wanted is not None or done <= self._cut.after:
            return
        if not all(map(self.rates.measured, self._cut.given)):
            return
        # Unplanned work is expected to last as long again as it has lasted.
        ahead = done if self._cut.planned is None else self._cut.planned - done
        found = decide(
            self._cut.given,
            self.rates.of(sorted(self._cut.given)),
            self._options,
            cost=self.cost,
            ahead=ahead,
            chunk=self._cut.chunk,
        )
        with self._lock:  # both threads come here
            lost = self._regret.after(done, 0.0 if found is None else found.before - found.after)
        if lost >= self.cost:
            self.wanted = found

    def _changed(self, change: PlacesChanged) -> None:
        what = "lost"
        if change.removed:
            what = "removed"
        elif change.disconnected:
            what = "attached" if change.back else "cut off"
        elif change.back:
            what = "replaced"
        for rank in change.agents:
            if rank not in self._cut.given:
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


def _nothing() -> None:
    pass
