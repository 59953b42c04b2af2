"""Scenarios of a session's hold on a node, as transcripts that a reviewer reads.

The format is that of ``transcript.py``. Commands:

========================================  ======================================================
``new [returning=S] [patience=S]``        a hold on the node *oak*, and its limits
``spawn R.I ... [given-up[-all] REASON]``  start processes; why the node will not come back
``kill PID``, ``configure TEXT``          other commands
``ready``                                 processes can start on the node
``lose REASON``, ``remove REASON``        the node is lost, or has left for good
``give-up REASON``, ``over REASON``       it will not come back, or no node will
``ended REASON``                          the node reports that all processes have ended
``exit R.I``                              the node reports the end of a process
``cut``, ``back [ready]``                 the way to nodes is lost, or back
``fail COMMAND away|lost|REASON``         the node has not carried out a command
``running N [R.I ...]``                   the node answers which processes are running
``unknown N REASON``, ``silent N``        it says why it cannot, or is lost again
``release``                               the session does not need the node any more
``advance SECONDS``                       time passes
``state``                                 print the state
========================================  ======================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sapwood.contexts import orders as reports
from sapwood.lifecycle import holds


class HoldTranscript:
    """Runs the commands of one scenario."""

    def __init__(self) -> None:
        self.hold: holds.NodeHold
        self._now = 0.0
        self._wakes: list[tuple[float, int]] = []
        self._printed: list[str] = []

    def run(self, command: str) -> list[str]:
        """Run a command; return what the hold ordered."""
        self._printed = []
        name, *words = command.split()
        getattr(self, f"do_{name.replace('-', '_')}")(*words)
        return self._printed

    def _step(self, event: holds.HoldInput) -> None:
        for order in self.hold.step(event):
            if isinstance(order, holds.WakeIn):
                self._wakes.append((self._now + order.seconds, order.alarm))
            self._printed.append(_SHOWN[type(order)](order))
        self.hold.check()

    # --- commands --------------------------------------------------------------------------------

    def do_new(self, *words: str) -> None:
        given = {key: float(value) for key, value in (one.split("=") for one in words)}
        policy = holds.HoldPolicy(
            given.get("returning", 15.0),
            given.get("patience", 0.0),
            lambda: "oak",
            lambda: "a hint",
        )
        self.hold = holds.NodeHold(b"first", policy)
        self._now, self._wakes = 0.0, []

    def do_spawn(self, *words: str) -> None:
        processes = [one for one in words if one[0].isdigit()]
        how, *reason = words[len(processes) :] or ("",)
        specs = tuple(reports.ProcessSpec("m:f", *_number(one)) for one in processes)
        self._step(holds.SpawnOnNode(specs, " ".join(reason), how == "given-up-all"))

    def do_kill(self, pid: str) -> None:
        self._step(holds.KillOnNode(int(pid)))

    def do_configure(self, text: str) -> None:
        self._step(holds.ConfigureOnNode(text.encode()))

    def do_ready(self) -> None:
        self._step(holds.NodeUsable())

    def do_lose(self, *reason: str) -> None:
        self._step(holds.NodeLost(" ".join(reason)))

    def do_remove(self, *reason: str) -> None:
        self._step(holds.NodeRemoved(" ".join(reason)))

    def do_give_up(self, *reason: str) -> None:
        self._step(holds.NodeGivenUp(" ".join(reason)))

    def do_over(self, *reason: str) -> None:
        self._step(holds.NodeRemoved(" ".join(reason), is_over=True))

    def do_ended(self, *reason: str) -> None:
        self._step(holds.ProcessesEnded(" ".join(reason)))

    def do_exit(self, process: str) -> None:
        rank, incarnation = _number(process)
        ended = reports.Exited(rank, incarnation, 100 * incarnation + rank, -9, "killed")
        self._step(holds.ReportToSession(ended))

    def do_cut(self) -> None:
        self._step(holds.WayLost())

    def do_back(self, ready: str = "") -> None:
        self._step(holds.WayBack(ready == "ready"))

    def do_fail(self, what: str, *reason: str) -> None:
        requests: dict[str, holds.NodeCommand | holds.OpenOnNode] = {
            "kill": holds.KillOnNode(101),
            "configure": holds.ConfigureOnNode(b"first"),
            "spawn": holds.SpawnOnNode((reports.ProcessSpec("m:f", 1, 1),)),
            "open": holds.OpenOnNode(b"first"),
        }
        text = " ".join(reason)
        self._step(holds.CommandFailed(requests[what], text, text == "away", text == "lost"))

    def do_running(self, number: str, *living: str) -> None:
        found = ((*_number(one),) for one in living)
        self._step(
            holds.FoundRunning(
                int(number),
                tuple(reports.Spawned(one, life, 100 * life + one) for one, life in found),
            )
        )

    def do_unknown(self, number: str, *reason: str) -> None:
        self._step(holds.NothingFound(int(number), " ".join(reason), unreached=False))

    def do_silent(self, number: str) -> None:
        self._step(holds.NothingFound(int(number), "the node is lost", unreached=True))

    def do_release(self) -> None:
        self._step(holds.HoldReleased())

    def do_advance(self, seconds: str) -> None:
        end = self._now + float(seconds)
        while due := sorted(one for one in self._wakes if one[0] <= end):
            self._wakes.remove(due[0])
            self._now = due[0][0]
            self._step(holds.AlarmDue(due[0][1]))
        self._now = end

    def do_state(self) -> None:
        self._printed.append(self.hold.state.value)


def _number(process: str) -> tuple[int, int]:
    rank, _, incarnation = process.partition(".")
    return int(rank), int(incarnation)


def _processes(processes: Iterable[Any]) -> str:
    return ", ".join(f"{one.rank}.{one.incarnation}" for one in processes)


def _report(order: holds.ReportToSession) -> str:
    report = order.report
    which = _processes([report])
    if isinstance(report, reports.Spawned):
        return f"report {which} runs as {report.pid}"
    if isinstance(report, reports.Exited):
        return f"report {which} ended: {report.reason}"
    assert isinstance(report, reports.SpawnFailed)
    assert report.machine_gone
    assert report.hint == "a hint"
    returns = " (it may return)" if report.may_return else ""
    return f"report {which} cannot start{returns}: {report.reason}"


_SHOWN: dict[type[Any], Callable[[Any], str]] = {
    holds.OpenOnNode: lambda one: f"open ({one.configuration.decode()})",
    holds.AskWhatRuns: lambda one: f"ask what runs ({one.number})",
    holds.SpawnOnNode: lambda one: f"spawn {_processes(one.processes)}",
    holds.KillOnNode: lambda one: f"kill {one.pid}",
    holds.ConfigureOnNode: lambda one: f"configure {one.configuration.decode()}",
    holds.CloseOnNode: lambda one: "close" if one.held else "nothing to close",
    holds.ReportToSession: _report,
    holds.ReportEnd: lambda one: f"all ended: {one.reason}",
    holds.WakeIn: lambda one: f"wake in {one.seconds:g} s",
}
