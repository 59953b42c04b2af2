"""What an iteration costs beyond the program's own work, beside Open MPI.

k-means over 400,000 points of 16 float32, 16 clusters, 20 iterations. The work of an iteration
is one call of a C function on each slice; Sapwood, mpi4py and the floor call the same function
of the same shared object on the same slices.

``iterate.wall.…``
    Time of an iteration, from one update of the centres to the next (the first does not
    count). Floor: the same number of forked processes do only the C calls; each is released by
    one byte over a socket pair and answers one byte: no sums, no reduction, no update.
``iterate.overhead.…``
    The same beyond the C function's own time: the median iteration of a run, less the mean time
    of a call when as many processes make all their calls one after the other, without
    waiting (the best of three such repetitions in the same run). The figure is the median over
    the runs. Floor: the overhead of Open MPI with ``Allreduce``, so that the ratio says how
    Sapwood compares.
``iterate.empty.…``
    The whole iteration with 16 points per process, where a C call takes microseconds: what the
    runtimes do between calls, without the noise of the work. Floor: as ``iterate.wall``. Open
    MPI's processes spin while they wait and all others sleep, so it can be below this floor.

All have the points in memory before the first iteration: the peers' ranks read the file and copy
their slices, the floor's processes have it of their parent, Sapwood gets an array. ``mapped`` is
Sapwood with the file instead, whose pages its runners map: nothing is read or copied before, and
an iteration takes 2 to 5 % longer on a quiet machine, as pages of files are small.

``unbound`` is Sapwood with ``limits.bind = false``: Linux chooses the cores.

The peers: ``mpi_allreduce`` (every rank moves the centres) and ``mpi_reduce_bcast`` (rank 0
does), by ``mpirun --oversubscribe --mca mpi_yield_when_idle 1``. Without Open MPI on the
machine they are left out, and a note says so.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import sapwood
from assigning import Array, Assign, next_centres
from floors import measure_floor
from peers.environment import PeerMissingError, mpi_python
from report import HERE, Figure, Options, Report, read_options
from sapwood.code.build import build
from sapwood.environment.configuration import load_configuration

POINTS, DIMENSIONS, CLUSTERS, ROUNDS = 400_000, 16, 16, 20

EMPTY_POINTS = 16
"""Points per process where the work shall be nothing."""

PEERS = ("mpi_allreduce", "mpi_reduce_bcast")

TIME_LIMIT = 120.0
"""Seconds after which a peer is taken to hang."""


@dataclass(frozen=True)
class Case:
    """One k-means to run.

    Attributes:
        agents: Number of processes.
        points: Path of the points, ``.npy``.
        library: Path of the built C function.
        inertia: The expected result.
    """

    agents: int
    points: Path
    library: str
    inertia: float


@dataclass
class Times:
    """Seconds of all iterations, by who ran them, and what they are compared with.

    Attributes:
        barrier: Floor: rounds of C calls that wait for each other.
        by_runner: Iterations of Sapwood and the peers.
        beyond: Of each run, the median iteration less the C function's own time.
    """

    barrier: list[float] = field(default_factory=list)
    by_runner: dict[str, list[float]] = field(default_factory=dict)
    beyond: dict[str, list[float]] = field(default_factory=dict)


def main() -> None:
    """Measure and print."""
    options = read_options("k-means, iteration by iteration.", agents=(2, 4), runs=7)
    program = sapwood.load_program(HERE / "programs" / "kmeans", {"rounds": ROUNDS})
    library = build(program).libraries[0].image.path
    with Report("Iterations of k-means", options) as report:
        python = _peer(report, make=not options.quick)
        with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
            for agents in options.agents:
                full = POINTS // 20 if options.quick else POINTS
                kinds = (("wall", full), ("empty", EMPTY_POINTS * agents))
                for kind, count in kinds[:1] if options.quick else kinds:
                    path = Path(folder) / f"{kind}-{agents}.npy"
                    points = np.random.default_rng(agents).normal(size=(count, DIMENSIONS))
                    np.save(path, points.astype(np.float32))
                    case = Case(agents, path, str(library), _inertia(str(library), path))
                    _report(report, kind, case, measure(case, program, python, options))


def measure(case: Case, program: sapwood.Program, python: Path | None, options: Options) -> Times:
    """Run the floor, Sapwood and the peers in turn."""
    times = Times()
    unbound = load_configuration({"limits.bind": False}).settings
    with (
        sapwood.local(case.agents) as cluster,
        sapwood.local(case.agents, settings=unbound) as free,
    ):
        for _ in range(options.runs):
            floors = measure_floor(
                "barrier",
                agents=case.agents,
                library=case.library,
                points=str(case.points),
                clusters=CLUSTERS,
                rounds=ROUNDS,
            )
            times.barrier += floors["barrier"]
            own = min(floors["calls"])
            found = {"sapwood": _by_sapwood(cluster, program, case, np.load(case.points))}
            found["mapped"] = _by_sapwood(cluster, program, case, case.points)
            found["unbound"] = _by_sapwood(free, program, case, np.load(case.points))
            if python is not None:
                found |= {name: _by_mpi(python, case, name) for name in PEERS}
            for name, seconds in found.items():
                times.by_runner.setdefault(name, []).extend(seconds)
                times.beyond.setdefault(name, []).append(statistics.median(seconds) - own)
    return times


def _by_sapwood(
    cluster: sapwood.Cluster, program: sapwood.Program, case: Case, points: Array | Path
) -> list[float]:
    result = cluster.run(program, points).result()
    _check("Sapwood", result["inertia"], case)
    stamps: list[float] = vars(type(program))["stamps"]
    return [after - before for before, after in itertools.pairwise(stamps)]


def _by_mpi(python: Path, case: Case, name: str) -> list[float]:
    task = {"library": case.library, "points": str(case.points), "clusters": CLUSTERS}
    task |= {"rounds": ROUNDS, "mode": name.removeprefix("mpi_")}
    options = ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
    if os.geteuid() == 0:
        options.append("--allow-run-as-root")
    command = ["mpirun", "-n", str(case.agents), *options, str(python)]
    done = subprocess.run(
        [*command, str(HERE / "peers" / "kmeans_mpi.py"), json.dumps(task)],
        env={**os.environ, "PYTHONPATH": str(HERE)},
        stdout=subprocess.PIPE,
        check=True,
        timeout=TIME_LIMIT,
    )
    answer = json.loads(done.stdout)
    _check(name, answer["inertia"], case)
    seconds: list[float] = answer["seconds"]
    return seconds


def _inertia(library: str, path: Path) -> float:
    """Run the same k-means in this process alone."""
    points: Array = np.load(path)
    assign = Assign(library, points, CLUSTERS)
    centres = points[:CLUSTERS].astype(np.float64)
    inertia = 0.0
    for _ in range(ROUNDS):
        assign(centres)
        centres, inertia = next_centres(assign.packed, CLUSTERS, DIMENSIONS)
    return inertia


def _check(who: str, inertia: float, case: Case) -> None:
    # Sums of another grouping differ in their last digits, and so may a border case.
    if not np.isclose(inertia, case.inertia, rtol=1e-6):
        raise AssertionError(f"{who} found the inertia {inertia}, not {case.inertia}")


def _report(report: Report, kind: str, case: Case, times: Times) -> None:
    nbytes = (CLUSTERS * DIMENSIONS + CLUSTERS + 1) * 8
    for name, seconds in times.by_runner.items():
        report.add(
            Figure.of(
                f"iterate.{kind}.{name}",
                case.agents,
                seconds,
                times.barrier,
                unit="ms",
                nbytes=nbytes,
            )
        )
    if kind == "empty":
        return
    peer = times.beyond.get("mpi_allreduce", [])
    for name, seconds in times.beyond.items():
        figure = f"iterate.overhead.{name}"
        report.add(Figure.of(figure, case.agents, seconds, peer, unit="ms", nbytes=nbytes))


def _peer(report: Report, *, make: bool) -> Path | None:
    try:
        return mpi_python(make=make)
    except PeerMissingError as missing:
        report.note(f"mpi4py is left out: {missing}")
        return None


if __name__ == "__main__":
    main()
