"""What a session server tells while it waits for the machines that the session brings along."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from math import inf
from typing import Final

from sapwood.core.errors import SapwoodError
from sapwood.head import session_records
from sapwood.head.session_notices import SessionNotice, remove_notice, write_notice
from sapwood.head.session_registry import ServerPlan
from sapwood.head.watched import started
from sapwood.security.denials import Denials
from sapwood.session.session_life import SessionState
from sapwood.session_server.reporting import HeadReports

REVOKED: Final = "the credential that made it was revoked"
"""Why a session ends that brings machines along."""


class WaitingServer:
    """A root whose session waits for machines: it is found and listed, and heads may come and go.

    Args:
        given: What it is to be.
        end: Receives why it is not wanted any more; from any thread.
    """

    def __init__(self, given: ServerPlan, end: Callable[[str], None]) -> None:
        self._given = given
        self._end = end
        self._began = time.time()
        self._has_waited = False
        self._reports: HeadReports | None = None

    def begin(self) -> None:
        """Let heads find it, and hear from them what was revoked."""
        pid, given = os.getpid(), self._given
        notice = SessionNotice(given.id, given.wanted.name, pid, started(pid), "", ready=False)
        write_notice(given.cluster, notice)
        self._head_reports()

    def tell(self, what: str) -> session_records.SessionReport:
        """Tell the head what is waited for, and return the report.

        Args:
            what: Nothing once the machines are there: then the head knows of a wait, or need not.
        """
        report = self._report(SessionState.DELAYED if what else SessionState.STARTING, waits=what)
        if what or self._has_waited:
            self._has_waited = True
            self._head_reports().tell(report)
        return report

    def failed(self, error: SapwoodError) -> None:
        """Report to the head why the session does not start, if the head expects it."""
        if self._has_waited:
            self._head_reports().tell(self._report(SessionState.STARTING, reason=error.what))

    def pause(self) -> None:
        """Tell nothing any more: the session does so itself from now on."""
        if self._reports is not None:
            self._reports.close()
            self._reports = None

    def close(self) -> None:
        """Leave nothing behind."""
        self.pause()
        remove_notice(self._given.cluster, self._given.id)

    def _head_reports(self) -> HeadReports:
        """Return what tells the head; of a new one only what happens from now on."""
        if self._reports is None:
            denials = Denials()
            denials.subscribe(self._denied)
            self._reports = HeadReports(
                self._given.cluster,
                lambda _client: inf,
                denials,
                self._end,
                lambda _rows: None,  # the session takes over the policy when it begins
            )
            self._reports.start()
        return self._reports

    def _report(
        self, state: SessionState, *, waits: str = "", reason: str = ""
    ) -> session_records.SessionReport:
        return session_records.SessionReport(
            id=self._given.id,
            state=state.value,
            reason=reason,
            since=self._began,
            pid=os.getpid(),
            waits=waits,
        )

    def _denied(self, ids: frozenset[str]) -> None:
        if not ids.isdisjoint(self._given.credential):
            self._end(REVOKED)
