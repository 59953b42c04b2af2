"""Processes that write to a store until they are killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

WRITER = """
import sys
from sapwood.store.opening import open_store
from sapwood.testing.stores import write_until_killed

address, seed = sys.argv[1:]
with open_store(address) as store:
    print("open", flush=True)
    write_until_killed(store, lambda number: print(number, flush=True), int(seed))
"""


@contextmanager
def writer(address: str, seed: int) -> Iterator[subprocess.Popen[str]]:
    """Start one; it prints ``open``, then each number that was acknowledged."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, address, str(seed)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            line = process.stdout.readline()
            assert line == "open\n", process.stderr.read()
            yield process
        finally:
            process.kill()
            process.wait()
