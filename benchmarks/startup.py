"""How long until agents are ready, and how much memory they take.

Every measurement is cold: a fresh Python imports ``sapwood`` and calls ``sapwood.local`` once.

``startup.ready``
    From the call of ``sapwood.local(agents=n)`` to n agents ready to work. Floor: a fresh
    Python that has imported numpy forks n children, and each answers one byte over a socket
    pair.
``startup.pss_ready``
    Proportional set size of all processes that Sapwood has started, divided by n. Floor: the
    same of the bare children.
``startup.pss_working``
    The same after every agent has run user code once, so its runner is there too.
``startup.first_run``
    The first run on a new cluster: a Python map over one item per agent; every agent forks its
    runner meanwhile. Floor: as ``startup.ready``.
``startup.topology``
    ``cluster.topology(fanout=4)``: another tree over the same agents, until all are ready in it.
    Floor: as ``startup.ready``.
``startup.pss_topology``
    What that takes in memory, all its processes together.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from floors import measure_floor
from report import HERE, Figure, Options, Report, read_options

TIME_LIMIT = 120.0
"""Seconds after which a start is taken to hang."""


def main() -> None:
    """Measure and print."""
    options = read_options("Start-up of local clusters.", agents=(4, 16, 64), runs=9)
    with Report("Start-up, cold", options) as report:
        for agents in options.agents:
            measure(agents, options, report)


def measure(agents: int, options: Options, report: Report) -> None:
    """Measure one number of agents; floor and Sapwood take turns."""
    starts: list[dict[str, float]] = []
    floors: list[dict[str, float]] = []
    for _ in range(options.runs):
        floors.append(measure_floor("startup", agents=agents))
        starts.append(cold_start(agents))
    seconds = [floor["seconds"] for floor in floors]
    pss = [floor["pss"] for floor in floors]
    for name, key, floor, unit in (
        ("startup.ready", "seconds", seconds, "ms"),
        ("startup.pss_ready", "idle", pss, "MiB"),
        ("startup.pss_working", "working", pss, "MiB"),
        ("startup.first_run", "first_run", seconds, "ms"),
        ("startup.topology", "topology", seconds, "ms"),
        ("startup.pss_topology", "topology_pss", pss, "MiB"),
    ):
        report.add(Figure.of(name, agents, [start[key] for start in starts], floor, unit=unit))


def cold_start(agents: int) -> dict[str, float]:
    """Start a cluster in a fresh process and return its measurements."""
    done = subprocess.run(
        [sys.executable, str(HERE / "programs" / "cold_start.py"), str(agents)],
        env={**os.environ, "PYTHONPATH": str(HERE)},
        stdout=subprocess.PIPE,
        check=True,
        timeout=TIME_LIMIT,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()
