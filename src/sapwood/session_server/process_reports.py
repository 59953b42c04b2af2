"""What a session server reports to the head of its processes: where they are, what they do."""

from __future__ import annotations

from collections.abc import Callable

from sapwood.comm.loop import Timer
from sapwood.contexts.orders import ProcessReport
from sapwood.head import session_records
from sapwood.head.process_events import event_of
from sapwood.head_client.access import HeadAccess
from sapwood.nodes.control import ControlTree
from sapwood.session.options import PlacesChanged
from sapwood.session_server.metric_rounds import MetricRounds
from sapwood.session_server.reporting import HeadReports
from sapwood.session_server.served_session import ServedSession
from sapwood.session_server.tree_report import tree_of

TREE_INTERVAL = 0.5
"""Seconds before a changed tree is reported to the head."""


class ProcessReports:
    """Reports places, their processes and what they have done; all on the loop's thread.

    Args:
        session: The session with the places.
        session_id: Its id.
        nodes_of: Has the nodes on which the processes run; None for one machine.
        reports: Tells the head.
        changed: Told that agents are on other nodes now.
    """

    def __init__(
        self,
        session: ServedSession,
        session_id: str,
        nodes_of: HeadAccess | ControlTree | None,
        reports: HeadReports,
        changed: Callable[[list[str]], None],
    ) -> None:
        self._session = session
        self._id = session_id
        self._nodes_of = nodes_of
        self._brings = isinstance(nodes_of, ControlTree)
        self._reports = reports
        self._changed = changed
        self._reported_nodes: list[str] = []
        self._tree_timer: Timer | None = None
        self._rounds = MetricRounds(session, self._report_metrics)
        session.host.listeners.reports.append(self._process_reported)

    def start(self) -> None:
        """Report the present places, and what changes from now on."""
        self._reported_nodes = self.nodes()
        self._session.subscribe(self._places_changed)
        self._tell_tree()
        self._rounds.start()

    def close(self) -> None:
        """Report nothing any more."""
        self._rounds.close()
        if self._tree_timer is not None:
            self._tree_timer.cancel()

    def nodes(self) -> list[str]:
        """Return the names of the nodes that its agents are on."""
        if self._nodes_of is None:
            return []
        machines = self._session.hosts
        hosts = {machines[rank] for rank in self._session.tree.agent_ranks} - {0}
        return [self._nodes_of.name_of(host) for host in sorted(hosts)]

    def _places_changed(self, _change: PlacesChanged) -> None:
        """Agents may be on other nodes now."""
        nodes = self.nodes()
        if nodes != self._reported_nodes:
            self._reported_nodes = nodes
            self._changed(nodes)
        if self._tree_timer is None:
            self._tree_timer = self._session.loop.call_later(TREE_INTERVAL, self._tell_tree)

    def _tell_tree(self) -> None:
        """Tell the head which places there are, and how they are."""
        self._tree_timer = None
        self._reports.tell_tree(tree_of(self._session, self._id, self._name_of))

    def _report_metrics(self, metrics: session_records.WorkMetrics) -> None:
        """Tell the head what the agents have done."""
        self._reports.tell_metrics(session_records.SessionMetrics(self._id, metrics))

    def _process_reported(self, report: ProcessReport) -> None:
        """Report what happened to a process, unless it is on a node of the head."""
        hosts = self._session.hosts
        host = hosts[report.rank] if hosts else 0
        if host > 0 and not self._brings:
            return
        if event_of(report) is not None:
            node = self._name_of(host)
            process = session_records.SessionProcess(session=self._id, report=report, node=node)
            self._reports.process(process)

    def _name_of(self, host: int) -> str:
        return "" if self._nodes_of is None or host <= 0 else self._nodes_of.name_of(host)
