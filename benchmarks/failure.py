"""How soon the caller knows that something failed on an agent.

A task waits on the agent for a time on the clock, then fails at once: it raises, stores to
address 8, kills its own process, or its agent is killed. The figure is the time from that moment
to the moment at which the caller has the error. Floor: a forked child that is killed in the same
way, noticed by its parent in ``waitpid``; for an exception, one byte over a socket pair.

Then a junction of a tree of three levels is killed, or stopped, while a run makes short waves: the
figure is the longest time between two waves, in which its children are attached to the place above.

Waits by polling happen before or after the timed part, or the times are
recorded by the run itself.

And Ctrl-C ends ``sapwood run`` whose agents sleep in user code: until the command is gone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import sapwood
from report import Figure, Options, Report, read_options
from sapwood.core.errors import SapwoodError
from sapwood.session.embedded import embedded

NOTICED_AFTER = 0.5
"""Failure time of the tree whose junctions are stopped, seconds."""

LEAD = 0.02
"""Seconds between the request and the failure, so that the request itself is not in the figure."""


def fail(kind: str, at: float) -> None:
    """Wait until a time of the monotonic clock, then fail."""
    while time.monotonic() < at:
        pass
    if kind == "exception":
        raise ValueError("on purpose")
    if kind == "segv":
        ctypes.memset(8, 0, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def measure_task(cluster: sapwood.Cluster, kind: str) -> float:
    """Return the seconds from the failure of a task to the caller's knowledge."""
    at = time.monotonic() + LEAD
    future = cluster.submit(fail, kind, at)
    try:
        future.result(10)
    except SapwoodError:
        return time.monotonic() - at
    raise AssertionError("the task did not fail")


class Waiting(sapwood.Program):
    """A run that is in its map until its agent is killed."""

    reduce = {"n": "sum"}  # noqa: RUF012 - read as an example would be

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as in Program
        """Wait."""
        time.sleep(10)
        return {"n": 1}


def measure_agent(cluster: sapwood.Cluster) -> float:
    """Return the seconds from the kill of an agent to the failure of its run."""
    run = cluster.run(Waiting, data=range(len(cluster.agents)), on_agent_loss="fail")
    while run.progress.state is not sapwood.types.RunState.RUNNING:
        time.sleep(0.001)
    victim = cluster.agents[0]
    begin = time.monotonic()
    os.kill(victim.pid, signal.SIGKILL)
    error = run.exception(10)
    seconds = time.monotonic() - begin
    assert isinstance(error, SapwoodError), error
    while cluster.agents[0].state != "ready" or cluster.agents[0].pid == victim.pid:
        time.sleep(0.001)
    return seconds


class Course(sapwood.Program):
    """Short iterations without an end; each notes when it was complete."""

    reduce = {"n": "count"}  # noqa: RUF012 - read as an example would be
    times: list[float] = []  # noqa: RUF012 - of the one run at a time
    ended = False

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as in Program
        """Contribute."""
        return {"n": 1}

    def update(self, state: dict[str, Any], _total: dict[str, Any]) -> dict[str, Any]:
        """Note the time."""
        Course.times.append(time.monotonic())
        return state

    def done(self, _state: dict[str, Any]) -> bool:
        """Whether it was enough."""
        return Course.ended


def measure_attachment(cluster: sapwood.Cluster, number: signal.Signals) -> float:
    """Return the longest time between two waves around the loss of a junction, seconds.

    With ``SIGSTOP`` that includes ``comm.failure_after``, in which the loss is noticed.
    """
    Course.times.clear()
    Course.ended = False
    run = cluster.run(Course, data=range(len(cluster.agents)))
    while len(Course.times) < 20:
        time.sleep(0.001)
    supervisor, junction = (
        embedded(cluster.session).supervisor,
        next(iter(cluster.session.tree.junctions)),
    )
    victim = supervisor.processes[junction].pid
    begin = time.monotonic()
    os.kill(victim, number)
    while supervisor.processes[junction].pid in {0, victim} or not supervisor.processes.all_ready():
        time.sleep(0.001)
    until = time.monotonic()
    while Course.times[-1] < until:
        time.sleep(0.001)
    Course.ended = True
    run.result(30)
    around = [at for at in Course.times if begin - 0.5 < at]
    return max(later - earlier for earlier, later in pairwise(around) if later > begin)


ENDLESS = """
import time
from pathlib import Path
from sapwood import Program

class Endless(Program):
    def default_data(self):
        return range(4)
    def init(self, data):
        return {}
    def map(self, slice, state):
        Path("mapping").touch()
        time.sleep(1000)
"""


def measure_interrupt() -> float:
    """Return the seconds from Ctrl-C to the end of a command whose agents never return."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "endless.py").write_text(ENDLESS)
        command = [sys.executable, "-m", "sapwood", "run", "endless.py", "--agents", "4"]
        with subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL) as process:
            while not Path(folder, "mapping").exists():
                assert process.poll() is None
                time.sleep(0.001)
            begin = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
            return time.monotonic() - begin


def measure_floor(kind: str) -> float:
    """Return the seconds until a parent knows of the same failure of its child."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        at = time.monotonic() + LEAD
        child = os.fork()
        if child == 0:
            if kind == "exception":
                while time.monotonic() < at:
                    pass
                theirs.send(b"x")
                os._exit(0)
            fail("kill", at)
        if kind == "exception":
            ours.recv(1)
            seconds = time.monotonic() - at
            os.waitpid(child, 0)
            return seconds
        os.waitpid(child, 0)
        return time.monotonic() - at


def measure(
    name: str,
    options: Options,
    report: Report,
    once: Callable[[], float],
    floor: str,
    agents: int = 4,
) -> None:
    """Repeat a measurement beside its floor and report both."""
    turns = 1 if options.quick else 5 * options.runs
    seconds = [once() for _ in range(turns)]
    floors = [measure_floor(floor) for _ in range(turns)]
    report.add(Figure.of(f"failure.{name}", agents, seconds, floors, unit="ms", nbytes=0))


def main() -> None:
    """Measure and print."""
    options = read_options("Time until a failure is known.", agents=(4,), runs=4)
    restart = sapwood.Settings().restart
    patient = sapwood.Settings(restart=type(restart)(limit=1000, backoff=0.01, backoff_max=0.01))
    with Report("Failures", options) as report, sapwood.local(4, settings=patient) as cluster:
        cluster.submit(pow, 2, 10).result()
        for kind in ("exception", "segv", "kill"):
            once = lambda kind=kind: measure_task(cluster, kind)  # noqa: E731 - one place
            measure(kind, options, report, once, kind)
        measure("agent", options, report, lambda: measure_agent(cluster), "kill")
    with Report("Ctrl-C", options) as report:
        measure("interrupt", options, report, measure_interrupt, "kill")
    comm = type(sapwood.Settings().comm)(heartbeat=0.1, failure_after=NOTICED_AFTER)
    quick = sapwood.Settings(comm=comm, restart=patient.restart)
    with (
        Report("Attachment", options) as report,
        sapwood.local(8, fanout=2, settings=quick) as cluster,
    ):
        cluster.submit(pow, 2, 10).result()
        killed = lambda: measure_attachment(cluster, signal.SIGKILL)  # noqa: E731 - one place
        measure("junction killed", options, report, killed, "kill", 8)
        hung = lambda: measure_attachment(cluster, signal.SIGSTOP) - NOTICED_AFTER  # noqa: E731 - as above
        measure("junction stopped, less failure_after", options, report, hung, "kill", 8)


if __name__ == "__main__":
    main()
