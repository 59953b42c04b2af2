"""k-means and logistic regression over a Parquet set that no process may hold in memory.

The machines are four network namespaces of this one beside the benchmark's, with two agents
each; all share its cores and its disk, so every machine has the file. Sapwood, Dask, Ray and Open
MPI take turns with the same numpy calls on blocks of the same rows, so their results must agree.
Each has ``ROUNDS`` iterations. Dask, Ray and MPI read their row groups in each iteration, in
bounded memory; agents of Sapwood read them once into a file that they map. Sapwood's connections
are TLS, the others' are not encrypted. Where namespaces cannot be made, Sapwood is alone.

``--limit`` bounds the memory of each agent, by ``limits.memory``, by ``--memory-limit`` of Dask,
and by ``RLIMIT_DATA`` of a rank of MPI beyond what its libraries reserve. Ray bounds no actor, so
its memory is only measured.

``datasets.kmeans``, ``datasets.logistic``
    Seconds from the first look at the file to the result, workers being there and having numpy and
    pyarrow.
``datasets.….wire``
    Bytes that all machines sent meanwhile to the others, with all headers, counted at the switch.
``datasets.….memory``
    The most that all processes of a contender had at once, its daemons, its client and its
    object stores among them: anonymous and shared memory, where pages that several processes share
    count once (``Pss_Anon`` and ``Pss_Shmem``), looked at five times a second. Pages of files,
    which the kernel drops when it needs them, do not count; they are on standard error.

The floor of each is the least of the others. ``….dask``, ``….ray`` and ``….mpi`` are theirs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from clusters import head_up, join_all
from machines import Machines, machines
from peers.environment import PeerMissingError
from peers.hosts import TIME_LIMIT, mpirun, python_over, start_dask, start_ray
from peers.running import (
    BENCHMARKS,
    PeerFailedError,
    environment,
    marked,
    processes_of,
    run_marked,
)
from programs.parquet_steps import Given
from report import Figure, Options, Report, add_options, options_of

NODES = 4
COLUMNS = 8
GROUP = 131_072
ROUNDS = 5
TASKS = ("kmeans", "logistic")
CONTENDERS = ("sapwood", "dask", "ray", "mpi")
QUICK = 64
"""MiB of the set of ``--quick``."""

LOOK = 0.2
"""Seconds between two looks at the memory of a contender."""


@dataclass(frozen=True)
class Found:
    """What one contender took, once.

    Attributes:
        seconds: From the first look at the file to the result.
        wire: Bytes that the machines sent to each other.
        memory: The most memory of all its processes that the kernel could not drop, bytes.
        mapped: The most of their pages of files, bytes.
        result: The centres or the weights.
    """

    seconds: float
    wire: int
    memory: int
    mapped: int
    result: Any


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Parquet sets larger than memory.")
    add_options(parser, runs=3)
    parser.add_argument("--megabytes", type=int, default=2048, help="size of the decoded set")
    parser.add_argument("--limit", type=int, default=256, help="MiB of memory of each agent")
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=CONTENDERS)
    given = parser.parse_args()
    options = options_of(given, agents=(2 * NODES,), runs=3)
    with (
        machines(NODES) as lan,
        Report("Parquet sets larger than memory.", options) as report,
        tempfile.TemporaryDirectory(prefix="sapwood-datasets-") as folder,
    ):
        file = Path(folder) / "points.parquet"
        write(file, QUICK if options.quick else given.megabytes)
        for agents in options.agents:
            for task in TASKS:
                work = Given(
                    file=str(file),
                    task=task,
                    workers=agents,
                    limit=given.limit << 20,
                    rounds=ROUNDS,
                    switch=lan.prefix and f"{lan.prefix}switch",
                    cluster="",
                )
                measure(work, given.only, lan, options, report)


def write(file: Path, megabytes: int) -> None:
    """Write points around centres, a row group at a time."""
    random = np.random.default_rng(5)
    centres = random.uniform(-5, 5, (8, COLUMNS))
    names = [f"x{number}" for number in range(COLUMNS)]
    schema = pa.schema([*((name, pa.float32()) for name in names), ("y", pa.float32())])
    groups = max(2, megabytes * 2**20 // (GROUP * 4 * (COLUMNS + 1)))
    with parquet.ParquetWriter(file, schema, use_dictionary=False) as writer:
        for _ in range(groups):
            points = centres[random.integers(0, 8, GROUP)] + random.normal(size=(GROUP, COLUMNS))
            truth = (points[:, 0] + points[:, 1] > 0).astype("f4")
            columns = [*points.astype("f4").T, truth]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=GROUP)


def measure(
    work: Given, names: Sequence[str], lan: Machines, options: Options, report: Report
) -> None:
    """Run all contenders in turn, and compare their results."""
    found: dict[str, list[Found]] = {name: [] for name in names}
    for _ in range(options.runs):
        for name in list(found):
            try:
                one = contend(name, work, lan)
            except (PeerMissingError, PeerFailedError) as error:
                if name == "sapwood":
                    raise
                report.note(f"{work.task}, {name}: left out: {error}")
                del found[name]
                continue
            found[name].append(one)
            print(
                f"{work.task} {name}: {one.seconds:.2f} s, {one.wire / 2**20:.2f} MiB sent, "
                f"{one.memory / 2**20:.0f} MiB of memory, {one.mapped / 2**20:.0f} MiB mapped",
                file=sys.stderr,
            )
    results = [one.result for several in found.values() for one in several]
    for result in results:
        np.testing.assert_allclose(result, results[0], rtol=1e-4)
    for what, unit in (("seconds", "s"), ("wire", "KiB"), ("memory", "MiB")):
        values = {name: [getattr(one, what) for one in several] for name, several in found.items()}
        title = f"datasets.{work.task}" + ("" if what == "seconds" else f".{what}")
        others = [several for name, several in values.items() if name != "sapwood"]
        floor = min(others, key=np.median, default=[])
        for name, several in values.items():
            own = name == "sapwood"
            report.add(
                Figure.of(
                    title if own else f"{title}.{name}",
                    work.workers,
                    several,
                    floor if own else [],
                    unit=unit,
                )
            )


def contend(name: str, work: Given, lan: Machines) -> Found:
    """Run one on machines that it makes, and leave nothing of it behind."""
    with (
        tempfile.TemporaryDirectory(prefix="sd", dir="/tmp", ignore_cleanup_errors=True) as folder,
        marked() as mark,
        begun(name, work, lan, Path(folder), mark) as (command, cluster),
        watched(mark) as most,
    ):
        given = replace(work, cluster=cluster)
        output = run_marked([*command, given.to_json()], mark, TIME_LIMIT)
    found = json.loads(output.strip().splitlines()[-1])
    return Found(
        found["seconds"], found["wire"], most["memory"], most["mapped"], np.array(found["result"])
    )


@contextmanager
def begun(
    name: str, work: Given, lan: Machines, folder: Path, mark: str
) -> Iterator[tuple[list[str], str]]:
    """Begin the processes of a contender that stay; yield its command and where they are."""
    if name == "sapwood":
        script = str(BENCHMARKS / "programs" / "parquet_sapwood.py")
        variables = {**environment(mark), "XDG_STATE_HOME": str(folder)}
        cluster = f"data{os.getpid()}"
        with head_up(lan, cluster, variables) as line:
            join_all(lan, line, variables)
            yield ["env", f"XDG_STATE_HOME={folder}", sys.executable, script], f"head:{cluster}"
        return
    command = [python_over(name, lan), str(BENCHMARKS / "peers" / f"parquet_{name}.py")]
    if name == "mpi":
        yield [*mpirun(lan, work.workers, folder, client=False), *command], ""
    elif name == "ray":
        yield command, start_ray(lan, work.workers, str(folder), mark)
    else:
        yield command, start_dask(lan, work.workers, work.limit, str(folder), mark)


@contextmanager
def watched(mark: str) -> Iterator[dict[str, int]]:
    """Look at the memory of all processes with a mark; yield the most that there was."""
    most = {"memory": 0, "mapped": 0}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(LOOK):
            sums = {"memory": 0, "mapped": 0}
            for process in processes_of(mark):
                with suppress(OSError):
                    shares = shares_of(process.pid)
                    sums["memory"] += shares.get("Pss_Anon", 0) + shares.get("Pss_Shmem", 0)
                    sums["mapped"] += shares.get("Pss_File", 0)
            for kind, value in sums.items():
                most[kind] = max(most[kind], value)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join()


def shares_of(pid: int) -> dict[str, int]:
    """Return a process's share of its memory by kind, bytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    fields = (line.split() for line in lines)
    return {one[0].rstrip(":"): int(one[1]) << 10 for one in fields}


if __name__ == "__main__":
    main()
