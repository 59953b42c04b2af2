"""What starts the daemons of a control tree, or waits for those that others start."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from threading import Semaphore

from sapwood.contexts import orders
from sapwood.contexts.launchers.base import Launcher
from sapwood.core.errors import ClosedError
from sapwood.environment.settings import NodeSettings
from sapwood.nodes.daemon import DaemonOrder
from sapwood.nodes.fetched_libraries import FetchedLibraries
from sapwood.nodes.join_desk import JoinDesk
from sapwood.nodes.machines import MachineSupervisor
from sapwood.nodes.port import HeadPort
from sapwood.nodes.registry import NodeRegistry
from sapwood.nodes.starting import AwaitedDaemon, DaemonStarter
from sapwood.session.shared_reactor import SharedReactor
from sapwood.session.starters import ProcessStarter
from sapwood.session.supervisor import ProcessSetup


class DaemonSource:
    """Starts the daemons of a control tree: the node source of its session.

    Args:
        launcher: What starts daemons; None for a head that waits for machines to join.
        settings: How machines become nodes.
        libraries: Libraries for machines with another Python.
        machines: Decides which daemons may join.
        registry: Keeps how machines reach the head.
        desk: Makes the tokens of daemons.
        listen: Opens the port at which machines join.
    """

    def __init__(
        self,
        launcher: Launcher | None,
        settings: NodeSettings,
        libraries: FetchedLibraries,
        machines: MachineSupervisor,
        registry: NodeRegistry,
        desk: JoinDesk,
        listen: Callable[[SharedReactor], HeadPort],
    ) -> None:
        self._launcher = launcher
        self._settings = settings
        self._libraries = libraries
        self._machines = machines
        self._registry = registry
        self._desk = desk
        self._listen = listen
        self._slots = Semaphore(launcher.concurrency if launcher is not None else 1)
        self._port: HeadPort | None = None
        self._loop: SharedReactor | None = None

    def open_port(self, loop: SharedReactor) -> HeadPort:
        """Return the port at which nodes join and have their links."""
        self._loop = loop
        self._port = self._listen(loop)
        return self._port

    def starter(
        self,
        host: int,
        setup: ProcessSetup,
        on_report: Callable[[orders.Report], None],
        on_end: Callable[[str], None],
    ) -> ProcessStarter:
        """Return what starts the daemon of a machine, or waits for it."""
        del setup, on_end
        machines = self._machines
        if self._launcher is None or host > len(self._launcher.hosts):
            return AwaitedDaemon(machines.expect, on_report)
        return DaemonStarter(
            self._launcher,
            self._launcher.hosts[host - 1],
            self._slots,
            self._order,
            machines.expect,
            partial(machines.starter_reported, host),
            self._settings,
            partial(self._note_way, host),
            libraries=self._libraries,
        )

    def _order(self, rank: int, incarnation: int) -> DaemonOrder:
        """Return the configuration of the daemon of a rank; called on its starting thread."""
        addresses = () if self._port is None else self._port.addresses
        return self._desk.daemon_order(rank, incarnation, addresses)

    def _note_way(self, host: int, way: str) -> None:
        """Record how a node reaches the head; called on its starting thread."""
        if self._loop is not None:
            with contextlib.suppress(ClosedError):  # the control tree has ended
                self._loop.call_soon_threadsafe(self._record_way, host, way)

    def _record_way(self, host: int, way: str) -> None:
        self._registry.of(host).way = way
