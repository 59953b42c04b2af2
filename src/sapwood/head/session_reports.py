"""What the servers of sessions report to the head, besides the state of their sessions."""

from __future__ import annotations

from sapwood.head.ledger import Ledger
from sapwood.head.process_events import event_of
from sapwood.head.session_records import SessionProcess, SessionRecord
from sapwood.head.tree_registry import TreeRegistry
from sapwood.head.work_totals import WorkTotals


class SessionReports:
    """The reports of the servers of sessions.

    Args:
        ledger: It records processes that end unasked.

    Attributes:
        trees: The trees of the sessions.
        metrics: What their agents have done.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.trees = TreeRegistry()
        self.metrics = WorkTotals()
        self._ledger = ledger

    def note_process(self, session: SessionRecord, process: SessionProcess) -> None:
        """Record that a process of a session ended unasked, or was replaced."""
        event = event_of(process.report)
        if event is not None:
            by = "" if session.creator is None else session.creator.owner
            self._ledger.note_caused(
                event.kind,
                event.text,
                by,
                node=process.node,
                session=session.name,
                facts=event.facts,
            )
