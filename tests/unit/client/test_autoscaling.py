"""Autoscaling without agents: what the policy wants, and what is done then."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.activity.tasks import TaskDemand
from sapwood.client.autoscaling import (
    BACKLOG,
    FIRST_RETRY,
    INTERVAL,
    LONGEST_RETRY,
    AutoscaleBounds,
    AutoscaleChange,
    AutoscalePolicy,
    Autoscaling,
    ScalableCluster,
    bounds_of,
)
from sapwood.core.clock import VirtualClock
from sapwood.core.errors import ClosedError, ConfigurationError, ResourceError

NOTHING = AutoscaleChange()
PATIENCE = 30.0


def demand(waiting: int, *loads: int, bound: Iterable[int] = ()) -> TaskDemand:
    return TaskDemand(waiting, dict(enumerate(loads, start=1)), frozenset(bound))


def test_at_most_as_many_agents_are_added_as_there_are() -> None:
    policy = AutoscalePolicy(AutoscaleBounds(1, 7, idle=60.0))
    assert policy.step(0.0, demand(100, 2)) == NOTHING
    assert policy.step(BACKLOG, demand(100, 2)).add == 1
    assert policy.step(BACKLOG, demand(100, 2, 2)) == NOTHING  # they are to have an effect first
    assert policy.step(2 * BACKLOG, demand(100, 2, 2)).add == 2
    policy.step(2 * BACKLOG, demand(100, 2, 2, 2, 2))
    assert policy.step(3 * BACKLOG, demand(100, 2, 2, 2, 2)).add == 3  # 7 is the maximum
    policy.step(4 * BACKLOG, demand(100, 2, 2, 2, 2, 2, 2, 2))
    assert policy.step(9 * BACKLOG, demand(100, 2, 2, 2, 2, 2, 2, 2)) == NOTHING


def test_no_more_agents_are_added_than_there_are_tasks_that_wait() -> None:
    policy = AutoscalePolicy(AutoscaleBounds(1, 100, idle=60.0))
    policy.step(0.0, demand(1, 2, 1, 1, 1))
    assert policy.step(BACKLOG, demand(1, 2, 1, 1, 1)).add == 2


def test_a_short_burst_adds_none() -> None:
    policy = AutoscalePolicy(AutoscaleBounds(1, 8, idle=60.0))
    policy.step(0.0, demand(50, 2))
    assert policy.step(0.9 * BACKLOG, demand(0, 1)) == NOTHING
    assert policy.step(BACKLOG, demand(50, 2)) == NOTHING
    assert policy.step(1.9 * BACKLOG, demand(50, 2)) == NOTHING
    assert policy.step(2 * BACKLOG, demand(50, 2)).add == 1


def test_the_minimum_is_there_at_once() -> None:
    policy = AutoscalePolicy(AutoscaleBounds(3, 8, idle=60.0))
    assert policy.step(0.0, demand(0, 0)).add == 2


def test_agents_that_are_idle_for_long_are_removed_down_to_the_minimum() -> None:
    policy = AutoscalePolicy(AutoscaleBounds(2, 8, idle=10.0))
    assert policy.step(0.0, demand(0, 0, 0, 1, 0)) == NOTHING
    assert policy.step(9.0, demand(0, 0, 1, 0, 0)) == NOTHING
    assert policy.step(10.0, demand(0, 0, 0, 0, 0)).remove == (4, 1)
    assert policy.step(19.0, demand(0, 0, 0, 0, 0), may_shrink=False) == NOTHING
    assert policy.step(19.0, demand(0, 0, 0, 0, 0)).remove == (4, 3)


def test_agents_that_were_called_by_rank_stay() -> None:
    policy = AutoscalePolicy(AutoscaleBounds(1, 8, idle=10.0))
    policy.step(0.0, demand(0, 0, 0, 0))
    assert policy.step(10.0, demand(0, 0, 0, 0, bound=[3])).remove == (2, 1)


def test_agents_that_cannot_be_added_are_tried_again_later_and_later() -> None:
    policy = AutoscalePolicy(AutoscaleBounds(2, 8, idle=10.0))
    now, waited = 0.0, []
    for _ in range(9):
        assert policy.step(now, demand(0, 0)).add == 1
        delay = policy.failed(now)
        assert policy.step(now + 0.99 * delay, demand(0, 0)) == NOTHING
        now += delay
        waited.append(delay)
    assert waited[:3] == [FIRST_RETRY, 2 * FIRST_RETRY, 4 * FIRST_RETRY]
    assert waited[-1] == LONGEST_RETRY
    policy.grown()
    assert policy.failed(now) == FIRST_RETRY


@given(
    st.integers(1, 4),
    st.integers(0, 6),
    st.lists(
        st.tuples(st.integers(0, 20), st.lists(st.integers(0, 3), max_size=12), st.booleans()),
        max_size=20,
    ),
)
def test_what_it_wants_is_within_the_bounds(
    minimum: int, more: int, steps: list[tuple[int, list[int], bool]]
) -> None:
    bounds = AutoscaleBounds(minimum, minimum + more, idle=1.0)
    policy = AutoscalePolicy(bounds)
    for number, (waiting, loads, may_shrink) in enumerate(steps):
        seen = demand(waiting, *loads)
        change = policy.step(float(number), seen, may_shrink=may_shrink)
        assert not (change.add and change.remove)
        assert change.add == 0 or len(loads) + change.add <= bounds.maximum
        assert not change.remove or len(loads) - len(change.remove) >= bounds.minimum
        assert all(seen.loads[rank] == 0 for rank in change.remove)
        assert may_shrink or not change.remove


class Fake:
    """A cluster of which tests say what it has to do."""

    def __init__(self, seen: TaskDemand) -> None:
        self.seen: TaskDemand | Exception = seen
        self.failure: Exception | None = None
        self.added: list[int] = []
        self.removed: list[tuple[int, ...]] = []
        self.looked = threading.Event()

    def demand(self) -> TaskDemand:
        self.looked.set()
        if isinstance(self.seen, Exception):
            raise self.seen
        return self.seen

    def add(self, count: int) -> tuple[int, ...]:
        if self.failure is not None:
            raise self.failure
        self.added.append(count)
        return tuple(range(10, 10 + count))

    def remove(self, ranks: Iterable[int]) -> tuple[int, ...]:
        if self.failure is not None:
            raise self.failure
        self.removed.append(tuple(ranks))
        return self.removed[-1]

    def scaled(self, bounds: AutoscaleBounds, clock: VirtualClock) -> Autoscaling:
        """Return what scales it when the test says so."""
        made = Autoscaling(
            ScalableCluster(self.demand, lambda: False, self.add, self.remove), bounds, clock
        )
        made.stop()  # its own thread; the test looks
        return made


def test_a_failure_is_told_and_tried_again() -> None:
    fake, clock = Fake(demand(0, 0)), VirtualClock(100.0)
    scaling = fake.scaled(AutoscaleBounds(2, 4, idle=10.0), clock)
    fake.failure = ResourceError("the machine has no more processes")
    scaling.look()
    assert scaling.problem == "the machine has no more processes"
    fake.failure = None
    scaling.look()
    assert fake.added == []
    clock.advance(FIRST_RETRY)
    scaling.look()
    assert fake.added == [1]
    assert scaling.problem == ""


def test_agents_that_another_client_has_removed_are_no_failure() -> None:
    fake, clock = Fake(demand(0, 0, 0)), VirtualClock()
    scaling = fake.scaled(AutoscaleBounds(1, 4, idle=10.0), clock)
    scaling.look()
    clock.advance(10.0)
    fake.failure = ConfigurationError("agent 2 was removed")
    scaling.look()
    assert fake.removed == []
    fake.failure = None
    scaling.look()
    assert fake.removed == [(2,)]


def test_it_ends_with_its_cluster() -> None:
    fake = Fake(demand(0, 0))
    fake.seen = ClosedError("the cluster is closed")
    scaling = Autoscaling(
        ScalableCluster(fake.demand, lambda: False, fake.add, fake.remove),
        AutoscaleBounds(1, 4, idle=10.0),
    )
    assert fake.looked.wait(PATIENCE + INTERVAL)
    scaling._thread.join(PATIENCE)
    assert scaling.stopped
    assert repr(scaling) == "<Autoscaling: 1 to 4 agents, stopped>"


@pytest.mark.parametrize(("minimum", "maximum"), [(0, 4), (5, 4), (-1, -1), (1, 101)])
def test_bounds_must_be_bounds(minimum: int, maximum: int) -> None:
    with pytest.raises(ConfigurationError, match=str(maximum)):
        bounds_of(minimum, maximum, 60.0, 100)
