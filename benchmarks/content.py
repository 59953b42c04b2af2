"""Bytes for agents and nodes that see neither the memory nor the files of the client.

``content.agents``
    A run over new data, of which each agent gets the given number of bytes: from the call to the
    result. The agents map no memory of the client, so each fetches its slice, hashes it, and writes
    it to the content folder. Floor: a process for each agent gets as many bytes over plain TCP and
    writes them to a file.
``content.again``
    The same run once more: the slices are in the folder. It has no floor.
``content.nodes``
    From the call of ``Stage.put`` with a file of that size until all nodes have it. Floor: the same
    bytes in the same shape by TLS, hashed and written.

All agents and nodes are processes of this machine, so they share its processors and its disk.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import ClassVar

import msgspec
import numpy as np

import sapwood
from report import Figure, Report, read_options
from sapwood.environment.settings import ClusterSettings, CommSettings, Settings
from sapwood.head_client.staging import best_fan_out, sources_of
from sessions import head
from staging import nodes, passing_on, write_new

SIZE = 64 << 20
SMALL_SIZE = 4 << 20


class Total(sapwood.Program):
    """The sum of what the agents have."""

    reduce: ClassVar = {"sum": "sum"}

    def map(self, part, state):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        """Sum a part."""
        return {"sum": np.array([part.data.sum()])}

    def update(self, state, total):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        """Take the sum."""
        return {"sum": float(total["sum"][0])}

    def done(self, state):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        """End after one iteration."""
        return True

    def result(self, state):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        """Return the sum."""
        return state["sum"]


def main() -> None:
    """Measure and print."""
    options = read_options("Bytes for agents and nodes elsewhere.", agents=(4,), runs=5)
    nbytes = SMALL_SIZE if options.quick else SIZE
    count = max(options.agents)
    os.environ["SAPWOOD_NODES__NODE_LISTEN"] = "127.0.0.1:0"
    os.environ["SAPWOOD_NODES__STAGE_LIMIT"] = str(nbytes + (1 << 20))  # former files make room
    with (
        Report("Bytes for agents and nodes elsewhere", options) as report,
        tempfile.TemporaryDirectory(prefix="sapwood-bench-") as text,
    ):
        folder = Path(text)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        plain: list[float] = []
        secured: list[float] = []
        fan_out = best_fan_out(count, nbytes)
        sources = sources_of(range(1, count + 1), [], set(), fan_out)
        shape = [sources[one] for one in range(1, count + 1)]
        for _ in range(options.runs):
            plain += passing_on([0] * count, nbytes, folder, secure=False)
            secured += passing_on(shape, nbytes, folder, secure=True)
        first, again = running(count, nbytes, options.runs, folder)
        puts = staging(count, nbytes, options.runs, folder)
        for name, values, floors in (
            ("content.agents", first, plain),
            ("content.again", again, []),
            ("content.nodes", puts, secured),
        ):
            report.add(Figure.of(name, count, values, floors, unit="ms", nbytes=nbytes))


def running(agents: int, nbytes: int, runs: int, folder: Path) -> tuple[list[float], list[float]]:
    """Return the seconds of runs over new data, and of the same runs again."""
    chosen = msgspec.structs.replace(
        Settings(),
        comm=CommSettings(shared_memory=False),
        cluster=ClusterSettings(
            content_folder=str(folder / "content"), content_cache=2 * agents * nbytes
        ),
    )
    first: list[float] = []
    again: list[float] = []
    with sapwood.local(agents, fanout=0, settings=chosen) as cluster:
        cluster.run(Total(), np.zeros(agents)).result()  # the runners are there
        for number in range(runs):
            x = np.random.default_rng(number).random(agents * nbytes // 8)
            for seconds in (first, again):
                begin = time.perf_counter()
                found = cluster.run(Total(), x).result()
                seconds.append(time.perf_counter() - begin)
                assert np.isclose(found, x.sum())
    return first, again


def staging(count: int, nbytes: int, runs: int, folder: Path) -> list[float]:
    """Return the seconds until all nodes have a new file."""
    puts: list[float] = []
    file = folder / "file"
    with head("--listen", "127.0.0.1:0"), nodes(count), sapwood.connect().stage() as stage:
        for _ in range(runs):
            write_new(file, nbytes)
            os.sync()
            begin = time.perf_counter()
            (made,) = stage.put(file)
            puts.append(time.perf_counter() - begin)
            assert len(made.nodes) == count
            stage.remove("file")
    return puts


if __name__ == "__main__":
    main()
