"""The runs of a cluster: detached ones, and those that clients report."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from sapwood.core.errors import ConfigurationError
from sapwood.core.typed import Natural
from sapwood.head.authorizer import Authorizer
from sapwood.head.calls import CreateRun, RunRecord
from sapwood.head.protocol.call import HeadPart, Reach, call
from sapwood.head.protocol.caller import ServiceCaller
from sapwood.security.rights import ADMIN, OBSERVE, RUN

if TYPE_CHECKING:
    from sapwood.head.ledger import Ledger
    from sapwood.head.runs import HeadRuns
    from sapwood.head.sessions import HeadSessions

MAX_RUNS: Final = 64
"""Runs in progress of a client that are shown, the newest."""

MAX_RUN_NAME: Final = 200
"""Characters of the name of such a run."""


class RunEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A run has ended, or has started if its state is ``running``.

    Attributes:
        run: What it is called.
        session: The session that it ran in, which the caller must own or may use; empty if its
            cluster is closed.
        state: How it ended, or ``running``.
        seconds: How long it took.
        iterations: How many there were.
        reason: Why it failed.
    """

    run: str
    session: str
    state: Annotated[str, msgspec.Meta(pattern=r"^(running|done|failed|cancelled|drained)$")]
    seconds: float
    iterations: Natural = 0
    reason: str = ""


class Runs(HeadPart):
    """The runs of a cluster.

    Args:
        registry: It starts, finds and cancels detached runs.
        sessions: The sessions that runs are in.
        authorizer: The authorizer.
        ledger: It records the ends of runs.
        callers_of: Returns the callers that have processes of a session on nodes.
        names: Returns what users call the sessions that have processes on nodes.
    """

    def __init__(
        self,
        registry: HeadRuns,
        sessions: HeadSessions,
        authorizer: Authorizer,
        ledger: Ledger,
        callers_of: Callable[[str], list[ServiceCaller]],
        names: Callable[[], dict[str, str]],
    ) -> None:
        self._registry = registry
        self._sessions = sessions
        self._authorizer = authorizer
        self._ledger = ledger
        self._callers_of = callers_of
        self._names = names

    @call(
        "run.create",
        right=ADMIN,
        reach=Reach.HEAD,
        slow=True,
        elsewhere="begin it there, or drive it here: give --on head instead of --detach",
    )
    def create(self, caller: ServiceCaller, wanted: CreateRun) -> RunRecord:
        """Start a detached run: a process of the head's user.

        Args:
            caller: The caller.
            wanted: The run.
        """
        Authorizer.refuse_others(caller.granted, "a detached run")
        return self._registry.create(wanted)

    @call("run.list", right=OBSERVE)
    def every(self) -> list[RunRecord]:
        """Return the detached runs, including those that are over."""
        return self._registry.records()

    @call("run.find", right=OBSERVE)
    def find(self, run: str) -> RunRecord:
        """Return one detached run.

        Args:
            run: The id of a run, or the start of it.
        """
        return self._registry.find(run)

    @call("run.cancel", right=ADMIN, slow=True)
    def cancel(self, run: str) -> Future[RunRecord]:
        """Cancel a detached run, and wait for its end.

        Args:
            run: The id of a run, or the start of it.
        """
        return self._registry.cancel(run)

    @call("run.ended", right=RUN, reach=Reach.OWNED)
    def report(self, caller: ServiceCaller, run: RunEnded) -> None:
        """Record that a run of the caller has started or ended.

        Args:
            caller: The caller.
            run: The run.
        """
        self._check_session(caller, run.session)
        name = run.run[:MAX_RUN_NAME]
        caller.runs.pop(name, None)
        if run.state == "running":
            caller.runs[name] = time.time()
            if len(caller.runs) > MAX_RUNS:
                del caller.runs[next(iter(caller.runs))]
            return
        rights = caller.granted
        facts = {
            "state": run.state,
            "seconds": f"{run.seconds:.3f}",
            "iterations": str(run.iterations),
            "by": rights.subject,
        }
        text = f"{run.run}: {run.state}" + (f": {run.reason}" if run.reason else "")
        session = self._names().get(run.session, run.session)
        self._ledger.note_caused("run.ended", text, rights.owner, session=session, facts=facts)

    def _check_session(self, caller: ServiceCaller, session: str) -> None:
        """Refuse a report on a run in a session that the caller may not use.

        Raises:
            SecurityError: The session is another client's.
        """
        what = Runs.report.name
        if not session or caller in self._callers_of(session):
            self._authorizer.require_right(caller, RUN, session=session, what=what)
            return
        try:
            record = self._sessions.find(session)
        except ConfigurationError:
            self._authorizer.require_right(caller, ADMIN, session=session, what=what)
        else:
            self._authorizer.require_session(caller, RUN, record, what=what)
