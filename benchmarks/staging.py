"""Files for many nodes: how long it takes until each has them, and who sends how much.

``staging.put``
    From the call of ``Stage.put`` with one file that no node has until all nodes have it at its
    name: sent by TLS 1.3, hashed by each node, and written. Floor: a process for each node gets the
    same bytes over plain TCP, writes them to a file and passes them on meanwhile, in the same
    shape, and hashes nothing.
``staging.secured``
    The same time. Floor: as above, but by TLS 1.3 and with the SHA-256 of what comes.
``staging.root``
    Bytes that leave the client for that. Floor: the size of the file, times the nodes that the
    client sends to in this shape.
``staging.again``
    The same file once more: no bytes go. It has no floor.

The head and all nodes are daemons on this machine, so they share its processors and its disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import sapwood
from floors import measure_floor
from report import Figure, Report, read_options
from sapwood.head_client.staging import best_fan_out, sources_of
from sessions import head

SIZE = 256 << 20
SMALL_SIZE = 4 << 20
PIECE = 1 << 20


def main() -> None:
    """Measure and print."""
    options = read_options("Files on the nodes of a cluster.", agents=(2, 16), runs=1)
    nbytes = SMALL_SIZE if options.quick else SIZE
    count = max(options.agents)
    os.environ["SAPWOOD_NODES__NODE_LISTEN"] = "127.0.0.1:0"
    os.environ["SAPWOOD_NODES__STAGE_LIMIT"] = str(nbytes + PIECE)  # former files make room
    with (
        Report("Files on the nodes of a cluster", options) as report,
        tempfile.TemporaryDirectory(prefix="sapwood-bench-") as text,
    ):
        folder = Path(text)
        fan_out = best_fan_out(count, nbytes)
        sources = sources_of(range(1, count + 1), [], set(), fan_out)
        file = folder / "file"
        plain: list[float] = []
        secured: list[float] = []
        puts: list[float] = []
        again: list[float] = []
        sent: list[float] = []
        shape = [sources[one] for one in range(1, count + 1)]
        for _ in range(options.runs):
            plain += passing_on(shape, nbytes, folder, secure=False)
            secured += passing_on(shape, nbytes, folder, secure=True)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        with head("--listen", "127.0.0.1:0"), nodes(count), sapwood.connect().stage() as stage:
            for _ in range(options.runs):
                write_new(file, nbytes)
                os.sync()
                begin = time.perf_counter()
                (made,) = stage.put(file)
                puts.append(time.perf_counter() - begin)
                sent.append(float(made.sent))
                assert len(made.nodes) == count
                assert made.sent + made.passed_on == count * nbytes
                begin = time.perf_counter()
                (made,) = stage.put(file)
                again.append(time.perf_counter() - begin)
                assert made.sent + made.passed_on == 0
                stage.remove("file")
        least = [float(nbytes * list(sources.values()).count(0))] * options.runs
        for name, values, floors, unit in (
            ("staging.put", puts, plain, "s"),
            ("staging.secured", puts, secured, "s"),
            ("staging.root", sent, least, "MiB"),
            ("staging.again", again, [], "ms"),
        ):
            report.add(Figure.of(name, count, values, floors, unit=unit, nbytes=nbytes))


def passing_on(shape: list[int], nbytes: int, folder: Path, *, secure: bool) -> list[float]:
    """Measure the floor: processes that pass on what comes."""
    found: list[float] = measure_floor(
        "passing_on", sources=shape, nbytes=nbytes, folder=str(folder), secure=secure
    )
    return found


def write_new(path: Path, nbytes: int) -> None:
    """Write bytes that no node has."""
    with path.open("wb") as file:
        for _ in range(nbytes // PIECE):
            file.write(os.urandom(PIECE))


@contextlib.contextmanager
def nodes(count: int) -> Iterator[None]:
    """Start nodes that join by hand, as on separate machines."""
    command = [sys.executable, "-m", "sapwood"]
    made = subprocess.run(
        [*command, "token", "create", "--uses", str(count), "--json"],
        check=True,
        stdout=subprocess.PIPE,
    )
    token = json.loads(made.stdout)["text"]
    with contextlib.ExitStack() as stack:
        begun = []
        for number in range(1, count + 1):
            node = subprocess.Popen(
                [*command, "node", "join", token, "--as", f"b{number}"],
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(node)
            stack.callback(node.terminate)
            begun.append(node)
        for node in begun:
            assert node.stdout is not None
            assert node.stdout.readline().startswith("joined as ")
        yield


if __name__ == "__main__":
    main()
