"""The agents of one run: opened before the first wave, opened again when they are replaced."""

import threading
from collections.abc import Mapping
from concurrent.futures import Future, wait
from typing import Any

import msgspec

from sapwood.activity import agent_requests
from sapwood.core import typed
from sapwood.core.errors import AgentLostError, ExecutionError, SapwoodError
from sapwood.core.futures import when_done
from sapwood.core.rankset import fold
from sapwood.core.shown import shown
from sapwood.session.interface import PlacesChanged, SessionInterface, StreamInterface

CLOSE_TIMEOUT = 5.0
"""Seconds that agents get to answer when a run is over."""


class RunParticipants:
    """Agents that take part in a run.

    Args:
        session: Where they live.
        opening: The message that makes each of them ready.
        replace: Whether the run continues when agents are replaced; otherwise their loss ends it.
    """

    def __init__(
        self,
        session: SessionInterface,
        opening: Mapping[int, agent_requests.OpenRun],
        *,
        replace: bool,
    ) -> None:
        self.replaced = 0
        self._left = False
        self._session = session
        self._opening = opening
        self._replace = replace
        self._changed = threading.Condition()
        self._unready = set(opening)
        self._asked: dict[int, Future[Any]] = {}
        self._ready: dict[int, agent_requests.Opened] = {}
        self._attached_again: set[int] = set()
        self._failure: SapwoodError | None = None
        self._stream: StreamInterface | None = None
        self._unsubscribe = session.subscribe(self._places_changed)

    @property
    def ranks(self) -> list[int]:
        """The agents, in order."""
        return sorted(self._opening)

    @property
    def orders(self) -> list[tuple[int, agent_requests.OpenRun]]:
        """What each agent was sent to get ready, in order."""
        return sorted(self._opening.items(), key=lambda item: item[0])

    def opened(self, rank: int) -> agent_requests.Opened:
        """Return what an agent has said when it was ready."""
        return self._ready.get(rank, agent_requests.Opened())

    @property
    def some_left(self) -> bool:
        """Whether some have left the session, and will not be back."""
        tree = self._session.tree
        return self._left or any(rank not in tree for rank in self._opening)

    def open(self) -> None:
        """Have all agents get ready; do not wait."""
        if self._session.failure is not None:
            self.fail(self._session.failure)
        for rank in self.ranks:
            self._open(rank)

    def wait_ready(self) -> None:
        """Wait until all agents are ready.

        Raises:
            SapwoodError: One cannot open the program or its slice, or is lost.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or not self._unready)
            if self._failure is not None:
                raise self._failure

    def serve(self, stream: StreamInterface) -> None:
        """Bring replaced agents into this stream from now on."""
        self._stream = stream

    def fail(self, error: SapwoodError) -> None:
        """End the run of these participants with an error."""
        with self._changed:
            if self._failure is None:
                self._failure = error
            self._changed.notify_all()
        if self._stream is not None:
            self._stream.close(error)

    def close(self) -> dict[int, agent_requests.ClosedRun]:
        """Let the agents forget the run; return what they say at the end, by their ranks."""
        self._unsubscribe()
        futures = {
            rank: self._session.ask(rank, agent_requests.CLOSE_RUN, self._opening[rank].run)
            for rank in self.ranks
        }
        wait(futures.values(), CLOSE_TIMEOUT)
        return {
            rank: typed.convert(future.result(), agent_requests.ClosedRun)
            for rank, future in futures.items()
            if future.done() and not future.exception()
        }

    def _open(self, rank: int) -> None:
        value = msgspec.to_builtins(self._opening[rank], builtin_types=(bytes,))
        future = self._session.ask(rank, agent_requests.OPEN_RUN, value)
        with self._changed:
            self._asked[rank] = future
            self._attached_again.discard(rank)
        when_done(future, lambda done: self._opened(rank, done))

    def _opened(self, rank: int, done: "Future[Any]") -> None:
        with self._changed:
            if self._asked.get(rank) is not done:
                return  # it was asked again meanwhile
            del self._asked[rank]
            is_there = rank in self._attached_again
        error = done.exception()
        if isinstance(error, AgentLostError) and self._replace:
            if is_there:
                self._open(rank)
            return  # else it is replaced, or attached elsewhere, and opened again
        if error is not None:
            self.fail(_as_sapwood(error).located(f"agent {rank}"))
            return
        opened = done.result()
        with self._changed:
            if opened is not None:
                self._ready[rank] = typed.convert(opened, agent_requests.Opened)
            self._unready.discard(rank)
            self._changed.notify_all()

    def _places_changed(self, change: PlacesChanged) -> None:
        mine = [rank for rank in change.agents if rank in self._opening]
        if not mine:
            return
        if change.back:
            if not change.disconnected:
                self.replaced += len(mine)
            with self._changed:
                unready = {rank for rank in mine if rank in self._unready}
                if change.disconnected:  # the same process is still about to get ready
                    still = unready & self._asked.keys()
                    self._attached_again |= still
                    unready -= still
            for rank in sorted(unready):
                self._open(rank)
            return
        if change.disconnected:
            return  # the same processes come back by another way, and continue
        with self._changed:
            self._unready.update(mine)
        if change.removed:
            self._left = True
            self.fail(
                AgentLostError(
                    f"{fold('agent', mine)} left: {change.reason}",
                    hint='run with on_agent_loss="replace" to continue with the others',
                )
            )
            return
        failure = self._session.failure
        if failure is not None or not self._replace:
            self.fail(
                failure
                or AgentLostError(
                    f"{fold('agent', mine)} ended: {change.reason}",
                    hint='run with on_agent_loss="replace" to continue with a new process',
                )
            )


def _as_sapwood(error: BaseException) -> SapwoodError:
    return error if isinstance(error, SapwoodError) else ExecutionError(shown(error))
