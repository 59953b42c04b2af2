"""Stores: what writing, reading and watching cost, in SQLite and in etcd.

The floor of writing is appending as many bytes to a file in the same folder, and waiting until
the disk has them. etcd is one member on this machine, where it is installed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from report import Figure, Options, Report, read_options
from sapwood.core.errors import SapwoodError
from sapwood.store.base import MAX_CHANGES, Put, Store
from sapwood.store.opening import open_store

VALUE = 256
"""Bytes of a value, about those of what is known of a node."""

PATIENCE = 30.0
"""Seconds that etcd gets to begin."""


def timed(work: Callable[[int], object], count: int) -> list[float]:
    """Return the seconds of each call."""
    found = []
    for number in range(count):
        begin = time.perf_counter()
        work(number)
        found.append(time.perf_counter() - begin)
    return found


def floor(folder: Path, count: int) -> list[float]:
    """Return the seconds of appending to a file until the disk has it."""
    descriptor = os.open(folder / "floor", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def append(_number: int) -> None:
        os.write(descriptor, bytes(VALUE))
        os.fdatasync(descriptor)

    try:
        return timed(append, count)
    finally:
        os.close(descriptor)


def measure(name: str, store: Store, folder: Path, options: Options, report: Report) -> None:
    """Measure one store."""
    count = 20 if options.quick else 500 * options.runs
    value = bytes(VALUE)
    bare = floor(folder, count)
    puts = timed(lambda number: store.put(f"bench/{number % 50}", value), count)
    report.add(Figure.of(f"store.{name}.put", 1, puts, bare, unit="us", nbytes=VALUE))
    many = [Put(f"bench/{number}", value) for number in range(MAX_CHANGES)]
    whole = timed(lambda _: store.transact(many), max(count // 10, 5))
    report.add(Figure.of(f"store.{name}.transaction_of_100", 1, whole, bare, unit="us"))
    gets = timed(lambda number: store.get(f"bench/{number % 50}"), count)
    report.add(Figure.of(f"store.{name}.get", 1, gets, [], unit="us", nbytes=VALUE))
    pages = timed(lambda _: store.range("bench/"), count)
    report.add(Figure.of(f"store.{name}.page_of_100", 1, pages, [], unit="us"))
    with store.watch("bench/") as watch:

        def told(number: int) -> None:
            done = store.put(f"bench/{number % 50}", value)
            change = watch.next(PATIENCE)
            assert change is not None
            assert change.revision == done

        report.add(
            Figure.of(f"store.{name}.put_until_told", 1, timed(told, count), bare, unit="us")
        )
    lease = store.grant(60)
    kept = timed(lambda _: store.keep_alive(lease), count)
    report.add(Figure.of(f"store.{name}.keep_alive", 1, kept, [], unit="us"))
    store.revoke(lease)


@contextlib.contextmanager
def etcd(folder: Path) -> Iterator[str]:
    """Run a member of etcd, and return the address of a store in it."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("", 0)) as two:
        ports = [taken.getsockname()[1] for taken in (one, two)]
    client, peer = (f"http://127.0.0.1:{port}" for port in ports)
    command = [
        *("etcd", "--name", "m", "--data-dir", str(folder / "etcd"), "--log-level", "error"),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
        *("--initial-cluster", f"m={peer}"),
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            address = f"etcd://127.0.0.1:{ports[0]}/bench"
            deadline = time.monotonic() + PATIENCE
            while True:
                try:
                    with open_store(address) as store:
                        store.put("ready", b"")
                    break
                except SapwoodError:
                    if time.monotonic() > deadline:
                        raise
            yield address
        finally:
            process.kill()


def main() -> None:
    """Measure and print."""
    options = read_options("Stores: writing, reading, watching.", agents=(1,), runs=3)
    with tempfile.TemporaryDirectory() as name, Report("Stores", options) as report:
        folder = Path(name)
        with open_store(folder / "head") as store:
            measure("sqlite", store, folder, options, report)
        if shutil.which("etcd"):
            with etcd(folder) as address, open_store(address) as store:
                measure("etcd", store, folder, options, report)
        else:
            report.note("etcd is not installed: it was left out")


if __name__ == "__main__":
    main()
