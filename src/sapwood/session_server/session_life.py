"""The life of a session as its server sees it: attached, left, idle, ended. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sapwood.session.session_life import TRANSITIONS, SessionState, SessionStep

FIRST_PATIENCE = 30.0
"""Seconds for which a new session waits at least for the first client."""

ABANDONED = 60.0
"""Seconds for which a session waits at most whose owner is gone without having left it."""


class SessionLife:
    """Where a session is in its life; all on the loop's thread, but for :meth:`end`.

    Args:
        session: Its id.
        idle: Seconds without attached clients after which it ends; 0 for never.
        later: ``later(seconds, function, *args)`` has a function called.
        clock: The time in seconds by which ``later`` counts.
        over: Told that it is to end; from any thread.

    Attributes:
        state: Where it is.
        reason: Why it ends; empty while it does not.
    """

    def __init__(
        self,
        session: str,
        idle: float,
        later: Callable[..., Any],
        clock: Callable[[], float],
        over: Callable[[], None],
    ) -> None:
        self.state = SessionState.STARTING
        self.reason = ""
        self.idle = idle
        self._session = session
        self._later = later
        self._clock = clock
        self._over = over
        self._used = False
        self._merged = False
        self._abandoned = False
        self._waits = 0
        self._left_at = 0.0

    def started(self, *, abandoned: bool = False) -> None:
        """Clients can come from now on.

        Args:
            abandoned: Whether the owner of a former server of the session may be gone.
        """
        self._abandoned = abandoned
        self._move(SessionStep.STARTED)
        self._wait_for_somebody()

    def changed(self, *, attached: bool, merged: bool = False, abandoned: bool = False) -> None:
        """Clients have come or gone, or sessions that are merged with this one.

        Args:
            attached: Whether a client is attached that does more than watch.
            merged: Whether it is merged with another session: then it is not idle.
            abandoned: Whether it belonged to an owner that is gone without having left it.
        """
        was_merged, self._merged = self._merged, merged
        self._abandoned = abandoned
        if attached and self.state is SessionState.DETACHED:
            self._used = True
            self._move(SessionStep.ATTACHED)
        elif not attached and self.state is SessionState.READY:
            self._move(SessionStep.LEFT)
            self._wait_for_somebody()
        elif was_merged and not merged and self.state is SessionState.DETACHED:
            self._wait_for_somebody()

    def change_idle(self, seconds: float) -> None:
        """Change the time without attached clients, from when the last one left."""
        self.idle = seconds
        if self.state is SessionState.DETACHED:
            self._count()

    @property
    def patience(self) -> float:
        """Seconds after which it ends when nothing is attached; 0 for never."""
        return min(self.idle or ABANDONED, ABANDONED) if self._abandoned else self.idle

    def end(self, reason: str) -> None:
        """Have the session ended; the first reason is the reason."""
        self.reason = self.reason or reason
        self._over()

    def draining(self) -> None:
        """Admit no more clients."""
        self._move(SessionStep.ENDS)

    def _move(self, step: SessionStep) -> None:
        self.state = TRANSITIONS.after(self.state, step, self._session)

    def _wait_for_somebody(self) -> None:
        """Count the time without attached clients; watchers do not count."""
        self._left_at = self._clock()
        self._count()

    def _count(self) -> None:
        self._waits += 1
        wait = self.patience
        if self.idle and not self._used:
            wait = max(wait, FIRST_PATIENCE)
        if wait:
            left = max(0.0, self._left_at + wait - self._clock())
            self._later(left, self._idle_over, self._waits, wait)

    def _idle_over(self, count: int, waited: float) -> None:
        if self.state is not SessionState.DETACHED or self._waits != count or self._merged:
            return
        if self._abandoned:
            self.end(
                f"its owner ended without detaching, and no program attached within {waited:g} s"
            )
        else:
            self.end(f"no client was attached for {self.idle:g} s")
