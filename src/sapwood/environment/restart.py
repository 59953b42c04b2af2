"""How often, and after which wait, something dead is started again."""

from __future__ import annotations

from collections import deque

from sapwood.environment.settings import RestartSettings


class RestartBudget:
    """Counts the restarts of one thing and says how long to wait before the next.

    The wait doubles with every restart within the window, up to a longest; after ``limit``
    restarts within the window it is not restarted again.

    Args:
        settings: Limit, window and waits.

    Example:
        >>> budget = RestartBudget(RestartSettings(limit=3, backoff=1.0, backoff_max=3.0))
        >>> [budget.next_wait(now) for now in (0.0, 1.0, 2.0, 3.0)]
        [1.0, 2.0, 3.0, None]
    """

    __slots__ = ("_settings", "_times")

    def __init__(self, settings: RestartSettings) -> None:
        self._settings = settings
        self._times: deque[float] = deque()

    def next_wait(self, now: float) -> float | None:
        """Take a restart out of the budget.

        Args:
            now: The time, seconds.

        Returns:
            Seconds to wait before restarting; None if the limit is reached.
        """
        while self._times and self._times[0] <= now - self._settings.window:
            self._times.popleft()
        recent = len(self._times)
        if recent >= self._settings.limit:
            return None
        self._times.append(now)
        # The exponent is bounded: beyond it any wait is at its longest anyway.
        wait = self._settings.backoff * 2.0 ** min(recent, 64)
        return min(wait, self._settings.backoff_max)
