"""The supervisor of machines: it connects the life cycle of machines with the control tree.

:class:`~sapwood.lifecycle.machine_core.MachineLifecycle` decides which machines are nodes, which
daemons may join, and what sessions learn of a machine. The supervisor gives it the events of the
join desk, of launchers, of the tree's root and of the clock, and carries out its orders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from sapwood.contexts import orders
from sapwood.core.errors import CommunicationError, InternalError, SecurityError
from sapwood.core.topology import ROOT, Tree
from sapwood.environment.logs import logger
from sapwood.lifecycle import events as lev
from sapwood.lifecycle import machine_events as mev
from sapwood.lifecycle.machine_core import MachineLifecycle
from sapwood.lifecycle.starters import OnHost, StarterKey
from sapwood.session.interface import NewAgent
from sapwood.session.options import PlacesChanged
from sapwood.session.shared_reactor import SharedReactor

_log = logger("nodes")


class ControlSupervisor(Protocol):
    """The part of a supervisor that admits nodes."""

    def post(self, event: lev.Event) -> None:
        """Give the life cycle of the daemons an event."""

    def reported(self, key: StarterKey, report: orders.Report) -> None:
        """Take the report of a starter of daemons."""


class ControlHost(Protocol):
    """The part of a session's host that admits nodes."""

    def expand(self, places: Sequence[NewAgent]) -> tuple[int, ...]:
        """Add ranks to the tree."""

    def contract(self, ranks: Sequence[int], reason: str) -> None:
        """End the processes of ranks."""

    def configuration_of(self, host: int) -> bytes:
        """Return what the processes of a machine share, encoded."""


class ControlSession(Protocol):
    """The session whose agents are the daemons of nodes; as ``EmbeddedSession`` is."""

    @property
    def supervisor(self) -> ControlSupervisor:
        """Supervises the daemons."""

    @property
    def host(self) -> ControlHost:
        """The root of the tree."""

    @property
    def tree(self) -> Tree:
        """The present tree."""

    def begin_contract(self, ranks: Sequence[int]) -> list[Future[Any]]:
        """Take ranks out of the tree."""


class MachineSupervisor:
    """Supervises the machines of a control tree; its methods run on the loop of that tree.

    Args:
        life: Decides what happens to the machines.
        session: Returns the session whose agents are the daemons.
        on_news: Notifies the sessions that use a machine.
    """

    def __init__(
        self,
        life: MachineLifecycle,
        session: Callable[[], ControlSession],
        on_news: Callable[[mev.NotifySessions], None],
    ) -> None:
        self.life = life
        self._session = session
        self._loop: SharedReactor | None = None
        self._performers: dict[type[Any], Callable[[Any], None]] = {
            mev.NotifySessions: on_news,
            mev.RemoveMachines: self._remove,
            mev.RestartDaemon: self._restart,
            mev.PassOn: self._pass_on,
            mev.FailStart: lambda order: session().supervisor.post(lev.GiveUp(order.error)),
            lev.WakeAt: self._wake,
            lev.Log: lambda order: getattr(_log, order.level)(order.text, **order.fields),
        }

    def listen(self, loop: SharedReactor) -> None:
        """Use this loop's clock from now on."""
        self._loop = loop

    # --- events ----------------------------------------------------------------------------------

    def post(self, event: mev.MachineInput) -> None:
        """Give the life cycle an event and carry out its orders."""
        for order in self._step(event):
            self._performers[type(order)](order)

    def _step(self, event: mev.MachineInput) -> list[mev.MachineOrder]:
        return self.life.step(0.0 if self._loop is None else self._loop.time(), event)

    def join(self, asked: mev.JoinAsked) -> mev.Admit:
        """Return what the life cycle has for a machine that asks to be a node.

        Raises:
            CommunicationError: It may ask again later.
            SecurityError: It is refused.
        """
        admitted: mev.Admit | None = None
        for order in self._step(asked):
            if isinstance(order, mev.Admit):
                admitted = order
            elif isinstance(order, mev.AddMachine):
                admitted = self._add(asked)
            elif isinstance(order, mev.Retry):
                raise CommunicationError(order.reason)
            elif isinstance(order, mev.Refuse):
                raise SecurityError(order.reason, hint=order.hint)
            else:
                self._performers[type(order)](order)
        if admitted is None:
            raise InternalError("the life cycle of machines answers each machine that asks")
        return admitted

    def configuration_of(self, rank: int) -> bytes:
        """Return what the daemon of a machine needs to know, encoded."""
        return self._session().host.configuration_of(rank)

    def expect(self, spec: orders.ProcessSpec) -> None:
        """Let a daemon join."""
        self.post(mev.DaemonExpected(spec.rank, spec.incarnation))

    def starter_reported(self, host: int, report: orders.Report) -> None:
        """Take the report of the starter of a daemon."""
        if isinstance(report, orders.Exited):
            self.post(mev.DaemonExited(report))
        else:
            self._session().supervisor.reported(OnHost(host), report)

    def daemon_joined(self, rank: int) -> None:
        """Take that a daemon has its place in the tree, for the first time or again."""
        self.post(mev.DaemonJoined(rank))

    def places_changed(self, change: PlacesChanged) -> None:
        """Take that daemons have lost their places in the tree, or are back."""
        if change.back:
            for rank in change.ranks:
                self.daemon_joined(rank)
        else:
            self.post(
                mev.DaemonsLost(
                    change.ranks,
                    change.reason,
                    change.disconnected,
                    change.for_good,
                    change.removed,
                )
            )

    # --- orders ----------------------------------------------------------------------------------

    def _add(self, asked: mev.JoinAsked) -> mev.Admit:
        """Give a machine a new rank, and have it ask for that."""
        session = self._session()
        (rank,) = session.host.expand([NewAgent(ROOT, session.tree.size)])
        admitted = self.join(replace(asked, slot=rank))
        _log.info("node admitted", host=self.life.name_of(rank), rank=rank)
        return admitted

    def _remove(self, order: mev.RemoveMachines) -> None:
        session = self._session()
        ranks = [rank for rank in order.ranks if rank in session.tree]
        if ranks:
            session.begin_contract(ranks)
            session.host.contract(ranks, order.reason)

    def _restart(self, order: mev.RestartDaemon) -> None:
        restart = lev.Restart(order.rank, order.incarnation, order.reason)
        self._session().supervisor.post(restart)

    def _pass_on(self, order: mev.PassOn) -> None:
        self._session().supervisor.reported(OnHost(order.report.rank), order.report)

    def _wake(self, order: lev.WakeAt) -> None:
        if self._loop is not None:
            delay = max(0.0, order.at - self._loop.time())
            self._loop.call_later(delay, partial(self.post, lev.WakeUp(order.at)))
