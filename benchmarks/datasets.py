"""k-means and logistic regression over a Parquet set that no process may hold in memory.

Each contender runs in a process of its own, with as many workers as there are agents, and makes the
same numpy calls on blocks of the same rows, so their results must agree. Each has ``ROUNDS``
iterations. Dask and MPI read their row groups in each iteration, in bounded memory; agents of
Sapwood read them once into a file that they map. Bytes read are those that all processes of one ask
the kernel for (``rchar``), memory is the largest sum of their anonymous pages, looked at 20 times a
second: pages of files, which the kernel drops when it needs them, do not count.

``datasets.kmeans``, ``datasets.logistic``
    Seconds from the first look at the file to the result, workers being there. Floor: the fastest
    of the other contenders that can be had.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from pyarrow import parquet

from report import Figure, Options, Report, add_options, options_of

CONTENDERS = Path(__file__).with_name("programs") / "parquet_contenders.py"
COLUMNS = 8
GROUP = 131_072
ROUNDS = 5
TASKS = ("kmeans", "logistic")
LIMIT = 600.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Parquet sets larger than memory.")
    add_options(parser, runs=3)
    parser.add_argument("--megabytes", type=int, default=2048, help="size of the decoded set")
    parser.add_argument("--limit", type=int, default=384, help="MiB of anonymous memory a worker")
    given = parser.parse_args()
    options = options_of(given, agents=(2,), runs=3)
    megabytes = 64 if options.quick else given.megabytes
    with (
        Report("Parquet sets larger than memory.", options) as report,
        tempfile.TemporaryDirectory(prefix="sapwood-datasets-") as folder,
    ):
        file = Path(folder) / "points.parquet"
        write(file, megabytes)
        for agents in options.agents:
            for task in TASKS:
                report.add(measure(file, task, agents, options, given.limit))


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


def measure(file: Path, task: str, agents: int, options: Options, limit: int) -> Figure:
    """Run all contenders in turn; say on standard error what each took."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders()}
    results: dict[str, Any] = {}
    for _ in range(options.runs):
        for name, times in seconds.items():
            found, read, memory = contend(name, file, task, agents, limit)
            times.append(found["seconds"])
            results[name] = np.array(found["result"])
            print(
                f"{task} {name}: {found['seconds']:.2f} s, {read / 2**20:.0f} MiB read, "
                f"{memory / 2**20:.0f} MiB of anonymous memory in all processes",
                file=sys.stderr,
            )
    for name, result in results.items():
        np.testing.assert_allclose(result, results["sapwood"], rtol=1e-4, err_msg=name)
    own = seconds.pop("sapwood")
    floor = min(seconds.values(), key=np.median, default=[])
    return Figure.of(f"datasets.{task}", agents, own, floor, unit="s")


def contenders() -> list[str]:
    """Return who can be had here."""
    found = ["sapwood"]
    if importlib.util.find_spec("distributed") and importlib.util.find_spec("dask"):
        found.append("dask")
    if importlib.util.find_spec("mpi4py") and shutil.which("mpirun"):
        found.append("mpi")
    for name in {"dask", "mpi"} - set(found):
        print(f"{name} is left out: it is not installed", file=sys.stderr)
    return found


def contend(
    name: str, file: Path, task: str, agents: int, limit: int
) -> tuple[dict[str, Any], int, int]:
    """Run one; return what it said, bytes read and the most anonymous memory."""
    words = [sys.executable, str(CONTENDERS), name, str(file), task]
    words += [str(agents), str(limit), str(ROUNDS)]
    if name == "mpi":
        words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(agents), *words]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    ended = threading.Event()
    read: dict[int, int] = {}
    most = [0]

    def watch() -> None:
        while not ended.wait(0.05):
            total = 0
            try:
                root = psutil.Process(process.pid)
                for one in (root, *root.children(recursive=True)):
                    try:
                        total += anonymous(one.pid)
                        read[one.pid] = rchar(one.pid)
                    except (OSError, StopIteration):
                        continue
            except psutil.Error:
                continue
            most[0] = max(most[0], total)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        output, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    finally:
        ended.set()
        thread.join()
    assert process.returncode == 0, name
    return json.loads(output.splitlines()[-1]), sum(read.values()), most[0]


def anonymous(pid: int) -> int:
    """Return the anonymous pages of a process, bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("RssAnon:"))) * 1024


def rchar(pid: int) -> int:
    """Return the bytes that a process has read."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("rchar:")))


if __name__ == "__main__":
    main()
