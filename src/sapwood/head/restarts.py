"""Limits of restarts by a head after kills: session servers, and the processes of runs."""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.environment.settings import RestartPolicy

KEPT = 100
"""Times of restarts that are kept of each; with that many, the policy has no more in its window."""


def begun_again(
    former: Sequence[float], policy: RestartPolicy, now: float
) -> tuple[float, ...] | None:
    """Return the times of restarts, including now; None if there were too many.

    Args:
        former: Times of former restarts, seconds since 1970.
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
