"""The runs of a client at the head of its cluster: their records, and what they measured."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Final

from sapwood.activity.rate_history import RateHistory
from sapwood.activity.run import Run
from sapwood.core.errors import SapwoodError
from sapwood.core.futures import when_done
from sapwood.core.shown import shown
from sapwood.environment.logs import logger
from sapwood.head.parts.rates import RunRates
from sapwood.head.parts.runs import RunEnded, Runs
from sapwood.head_client.access import HeadAccess
from sapwood.security.rights import RUN

READ_TIME: Final = 2.0
"""Seconds that a run waits for it at most before it begins without."""

_log = logger("client")


class HeadHistory:
    """Histories in the store of a head, and on this machine where the head keeps none for it.

    Args:
        head: The head.
        other: Where histories are kept that the head does not take.
    """

    def __init__(self, head: HeadAccess, other: RateHistory) -> None:
        self._head = head
        self._other = other
        self._place = "the store of the head"

    @property
    def place(self) -> str:
        """Where they are."""
        return self._place

    def read(self, key: str) -> bytes | None:
        """As the method of all histories."""
        try:
            return self._head.client.call_within(READ_TIME, RunRates.measured, key)
        except SapwoodError as error:
            self._refused(error)
            return self._other.read(key)

    def write(self, key: str, history: bytes) -> None:
        """As the method of all histories; this waits for nothing."""

        def kept(done: Future[Any]) -> None:
            error = done.exception()
            if error is not None:
                self._refused(error)
                self._other.write(key, history)

        try:
            when_done(self._head.client.ask(RunRates.keep, key, history), kept)
        except SapwoodError as error:
            self._refused(error)
            self._other.write(key, history)

    def _refused(self, error: BaseException) -> None:
        _log.debug("the head keeps no rates for this client", reason=str(error))
        self._place = self._other.place


def record_start(head: HeadAccess, run: Run) -> None:
    """Let the head note that a run has started; the caller does not wait for that."""
    if not run.done():  # the head may know its end already
        session = _session_of(head)
        _record(head, RunEnded(run=run.name, session=session, state="running", seconds=0.0))


def record_end(head: HeadAccess, run: Run) -> None:
    """Let the head note that a run has ended; the caller does not wait for that."""
    error = run.exception(0)
    what = error.what if isinstance(error, SapwoodError) else "" if error is None else shown(error)
    progress = run.progress
    _record(
        head,
        RunEnded(
            run=run.name,
            session=_session_of(head),
            state=str(progress.state),
            seconds=progress.seconds,
            iterations=progress.iteration,
            reason=what,
        ),
    )


def _session_of(head: HeadAccess) -> str:
    return next((one.name for one in head.known.sessions.on()), "")


def _record(head: HeadAccess, record: RunEnded) -> None:
    """Report to the head, if this side may."""
    rights = head.connection.rights
    if rights is None or RUN in rights.names:
        head.client.ask(Runs.report, record)
