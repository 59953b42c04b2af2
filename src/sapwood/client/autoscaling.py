"""Autoscaling: a cluster grows while tasks wait, and shrinks when agents have nothing to do."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self

import msgspec

from sapwood.activity.tasks import TaskDemand
from sapwood.core.clock import Clock, MonotonicClock
from sapwood.core.errors import ClosedError, ConfigurationError, ResourceError, SapwoodError
from sapwood.core.failures import new_thread
from sapwood.core.rankset import fold
from sapwood.core.staying import StaysHere
from sapwood.environment.logs import logger

INTERVAL = 0.5
"""Seconds between two looks at the queue."""

BACKLOG = 1.0
"""Seconds for which tasks must wait before agents are added: a short burst needs none."""

FIRST_RETRY, LONGEST_RETRY = 5.0, 300.0
"""Seconds until agents are asked for again after they could not be started; doubled each time."""

CONTRACT_TIMEOUT = 60.0
"""Seconds that agents which are removed have for what others have asked them for."""

_log = logger("autoscaling")


class AutoscaleBounds(msgspec.Struct, frozen=True):
    """How far a cluster grows and shrinks.

    Attributes:
        minimum: The fewest agents.
        maximum: The most agents.
        idle: Seconds after which an agent without tasks is removed.
    """

    minimum: int
    maximum: int
    idle: float


class AutoscaleChange(msgspec.Struct, frozen=True):
    """What the policy wants: one of both, or neither.

    Attributes:
        add: How many agents to add.
        remove: Ranks of agents to remove.
    """

    add: int = 0
    remove: tuple[int, ...] = ()


class AutoscalePolicy:
    """Decides from the demand for agents how many there should be; it does nothing itself.

    The number of agents at most doubles at a time, as tasks that end meanwhile show how long they
    take. Agents are removed one by one as they become idle, those that came last first.

    Args:
        bounds: How far the cluster grows and shrinks.

    Example:
        >>> policy = AutoscalePolicy(AutoscaleBounds(1, 8, idle=60.0))
        >>> busy = TaskDemand(waiting=10, loads={1: 2, 2: 2})
        >>> policy.step(0.0, busy).add, policy.step(1.0, busy).add
        (0, 2)
        >>> quiet = TaskDemand(waiting=0, loads={1: 0, 2: 0, 3: 0, 4: 1})
        >>> policy.step(2.0, quiet).remove, policy.step(62.0, quiet).remove
        ((), (3, 2, 1))
    """

    def __init__(self, bounds: AutoscaleBounds) -> None:
        self._bounds = bounds
        self._backlog_since: float | None = None
        self._idle_since: dict[int, float] = {}
        self._retry_at = 0.0
        self._retry = FIRST_RETRY

    def step(self, now: float, demand: TaskDemand, *, may_shrink: bool = True) -> AutoscaleChange:
        """Return what to change.

        Args:
            now: The time, seconds.
            demand: What the agents have to do.
            may_shrink: Whether nothing but tasks needs the agents.
        """
        self._note_idle(now, demand)
        add = self._to_add(now, demand)
        if add:
            return AutoscaleChange(add=add)
        return AutoscaleChange(remove=self._to_remove(now, demand) if may_shrink else ())

    def failed(self, now: float) -> float:
        """Note that agents could not be added; return after how many seconds they are tried again.

        Args:
            now: The time, seconds.
        """
        delay, self._retry = self._retry, min(2 * self._retry, LONGEST_RETRY)
        self._retry_at = now + delay
        return delay

    def grown(self) -> None:
        """Note that agents were added."""
        self._retry = FIRST_RETRY

    def _note_idle(self, now: float, demand: TaskDemand) -> None:
        idle = [rank for rank, load in demand.loads.items() if not load]
        self._idle_since = {rank: self._idle_since.get(rank, now) for rank in idle}

    def _to_add(self, now: float, demand: TaskDemand) -> int:
        agents = len(demand.loads)
        missing = self._bounds.minimum - agents
        if demand.backlog <= 0:
            self._backlog_since = None
        elif self._backlog_since is None:
            self._backlog_since = now
        if now < self._retry_at:
            return 0
        if missing > 0:
            return missing
        if self._backlog_since is None or now - self._backlog_since < BACKLOG:
            return 0
        more = min(demand.backlog, max(agents, 1), self._bounds.maximum - agents)
        if more > 0:
            self._backlog_since = None  # what the new ones take off is seen first
        return max(more, 0)

    def _to_remove(self, now: float, demand: TaskDemand) -> tuple[int, ...]:
        surplus = len(demand.loads) - self._bounds.minimum
        idle = [
            rank
            for rank, since in self._idle_since.items()
            if now - since >= self._bounds.idle and rank not in demand.bound
        ]
        return tuple(sorted(idle, reverse=True)[: max(surplus, 0)])


@dataclass(frozen=True)
class ScalableCluster:
    """What autoscaling needs of a cluster: functions that raise ClosedError once it is closed.

    Attributes:
        demand: Returns what the agents have to do.
        must_keep_agents: Whether more than tasks needs the agents that are there.
        add: Adds agents; returns their ranks.
        remove: Removes those agents that have nothing to do; returns their ranks.
    """

    demand: Callable[[], TaskDemand]
    must_keep_agents: Callable[[], bool]
    add: Callable[[int], tuple[int, ...]]
    remove: Callable[[Iterable[int]], tuple[int, ...]]


class Autoscaling(StaysHere):
    """A cluster that grows and shrinks with its tasks; made by :meth:`sapwood.Cluster.autoscale`.

    As a context manager it stops at the end of the block. It also ends with its cluster.

    Attributes:
        bounds: The bounds.
        problem: Why agents could not be added at last; empty if they could.
    """

    def __init__(
        self,
        cluster: ScalableCluster,
        bounds: AutoscaleBounds,
        clock: Clock | None = None,
    ) -> None:
        self.bounds = bounds
        self.problem: str = ""
        self._cluster = cluster
        self._clock = clock or MonotonicClock()
        self._policy = AutoscalePolicy(bounds)
        self._stop = threading.Event()
        self._thread = new_thread("sapwood-autoscaling", self._work)
        self._thread.start()

    @property
    def stopped(self) -> bool:
        """Whether it has stopped, or stops when agents that are being started are ready."""
        return self._stop.is_set()

    def stop(self, *, wait: bool = True) -> None:
        """Leave the number of agents as it is from now on.

        Args:
            wait: Whether to wait for agents that are being added or removed.
        """
        self._stop.set()
        if wait and self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "stopped" if self.stopped else self.problem or "working"
        low, high = self.bounds.minimum, self.bounds.maximum
        return f"<Autoscaling: {low} to {high} agents, {state}>"

    def _work(self) -> None:
        while not self._stop.wait(INTERVAL):
            try:
                self.look()
            except ClosedError:
                self._stop.set()

    def look(self) -> None:
        """Look at the queue once, and add or remove agents; its thread does so."""
        keeps = self._cluster.must_keep_agents()
        demand = self._cluster.demand()
        change = self._policy.step(self._clock.now(), demand, may_shrink=not keeps)
        if change.add:
            self._grow(change.add, demand)
        elif change.remove:
            self._shrink(change.remove)

    def _grow(self, count: int, demand: TaskDemand) -> None:
        try:
            added = self._cluster.add(count)
        except ClosedError:
            raise
        except SapwoodError as error:
            self.problem = error.what
            delay = self._policy.failed(self._clock.now())
            _log.warning("agents not added", wanted=count, reason=error.what, again_in=delay)
            return
        self.problem = ""
        self._policy.grown()
        _log.info("agents added", agents=fold("agent", added), waiting=demand.waiting)

    def _shrink(self, ranks: Iterable[int]) -> None:
        try:
            removed = self._cluster.remove(ranks)
        except ClosedError:
            raise
        except (ConfigurationError, ResourceError) as error:  # another client has removed them
            _log.warning("agents not removed", reason=error.what)
            return
        if removed:
            _log.info("agents removed", agents=fold("agent", removed), idle=self.bounds.idle)


def bounds_of(minimum: int, maximum: int, idle: float, limit: int) -> AutoscaleBounds:
    """Return bounds of a cluster.

    Args:
        minimum: The fewest agents.
        maximum: The most agents.
        idle: Seconds after which an agent without tasks is removed.
        limit: The setting ``limits.agents``.

    Raises:
        ConfigurationError: They are not bounds.

    Example:
        >>> bounds_of(4, 2, 60.0, 100)
        Traceback (most recent call last):
        sapwood.core.errors.ConfigurationError: minimum is 4 and maximum is 2. Hint: give 1 or \
more as the minimum, and no less than that as the maximum
    """
    if not 1 <= minimum <= maximum:
        raise ConfigurationError(
            f"minimum is {minimum} and maximum is {maximum}",
            hint="give 1 or more as the minimum, and no less than that as the maximum",
        )
    if maximum > limit:
        raise ConfigurationError(
            f"maximum is {maximum}, more than the limit of {limit} agents",
            hint="raise limits.agents if this is meant",
        )
    return AutoscaleBounds(minimum, maximum, idle)
