"""The subscribers of a session: functions that receive changes of its places and links."""

from __future__ import annotations

from collections.abc import Callable

from sapwood.contexts import orders
from sapwood.session.options import PlacesChanged


class SessionListeners:
    """The subscribers of a session; each is called on the loop's thread.

    Attributes:
        changes: Called for lost and replaced places.
        links: Called when a link to a neighbour has no connection or a new one, with the
            neighbour's rank and the reason, which is empty for a new one. A place that is lost
            afterwards is reported to ``changes``.
        joins: Called with the rank of each place that has joined the tree, also while the session
            starts.
        reports: Called with the reports on processes.
    """

    def __init__(self) -> None:
        self.changes: list[Callable[[PlacesChanged], None]] = []
        self.links: list[Callable[[int, str], None]] = []
        self.joins: list[Callable[[int], None]] = []
        self.reports: list[Callable[[orders.ProcessReport], None]] = []

    def subscribe(self, listener: Callable[[PlacesChanged], None]) -> Callable[[], None]:
        """Have a function called for lost and replaced places.

        Returns:
            A function that ends the subscription.
        """
        self.changes.append(listener)

        def end() -> None:
            if listener in self.changes:
                self.changes.remove(listener)

        return end

    def changed(self, change: PlacesChanged) -> None:
        """Notify of lost and replaced places."""
        for listener in tuple(self.changes):
            listener(change)

    def link_changed(self, rank: int, reason: str) -> None:
        """Notify of a link that has no connection or a new one."""
        for listener in self.links:
            listener(rank, reason)

    def joined(self, rank: int) -> None:
        """Notify of a place that has joined the tree."""
        for listener in self.joins:
            listener(rank)

    def reported(self, report: orders.ProcessReport) -> None:
        """Notify of what is reported of a process."""
        for listener in self.reports:
            listener(report)
