"""How often a head begins again what was killed: roots of sessions, and the processes of runs."""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.environment.settings import RestartPolicy

KEPT = 100
"""Times of restarts that are kept of each; with that many, the policy has no more in its window."""


def begun_again(
    former: Sequence[float], policy: RestartPolicy, now: float
) -> tuple[float, ...] | None:
    """Return when something was begun again, now among them; None if it was too often.

    Args:
        former: When it was begun again so far, seconds since 1970.
        policy: How often it may be.
        now: The time.

    Example:
        >>> twice = RestartPolicy(limit=2, window=60.0)
        >>> begun_again((), twice, 100.0)
        (100.0,)
        >>> begun_again((100.0, 110.0), twice, 120.0) is None
        True
        >>> begun_again((100.0, 110.0), twice, 170.0)
        (100.0, 110.0, 170.0)
    """
    lately = [one for one in former if now - policy.window < one <= now]
    if len(lately) >= min(policy.limit, KEPT):
        return None
    return (*former[-KEPT + 1 :], now)
