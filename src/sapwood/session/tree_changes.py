"""Agents that join and leave a session while it runs, for threads that wait for that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Any

from sapwood.core.errors import ResourceError, SapwoodError
from sapwood.core.rankset import fold
from sapwood.session.expansion import Expansion
from sapwood.session.host import SessionHost
from sapwood.session.interface import NewAgent
from sapwood.session.loop_thread import LoopThread


class TreeChanges:
    """Changes the tree of a session, and waits until that is done.

    Args:
        host: The root of the tree.
        thread: Drives the host.
        begin_contract: Takes ranks out of the tree and returns what is open of them.
        ready_timeout: Seconds in which agents that are added must be ready.
    """

    def __init__(
        self,
        host: SessionHost,
        thread: LoopThread,
        begin_contract: Callable[[Sequence[int]], list[Future[Any]]],
        ready_timeout: float,
    ) -> None:
        self._host = host
        self._thread = thread
        self._begin_contract = begin_contract
        self._ready_timeout = ready_timeout
        self._expansions: set[Expansion] = set()
        self._abandoned = False

    @property
    def under_way(self) -> int:
        """How many additions are not done."""
        return len(self._expansions)

    def expand(self, places: Sequence[NewAgent]) -> tuple[int, ...]:
        """Add agents, and wait until they are ready; return their ranks.

        Raises:
            ConfigurationError: There cannot be such an agent.
            ResourceError: They cannot be started, or are not ready in time.
            AgentLostError: Their processes end again and again.
            ClosedError: The session is closed.
        """
        expansion = Expansion()
        end = self._host.listeners.subscribe(expansion.changed)

        def begin() -> tuple[int, ...]:
            ranks = expansion.begun(self._host.expand(places))
            self._expansions.add(expansion)
            return ranks

        try:
            ranks: tuple[int, ...] = self._thread.call(begin)
            error = self._why_not_there(expansion, ranks)
        finally:
            end()
            self._expansions.discard(expansion)
        if error is not None and not self._abandoned:
            self._thread.call(self._take_back, ranks)
        if error is not None:
            raise error
        return ranks

    def _take_back(self, ranks: Sequence[int]) -> None:
        """Have agents leave again; some may have been removed meanwhile. On the loop's thread."""
        left = [rank for rank in ranks if rank in self._host.tree]
        if left:
            self._host.drain(left)
            self._host.contract(left, "it could not be started")

    def _why_not_there(self, expansion: Expansion, ranks: Sequence[int]) -> BaseException | None:
        """Wait for agents that begin; return why they are not there, if they are not."""
        try:
            return expansion.done.exception(self._ready_timeout)
        except TimeoutError:
            return ResourceError(
                f"it was not ready after {self._ready_timeout:g} s",
                where=fold("agent", ranks),
                hint="raise cluster.ready_timeout",
            )

    def contract(self, ranks: Sequence[int], seconds: float, reason: str) -> None:
        """Remove places for good: wait for what they were asked for, then end their processes.

        Raises:
            ConfigurationError: One is not a place, or has places below it that stay.
            ClosedError: The session is closed.
        """
        ranks = tuple(dict.fromkeys(ranks))
        open_work = self._thread.call(self._begin_contract, ranks)
        wait(open_work, seconds)
        self._thread.call(self._host.contract, ranks, reason)

    def abandon(self, reason: SapwoodError) -> None:
        """End all waits for added agents, because the session ends; on the loop's thread."""
        self._abandoned = True
        for expansion in tuple(self._expansions):
            expansion.abandon(reason)
