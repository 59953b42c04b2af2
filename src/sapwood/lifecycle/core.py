"""The life cycle of the processes of a tree: events in, orders out.

:meth:`Lifecycle.step` is the only place that decides which processes start, are given up, are
replaced, move to another machine or leave. It does no I/O, has no threads and reads no clock:
:class:`~sapwood.session.supervisor.ProcessSupervisor` gives it events and carries out its orders,
and the simulators do the same in virtual time.

A process that exited, hangs or does not join the tree is stopped and restarted after a pause
(exponential backoff); the restart policy says how often. Processes below a lost one keep running:
they are disconnected until another parent takes them, and count as lost only if none does in time.
A rank whose machine is gone leaves the tree or moves to another machine, as the policy says.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sapwood.comm import events as ev
from sapwood.contexts import orders as reports
from sapwood.contexts.process import describe_status
from sapwood.core.errors import (
    AgentLostError,
    NodeLostError,
    ResourceError,
    invariant,
)
from sapwood.core.rankset import fold, from_ranges
from sapwood.core.topology import ROOT, Tree, gateways
from sapwood.environment.restart import RestartBudget
from sapwood.environment.settings import RestartSettings
from sapwood.lifecycle import events as lev
from sapwood.lifecycle.processes import LifeEvent, ProcessRecord, ProcessState, ProcessTable
from sapwood.lifecycle.starters import (
    JOINED_AGENTS,
    SHARED_AGENTS,
    Command,
    OnHost,
    StarterKey,
)

LostNodes = Literal["fail", "leave", "move"]
"""What happens to the ranks of a machine that is gone."""


def _own_budget(rank: int) -> int:
    return rank


@dataclass(frozen=True)
class LifecyclePolicy:
    """The limits of a life cycle.

    Attributes:
        restart: How often lost processes are replaced, and after which pauses.
        attach: Seconds in which a disconnected process must attach again, for each level of the
            tree.
        join: Seconds in which a process must join the tree, for the error.
        join_polls: After how many polls a process that did not join is replaced; 0 for never.
        lost_nodes: What happens to the ranks of a machine that is gone.
        interpreters: The starter of ranks that do not run on the default interpreter.
        shared: Whether the agents belong to another session.
        budget_of: Returns the rank that shares its restart budget with a rank.
    """

    restart: RestartSettings
    attach: float
    join: float = 0.0
    join_polls: int = 0
    lost_nodes: str = "fail"
    interpreters: Mapping[int, Command] = field(default_factory=dict)
    shared: bool = False
    budget_of: Callable[[int], int] = _own_budget


class OrderList(list[lev.Order]):
    """The orders of one step."""

    def kill(self, record: ProcessRecord, pid: int) -> None:
        """Have a process killed, if there is one that was started here."""
        if pid and record.starter is not JOINED_AGENTS:
            self.append(lev.EndProcess(record.starter, pid))

    def notify(self, change: lev.ProcessChange) -> None:
        """Have all subscribers notified."""
        self.append(lev.Notify(change))

    def log(self, level: str, text: str, **fields: object) -> None:
        """Have a message logged."""
        self.append(lev.Log(level, text, fields))


class ProcessLifecycle:
    """Decides what happens to the processes of a tree.

    Args:
        tree: The tree.
        hosts: The number of the machine of each rank; empty where all are on one.
        policy: The limits.

    Attributes:
        tree: The present tree.
        hosts: The number of the machine of each rank.
        processes: One record for each rank.
        restarts: How many batches of processes were restarted.

    Example:
        >>> from sapwood.core.topology import flat
        >>> policy = LifecyclePolicy(RestartSettings(backoff=1.0), attach=9.0)
        >>> life = ProcessLifecycle(flat(1), (), policy)
        >>> life.step(0.0, lev.StartAll())
        [Start(key=(), processes=((1, 1),))]
        >>> life.step(0.5, reports.Exited(1, 1, 77, -9))[-1]
        WakeAt(at=1.5)
        >>> life.step(1.5, lev.WakeUp(1.5))
        [Start(key=(), processes=((1, 2),))]
    """

    def __init__(self, tree: Tree, hosts: Sequence[int], policy: LifecyclePolicy) -> None:
        self.tree = tree
        self.hosts = tuple(hosts)
        self.processes = ProcessTable(tree)
        self.restarts = 0
        self._policy = policy
        self._budgets: dict[int, RestartBudget] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._wake = math.inf
        self._begun = self._reported_ready = False
        self._now = 0.0
        self._orders = OrderList()
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            lev.StartAll: self._begin,
            reports.Spawned: self._forked,
            reports.Exited: self._exited,
            reports.SpawnFailed: self._not_started,
            lev.MachineGone: self._machine_gone,
            lev.StarterEnded: self._starter_ended,
            lev.StarterFailed: lambda event: self._fail(event.error, self._ranks_of(event.key)),
            ev.PlaceJoined: self._joined,
            ev.PlacesLost: self._lost,
            lev.Poll: self._poll,
            lev.WakeUp: self._time_up,
            lev.Restart: self._restart,
            lev.GiveUp: lambda event: self._fail(event.error, ()),
            lev.Expand: self._expand,
            lev.Drain: self._drain,
            lev.Remove: lambda event: self._take_out(event.ranks, event.reason),
        }
        for rank in range(1, tree.size):
            self.processes.add(rank, self._starter_of(rank), new=False)

    def step(self, now: float, event: lev.Event) -> list[lev.Order]:
        """Take one event and return what is to be done about it, in this order.

        Args:
            now: The time, seconds; never less than before.
            event: What happened.

        Raises:
            ConfigurationError: The ranks of an :class:`~sapwood.lifecycle.events.Expand`,
                :class:`~sapwood.lifecycle.events.Drain` or
                :class:`~sapwood.lifecycle.events.Remove` cannot be added or removed; nothing has
                changed then.
        """
        invariant(not self._orders, "a step is over before the next one begins")
        self._now = now
        try:
            self._handlers[type(event)](event)
            self._settle()
            return self._orders
        finally:
            self._orders = OrderList()

    def check(self) -> None:
        """Check what always holds between two steps.

        Raises:
            InternalError: It does not.
        """
        self.processes.check()
        due = set(self._deadlines)
        for record in self.processes:
            which = f"rank {record.rank} ({record.state.value})"
            waits = record.deadline is not None
            invariant(not waits or (record.deadline, record.rank) in due, f"{which} is woken")
            paused = record.state is ProcessState.PAUSED
            invariant(waits or not paused, f"{which} will be started")
        for rank in range(1, self.tree.size):
            gone = rank in self.processes and self.processes[rank].state is ProcessState.LEFT
            invariant(not gone or rank not in self.tree, f"rank {rank} has left the tree as well")

    # --- start ------------------------------------------------------------------------------------

    def _begin(self, _event: lev.StartAll) -> None:
        self._begun = True
        self._start(self.tree.subtree(ROOT)[1:])

    def _start(self, ranks: Iterable[int]) -> None:
        """Order the processes of ranks, in this order, each of its starter."""
        by_starter: dict[StarterKey, list[tuple[int, int]]] = {}
        for rank in ranks:
            record = self.processes[rank]
            if record.starter is JOINED_AGENTS:
                continue  # its process is running already
            by_starter.setdefault(record.starter, []).append((rank, record.incarnation))
        for key, processes in by_starter.items():
            self._orders.append(lev.Start(key, tuple(processes)))

    def _starter_of(self, rank: int) -> StarterKey:
        if self._policy.shared:
            return SHARED_AGENTS if self.tree.is_agent(rank) else ()
        host = self.hosts[rank] if self.hosts else 0
        if host > 0:
            return OnHost(host)
        return JOINED_AGENTS if host else self._policy.interpreters.get(rank, ())

    def has_joined(self, rank: int) -> bool:
        """Whether the process of a rank joined by an invitation, and is not ours to restart."""
        record = self.processes[rank]
        return record.starter is JOINED_AGENTS and record.state is not ProcessState.LEFT

    # --- what starters report ---------------------------------------------------------------------

    def _forked(self, report: reports.Spawned) -> None:
        record = self.processes[report.rank]
        wanted = record.incarnation == report.incarnation
        if wanted and record.state is ProcessState.STARTING:
            record.pid = report.pid
        elif record.pid != report.pid:  # it was given up while it was being forked
            self._orders.kill(record, report.pid)

    def _exited(self, report: reports.Exited) -> None:
        record = self.processes[report.rank]
        if record.incarnation != report.incarnation:
            return
        if record.state is ProcessState.ENDING:
            self._after_exit(record)
        elif record.state in _RUNNING:
            record.pid = 0
            self._repair([report.rank], report.reason or describe_status(report.status))
        else:
            record.pid = 0

    def _not_started(self, report: reports.SpawnFailed) -> None:
        record = self.processes[report.rank]
        if record.state is ProcessState.LEFT:
            return
        kind = NodeLostError if report.machine_gone else ResourceError
        what = f"cannot start the process of rank {report.rank}: {report.reason}"
        self._fail(kind(what, hint=report.hint), [report.rank])

    def _machine_gone(self, event: lev.MachineGone) -> None:
        """Do with the ranks of a machine that is gone what the policy says."""
        report = event.report
        record = self.processes[report.rank]
        if record.incarnation != report.incarnation or record.state is ProcessState.LEFT:
            return
        gone = self.hosts[report.rank]
        ranks = [one for one in self.tree.subtree(ROOT) if self.hosts[one] == gone]
        policy = self._policy.lost_nodes
        done = (policy == "leave" and self._leave(ranks, event)) or (
            policy == "move" and self._move(ranks, event)
        )
        if not done and not report.may_return:
            self._not_started(report)

    def _starter_ended(self, event: lev.StarterEnded) -> None:
        ranks = self._ranks_of(event.key)
        for rank in ranks:
            self.processes[rank].pid = 0
        if not isinstance(event.key, OnHost):
            self._orders.append(lev.ReplaceStarter(event.key))
            self._repair(ranks, event.reason, exited=True)
            return
        self._repair(ranks, event.reason, exited=True)
        # Otherwise a node that cannot start anything would be asked again without end.
        if any(self.processes[one].state not in _OVER for one in ranks):
            self._orders.append(lev.ReplaceStarter(event.key))

    def _ranks_of(self, key: StarterKey) -> list[int]:
        """Return the ranks of a starter, parents first."""
        return self._parents_first([one.rank for one in self.processes if one.starter == key])

    def _parents_first(self, ranks: list[int]) -> list[int]:
        if len(ranks) < 2:
            return ranks
        order = {rank: position for position, rank in enumerate(self.tree.subtree(ROOT))}
        return sorted(ranks, key=lambda rank: order.get(rank, 0))

    # --- what the root of the tree reports --------------------------------------------------------

    def _joined(self, effect: ev.PlaceJoined) -> None:
        record = self.processes[effect.rank]
        disconnected = record.state is ProcessState.DISCONNECTED
        awaited = disconnected or record.state is ProcessState.STARTING
        if effect.incarnation != record.incarnation or not awaited:
            return
        record.pid = effect.pid
        record.advance(LifeEvent.JOINED)
        added, record.is_new = record.is_new, False
        # While the session starts, only ranks whose loss was reported are reported.
        if self._reported_ready or disconnected or record.incarnation > 1:
            what = "attached" if disconnected else "added" if added else "replaced"
            self._orders.log("info", what, rank=effect.rank)
            self._orders.notify(
                lev.ProcessChange((effect.rank,), back=True, disconnected=disconnected, added=added)
            )

    def _lost(self, effect: ev.PlacesLost) -> None:
        """The connection to ranks is lost; their processes may still run."""
        ranks = [
            rank
            for rank in sorted(from_ranges(effect.ranks))
            if self.processes[rank].state is ProcessState.READY
        ]
        for rank in ranks:
            record = self.processes[rank]
            record.advance(LifeEvent.CUT_OFF)
            if not self.has_joined(rank):
                levels = 1 + len(list(self.tree.ancestors(rank)))
                self._set_deadline(record, self._now + self._policy.attach * levels)
        if ranks:
            self._orders.log("warning", "cut off", places=fold("rank", ranks), reason=effect.reason)
            self._orders.notify(
                lev.ProcessChange(tuple(ranks), back=False, disconnected=True, reason=effect.reason)
            )
        if joined := [rank for rank in ranks if self.has_joined(rank)]:
            self._take_out(joined, effect.reason)
        if effect.condemned and self.processes[effect.top].state is ProcessState.DISCONNECTED:
            self._repair([effect.top], effect.reason)

    # --- time -------------------------------------------------------------------------------------

    def _poll(self, _event: lev.Poll) -> None:
        policy = self._policy
        if policy.join_polls and not self.processes.all_ready():
            late = [one.rank for one in self.processes if one.is_late(policy.join_polls)]
            if late:
                seconds = f"{policy.join:g} s (cluster.join_timeout)"
                self._repair(late, f"it did not join the tree within {seconds}")

    def _time_up(self, event: lev.WakeUp) -> None:
        self._wake = math.inf
        restarted: list[int] = []
        while self._deadlines and self._deadlines[0][0] <= max(event.at, self._now):
            at, rank = heapq.heappop(self._deadlines)
            record = self.processes[rank]
            if record.deadline != at:
                continue  # its state has changed since
            if record.state is not ProcessState.PAUSED:
                self._repair([rank], "it found no way back in time")
            else:
                record.incarnation += 1
                record.advance(LifeEvent.SPAWNED)
                restarted.append(rank)
        if restarted:
            self.restarts += 1
            self._start(self._parents_first(restarted))

    def _restart(self, event: lev.Restart) -> None:
        record = self.processes[event.rank]
        if record.state is ProcessState.STARTING and record.incarnation == event.incarnation:
            self._repair([event.rank], event.reason)

    def _set_deadline(self, record: ProcessRecord, at: float) -> None:
        record.deadline = at
        heapq.heappush(self._deadlines, (at, record.rank))

    # --- repair -----------------------------------------------------------------------------------

    def _repair(self, ranks: Sequence[int], reason: str, *, exited: bool = False) -> None:
        """Stop the processes of ranks, parents first, and restart them after a pause.

        Those that the tree does not have any more, and those that joined by an invitation, end for
        good.

        Args:
            ranks: The ranks.
            reason: Why they are lost.
            exited: Whether it is known that their processes have ended.
        """
        ours = [one for one in ranks if one in self.tree and not self.has_joined(one)]
        others = [one for one in ranks if one not in ours]
        if others:
            self._take_out(others, reason)
        if not ours:
            return
        records = [self.processes[rank] for rank in ours]
        pauses = [self._pause_of(record) for record in records]
        longest = max((one for one in pauses if one is not None), default=None)
        self._orders.log("warning", "lost", places=fold("rank", ours), reason=reason, wait=longest)
        for record, pause in zip(records, pauses, strict=True):
            record.advance(LifeEvent.GONE)
            record.pause, record.reason = pause, reason
            if not exited:
                self._orders.kill(record, record.pid)
        self._orders.notify(
            lev.ProcessChange(tuple(ours), back=False, disconnected=False, reason=reason)
        )
        for record in records:
            if not record.pid:
                self._after_exit(record)

    def _after_exit(self, record: ProcessRecord) -> None:
        """Restart a lost process that has ended, or give its rank up."""
        record.pid = 0
        if record.pause is not None:
            record.advance(LifeEvent.EXITED)
            self._set_deadline(record, self._now + record.pause)
            return
        self._orders.log("error", "given up", rank=record.rank, reason=record.reason)
        error = AgentLostError(
            f"the processes of rank {record.rank} end again and again: {record.reason}",
            hint="see the messages above; restart.limit says how often they are replaced",
        )
        record.advance(LifeEvent.GIVEN_UP)
        self._orders.append(lev.ReportFailure(error))
        self._reported_ready = True
        self._notify_given_up(record.rank, error)

    def _pause_of(self, record: ProcessRecord) -> float | None:
        """Return the seconds before a restart; None after too many restarts.

        As many processes in a row as may be replaced, of which none even joined, are too many
        however slowly they end.
        """
        if record.failures >= self._policy.restart.limit:
            return None
        key = self._policy.budget_of(record.rank)
        budget = self._budgets.get(key)
        if budget is None:
            budget = self._budgets[key] = RestartBudget(self._policy.restart)
        return budget.next_wait(self._now)

    def _fail(self, error: BaseException, ranks: Sequence[int]) -> None:
        """Report ranks that stay without a process."""
        ready, self._reported_ready = self._reported_ready, True
        self._orders.append(lev.ReportFailure(error))
        for rank in ranks if ready else ():  # otherwise those who wait for all get the error
            self._notify_given_up(rank, error)

    def _notify_given_up(self, rank: int, error: BaseException) -> None:
        self._orders.notify(
            lev.ProcessChange(
                (rank,), back=False, disconnected=False, reason=str(error), for_good=True
            )
        )

    # --- the tree changes -------------------------------------------------------------------------

    def _expand(self, event: lev.Expand) -> None:
        old, size = self.tree, self.tree.size
        self._change(old.with_agents(dict(event.homes)), event.hosts)
        for rank in range(size, self.tree.size):
            self.processes.add(rank, self._starter_of(rank), new=True)
        self._start(sorted(event.homes))

    def _change(self, tree: Tree, hosts: Mapping[int, int] | None = None) -> None:
        hosts = hosts or {}
        if self.hosts or any(hosts.values()):
            known = self.hosts or (0,) * self.tree.size
            self.hosts = (*known, *(hosts[rank] for rank in sorted(hosts)))
        self.tree = tree
        self.processes.change(tree)
        self._orders.append(lev.NewTree(tree, self.hosts))

    def _drain(self, event: lev.Drain) -> None:
        """Take ranks out of the tree; those whose processes are lost have nothing to finish."""
        self._change(self.tree.without(event.ranks))
        lost: dict[str, list[int]] = {}
        for rank in event.ranks:
            record = self.processes[rank]
            if record.state.is_lost:
                lost.setdefault(record.reason, []).append(rank)
        for reason, ranks in lost.items():
            self._take_out(ranks, reason)

    def _take_out(self, ranks: Sequence[int], reason: str) -> None:
        """End the processes of ranks for good, and take them out of the tree if they are in it."""
        inside = [rank for rank in ranks if rank in self.tree]
        if inside:
            self._change(self.tree.without(inside))
        records = [self.processes[rank] for rank in ranks]
        records = [one for one in records if one.state is not ProcessState.LEFT]
        if not records:
            return
        gone = tuple(record.rank for record in records)
        self._orders.log("info", "removed", places=fold("rank", gone), reason=reason)
        for record in records:
            record.advance(LifeEvent.REMOVED)
            self._budgets.pop(record.rank, None)
            self._orders.kill(record, record.pid)
        self._orders.notify(
            lev.ProcessChange(
                gone,
                back=False,
                disconnected=False,
                reason=reason,
                for_good=True,
                removed=True,
            )
        )
        self._close_starters({record.starter for record in records})

    def _close_starters(self, keys: set[StarterKey]) -> None:
        """Close the starters of other machines that have no ranks left."""
        used = {record.starter for record in self.processes}
        for key in sorted(keys - used, key=str):
            if isinstance(key, OnHost):
                self._orders.append(lev.CloseStarter(key))

    def _move(self, ranks: Sequence[int], event: lev.MachineGone) -> bool:
        """Start the processes of one machine, parents first, on another one, if there is one."""
        report = event.report
        gone = self.hosts[report.rank]
        load = Counter(self.hosts[one] for one in self.tree.agent_ranks)
        others = [host for host in event.ready if host != gone]
        if not others:
            return False
        target = min(others, key=lambda host: (load[host], host))
        self._orders.log(
            "warning", "moved", places=fold("rank", ranks), host=target, reason=report.reason
        )
        moved = set(ranks)
        self.hosts = tuple(target if one in moved else at for one, at in enumerate(self.hosts))
        self._orders.append(lev.MoveRanks(tuple(ranks), target, self.hosts))
        left = {self.processes[rank].starter for rank in ranks}
        for rank in ranks:
            record = self.processes[rank]
            record.starter = self._starter_of(rank)
            record.pid = 0
            record.advance(LifeEvent.GONE)
            record.advance(LifeEvent.EXITED)
            record.incarnation += 1
            record.advance(LifeEvent.SPAWNED)
        self._close_starters(left)
        self.restarts += 1
        self._start(ranks)
        return True

    def _leave(self, ranks: Sequence[int], event: lev.MachineGone) -> bool:
        """Continue without the ranks of one machine, if other agents stay."""
        if not set(self.tree.agent_ranks) - set(ranks):
            return False
        # A junction with ranks of other machines below it stays in the tree: it moves.
        inner = gateways(self.tree, self.hosts)
        staying = [rank for rank in ranks if rank in inner]
        if staying and not self._move(staying, event):
            return False
        self._take_out([rank for rank in ranks if rank not in inner], event.report.reason)
        return True

    # --- orders -----------------------------------------------------------------------------------

    def _settle(self) -> None:
        if self._begun and not self._reported_ready and self.processes.all_ready():
            self._reported_ready = True
            self._orders.append(lev.EveryoneReady())
        if self._deadlines and self._deadlines[0][0] < self._wake:
            self._wake = self._deadlines[0][0]
            self._orders.append(lev.WakeAt(self._wake))


_OVER = frozenset({ProcessState.GIVEN_UP, ProcessState.LEFT})

_RUNNING = frozenset({ProcessState.STARTING, ProcessState.READY, ProcessState.DISCONNECTED})
