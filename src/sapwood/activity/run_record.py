"""Which agent did which work, and why it moved: a bounded record that is drawn during the run.

A run has it as ``run.record``; the process of a detached run writes it beside its progress. All
times but ``began`` are seconds since then. ``RunRecorder`` gathers it; two threads of the run may
do that at once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

VERSION = 1
"""Of the layout; fields are only ever added to it."""

MAX_ITERATIONS = 256
"""Iterations that a record keeps at most: the last ones."""

MAX_SHARES = 4096
"""Shares of agents in iterations that it keeps at most: with many agents, of fewer iterations."""

MAX_EVENTS = 256
"""Moves that a record keeps, and likewise late chunks, losses and checkpoints: the last ones."""

MAX_TEXT = 200
"""Characters of a reason."""


Kept = TypeVar("Kept")
Timed = TypeVar("Timed", "Move", "LateChunk", "Loss", "RecordedCheckpoint")
"""What a record has with the time when it was."""


class RecordedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent of a run, and the items that it has now.

    Attributes:
        agent: Rank of the agent.
        node: The machine that it is on, as that calls itself.
        kind: The kind of that machine: processor, cores, devices.
        start: First item of its slice.
        stop: End of its slice, exclusive.
        rate: Items that it maps in a second, by the last measurement; 0 before the first.
    """

    agent: int
    node: str = ""
    kind: str = ""
    start: int = 0
    stop: int = 0
    rate: float = 0.0


class AgentShare(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent did in one iteration.

    Attributes:
        agent: Rank of the agent.
        started: When its map started.
        seconds: What the map took.
        waited: Seconds since its answer to the iteration before.
        items: Items that it mapped.
        bytes_up: Bytes of its result.
    """

    agent: int
    started: float
    seconds: float
    waited: float
    items: int
    bytes_up: int


class RecordedIteration(msgspec.Struct, frozen=True, kw_only=True):
    """One iteration; of those shorter than half a second only some name their agents.

    Attributes:
        iteration: Its number, from 1.
        started: When its state was sent.
        seconds: Until the next one began.
        agents: What each agent did, as far as that is known.
    """

    iteration: int
    started: float
    seconds: float
    agents: tuple[AgentShare, ...] = ()


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """Items that went from one agent to another between two iterations.

    Attributes:
        at: When.
        iteration: The first iteration after it.
        source: Agent that had them.
        target: Agent that has them now.
        items: How many.
        reason: Why, for people.
    """

    at: float
    iteration: int
    source: int
    target: int
    items: int
    reason: str


class LateChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Items of a late agent that another agent mapped as well; the first answer counted.

    Attributes:
        at: When the other one was asked.
        iteration: The iteration.
        agent: The late agent.
        by: The other one.
        start: First of the items.
        stop: Their end, exclusive.
        outcome: ``running``, ``used`` where the other one was first, ``late`` where it was not,
            ``failed`` where it gave no answer.
        reason: Why it was asked, for people.
    """

    at: float
    iteration: int
    agent: int
    by: int
    start: int
    stop: int
    outcome: str
    reason: str


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that was gone, or came back.

    Attributes:
        at: When.
        iteration: The iteration then.
        agent: Rank of the agent.
        what: ``lost``, ``replaced`` by a new process, ``cut off`` and ``attached`` again as the
            same process, or ``removed`` for good.
        reason: Why, for people.
    """

    at: float
    iteration: int
    agent: int
    what: str
    reason: str = ""


class RecordedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that was written.

    Attributes:
        at: When.
        iteration: The iteration after which the state was that.
        seconds: What it took.
    """

    at: float
    iteration: int
    seconds: float


class WorkStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Which agent did which work in a run.

    Attributes:
        version: Of the layout.
        run: Name of the run.
        program: Name of the program.
        hash: Its hash.
        began: When the run began, seconds since 1970.
        seconds: Its duration so far.
        items: Items of the data.
        done: Iterations that were made, those before a checkpoint among them.
        delegate: How items are given to agents: ``static`` or ``measured``.
        kept_in_place: Why nothing is moved; empty where things are.
        first_guess: What the first parts follow; empty where they are equal.
        agents: The agents, by rank.
        iterations: The last iterations.
        moves: The last moves.
        late: The last chunks that were done elsewhere as well.
        losses: The last losses and replacements.
        checkpoints: The last checkpoints.
        counts: How many there were of each: ``iterations``, ``moves``, ``late``, ``losses``,
            ``checkpoints``; more than the record has where old ones were dropped.
    """

    version: int = VERSION
    run: str
    program: str
    hash: str
    began: float
    seconds: float = 0.0
    items: int = 0
    done: int = 0
    delegate: str = "static"
    kept_in_place: str = ""
    first_guess: str = ""
    agents: tuple[RecordedAgent, ...] = ()
    iterations: tuple[RecordedIteration, ...] = ()
    moves: tuple[Move, ...] = ()
    late: tuple[LateChunk, ...] = ()
    losses: tuple[Loss, ...] = ()
    checkpoints: tuple[RecordedCheckpoint, ...] = ()
    counts: dict[str, int] = {}


def continued(former: WorkStatistics, now: WorkStatistics) -> WorkStatistics:
    """Return the record of a run whose process was restarted: the former part comes first.

    Times are relative to the first start. Repeated iterations count twice, and are listed
    once, with the values of the second time.

    Args:
        former: What the process before had noted.
        now: What this one has.

    Example:
        >>> one = WorkStatistics(run="r-1", program="r", hash="a", began=100.0, seconds=9.0, done=4,
        ...                  counts={"iterations": 4})
        >>> two = WorkStatistics(run="r-1", program="r", hash="a", began=120.0, seconds=5.0, done=6,
        ...                  counts={"iterations": 3})
        >>> both = continued(one, two)
        >>> both.began, both.seconds, both.done, both.counts["iterations"]
        (100.0, 25.0, 6, 7)
    """
    later = max(0.0, now.began - former.began)
    again = min((one.iteration for one in now.iterations), default=None)
    kept = (one for one in former.iterations if again is None or one.iteration < again)
    stopped = (
        msgspec.structs.replace(one, outcome="failed") if one.outcome == "running" else one
        for one in former.late
    )
    names = former.counts.keys() | now.counts.keys()
    return msgspec.structs.replace(
        now,
        began=former.began,
        seconds=later + now.seconds,
        done=max(former.done, now.done),
        first_guess=former.first_guess,
        agents=now.agents or former.agents,
        iterations=_bounded(
            [*kept, *(_iteration_later(one, later) for one in now.iterations)][-MAX_ITERATIONS:]
        ),
        moves=_newest([*former.moves, *_later(now.moves, later)], MAX_EVENTS),
        late=_newest([*stopped, *_later(now.late, later)], MAX_EVENTS),
        losses=_newest([*former.losses, *_later(now.losses, later)], MAX_EVENTS),
        checkpoints=_newest([*former.checkpoints, *_later(now.checkpoints, later)], MAX_EVENTS),
        counts={name: former.counts.get(name, 0) + now.counts.get(name, 0) for name in names},
    )


def _iteration_later(one: RecordedIteration, seconds: float) -> RecordedIteration:
    shares = (msgspec.structs.replace(s, started=s.started + seconds) for s in one.agents)
    return msgspec.structs.replace(one, started=one.started + seconds, agents=tuple(shares))


def _bounded(iterations: Sequence[RecordedIteration]) -> tuple[RecordedIteration, ...]:
    """Return iterations of which the last name their agents, as many as a record keeps."""
    left = MAX_SHARES
    found: list[RecordedIteration] = []
    for one in reversed(iterations):
        left -= len(one.agents)
        found.append(one if left >= 0 else msgspec.structs.replace(one, agents=()))
    return tuple(reversed(found))


def _later(noted: Iterable[Timed], seconds: float) -> Iterator[Timed]:
    return (msgspec.structs.replace(one, at=one.at + seconds) for one in noted)


def _newest(noted: Sequence[Kept], most: int) -> tuple[Kept, ...]:
    return tuple(noted[-most:])


Reasoned = TypeVar("Reasoned", Move, LateChunk, Loss)
"""What a record has with a reason."""


class RunRecorder:
    """Gathers the record of one run, from any thread.

    Args:
        run: Name of the run.
        program: Name of the program.
        began: When the run began, seconds since 1970.
        items: Items of the data.

    Attributes:
        done: The last iteration that is over.
        hash: Hash of the program.
        delegate: How items are given to agents.
        kept_in_place: Why nothing is moved.
        first_guess: What the first parts follow; empty where they are equal.

    Example:
        >>> made = RunRecorder("mean-1", "mean", began=0.0, items=10)
        >>> made.place([RecordedAgent(agent=1, stop=10)])
        >>> made.iteration(1, started=0.5, seconds=0.25)
        >>> made.shares(1, [AgentShare(agent=1, started=0.5, seconds=0.2, waited=0.0,
        ...                            items=10, bytes_up=8)])
        >>> record = made.record(seconds=0.75)
        >>> record.iterations[0].agents[0].items, record.counts["iterations"]
        (10, 1)
    """

    def __init__(
        self,
        run: str,
        program: str,
        *,
        began: float,
        items: int,
    ) -> None:
        self._run, self._program, self._began, self._items = run, program, began, items
        self.hash = ""
        self.delegate = "static"
        self.kept_in_place = ""
        self.first_guess = ""
        self._lock = threading.Lock()
        self._agents: dict[int, RecordedAgent] = {}
        self._last: OrderedDict[int, tuple[float, float]] = OrderedDict()
        self._times: dict[int, tuple[float, float]] = {}
        self._made = 0
        self.done = 0
        self._shares: OrderedDict[int, dict[int, AgentShare]] = OrderedDict()
        self._moves: deque[Move] = deque(maxlen=MAX_EVENTS)
        self._late: OrderedDict[int, LateChunk] = OrderedDict()
        self._losses: deque[Loss] = deque(maxlen=MAX_EVENTS)
        self._checkpoints: deque[RecordedCheckpoint] = deque(maxlen=MAX_EVENTS)
        self._counts = {"moves": 0, "late": 0, "losses": 0, "checkpoints": 0}

    def place(self, agents: Iterable[RecordedAgent]) -> None:
        """Say which agents there are, and what each of them has."""
        with self._lock:
            self._agents = {one.agent: one for one in agents}

    @property
    def agents(self) -> list[RecordedAgent]:
        """The agents that there are, by rank."""
        with self._lock:
            return [self._agents[rank] for rank in sorted(self._agents)]

    def measured(self, rates: Sequence[tuple[int, float]]) -> None:
        """Note what agents were measured to do, items per second by rank."""
        with self._lock:
            for rank, rate in rates:
                known = self._agents.get(rank)
                if known is not None:
                    self._agents[rank] = msgspec.structs.replace(known, rate=rate)

    def iteration(self, iteration: int, started: float, seconds: float) -> None:
        """Note an iteration that is over."""
        with self._lock:
            self._made += 1
            self.done = iteration
            self._last[iteration] = times = (started, seconds)
            if len(self._last) > MAX_ITERATIONS:
                self._last.popitem(last=False)
            if iteration in self._shares:
                self._times[iteration] = times

    def shares(self, iteration: int, shares: Iterable[AgentShare]) -> None:
        """Note what agents did in an iteration; a second word about the same agent replaces it."""
        with self._lock:
            found = self._shares.setdefault(iteration, {})
            found.update((one.agent, one) for one in shares)
            if iteration in self._last:
                self._times[iteration] = self._last[iteration]
            most = max(1, min(MAX_ITERATIONS, MAX_SHARES // max(1, len(self._agents))))
            while len(self._shares) > most:
                dropped, _ = self._shares.popitem(last=False)
                self._times.pop(dropped, None)

    def move(self, moves: Iterable[Move]) -> None:
        """Note moves."""
        with self._lock:
            for one in moves:
                self._counts["moves"] += 1
                self._moves.append(_short(one))

    def late(self, chunk: LateChunk) -> int:
        """Record items that another agent maps as well; return a number for :meth:`late_over`."""
        with self._lock:
            self._counts["late"] += 1
            number = self._counts["late"]
            self._late[number] = _short(chunk)
            while len(self._late) > MAX_EVENTS:
                self._late.popitem(last=False)
            return number

    def late_over(self, number: int, outcome: str) -> None:
        """Record their outcome; the first one counts."""
        with self._lock:
            known = self._late.get(number)
            if known is not None and known.outcome == "running":
                self._late[number] = msgspec.structs.replace(known, outcome=outcome)

    def loss(self, loss: Loss) -> None:
        """Note a loss, or that it was made good."""
        with self._lock:
            self._counts["losses"] += 1
            self._losses.append(_short(loss))

    def checkpoint(self, checkpoint: RecordedCheckpoint) -> None:
        """Note a checkpoint."""
        with self._lock:
            self._counts["checkpoints"] += 1
            self._checkpoints.append(checkpoint)

    def record(self, seconds: float) -> WorkStatistics:
        """Return the record as it is now.

        Args:
            seconds: Duration of the run so far.
        """
        with self._lock:
            # Those of which more is known are kept for longer.
            others = [number for number in self._last if number not in self._times]
            room = MAX_ITERATIONS - len(self._times)
            times = {number: self._last[number] for number in others[-room:]} if room else {}
            times |= self._times
            return WorkStatistics(
                run=self._run,
                program=self._program,
                hash=self.hash,
                began=self._began,
                seconds=seconds,
                items=self._items,
                done=self.done,
                delegate=self.delegate,
                kept_in_place=self.kept_in_place[:MAX_TEXT],
                first_guess=self.first_guess[:MAX_TEXT],
                agents=tuple(self._agents[rank] for rank in sorted(self._agents)),
                iterations=tuple(
                    self._recorded(number, *times[number]) for number in sorted(times)
                ),
                moves=tuple(self._moves),
                late=tuple(self._late.values()),
                losses=tuple(self._losses),
                checkpoints=tuple(self._checkpoints),
                counts={"iterations": self._made, **self._counts},
            )

    def _recorded(self, number: int, started: float, seconds: float) -> RecordedIteration:
        found = self._shares.get(number, {})
        agents = tuple(found[rank] for rank in sorted(found))
        return RecordedIteration(iteration=number, started=started, seconds=seconds, agents=agents)


def _short(one: Reasoned) -> Reasoned:
    if len(one.reason) <= MAX_TEXT:
        return one
    return msgspec.structs.replace(one, reason=f"{one.reason[: MAX_TEXT - 1]}…")
