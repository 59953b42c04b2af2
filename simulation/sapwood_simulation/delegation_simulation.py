"""Runs whose items move, whose late agents are helped, and whose agents slow down, die and lie.

The decisions and what counts answers are those of production (``sapwood.activity.delegation``);
messages take any time and overtake each other, answers come twice, agents end at any moment and
others take their place. Looked for is the worst fault there is: an item that counts twice in an
iteration, or not at all, or with the state of another iteration.

``python -m sapwood_simulation.delegation_simulation --seeds 100000`` tries seeds one after the
other, ``--seed N`` repeats one.
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from sapwood.activity.delegation import (
    DelegationOptions,
    FirstContribution,
    Rates,
    Regret,
    SpeculativeRange,
    Substitute,
    assign,
    decide,
    late,
)

Items = Counter[tuple[int, int]]
"""What stands for a result: how often each item is in it, with which iteration's state."""

SLOWEST, FASTEST = 0.05, 8.0
"""Bounds of how fast agents are, items per unit of time."""

TICK = 1.0
"""Time between two looks of the root at its agents."""

COST = 1.0
"""Time that a cut is taken to need."""

MAX_EVENTS = 30_000
"""Events after which a course is taken to go round in circles."""


class DelegationFaults(msgspec.Struct, frozen=True, kw_only=True):
    """What goes wrong, and how often.

    Attributes:
        death: Chance that an agent ends, at each event.
        change: Chance that an agent becomes faster or slower, at each event.
        twice: Chance that a message arrives a second time.
        delay: Longest time that a message takes.
        hang: Chance that a map takes fifty times as long.
    """

    death: float = 0.004
    change: float = 0.01
    twice: float = 0.1
    delay: float = 2.0
    hang: float = 0.05


class BrokenCountError(Exception):
    """An item was counted wrongly, or the run does not come to its end."""


class Course(msgspec.Struct, kw_only=True):
    """What happened in one run.

    Attributes:
        cuts: How often items were cut anew.
        helped: How often a late agent was helped.
        used: How often that counted.
        deaths: Agents that ended.
        events: Events.
    """

    cuts: int = 0
    helped: int = 0
    used: int = 0
    deaths: int = 0
    events: int = 0


class _Opened:
    """What an agent has of a run, in one cut."""

    def __init__(self, items: range) -> None:
        self.items = items
        self.first = FirstContribution()
        self.last_wave = 0


class _Process:
    """One process at the place of an agent."""

    def __init__(self, rank: int, speed: float) -> None:
        self.rank = rank
        self.speed = speed
        self.alive = True
        self.opened: dict[str, _Opened] = {}
        self.waves: dict[str, tuple[int, int, int]] = {}
        self.busy: set[tuple[int, int]] = set()
        self.seen: set[tuple[int, int]] = set()
        self.gave: set[tuple[int, int]] = set()


class _Help:
    def __init__(self, wave: int, substitute: Substitute[Items]) -> None:
        self.wave = wave
        self.substitute = substitute
        self.helpers: set[int] = set()
        self.result: Items | None = None
        self.settled = False


class DelegationSimulation:
    """One run under virtual time.

    Args:
        seed: All chance follows from it.
        agents: How many agents.
        items: How many items.
        iterations: How many iterations.
        faults: What goes wrong.
        name_cuts: Whether each cut has its own name, as in production.
        first: The assumed rates of agents before the first measurement; they may be wrong.

    Example:
        >>> DelegationSimulation(7).run().events > 0
        True
    """

    def __init__(
        self,
        seed: int,
        *,
        agents: int = 4,
        items: int = 40,
        iterations: int = 12,
        faults: DelegationFaults | None = None,
        name_cuts: bool = True,
        first: Mapping[int, float] | None = None,
    ) -> None:
        self._random = random.Random(seed)  # noqa: S311 - of a simulation
        self._faults = faults or DelegationFaults()
        self._items = range(items)
        self._iterations = iterations
        self._name_cuts = name_cuts
        self._now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._course = Course()
        self._processes = {rank: self._new_process(rank) for rank in range(1, agents + 1)}
        # The root.
        self._options = DelegationOptions(how="measured", late_after=0.1, least_iteration=0.0)
        self._rates = Rates(first or {})
        self._regret = Regret()
        self._given: dict[int, range] = {}
        self._cut = 0
        self._wave = self._iteration = 0
        self._sent_at = 0.0
        self._ready: set[int] = set()
        self._in: dict[int, Items] = {}
        self._helps: dict[int, _Help] = {}
        self._running = False

    def run(self) -> Course:
        """Run to the end.

        Raises:
            BrokenCountError: An item was counted wrongly, or the simulation does not end.
        """
        known = self._rates.of(sorted(self._processes)) or dict.fromkeys(self._processes, 1.0)
        self._cut_anew(assign(self._items, known))
        self._later(TICK, self._tick)
        while self._due and self._iteration < self._iterations:
            self._now, _, happen = heapq.heappop(self._due)
            self._course.events += 1
            if self._course.events > MAX_EVENTS:
                raise BrokenCountError(f"no end in iteration {self._iteration}")
            self._misfortune()
            happen()
        return self._course

    # --- chance and time -----------------------------------------------------------------------

    def _later(self, seconds: float, happen: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (self._now + seconds, self._count, happen))

    def _message(self, happen: Callable[[], None]) -> None:
        for _ in range(1 + (self._random.random() < self._faults.twice)):
            self._later(self._random.random() * self._faults.delay, happen)

    def _to(self, rank: int, happen: Callable[[_Process], None]) -> None:
        """Send something to whatever process is at a place when it arrives."""
        self._message(lambda: self._arrive(rank, happen))

    def _arrive(self, rank: int, happen: Callable[[_Process], None]) -> None:
        process = self._processes[rank]
        if process.alive:
            happen(process)

    def _misfortune(self) -> None:
        faults = self._faults
        if self._random.random() < faults.change:
            process = self._random.choice(list(self._processes.values()))
            process.speed = self._speed()
        if self._random.random() < faults.death:
            process = self._random.choice(list(self._processes.values()))
            if process.alive:
                process.alive = False
                self._course.deaths += 1
                self._later(self._random.random() * 5, lambda: self._replace(process.rank))

    def _speed(self) -> float:
        return float(SLOWEST * (FASTEST / SLOWEST) ** self._random.random())

    def _new_process(self, rank: int) -> _Process:
        return _Process(rank, self._speed())

    def _replace(self, rank: int) -> None:
        self._processes[rank] = self._new_process(rank)
        if rank in self._given:
            self._open(rank)
            if self._running and rank not in self._in:
                self._send_wave(rank)

    # --- the root --------------------------------------------------------------------------------

    @property
    def _context(self) -> str:
        return f"run.{self._cut}" if self._name_cuts else "run"

    def _cut_anew(self, given: dict[int, range]) -> None:
        self._cut += 1
        self._course.cuts += 1
        self._given = {rank: part for rank, part in given.items() if part}
        self._wave = 0
        self._running = False
        self._ready = set()
        for rank in self._given:
            self._open(rank)

    def _open(self, rank: int) -> None:
        context, items, cut = self._context, self._given[rank], self._cut

        def opened(process: _Process) -> None:
            process.opened[context] = _Opened(items)
            for wave in [process.waves.pop(context)] if context in process.waves else []:
                self._map(process, context, *wave)
            self._message(lambda: self._is_open(rank, cut))

        self._to(rank, opened)

    def _is_open(self, rank: int, cut: int) -> None:
        if cut != self._cut or self._running:
            return
        self._ready.add(rank)
        if self._ready == self._given.keys():
            self._next_wave()

    def _next_wave(self) -> None:
        self._running = True
        self._wave += 1
        self._in, self._helps = {}, {}
        self._sent_at = self._now
        for rank in self._given:
            self._send_wave(rank)

    def _send_wave(self, rank: int) -> None:
        context, wave = self._context, (self._cut, self._wave, self._iteration)
        self._to(rank, lambda process: self._wanted(process, context, *wave))

    def _contributed(self, rank: int, cut: int, wave: int, value: Items) -> None:
        """Take the first contribution of each place, and drop contributions to other waves."""
        if cut != self._cut or wave != self._wave or not self._running or rank in self._in:
            return
        self._in[rank] = value
        if self._in.keys() == self._given.keys():
            self._complete()

    def _complete(self) -> None:
        total: Items = Counter()
        for value in self._in.values():
            total.update(value)
        wanted = Counter({(item, self._iteration): 1 for item in self._items})
        if total != wanted:
            wrong = {key: total[key] for key in total.keys() | wanted.keys() if total[key] != 1}
            raise BrokenCountError(f"iteration {self._iteration}, cut {self._cut}: {wrong}")
        self._iteration += 1
        for one in self._helps.values():
            one.substitute.failed()
        rates = self._rates.of(sorted(self._processes))
        known = all(map(self._rates.measured, self._given))
        found = (
            decide(self._given, rates, self._options, cost=COST, ahead=float(self._iterations))
            if known
            else None
        )
        gain = 0.0 if found is None else found.before - found.after
        if self._regret.after(self._iteration, gain) >= COST and found is not None:
            self._regret = Regret(self._iteration)
            self._cut_anew(found.given)
        else:
            self._next_wave()

    def _tick(self) -> None:
        self._later(TICK, self._tick)
        if not self._running:
            return
        for one_rank, one in self._helps.items():
            if one.result is not None and not one.settled:
                self._deliver(one_rank, one)
        helping = {rank for one in self._helps.values() for rank in one.helpers}
        idle = {
            rank
            for rank, process in self._processes.items()
            if process.alive and not process.busy and rank not in helping
        }
        given = {rank: part for rank, part in self._given.items() if rank not in self._helps}
        busy = {rank: self._now - self._sent_at for rank in given if rank not in idle}
        rates = self._rates.at_least(sorted(self._processes))
        if rates:
            found = late(given, busy, rates, self._options, divisible=self._random.random() < 0.7)
            if found is not None:
                self._have_helped(*found)

    def _have_helped(self, rank: int, pieces: list[SpeculativeRange], _reason: str) -> None:
        self._course.helped += 1
        one = self._helps[rank] = _Help(self._wave, Substitute(pieces, _together))
        iteration = self._iteration
        for piece in pieces:
            one.helpers.add(piece.by)
            self._ask(piece, one, rank, iteration)

    def _ask(self, piece: SpeculativeRange, one: _Help, rank: int, iteration: int) -> None:
        self._to(piece.by, lambda process: self._help(process, one, rank, piece, iteration))

    def _mapped(self, one: _Help, rank: int, piece: SpeculativeRange, value: Items) -> None:
        found = one.substitute.answered(piece, value)
        if found is not None:
            one.result = found
            self._deliver(rank, one)

    def _deliver(self, rank: int, one: _Help) -> None:
        context, cut, value = self._context, self._cut, one.result
        if value is None or self._helps.get(rank) is not one:
            return
        self._to(rank, lambda process: self._delivered(process, context, cut, one, value))

    # --- agents --------------------------------------------------------------------------------

    def _wanted(
        self, process: _Process, context: str, stream: int, wave: int, iteration: int
    ) -> None:
        opened = process.opened.get(context)
        if opened is None:
            process.waves[context] = (stream, wave, iteration)
            return
        self._map(process, context, stream, wave, iteration)

    def _map(self, process: _Process, context: str, stream: int, wave: int, iteration: int) -> None:
        opened = process.opened[context]
        if (stream, wave) in process.seen:
            return  # a leaf works on a wave once
        process.seen.add((stream, wave))
        opened.last_wave = wave
        opened.first.wanted(wave)
        items = opened.items
        seconds = len(items) / process.speed
        if self._random.random() < self._faults.hang:
            seconds *= 50
        process.busy.add((stream, wave))

        def done() -> None:
            process.busy.discard((stream, wave))
            if process.alive and opened.first.counts(wave):
                self._rates.note(process.rank, len(items), seconds)
                value = Counter((item, iteration) for item in items)
                self._give(process, stream, wave, value)

        self._later(seconds, done)

    def _give(self, process: _Process, cut: int, wave: int, value: Items) -> None:
        if (cut, wave) in process.gave:
            raise BrokenCountError(f"agent {process.rank} contributes twice to wave {wave}")
        process.gave.add((cut, wave))
        self._message(
            lambda: self._contributed(process.rank, cut, wave, value) if process.alive else None
        )

    def _help(
        self, process: _Process, one: _Help, rank: int, piece: SpeculativeRange, iteration: int
    ) -> None:
        value: Items = Counter((item, iteration) for item in range(piece.start, piece.stop))
        self._later(
            (piece.stop - piece.start) / process.speed,
            lambda: (
                self._message(lambda: self._mapped(one, rank, piece, value))
                if process.alive
                else None
            ),
        )

    def _delivered(
        self, process: _Process, context: str, cut: int, one: _Help, value: Items
    ) -> None:
        opened = process.opened.get(context)
        if opened is None or opened.last_wave < one.wave:
            return  # it is tried again
        one.settled = True
        if opened.first.counts(one.wave):
            self._course.used += 1
            self._rates.note(process.rank, len(opened.items), 2 * (self._now - self._sent_at))
            # It would have taken longer still.
            self._rates.note(process.rank, len(opened.items), self._now - self._sent_at)
            process.busy.discard((cut, one.wave))
            self._give(process, cut, one.wave, value)


def _together(found: list[Items]) -> Items:
    together: Items = Counter()
    for one in found:
        together.update(one)
    return together


def main(words: list[str] | None = None) -> None:
    """Try seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None, help="only this one")
    wanted = parser.parse_args(words)
    seeds = range(wanted.seeds) if wanted.seed is None else [wanted.seed]
    totals: Counter[str] = Counter()
    for seed in seeds:
        try:
            course = DelegationSimulation(seed, agents=2 + seed % 6).run()
        except BrokenCountError as error:
            sys.exit(f"sapwood: {error}; to have it again: --seed {seed}")
        found: dict[str, Any] = msgspec.to_builtins(course)
        totals.update(found)
    print(  # noqa: T201 - the output of a command
        f"{len(seeds)} runs, each item counted once: {dict(totals)}"
    )


if __name__ == "__main__":
    main()
