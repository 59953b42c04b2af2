"""Scenarios of the life cycle of machines, as transcripts that a reviewer reads.

The format is that of ``transcript.py``. Commands:

========================================  ======================================================
``new [HOST ...] [KEY=VALUE ...]``        machines that a launcher starts, and the limits
``expect R I``                            a daemon of a machine may join
``ask NAME [by=NODE] [slot=R] [for=I]``   a machine asks to be a node, by a token or certificate;
                                          a new machine gets a rank, and a certificate
``exit R I [PID] REASON``                 a daemon of a launcher did not come, or ended
``join R``                                a daemon has its place in the tree
``link R [REASON]``                       its link has no connection, or continues
``cut R ... REASON``                      the tree has lost daemons, which may still be running
``lose R ... REASON``                     daemons are lost
``give-up R ... REASON``                  the restart policy has given them up
``remove R ... REASON``                   machines were removed from the tree
``components R [REASON]``                 why sessions can start nothing there
``leave R``                               a machine is being removed
``started``                               the start is over
``advance SECONDS``                       time passes
``state``                                 print the state of each machine
========================================  ======================================================
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from sapwood.contexts import orders as reports
from sapwood.lifecycle import machine_events as mev
from sapwood.lifecycle.events import Log, WakeAt, WakeUp
from sapwood.lifecycle.machine_core import MachineLifecycle, MachinePolicy


class MachineTranscript:
    """Runs the commands of one scenario."""

    def __init__(self) -> None:
        self.life: MachineLifecycle
        self._now = 0.0
        self._wakes: list[float] = []
        self._printed: list[str] = []

    def run(self, command: str) -> list[str]:
        """Run a command; return what the life cycle ordered."""
        self._printed = []
        name, *words = command.split()
        getattr(self, f"do_{name.replace('-', '_')}")(*words)
        return self._printed

    def _step(self, event: mev.MachineInput) -> list[mev.MachineOrder]:
        orders = self.life.step(self._now, event)
        for order in orders:
            if isinstance(order, WakeAt):
                self._wakes.append(order.at)
            if not isinstance(order, Log):
                self._printed.append(_SHOWN[type(order)](order))
        self.life.check()
        return orders

    # --- commands --------------------------------------------------------------------------------

    def do_new(self, *words: str) -> None:
        given = dict(one.split("=") for one in words if "=" in one)
        policy = MachinePolicy(float(given.get("join", 20.0)), given.get("missing", "fail"))
        self.life = MachineLifecycle([one for one in words if "=" not in one], policy)
        self._now, self._wakes = 0.0, []

    def do_expect(self, rank: str, incarnation: str) -> None:
        self._step(mev.DaemonExpected(int(rank), int(incarnation)))

    def do_ask(self, name: str, *words: str) -> None:
        given = dict(one.split("=") for one in words)
        node, slot = given.get("by", ""), int(given.get("slot", 0))
        for order in self._step(mev.JoinAsked(name, node, slot, int(given.get("for", 0)))):
            if isinstance(order, mev.AddMachine):  # as the head does
                rank = 1 + max((one.rank for one in self.life), default=0)
                self._step(mev.DaemonExpected(rank, 1))
                self.do_ask(name, *words, f"slot={rank}")
            elif isinstance(order, mev.Admit):
                self._step(mev.Certified(order.rank, node or f"n{order.rank}"))

    def do_exit(self, rank: str, incarnation: str, *words: str) -> None:
        pid = int(words[0]) if words[0].isdigit() else 0
        reason = " ".join(words[bool(pid) :])
        self._step(mev.DaemonExited(reports.Exited(int(rank), int(incarnation), pid, 1, reason)))

    def do_join(self, rank: str) -> None:
        self._step(mev.DaemonJoined(int(rank)))

    def do_link(self, rank: str, *reason: str) -> None:
        self._step(mev.DaemonLinkChanged(int(rank), " ".join(reason)))

    def _lost(self, words: tuple[str, ...], **how: bool) -> None:
        ranks = tuple(map(int, itertools.takewhile(str.isdigit, words)))
        self._step(mev.DaemonsLost(ranks, " ".join(words[len(ranks) :]), **how))

    def do_cut(self, *words: str) -> None:
        self._lost(words, disconnected=True)

    def do_lose(self, *words: str) -> None:
        self._lost(words)

    def do_give_up(self, *words: str) -> None:
        self._lost(words, for_good=True)

    def do_remove(self, *words: str) -> None:
        self._lost(words, for_good=True, removed=True)

    def do_components(self, rank: str, *reason: str) -> None:
        self._step(mev.ComponentsReported(int(rank), " ".join(reason)))

    def do_leave(self, rank: str) -> None:
        self._step(mev.Leaving(int(rank)))

    def do_started(self) -> None:
        self._step(mev.StartOver())

    def do_advance(self, seconds: str) -> None:
        end = self._now + float(seconds)
        while due := sorted(at for at in self._wakes if at <= end):
            self._wakes.remove(due[0])
            self._now = max(self._now, due[0])
            self._step(WakeUp(due[0]))
        self._now = end

    def do_state(self) -> None:
        for one in self.life:
            shown = f"{one.rank} {self.life.name_of(one.rank)} {one.state.value}"
            shown += f" ({one.state.shown})" if one.state.shown != one.state.value else ""
            shown += f", node {one.node}" if one.node else ""
            shown += f", awaits {one.awaited}" if one.awaited else ""
            shown += ", can be used" if one.is_ready else ""
            shown += f", closed: {one.closed}" if one.closed else ""
            shown += f", will not return: {one.given_up}" if one.given_up else ""
            shown += f", trouble: {one.trouble}" if one.trouble else ""
            self._printed.append(shown)


def _ranks(ranks: tuple[int, ...]) -> str:
    return ",".join(map(str, ranks))


_SHOWN: dict[type[Any], Callable[[Any], str]] = {
    mev.Admit: lambda one: (
        f"admit {one.rank}.{one.incarnation}" + (" under another name" if one.replaces else "")
    ),
    mev.AddMachine: lambda _one: "add a machine",
    mev.Retry: lambda one: f"retry: {one.reason}",
    mev.Refuse: lambda one: f"refuse: {one.reason}",
    mev.RemoveMachines: lambda one: f"remove {_ranks(one.ranks)}: {one.reason}",
    mev.RestartDaemon: lambda one: f"restart {one.rank}.{one.incarnation}: {one.reason}",
    mev.PassOn: lambda one: f"pass on the end of {one.report.rank}.{one.report.incarnation}",
    mev.FailStart: lambda one: f"fail: {one.error.what} ({one.error.where})",
    mev.NotifySessions: lambda one: (
        f"notify {one.news.value} {one.rank}" + (f": {one.reason}" if one.reason else "")
    ),
    WakeAt: lambda one: f"wake {one.at:g}",
}
