"""C1-EXEC-1: what follows each end of the process of a detached run."""

from __future__ import annotations

import signal

import pytest

from sapwood.environment.settings import RestartPolicy
from sapwood.head.run_ends import (
    FOLLOWS,
    INTERRUPTED,
    SESSION_LOST,
    DriverEnd,
    Follows,
    how_ended,
    restarts_after,
)

pytestmark = pytest.mark.row("C1-EXEC-1")

STATUSES = {
    DriverEnd.KILLED: int(signal.SIGKILL),
    DriverEnd.SESSION_LOST: SESSION_LOST << 8,
    DriverEnd.INTERRUPTED: INTERRUPTED << 8,
    DriverEnd.UNKNOWN: None,
    DriverEnd.FAILED: 1 << 8,
}


def test_the_table_is_whole() -> None:
    assert set(FOLLOWS) == set(DriverEnd)
    assert set(STATUSES) == set(DriverEnd) - {DriverEnd.ANSWERED}


@pytest.mark.parametrize("end", STATUSES, ids=lambda one: one.value)
def test_each_end_is_known_and_an_answer_counts_more(end: DriverEnd) -> None:
    assert how_ended(STATUSES[end], answered=False) is end
    assert how_ended(STATUSES[end], answered=True) is DriverEnd.ANSWERED


@pytest.mark.parametrize("end", DriverEnd, ids=lambda one: one.value)
def test_what_follows_is_in_the_table_unless_the_policy_or_somebody_says_no(
    end: DriverEnd,
) -> None:
    policy = RestartPolicy(limit=2)
    again = FOLLOWS[end] is Follows.AGAIN
    assert restarts_after(end, (), policy, 5.0, cancelled=False) == ((5.0,) if again else None)
    assert restarts_after(end, (), policy, 5.0, cancelled=True) is None
    assert restarts_after(end, (1.0, 2.0), policy, 5.0, cancelled=False) is None
    never = RestartPolicy(run="end")
    assert restarts_after(end, (), never, 5.0, cancelled=False) is None
