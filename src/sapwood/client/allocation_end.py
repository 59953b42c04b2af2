"""The end of the machines of a cluster, and callbacks before it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from sapwood.activity.run import Run
from sapwood.contexts.launchers.base import LimitedLauncher
from sapwood.core.failures import new_thread
from sapwood.environment.logs import logger
from sapwood.environment.settings import NodeSettings

LOOK = 30.0
"""Seconds after which it is asked again how long the machines are there: that may be changed."""

GONE_PATIENCE = 10.0
"""Seconds in which a launcher hears that its machines are gone, after their agents are."""

_PAUSE = 0.5

_log = logger("cluster")


class _Alarm(NamedTuple):
    """Something to do so many seconds before the end.

    Attributes:
        seconds: Before the end.
        function: Called with the seconds that are left, on a separate thread.
    """

    seconds: float
    function: Callable[[float], object]


class AllocationEnd:
    """The remaining time of the machines of a cluster, and callbacks before its end.

    The launcher and a monotonic clock count the time: it does not matter
    what the clock of a machine shows, nor that it jumps.

    Args:
        launcher: Their launcher; None if their time is unknown.
        settings: How long before the end runs stop, and how long machines are there at most.
        clock: Returns seconds; it never goes back.
    """

    def __init__(
        self,
        launcher: LimitedLauncher | None,
        settings: NodeSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._launcher = launcher
        self._settings = settings
        self._clock = clock
        self._begun = clock()
        self._until: float | None = None  # as the launcher said last
        self._changed = threading.Condition()
        self._alarms: list[_Alarm] = []
        self._closed = False
        self._thread: threading.Thread | None = None

    def seconds_left(self) -> float | None:
        """Return how long the machines stay available; None if unknown.

        Where the launcher does not say at the moment, what it said last counts.
        """
        found = [] if self._launcher is None else [self._of_launcher(self._launcher)]
        if self._settings.allocation_time:
            found.append(self._settings.allocation_time - (self._clock() - self._begun))
        known = [one for one in found if one is not None]
        return min(known) if known else None

    def _of_launcher(self, launcher: LimitedLauncher) -> float | None:
        left = launcher.seconds_left()
        if left is None:
            return None if self._until is None else max(0.0, self._until - self._clock())
        if math.isinf(left):
            self._until = None
            return None
        self._until = self._clock() + left
        return left

    @property
    def may_be_followed(self) -> bool:
        """Whether other machines can be had after these, which is not so in the current job."""
        return self._launcher is None or self._launcher.owns_job

    def gone(self) -> str:
        """Return why the machines are gone; empty while they are available.

        The loss of agents is noticed before the launcher knows the reason, so this waits for a
        while.
        """
        if self._launcher is None:
            return ""
        end = self._clock() + GONE_PATIENCE
        pause = threading.Event()
        while not self._launcher.is_gone():
            if self._clock() > end:
                return ""
            pause.wait(_PAUSE)
        return self._launcher.fate()

    def add(self, run: Run) -> None:
        """Have a run stop in time.

        Machines that are there for a short time only are used for half of it at least.
        """
        left = self.seconds_left()
        margin = self._margin(left)
        if margin and (left is not None or self._launcher is not None):
            self._arm(run, _Alarm(margin, lambda seconds: _drain(run, seconds)))

    def ask_ahead(self, run: Run, wanted: Callable[[], object]) -> None:
        """Have a function called when it is time to ask for other machines for a run."""
        left = self.seconds_left()
        ahead = self._settings.ahead if left is None else min(self._settings.ahead, left / 4)
        self._arm(run, _Alarm(self._margin(left) + ahead, lambda _: wanted()))

    def _margin(self, left: float | None) -> float:
        return self._settings.drain if left is None else min(self._settings.drain, left / 2)

    def _arm(self, run: Run, alarm: _Alarm) -> None:
        with self._changed:
            self._alarms.append(alarm)
            if self._thread is None:
                self._thread = new_thread("sapwood-allocation", self._watch)
                self._thread.start()
            self._changed.notify_all()
        run.add_done_callback(lambda _: self._forget(alarm))

    def close(self) -> None:
        """Call no more callbacks."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _forget(self, alarm: _Alarm) -> None:
        with self._changed:
            self._alarms = [one for one in self._alarms if one is not alarm]
            self._changed.notify_all()

    def _watch(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._alarms)
                if self._closed:
                    return
            left = self.seconds_left()
            due = []
            with self._changed:
                if left is not None:
                    due = [one for one in self._alarms if left <= one.seconds]
                    self._alarms = [one for one in self._alarms if left > one.seconds]
                if not due and not self._closed:
                    before = max((one.seconds for one in self._alarms), default=0.0)
                    self._changed.wait(LOOK if left is None else min(LOOK, max(left - before, 0.0)))
            for one in due:
                one.function(left or 0.0)


def _drain(run: Run, seconds: float) -> None:
    if run.drain(f"its machines go in {seconds:.0f} s"):
        _log.info("run stops as its machines go", run=run.name, seconds=round(seconds, 1))
