"""Runs that survive kills: what checkpoints cost, and how long a run takes to continue.

``runs.checkpoints``
    A run of 500 short iterations that writes checkpoints. Floor: the same run without. Both take
    turns, each is first in every other pair, and their results must be equal. The aim is 1.02.
``runs.recovery.KIND``
    From a SIGKILL to the end of an iteration that had not been finished before, for an agent, a
    runner, a zygote, the driver of a detached run, the root of its session, the head, and head and
    root at once; the head is restarted at once by `sapwood up`. Read from the run's own report,
    which is written ten times a second. No floor. The session is on the head's machine, with 4
    agents. For a node daemon and a junction it is on two nodes, one of which is the head's own; a
    node that is gone is waited for 2 s before its agents begin elsewhere, and joins again
    meanwhile.

``kills.py`` kills at random and compares results.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

import sapwood
from kills import PROGRAM, KilledCluster, iteration
from report import Figure, Report, read_options
from sapwood.head import calls

KILLED = (
    ("agent",),
    ("runner",),
    ("zygote",),
    ("driver",),
    ("root",),
    ("head",),
    ("head", "root"),
)
KILLED_ON_NODES = (("junction",), ("node",))

PAIRS = 3
"""Pairs of runs with checkpoints and without, for each repetition."""

PATIENCE = 120.0
"""Seconds in which a run must continue."""


def main() -> None:
    """Measure and print."""
    options = read_options("Runs that survive kills.", agents=(2,), runs=5)
    with (
        Report("Runs that survive kills", options) as report,
        tempfile.TemporaryDirectory(prefix="sapwood-runs-", ignore_cleanup_errors=True) as folder,
    ):
        for agents in options.agents:
            turns = 1 if options.quick else PAIRS * options.runs
            report.add(checkpoints(agents, turns, Path(folder)))
        with KilledCluster(Path(folder), nodes=0) as cluster:
            for kinds in KILLED[3:5] if options.quick else KILLED:
                report.add(recoveries(cluster, kinds, options.runs))
        if options.quick:
            return
        with (
            tempfile.TemporaryDirectory(prefix="sapwood-", ignore_cleanup_errors=True) as other,
            KilledCluster(Path(other), nodes=2) as cluster,
        ):
            for kinds in KILLED_ON_NODES:
                report.add(recoveries(cluster, kinds, options.runs))


def recoveries(cluster: KilledCluster, kinds: tuple[str, ...], turns: int) -> Figure:
    """Measure how long a run takes to continue."""
    times = [recovery(cluster, kinds) for _ in range(turns)]
    return Figure.of("runs.recovery." + "-".join(kinds), 4, times, [], unit="ms")


def checkpoints(agents: int, turns: int, folder: Path) -> Figure:
    """Measure a run with checkpoints and one without."""
    values: list[float] = []
    floors: list[float] = []
    words = {"rounds": 500, "pause": 0.005}
    with sapwood.local(agents) as cluster:
        for turn in range(1 + turns):
            results = []
            pair = [(folder / "state", values), (None, floors)]
            for file, seconds in pair if turn % 2 else reversed(pair):
                run = cluster.run(PROGRAM, parameters=words, checkpoint=file)
                results.append(run.result()["way"].tobytes())
                if turn:
                    seconds.append(run.statistics.seconds - run.statistics.prepare_seconds)
                if file is not None:
                    assert run.statistics.checkpoints > 1
            assert results[0] == results[1]
    return Figure.of("runs.checkpoints", agents, values, floors, unit="ms")


def recovery(cluster: KilledCluster, kinds: tuple[str, ...]) -> float:
    """Kill processes in the middle of a run; return the seconds until it continues."""
    run = cluster.begin({"rounds": "2000", "pause": "0.02"})
    reach(run, 30)
    reached = iteration(run)
    begin = time.perf_counter()
    assert cluster.kill(kinds, run, random.Random(1))  # noqa: S311 - no secret
    if {"head", "node"} & set(kinds):
        cluster.mend()
    reach(run, reached + 6)  # five may have been finished since the last report
    seconds = time.perf_counter() - begin
    cluster.cancel(run)
    return seconds


def reach(run: calls.RunRecord, wanted: int) -> None:
    """Wait until a run has come so far."""
    begin = time.perf_counter()
    while iteration(run) < wanted:
        time.sleep(0.005)
        assert time.perf_counter() - begin < PATIENCE, f"it is at iteration {iteration(run)}"


if __name__ == "__main__":
    main()
