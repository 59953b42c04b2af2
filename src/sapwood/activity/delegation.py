"""Which agent does which items: by what it was measured to do, moved only where that pays.

All of this is pure: it receives events and returns what to do, without clocks and without
messages. ``run_watch.py``, ``agent_calls.py`` and the simulation carry it out.

Items stay in one row: each agent has a range of them, in the order of the ranks. Between two
iterations the ranges may be cut anew. Within an iteration they stay; where an agent is late, others
map its items as well, and the first answer counts. That is decided in one place, the late agent,
which alone contributes for its items: so they are in the sum once, whoever was first.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

REMEMBERED_SECONDS = 0.25
"""Time that the last maps of an agent must cover; older ones are forgotten."""

REMEMBERED_RATES = 15
"""Maps that are remembered at most, however short they are."""

LEAST_RATE, MOST_RATE = 1e-12, 1e15
"""Bounds of a rate, items per second: beyond them a clock or a history was wrong."""

UNKNOWN_SLOWER = 20
"""Times that an agent may be slower than all others before it was measured."""

T = TypeVar("T")


class DelegationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How items are given to agents.

    Attributes:
        how: ``static`` gives equal parts once; ``measured`` follows the rates.
        least_gain: Share of an iteration that moving must save.
        least_iteration: Seconds; shorter iterations gain nothing that users would notice.
        late_factor: How much longer than expected an agent may take before it is late.
        late_after: Seconds that it may take longer in any case.
    """

    how: str = "static"
    least_gain: float = 0.08
    least_iteration: float = 0.002
    late_factor: float = 1.3
    late_after: float = 0.1


class Rates:
    """What agents were measured to do: items per second.

    The rate of an agent is the median of its last maps, as many as cover a quarter of a second. So
    one short map that was disturbed changes nothing, and one long map is enough.

    Args:
        first: A first guess for some agents, until they are measured.

    Example:
        >>> rates = Rates({1: 10.0})
        >>> rates.note(2, items=100, seconds=2.0)
        >>> rates.of([1, 2, 3])
        {1: 10.0, 2: 50.0, 3: 30.0}
    """

    def __init__(self, first: Mapping[int, float] | None = None) -> None:
        self._first = {rank: rate for rank, rate in (first or {}).items() if is_rate(rate)}
        self._last: dict[int, deque[tuple[float, float]]] = {}

    def note(self, rank: int, items: int, seconds: float) -> None:
        """Record a map; impossible values (no time, no items, a clock that jumped) are ignored."""
        if items <= 0 or not math.isfinite(seconds) or seconds <= 0:
            return
        rate = items / seconds
        if not is_rate(rate):
            return
        last = self._last.setdefault(rank, deque(maxlen=REMEMBERED_RATES))
        last.append((rate, seconds))
        while sum(took for _, took in last) - last[0][1] >= REMEMBERED_SECONDS:
            last.popleft()

    def forget(self, rank: int) -> None:
        """Forget what was measured of an agent: its process is another one."""
        self._last.pop(rank, None)

    def measured(self, rank: int) -> bool:
        """Whether an agent was measured."""
        return rank in self._last

    def of(self, ranks: Sequence[int]) -> dict[int, float]:
        """Return the rate of each agent; unknown ones count as the mean of the others.

        Empty if nothing is known of any.
        """
        known = {
            rank: self._median_of(rank) if rank in self._last else self._first[rank]
            for rank in ranks
            if rank in self._last or rank in self._first
        }
        if not known:
            return {}
        mean = sum(known.values()) / len(known)
        return {rank: known.get(rank, mean) for rank in ranks}

    def at_least(self, ranks: Sequence[int]) -> dict[int, float]:
        """Return the rate of each agent; an unmeasured one may be far slower than all others.

        Example:
            >>> rates = Rates()
            >>> rates.note(1, items=10, seconds=1.0)
            >>> rates.at_least([1, 2])
            {1: 10.0, 2: 0.5}
        """
        known = {rank: self._median_of(rank) for rank in ranks if rank in self._last}
        if not known:
            return {}
        least = min(known.values()) / UNKNOWN_SLOWER
        return {rank: known.get(rank, least) for rank in ranks}

    def _median_of(self, rank: int) -> float:
        return _median([rate for rate, _ in self._last[rank]])


def is_rate(rate: float) -> bool:
    """Whether this can be the items per second of an agent; NaN cannot."""
    return LEAST_RATE <= rate <= MOST_RATE


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


# --- between iterations ---------------------------------------------------------------------------


def assign(items: range, rates: Mapping[int, float], chunk: int = 1) -> dict[int, range]:
    """Cut items into ranges whose lengths are in proportion to rates, in the order of the ranks.

    Args:
        items: The items, step 1.
        rates: Items per second of each agent, above 0.
        chunk: Items that stay together; ranges are whole chunks, the last one may be short.

    Returns:
        The range of each agent. Where there are as many chunks as agents, each has at least one,
        so that it is still measured; where there are fewer, the slowest have none.

    Example:
        >>> assign(range(70), {1: 1.0, 2: 2.0, 3: 4.0})
        {1: range(0, 10), 2: range(10, 30), 3: range(30, 70)}
        >>> assign(range(10), {1: 1.0, 2: 1000.0}, chunk=4)
        {1: range(0, 4), 2: range(4, 10)}
    """
    ranks = sorted(rates)
    chunks = -(-len(items) // chunk)
    counts = _proportional(chunks, [rates[rank] for rank in ranks])
    given: dict[int, range] = {}
    start = items.start
    for rank, count in zip(ranks, counts, strict=True):
        stop = min(items.stop, start + count * chunk)
        given[rank] = range(start, stop)
        start = stop
    return given


def _proportional(count: int, weights: Sequence[float]) -> list[int]:
    """Give each one after the other to whom it makes the least late."""
    if count <= len(weights):
        best = sorted(range(len(weights)), key=lambda i: (-weights[i], i))[:count]
        return [1 if i in best else 0 for i in range(len(weights))]
    total = sum(weights)
    counts = [max(1, math.floor(count * weight / total)) for weight in weights]
    many = range(len(weights))
    while sum(counts) > count:  # those with one only are not taken from
        counts[max(many, key=lambda i: (counts[i] > 1, counts[i] / weights[i], i))] -= 1
    while sum(counts) < count:
        counts[min(many, key=lambda i: ((counts[i] + 1) / weights[i], i))] += 1
    return counts


def seconds_of(given: Mapping[int, range], rates: Mapping[int, float]) -> float:
    """Return how long an iteration takes: as long as the last agent."""
    return max((len(part) / rates[rank] for rank, part in given.items() if part), default=0.0)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Items are to be cut anew.

    Attributes:
        given: The range of each agent.
        before: Seconds that an iteration is expected to take as things are.
        after: Seconds that it is expected to take then.
        reason: Why, for people.
    """

    given: dict[int, range]
    before: float
    after: float
    reason: str


def decide(
    given: Mapping[int, range],
    rates: Mapping[int, float],
    options: DelegationOptions,
    *,
    cost: float,
    ahead: float,
    chunk: int = 1,
) -> Decision | None:
    """Return how items are to be cut anew, or None if they are to stay.

    Args:
        given: The range of each agent now.
        rates: Items per second of each.
        options: How careful this is.
        cost: Seconds that a move takes.
        ahead: Iterations that are expected to come.
        chunk: Items that stay together.
    """
    if options.how != "measured" or len(given) < 2 or rates.keys() < given.keys():
        return None
    items = range(min(part.start for part in given.values()), max(p.stop for p in given.values()))
    before = seconds_of(given, rates)
    if before < options.least_iteration:
        return None
    new = assign(items, {rank: rates[rank] for rank in given}, chunk)
    after = seconds_of(new, rates)
    gain = before - after
    if gain < options.least_gain * before or gain * ahead <= cost:
        return None
    slow = max(given, key=lambda rank: len(given[rank]) / rates[rank])
    fast = max(rates[rank] for rank in given)
    reason = (
        f"agent {slow} maps {rates[slow]:.4g} items/s, the fastest {fast:.4g}: "
        f"{100 * gain / before:.0f} % of an iteration saved"
    )
    return Decision(given=new, before=before, after=after, reason=reason)


class Regret:
    """Seconds that iterations took longer than they would have after a cut that was not made.

    Data are cut again when the losses reach the cost of a cut. This is the ski-rental strategy: it
    costs at most twice the optimum (Karlin, Manasse, Rudolph and Sleator, Competitive snoopy
    caching, Algorithmica 3, 1988).

    Args:
        iteration: The iteration before the first that counts.

    Example:
        >>> regret = Regret(10)
        >>> regret.after(12, gain=0.5), regret.after(13, gain=0.25), regret.after(14, gain=0.0)
        (1.0, 1.25, 0.0)
    """

    def __init__(self, iteration: int = 0) -> None:
        self._iteration = iteration
        self._seconds = 0.0

    def after(self, iteration: int, gain: float) -> float:
        """Return the seconds after an iteration.

        Args:
            iteration: The iteration that is over.
            gain: Seconds that a cut would save in each; 0 forgets what was.
        """
        made = iteration - self._iteration
        self._seconds = self._seconds + gain * made if gain > 0 else 0.0
        self._iteration = iteration
        return self._seconds


def moved(old: Mapping[int, range], new: Mapping[int, range]) -> list[tuple[int, int, int]]:
    """Return which agent gave how many items to which: source, target, items.

    Example:
        >>> moved({1: range(0, 5), 2: range(5, 10)}, {1: range(0, 2), 2: range(2, 10)})
        [(1, 2, 3)]
    """
    found: list[tuple[int, int, int]] = []
    for source, had in old.items():
        for target, has in new.items():
            both = min(had.stop, has.stop) - max(had.start, has.start)
            if source != target and both > 0:
                found.append((source, target, both))
    return found


# --- within an iteration --------------------------------------------------------------------------


class SpeculativeRange(msgspec.Struct, frozen=True):
    """Items of a late agent that another one maps as well."""

    by: int
    start: int
    stop: int


def late(
    given: Mapping[int, range],
    busy: Mapping[int, float],
    rates: Mapping[int, float],
    options: DelegationOptions,
    *,
    divisible: bool,
) -> tuple[int, list[SpeculativeRange], str] | None:
    """Return the agent that is latest, who is to map its items as well, and why.

    An agent is late when it takes longer than expected by a factor, and by as much as the others
    would need for all its items, so the work at most doubles. That
    comes after ``late_after`` seconds more, which a runner needs to restart: the runner of the
    agent that was not first is stopped.

    Args:
        given: The range of each agent.
        busy: Seconds since agents were asked that have not answered; those that have are idle.
        rates: Items per second of each.
        options: How patient this is.
        divisible: Whether several may share the items of one.
    """
    idle = [rank for rank in sorted(given) if rank not in busy and rank in rates]
    if options.how != "measured" or not idle:
        return None
    latest: tuple[float, int] | None = None
    for rank, seconds in busy.items():
        part = given.get(rank)
        if not part or rank not in rates:
            continue
        over = seconds - len(part) / rates[rank] * options.late_factor - options.late_after
        if over > 0 and (latest is None or over > latest[0]):
            latest = over, rank
    if latest is None:
        return None
    over, rank = latest
    part = given[rank]
    helpers = idle if divisible else [max(idle, key=lambda one: (rates[one], -one))]
    others = len(part) / sum(rates[one] for one in helpers)
    if over < others:
        return None
    pieces = [
        SpeculativeRange(by, each.start, each.stop)
        for by, each in assign(part, {one: rates[one] for one in helpers}).items()
        if each
    ]
    expected = len(part) / rates[rank]
    return rank, pieces, f"busy for {busy[rank]:.3g} s where {expected:.3g} s were expected"


def late_at(
    given: Mapping[int, range], rates: Mapping[int, float], options: DelegationOptions
) -> float:
    """Return after how many seconds the first agent may be late, infinity if none can be.

    Example:
        >>> options = DelegationOptions(how="measured")
        >>> round(late_at({1: range(10), 2: range(10, 20)}, {1: 10.0, 2: 10.0}, options), 6)
        2.4
    """
    known = sum(rates.get(rank, 0.0) for rank in given)
    found = math.inf
    for rank, part in given.items():
        rate = rates.get(rank, 0.0)
        if part and 0 < rate < known:
            over = options.late_after + len(part) / (known - rate)
            found = min(found, len(part) / rate * options.late_factor + over)
    return found


class Substitute(Generic[T]):
    """Collects what others answer for the items of a late agent; complete once, or never.

    Args:
        pieces: Who maps what; together exactly the items.
        merge: Puts the answers together, in the order of the items.

    Example:
        >>> two = Substitute([SpeculativeRange(2, 0, 5), SpeculativeRange(3, 5, 9)], sum)
        >>> two.answered(SpeculativeRange(2, 0, 5), 10), two.answered(SpeculativeRange(2, 0, 5), 10)
        (None, None)
        >>> two.answered(SpeculativeRange(3, 5, 9), 7)
        17
    """

    def __init__(self, pieces: Sequence[SpeculativeRange], merge: Callable[[list[T]], T]) -> None:
        self._pieces = sorted(pieces, key=lambda one: one.start)
        self._merge = merge
        self._found: dict[SpeculativeRange, T] = {}
        self.over = False

    def answered(self, piece: SpeculativeRange, value: T) -> T | None:
        """Take an answer in; return what stands for all items when the last one is there."""
        if self.over or piece in self._found or piece not in self._pieces:
            return None
        self._found[piece] = value
        if len(self._found) < len(self._pieces):
            return None
        self.over = True
        return self._merge([self._found[one] for one in self._pieces])

    def failed(self) -> None:
        """One of them does not answer: the late agent has to."""
        self.over = True


class FirstContribution:
    """At an agent: its own answer to a wave, or that of others for its items, whichever is first.

    Waves of one stream only, in which the agent has the same items all the time: whenever items
    are cut anew there is another stream, with another of these.

    Example:
        >>> first = FirstContribution()
        >>> first.wanted(1)
        >>> first.counts(1), first.counts(1), first.counts(2)
        (True, False, False)
    """

    def __init__(self) -> None:
        self._open: set[int] = set()

    def wanted(self, wave: int) -> None:
        """Note that a wave wants an answer."""
        self._open.add(wave)

    def counts(self, wave: int) -> bool:
        """Whether an answer to a wave is the first; asked once for each answer."""
        if wave not in self._open:
            return False
        self._open.discard(wave)
        return True
