"""Another tree over the agents of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sapwood.client.output import OutputPrinter
from sapwood.client.tree_work import TreeWork
from sapwood.core.errors import ClosedError
from sapwood.environment.settings import Settings
from sapwood.session.interface import SessionInterface


class Topology(TreeWork):
    """Another tree over the agents of a cluster; made by :meth:`.Cluster.topology`.

    It has streams and runs. Tasks, messages and groups belong to the cluster. Use it as a context
    manager, or call :meth:`close`.

    Args:
        session: The tree.
        settings: All settings.
        variables: Variables of builds, besides this process's environment.
        printer: Shows what agents print.
        follow_cluster: Raises what the cluster raises when it cannot be used any more.
    """

    def __init__(
        self,
        session: SessionInterface,
        settings: Settings,
        variables: Mapping[str, str],
        printer: OutputPrinter,
        follow_cluster: Callable[[], None],
    ) -> None:
        super().__init__(session, settings, variables, printer)
        self._follow_cluster = follow_cluster

    def close(self) -> None:
        """Cancel active work and end its junctions; the agents stay with the cluster.

        A process that was forked from the cluster's owner closes nothing.
        """
        if self._session.thread.in_forked_child:
            return
        self._cancel_runs()
        self._session.close()
        self._wait_for_runs()

    def _must_be_open(self) -> None:
        self._follow_cluster()
        if self.closed:
            raise ClosedError("the topology is closed", hint="make a new one from its cluster")

    def __repr__(self) -> str:
        if self.closed:
            return "<Topology: closed>"
        ready = sum(one.is_ready for one in self._session.processes())
        tree = self._session.tree
        shape = f"{len(tree.junctions)} junctions" if tree.junctions else "no junctions"
        running = sum(not run.done() for run in self._runs)
        return f"<Topology: {ready} of {tree.agents} agents ready, {shape}, {running} runs>"
