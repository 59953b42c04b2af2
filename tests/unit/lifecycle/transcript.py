"""Scenarios of the life cycle as transcripts that a reviewer reads.

A scenario is a text file of blocks, which empty lines separate. A block has comments (``#``),
commands, a line ``----``, and the orders that the life cycle gave, one on a line. The format is
as in the tests of etcd's raft (``testdata/*.txt``).

Commands (a process of rank R and incarnation I has the process id 100 * I + R):

========================================  ======================================================
``new TREE [KEY=VALUE ...]``              a life cycle of ``flat(2)`` or ``kary(4,2)``
``begin``                                 start all processes
``settle``                                all ordered processes are forked and join
``fork R [I]``, ``join R [I]``            the process of a rank
``exit R [I] [STATUS]``                   its process ended
``lose R [condemned]``                    the connection to a rank, and to all below it
``ended KEY REASON``                      a starter ended
``failed KEY REASON``                     a starter could not be started
``refused R REASON``                      a process could not be started
``gone R ready=H,H [may_return] REASON``  its machine is gone (``R.I`` names the process)
``expand R:PARENT@HOST ...``              agents are added
``drain R ...``, ``remove R ... REASON``  ranks leave the tree, or end for good
``restart R I REASON``                    replace this process if it has not joined
``poll N``                                so many polling intervals pass
``advance SECONDS``                       time passes
``state``                                 print the state of each rank
========================================  ======================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from sapwood.comm import events as ev
from sapwood.contexts import orders as reports
from sapwood.core.errors import ConfigurationError, NodeLostError, ResourceError, SapwoodError
from sapwood.core.topology import Tree, flat, kary
from sapwood.environment.settings import RestartSettings
from sapwood.lifecycle import events as lev
from sapwood.lifecycle.core import LifecyclePolicy, ProcessLifecycle
from sapwood.lifecycle.processes import ProcessState
from sapwood.lifecycle.starters import JOINED_AGENTS, SHARED_AGENTS, OnHost, StarterKey

_TREES: dict[str, Callable[..., Tree]] = {"flat": flat, "kary": kary}


class Transcript:
    """Runs the commands of one scenario."""

    def __init__(self) -> None:
        self.life: ProcessLifecycle
        self._now = 0.0
        self._wakes: list[float] = []
        self._printed: list[str] = []

    def run(self, command: str) -> list[str]:
        """Run a command; return what the life cycle ordered."""
        self._printed = []
        name, *words = command.split()
        try:
            getattr(self, f"do_{name}")(*words)
        except ConfigurationError as error:
            self._printed.append(f"error: {error}")
        return self._printed

    def _step(self, event: lev.Event) -> None:
        for order in self.life.step(self._now, event):
            if isinstance(order, lev.WakeAt):
                self._wakes.append(order.at)
            if not isinstance(order, lev.Log):
                self._printed.append(_shown(order))
        self.life.check()

    # --- commands --------------------------------------------------------------------------------

    def do_new(self, tree: str, *options: str) -> None:
        kind, _, numbers = tree.rstrip(")").partition("(")
        made = _TREES[kind](*map(int, numbers.split(",")))
        given = dict(one.split("=") for one in options)
        hosts = tuple(map(int, given.pop("hosts", "").split(","))) if "hosts" in given else ()
        policy = LifecyclePolicy(
            RestartSettings(
                limit=int(given.pop("limit", 5)),
                window=float(given.pop("window", 60.0)),
                backoff=float(given.pop("backoff", 1.0)),
                backoff_max=float(given.pop("backoff_max", 8.0)),
            ),
            attach=float(given.pop("attach", 20.0)),
            join=4.0,
            join_polls=int(given.pop("join_polls", 5)),
            lost_nodes=given.pop("lost_nodes", "fail"),
            interpreters={int(rank): ("arm",) for rank in given.pop("arm", "").split(",") if rank},
            shared=given.pop("shared", "") == "yes",
        )
        assert not given, f"unknown options {given}"
        self.life = ProcessLifecycle(made, hosts, policy)
        self._now, self._wakes = 0.0, []

    def do_begin(self) -> None:
        self._step(lev.StartAll())

    def do_settle(self) -> None:
        for record in self.life.processes:
            if record.state is ProcessState.STARTING:
                self.do_fork(str(record.rank))
                self.do_join(str(record.rank))

    def _number(self, rank: str, number: str) -> tuple[int, int]:
        return int(rank), int(number or self.life.processes[int(rank)].incarnation)

    def do_fork(self, rank: str, number: str = "") -> None:
        one, incarnation = self._number(rank, number)
        self._step(reports.Spawned(one, incarnation, 100 * incarnation + one))

    def do_join(self, rank: str, number: str = "") -> None:
        one, incarnation = self._number(rank, number)
        self._step(ev.PlaceJoined(one, incarnation, 100 * incarnation + one))

    def do_exit(self, rank: str, number: str = "", status: str = "-9") -> None:
        one, incarnation = self._number(rank, number)
        self._step(reports.Exited(one, incarnation, 100 * incarnation + one, int(status)))

    def do_lose(self, rank: str, condemned: str = "") -> None:
        top = int(rank)
        below = self.life.tree.subtree(top) if top in self.life.tree else [top]
        ranks = tuple((one, one + 1) for one in sorted(below))
        self._step(ev.PlacesLost(ranks, "the connection was closed", top, bool(condemned)))

    def do_ended(self, key: str, *reason: str) -> None:
        self._step(lev.StarterEnded(_key(key), " ".join(reason)))

    def do_failed(self, key: str, *reason: str) -> None:
        self._step(lev.StarterFailed(_key(key), ResourceError(" ".join(reason))))

    def do_refused(self, rank: str, *reason: str) -> None:
        one, incarnation = self._number(rank, "")
        self._step(reports.SpawnFailed(one, incarnation, " ".join(reason), "a hint"))

    def do_gone(self, rank: str, ready: str, *words: str) -> None:
        may_return = words[0] == "may_return"
        reason = " ".join(words[may_return:])
        one, incarnation = self._number(*f"{rank}.".split(".")[:2])
        report = reports.SpawnFailed(
            one, incarnation, reason, "a hint", machine_gone=True, may_return=may_return
        )
        hosts = ready.removeprefix("ready=")
        self._step(lev.MachineGone(report, tuple(map(int, hosts.split(","))) if hosts else ()))

    def do_expand(self, *added: str) -> None:
        homes: dict[int, int] = {}
        hosts: dict[int, int] = {}
        for one in added:
            rank, parent, host = map(int, re.split("[:@]", one))
            homes[rank], hosts[rank] = parent, host
        self._step(lev.Expand(homes, hosts))

    def do_drain(self, *ranks: str) -> None:
        self._step(lev.Drain(tuple(map(int, ranks))))

    def do_remove(self, *words: str) -> None:
        ranks = tuple(int(word) for word in words if word.isdigit())
        self._step(lev.Remove(ranks, " ".join(words[len(ranks) :])))

    def do_restart(self, rank: str, incarnation: str, *reason: str) -> None:
        self._step(lev.Restart(int(rank), int(incarnation), " ".join(reason)))

    def do_poll(self, times: str) -> None:
        for _ in range(int(times)):
            self._step(lev.Poll())

    def do_advance(self, seconds: str) -> None:
        end = self._now + float(seconds)
        while due := sorted(at for at in self._wakes if at <= end):
            self._wakes.remove(due[0])
            self._now = max(self._now, due[0])
            self._step(lev.WakeUp(due[0]))
        self._now = end

    def do_state(self) -> None:
        for one in self.life.processes:
            where = "" if one.rank in self.life.tree else ", not in the tree"
            self._printed.append(
                f"{one.rank} {one.state.value}, incarnation {one.incarnation}, pid {one.pid}{where}"
            )


def _key(text: str) -> StarterKey:
    known: dict[str, StarterKey] = {
        "main": (),
        "arm": ("arm",),
        "joined": JOINED_AGENTS,
        "shared": SHARED_AGENTS,
    }
    return known[text] if text in known else OnHost(int(text.removeprefix("host-")))


def _name(key: StarterKey) -> str:
    if isinstance(key, OnHost):
        return f"host-{key.host}"
    if isinstance(key, tuple):
        return "".join(key) or "main"
    return "joined" if key is JOINED_AGENTS else "shared"


def _tree(tree: Tree, hosts: tuple[int, ...]) -> str:
    ranks = ",".join(str(rank) for rank in range(1, tree.size) if rank in tree)
    return f"tree {ranks}" + (f" on {','.join(map(str, hosts))}" if hosts else "")


def _error(error: BaseException) -> str:
    assert isinstance(error, SapwoodError)
    assert error.exit_code == 6 or not isinstance(error, NodeLostError)
    return f"fail {type(error).__name__}: {error.what}"


_SHOWN: dict[type[Any], Callable[[Any], str]] = {
    lev.Start: lambda one: (
        f"start {_name(one.key)} " + " ".join(f"{rank}.{number}" for rank, number in one.processes)
    ),
    lev.EndProcess: lambda one: f"kill {_name(one.key)} {one.pid}",
    lev.ReplaceStarter: lambda one: f"replace {_name(one.key)}",
    lev.CloseStarter: lambda one: f"close {_name(one.key)}",
    lev.NewTree: lambda one: _tree(one.tree, one.hosts),
    lev.MoveRanks: lambda one: f"move {','.join(map(str, one.ranks))} to host-{one.host}",
    lev.Notify: lambda one: _change(one.change),
    lev.WakeAt: lambda one: f"wake {one.at:g}",
    lev.EveryoneReady: lambda _one: "all ready",
    lev.ReportFailure: lambda one: _error(one.error),
}


def _shown(order: lev.Order) -> str:
    return _SHOWN[type(order)](order)


def _change(change: lev.ProcessChange) -> str:
    if change.back:
        what = "attached" if change.disconnected else "added" if change.added else "replaced"
    else:
        what = "cut off" if change.disconnected else "lost"
    if change.removed:
        what = "removed"
    elif change.for_good:
        what = "given up"
    reason = f": {change.reason}" if change.reason else ""
    return f"notify {what} {','.join(map(str, change.ranks))}{reason}"


def blocks(path: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the lines before and after ``----`` of each block of a scenario."""
    for block in path.read_text().strip().split("\n\n"):
        before, _, after = block.partition("----\n") if "----" in block else (block, "", "")
        yield before.strip("\n-").splitlines(), after.splitlines()


class Scenario(Protocol):
    """What runs the commands of a scenario."""

    def run(self, command: str) -> list[str]:
        """Run a command; return what the life cycle ordered."""


def rerun(path: Path, transcript: Scenario) -> str:
    """Return a scenario with the orders that the life cycle gives now."""
    found: list[str] = []
    for before, _ in blocks(path):
        commands = [line for line in before if line and not line.startswith("#")]
        printed = [line for command in commands for line in transcript.run(command)]
        lines = [*before, "----", *printed] if commands else before
        found.append("\n".join(lines))
    return "\n\n".join(found) + "\n"
