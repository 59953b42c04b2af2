"""The life cycle of the machines of a control tree: events in, orders out.

:meth:`MachineLifecycle.step` is the only place that decides which machine is a node, which daemon
may join as it, and when it is cut off, lost, given up or removed. It does no I/O, has no threads
and reads no clock: :class:`~sapwood.nodes.machines.MachineSupervisor` gives it events and carries
out its orders, and the simulators do the same in virtual time.

Several detectors report the same loss: the connection of the link, the tree, and the channel of the
launcher. Each gives an event for one record, and the first one has the transition.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sapwood.core.errors import NodeLostError, invariant
from sapwood.core.hostset import fold_hosts
from sapwood.lifecycle import machine_events as mev
from sapwood.lifecycle.events import Log, WakeAt, WakeUp
from sapwood.lifecycle.machines import MachineEvent, MachineRecord, MachineState


@dataclass(frozen=True)
class MachinePolicy:
    """The limits of a life cycle of machines.

    Attributes:
        join: Seconds in which an admitted daemon has to join the tree.
        missing: What happens at the start if machines do not come: ``fail``, ``partial`` or
            ``wait``.
        hint: What users can do about them.
    """

    join: float
    missing: str = "fail"
    hint: str = ""


class MachineLifecycle:
    """Decides what happens to the machines of a control tree.

    Args:
        hosts: Names of the machines that a launcher starts, which have the ranks from 1.
        policy: The limits.

    Example:
        >>> life = MachineLifecycle((), MachinePolicy(join=40.0))
        >>> life.step(0.0, mev.JoinAsked("n1"))
        [AddMachine()]
        >>> life.step(0.0, mev.DaemonExpected(1, 1))
        []
        >>> life.step(0.0, mev.JoinAsked("n1", slot=1))
        [Admit(rank=1, incarnation=1, replaces=False), WakeAt(at=40.0)]
        >>> life.step(0.1, mev.DaemonJoined(1))
        [NotifySessions(rank=1, news=<MachineNews.READY: 'ready'>, reason='')]
        >>> life[1]
        MachineRecord(1, ready)
    """

    def __init__(self, hosts: Sequence[str], policy: MachinePolicy) -> None:
        self._hosts = tuple(hosts)
        self._policy = policy
        self._records = {
            rank: MachineRecord(rank, name, launched=True)
            for rank, name in enumerate(self._hosts, 1)
        }
        self._started = self._decided = False
        self._deadlines: list[tuple[float, int]] = []
        self._wake = float("inf")
        self._now = 0.0
        self._orders: list[mev.MachineOrder] = []
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            mev.DaemonExpected: self._expected,
            mev.JoinAsked: self._join_asked,
            mev.Certified: self._certified,
            mev.DaemonExited: self._exited,
            mev.DaemonJoined: self._joined,
            mev.DaemonLinkChanged: self._link_changed,
            mev.DaemonsLost: self._daemons_lost,
            mev.ComponentsReported: self._components,
            mev.Leaving: self._leaving,
            mev.StartOver: self._start_over,
            WakeUp: self._time_up,
        }

    # --- any thread ------------------------------------------------------------------------------

    def __getitem__(self, rank: int) -> MachineRecord:
        return self._records[rank]

    def __iter__(self) -> Iterator[MachineRecord]:
        """Go through all machines, removed ones too."""
        return iter(list(self._records.values()))

    def get(self, rank: int) -> MachineRecord | None:
        """Return the record of a machine; None if there never was one of this rank."""
        return self._records.get(rank)

    def name_of(self, rank: int) -> str:
        """Return what users call a machine."""
        record = self._records.get(rank)
        return (record.name if record is not None else "") or f"node {rank}"

    def missing(self) -> NodeLostError | None:
        """Return an error that names the machines that did not come; None if none are missing."""
        missing = self._missing()
        by_reason: dict[str, list[str]] = {}
        for record in missing:
            by_reason.setdefault(record.trouble, []).append(record.name)
        if not missing:
            return None
        return NodeLostError(
            f"{len(missing)} of {len(self._hosts)} nodes did not come",
            where="; ".join(
                f"{fold_hosts(names)}: {reason}" for reason, names in by_reason.items()
            ),
            hint=self._policy.hint,
        )

    # --- the owner's thread ----------------------------------------------------------------------

    def step(self, now: float, event: mev.MachineInput) -> list[mev.MachineOrder]:
        """Take one event and return what is to be done about it, in this order.

        Args:
            now: The time, seconds; never less than before.
            event: What happened.
        """
        invariant(not self._orders, "a step is over before the next one begins")
        self._now = now
        try:
            self._handlers[type(event)](event)
            self._settle()
            return self._orders
        finally:
            self._orders = []

    def must_wait(self, name: str) -> bool:
        """Whether a machine of this name may return, so that no other one can have the name yet."""
        former = self._named(name)
        return former is not None and former.may_return

    def check(self) -> None:
        """Check what always holds between two steps.

        Raises:
            InternalError: It does not.
        """
        present = [record for record in self if record.is_present]
        due = set(self._deadlines)
        for record in self:
            record.check()
            waits = record.deadline is not None
            invariant(not waits or (record.deadline, record.rank) in due, f"{record} is woken")
        for what in ("name", "node"):
            shown = [getattr(one, what) for one in present if getattr(one, what)]
            invariant(len(set(shown)) == len(shown), f"each present machine has its own {what}")

    # --- who may join ----------------------------------------------------------------------------

    def _expected(self, event: mev.DaemonExpected) -> None:
        record = self._records.get(event.rank)
        if record is None:
            record = self._records[event.rank] = MachineRecord(event.rank)
        if record.state is not MachineState.EXPECTED and not record.advance(MachineEvent.EXPECTED):
            return
        record.awaited = event.incarnation

    def _named(self, name: str) -> MachineRecord | None:
        """Return the machine that joined by this name, if it is one of the tree."""
        found = (one for one in self if one.name == name and one.is_present and not one.launched)
        return next(found, None)

    def _join_asked(self, event: mev.JoinAsked) -> None:
        if event.slot:
            self._asked_for_slot(event)
        elif event.node:
            self._asked_by_certificate(event)
        else:
            self._asked_by_token(event)

    def _asked_for_slot(self, event: mev.JoinAsked) -> None:
        record = self._records.get(event.slot)
        if (
            record is None
            or not record.is_present
            or not record.awaited
            or (event.incarnation != record.awaited if record.launched else event.incarnation)
        ):
            self._orders.append(
                mev.Refuse(
                    f"the join token is for the node {event.slot}, which is there or was removed",
                    "make a token for a new node",
                )
            )
            return
        self._admit(record, event.name)

    def _asked_by_token(self, event: mev.JoinAsked) -> None:
        former = self._named(event.name)
        if former is None:
            self._orders.append(mev.AddMachine())
        elif former.awaited:
            self._admit(former, event.name, replaces=True)
        elif former.may_return:
            self._orders.append(mev.Retry(f"the node '{event.name}' is not known to be gone yet"))
        else:
            self._add_in_place_of(former)

    def _asked_by_certificate(self, event: mev.JoinAsked) -> None:
        former = next((one for one in self if one.node == event.node and one.is_present), None)
        if former is None:
            self._orders.append(mev.AddMachine())
        elif former.awaited and not former.launched:
            self._admit(former, event.name)
        elif former.state is MachineState.GIVEN_UP:
            self._add_in_place_of(former)
        else:
            if former.state is MachineState.JOINING:
                # The answer that admitted it may have got lost on its way.
                self._restart(former, "its node asks again")
            self._orders.append(mev.Retry("the node is not known to be gone yet"))

    def _add_in_place_of(self, former: MachineRecord) -> None:
        """Give a machine a new rank; one that was given up makes room for it."""
        if former.state is MachineState.GIVEN_UP:
            self._remove([former], "it came again, and has another place")
        self._orders.append(mev.AddMachine())

    def _admit(self, record: MachineRecord, name: str, *, replaces: bool = False) -> None:
        if not record.name:
            taken = {one.name for one in self if one.is_present} | set(self._hosts)
            while name in taken:
                name += f"-{record.rank}"
            record.name = name
        record.answered = record.awaited
        record.advance(MachineEvent.ADMITTED)
        record.trouble = ""
        if not record.launched:
            record.deadline = self._now + self._policy.join
            heapq.heappush(self._deadlines, (record.deadline, record.rank))
        self._orders.append(mev.Admit(record.rank, record.answered, replaces))

    def _certified(self, event: mev.Certified) -> None:
        self._records[event.rank].node = event.node

    def _restart(self, record: MachineRecord, reason: str) -> None:
        self._orders.append(mev.RestartDaemon(record.rank, record.answered, reason))

    def _time_up(self, event: WakeUp) -> None:
        self._wake = float("inf")
        while self._deadlines and self._deadlines[0][0] <= max(event.at, self._now):
            at, rank = heapq.heappop(self._deadlines)
            record = self._records[rank]
            if record.deadline != at:
                continue  # its state has changed since
            reason = "it joined and did not take its place"
            if not record.is_new:
                self._restart(record, reason)
            elif not record.leaving:
                self._remove([record], reason)
            record.deadline = self._now + self._policy.join  # for the case that it is not heeded
            heapq.heappush(self._deadlines, (record.deadline, rank))

    # --- how machines come and go ----------------------------------------------------------------

    def _joined(self, event: mev.DaemonJoined) -> None:
        self._ready(self._records[event.rank])

    def _ready(self, record: MachineRecord) -> None:
        if record.advance(MachineEvent.JOINED):
            record.is_new = False
            record.reason = ""
            if record.is_ready:
                self._notify(record, mev.MachineNews.READY)

    def _link_changed(self, event: mev.DaemonLinkChanged) -> None:
        record = self._records[event.rank]
        if not event.reason:
            if record.state is MachineState.CUT_OFF:
                self._ready(record)
        elif record.advance(MachineEvent.CUT_OFF):
            record.reason = event.reason

    def _daemons_lost(self, event: mev.DaemonsLost) -> None:
        for rank in event.ranks:
            record = self._records[rank]
            if event.removed:
                happened, news = MachineEvent.REMOVED, mev.MachineNews.REMOVED
            elif event.for_good:
                happened, news = MachineEvent.GIVEN_UP, mev.MachineNews.GIVEN_UP
            elif event.disconnected:
                if record.advance(MachineEvent.CUT_OFF):
                    record.reason = event.reason
                continue
            else:
                happened, news = MachineEvent.GONE, mev.MachineNews.GONE
            if record.advance(happened):
                record.reason = event.reason or "it is gone"
                self._notify(record, news)

    def _components(self, event: mev.ComponentsReported) -> None:
        record = self._records[event.rank]
        if record.state not in {MachineState.READY, MachineState.CUT_OFF}:
            return
        before, record.closed = record.closed, event.closed
        if event.closed and not before:
            self._notify(record, mev.MachineNews.GONE)
        elif before and record.is_ready:
            self._notify(record, mev.MachineNews.READY)

    def _leaving(self, event: mev.Leaving) -> None:
        record = self._records.get(event.rank)
        if record is not None:
            record.leaving = True

    def _remove(self, records: Sequence[MachineRecord], reason: str) -> None:
        for record in records:
            record.leaving = True
        self._orders.append(mev.RemoveMachines(tuple(one.rank for one in records), reason))

    def _notify(self, record: MachineRecord, news: mev.MachineNews) -> None:
        reason = record.closed or record.reason
        self._orders.append(mev.NotifySessions(record.rank, news, reason))

    # --- the machines of a launcher --------------------------------------------------------------

    def _exited(self, event: mev.DaemonExited) -> None:
        report = event.report
        record = self._records[report.rank]
        if not record.is_present or report.incarnation < max(record.awaited, record.answered):
            self._orders.append(mev.PassOn(report))
            return
        record.trouble = report.reason
        level = "warning" if self._started else "info"
        self._orders.append(
            Log(level, "node trouble", {"host": record.name, "reason": report.reason})
        )
        # A machine that does not come at the start is not tried again, unless it is waited for.
        if report.pid or self._started or self._policy.missing == "wait":
            self._orders.append(mev.PassOn(report))

    def _start_over(self, _event: mev.StartOver) -> None:
        self._started = True

    def _missing(self) -> list[MachineRecord]:
        return [one for one in self if one.launched and one.trouble and one.is_present]

    def _settle(self) -> None:
        self._decide()
        if self._deadlines and self._deadlines[0][0] < self._wake:
            self._wake = self._deadlines[0][0]
            self._orders.append(WakeAt(self._wake))

    def _decide(self) -> None:
        """At the start: continue without machines that did not come, or give up."""
        if self._started or self._decided or self._policy.missing == "wait":
            return
        launched = [one for one in self if one.launched]
        missing = self._missing()
        if not missing or not all(one.node or one.trouble for one in launched):
            return
        error = self.missing()
        invariant(error is not None, "there is a reason for missing machines")
        assert error is not None  # noqa: S101 - for the type checker
        if self._policy.missing == "fail" or not any(one.node for one in launched):
            self._decided = True
            self._orders.append(mev.FailStart(error))
            return
        self._orders.append(Log("warning", error.what, {"nodes": error.where}))
        self._remove(missing, "it did not come")
