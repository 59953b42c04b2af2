"""What follows when the process of a detached run has ended, as a table.

======================  =========  ================================================
how it ended            follows    why
======================  =========  ================================================
it has answered         over       the answer, an error included, is what was wanted
a signal has killed it  again      its progress is known from its checkpoint only
its session was lost    again      the session restarts, or is over then
SIGTERM has ended it    again      so does a machine that shuts down
unknown                 again      a former head had started it
it failed, no answer    over       it would fail again
======================  =========  ================================================

``restarts.limit`` and ``restarts.run`` of the policy bound restarts, and a run that was
cancelled is over in any case.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from sapwood.environment.settings import RestartPolicy
from sapwood.head.restarts import begun_again

SESSION_LOST: Final = 75
"""Exit code of a driver whose session was lost: it is restarted."""

INTERRUPTED: Final = 130
"""Exit code of a driver that SIGTERM has ended: it is restarted, unless the run was cancelled."""


class DriverEnd(enum.Enum):
    """How the process of a run has ended."""

    ANSWERED = "answered"
    KILLED = "killed"
    SESSION_LOST = "session lost"
    INTERRUPTED = "interrupted"
    UNKNOWN = "unknown"
    FAILED = "failed"


class Follows(enum.Enum):
    """What follows."""

    AGAIN = "again"
    OVER = "over"


FOLLOWS: Final[Mapping[DriverEnd, Follows]] = MappingProxyType(
    {
        DriverEnd.ANSWERED: Follows.OVER,
        DriverEnd.KILLED: Follows.AGAIN,
        DriverEnd.SESSION_LOST: Follows.AGAIN,
        DriverEnd.INTERRUPTED: Follows.AGAIN,
        DriverEnd.UNKNOWN: Follows.AGAIN,
        DriverEnd.FAILED: Follows.OVER,
    }
)
"""What follows each end of a driver."""


def how_ended(status: int | None, *, answered: bool) -> DriverEnd:
    """Return how a driver has ended.

    Args:
        status: Result of ``waitpid``; None for a process with another parent.
        answered: Whether it has written an answer.

    Example:
        >>> how_ended(9, answered=False), how_ended(75 << 8, answered=False)
        (<DriverEnd.KILLED: 'killed'>, <DriverEnd.SESSION_LOST: 'session lost'>)
    """
    if answered:
        return DriverEnd.ANSWERED
    if status is None:
        return DriverEnd.UNKNOWN
    if os.WIFSIGNALED(status):
        return DriverEnd.KILLED
    code = os.waitstatus_to_exitcode(status)
    known = {SESSION_LOST: DriverEnd.SESSION_LOST, INTERRUPTED: DriverEnd.INTERRUPTED}
    return known.get(code, DriverEnd.FAILED)


def restarts_after(
    end: DriverEnd, former: Sequence[float], policy: RestartPolicy, now: float, *, cancelled: bool
) -> tuple[float, ...] | None:
    """Return the times of the run's restarts, including now; None where it is over.

    Args:
        end: How its process has ended.
        former: Times of former restarts, seconds since 1970.
        policy: How often it may be.
        now: The time.
        cancelled: Whether it was cancelled.
    """
    if cancelled or FOLLOWS[end] is Follows.OVER or policy.run == "end":
        return None
    return begun_again(former, policy, now)
