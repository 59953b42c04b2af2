"""How many agents are to work on a wave at a time: all, or a few for each core.

Where results are large the front end, which adds them, has as much to do as many agents. If all
agents work at the same time it gets a small share of its core, and adds most arrays when the
others are done and sleep; what it adds is in no cache any more. So some agents begin when others
have answered. That is wrong where agents wait for something else than a core; so it is tried, and
given up where it takes clearly more time.
"""

from __future__ import annotations

import os
from typing import Final

PER_CORE: Final = 4
"""Agents that are at work for each core."""

LARGE: Final = 256 * 1024
"""Bytes of a result from which it is tried."""

TRIAL: Final = 4
"""Waves of either kind that are compared; the shortest of each count."""

CLEARLY: Final = 1.25
"""How many times longer waves of few agents take in a trial when that is not for chance. Where
agents wait for something else, it is as many times as there are agents for one that is at work."""

WORSE: Final = 2.0
"""How many times longer waves take when something has changed since the trial."""

MAX_TRIALS: Final = 4
"""Trials after which all agents begin at once for good."""


class Pacing:
    """Decides for the waves of one stream.

    Args:
        children: Agents below the front end.
        cores: Cores of this machine; by default those that this process may use.

    Attributes:
        limit: Agents that are to work at a time; 0 for all.
        enough: Bytes of all answers to a wave from which :meth:`took` is to hear of it.

    Example:
        >>> pacing = Pacing(64, cores=2)
        >>> for seconds in (9e-3, 9e-3, 9e-3, 9e-3, 8e-3, 8e-3, 8e-3, 8e-3, 8e-3):
        ...     pacing.took(seconds)
        >>> pacing.limit
        8
        >>> for _ in range(4):
        ...     pacing.took(0.1)
        >>> pacing.limit
        0
    """

    __slots__ = ("_all", "_best", "_few", "_last", "_trials", "enough", "limit")

    def __init__(self, children: int, cores: int | None = None) -> None:
        few = PER_CORE * (cores or len(os.sched_getaffinity(0)))
        self.limit = 0
        self.enough: float = LARGE * children if children > few else float("inf")
        self._few = few
        self._all: list[float] = []
        self._best: list[float] = []
        self._last: list[float] = []
        self._trials = 0

    def took(self, seconds: float) -> None:
        """Note how long a wave with large answers took."""
        if not self.limit:
            self._all.append(seconds)
            if len(self._all) == TRIAL and self._trials < MAX_TRIALS:
                self.limit, self._best, self._last = self._few, [], []
                self._trials += 1
            del self._all[:-TRIAL]
            return
        usual = min(self._all, default=seconds)  # another thread may have begun anew
        if len(self._best) < TRIAL:
            self._best.append(seconds)
            worse = len(self._best) == TRIAL and min(self._best) >= CLEARLY * usual
        else:
            self._last.append(seconds)
            del self._last[:-TRIAL]
            worse = len(self._last) == TRIAL and min(self._last) > WORSE * usual
        if worse:
            self.limit, self._all = 0, []
