"""Consecutive allocations of one run: it resumes where the last one stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from sapwood.activity.run import Run
from sapwood.client.cluster import Cluster
from sapwood.contexts.launchers.allocation import WaitCallback
from sapwood.core.errors import CancelledError, ConfigurationError, DrainedError, SapwoodError
from sapwood.core.failures import start_thread
from sapwood.core.futures import CallerFuture
from sapwood.environment.logs import logger
from sapwood.environment.settings import NodeSettings

Begin = Callable[[WaitCallback], Cluster]
"""Starts a cluster; its argument is called with what the start waits for, and may raise."""

_log = logger("cluster")


class AllocationChain:
    """Clusters of which each begins when the time of the one before ends, or it was taken away.

    Args:
        begin: Begins one.
        settings: How many there may be, and how long before the end the next one is asked for.
        on_wait: Told what the cluster waits for that is needed now.

    Attributes:
        cluster: The one that is used now.
        count: How many there were.

    Example:
        ::

            with AllocationChain(begin, settings.nodes) as chain:
                run = chain.follow(chain.cluster.run(program, checkpoint=file))
    """

    def __init__(
        self, begin: Begin, settings: NodeSettings, on_wait: WaitCallback | None = None
    ) -> None:
        self._begin = begin
        self._most = settings.allocations
        self._on_wait = on_wait
        self._lock = threading.Lock()
        self._next: Future[Cluster] | None = None
        self._run: Run | None = None
        self._needed = True
        self._over = False
        self.count = 1

    def __enter__(self) -> Self:
        self.cluster = self._begin(self._waits)
        end = self.cluster.allocation
        if self._most > 1 and (end is None or not end.may_be_followed):
            self.cluster.close()
            raise ConfigurationError(
                "no other machines can be had after these",
                where="nodes.allocations",
                hint="inside a job, submit the job again: with --checkpoint FILE --continue it "
                "continues; on machines without a time limit, leave --hold out",
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            self._over = True
            following = self._next
        try:
            self.cluster.__exit__(kind, error, traceback)
        finally:
            if following is not None and following.exception() is None:
                following.result().close()

    def follow(self, run: Run) -> Run:
        """Have a run of the cluster of now stop in time, and the next cluster begun before."""
        self._run = run
        if self.cluster.allocation is not None and self.count < self._most:
            self.cluster.allocation.ask_ahead(run, self._ask)
        return run

    def goes_on(self, error: SapwoodError) -> str:
        """Return why a run that ended with an error can be resumed; empty if it cannot."""
        end = self.cluster.allocation
        if end is None or self.count >= self._most:
            return ""
        return error.what if isinstance(error, DrainedError) else end.gone()

    def move(self) -> Cluster:
        """Give the machines of now back, and wait for the next.

        Raises:
            SapwoodError: They cannot be had.
        """
        self.cluster.close()
        with self._lock:
            self._needed = True
        self._ask()
        following = self._next
        assert following is not None  # noqa: S101 - it was asked for
        self.cluster = following.result()
        self._next = None
        self.count += 1
        _log.info("next allocation", count=self.count)
        return self.cluster

    def _ask(self) -> None:
        """Start the next cluster, if it was not started."""
        with self._lock:
            if self._next is not None or self._over:
                return
            self._next = CallerFuture()
            self._needed = False
        start_thread("sapwood-next-allocation", self._begin_next, self._next)

    def _begin_next(self, following: Future[Cluster]) -> None:
        try:
            made = self._begin(self._waits)
        except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
            following.set_exception(error)
            return
        following.set_result(made)
        if self._run is not None:
            self._run.drain("the next machines are there")

    def _waits(self, what: str, seconds: float) -> None:
        if self._over:
            raise CancelledError("the run is over")
        if self._needed and self._on_wait is not None:
            self._on_wait(what, seconds)
