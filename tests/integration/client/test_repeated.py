"""Repeated opening and closing leaves no descriptor, thread, entry or memory."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.environment.settings import Settings
from sapwood_simulation.local_session_server import attach_here, local_session_server, server_of

PATIENCE = 60.0
TREE = (2, 0)
WARM = 8
"""Times that everything is done before it is looked at: caches and pools have their sizes then."""

TIMES = [40, pytest.param(200, marks=pytest.mark.nightly)]

GROWTH = 8 * 1024
"""KiB by which a process may grow meanwhile: what allocators and pools keep."""

BOUNDED = {"Channel._kept", "GroupRecovery._ended", "SharedReactor._timers"}
"""Tables that keep what is over for a while: until it is acknowledged or due, or so many."""

Until = Callable[[Callable[[], object]], None]


class Sum(sapwood.Program):
    """The smallest program."""

    reduce = {"s": "sum"}  # noqa: RUF012 - as users write it

    def map(self, slice: Any, state: Any) -> Any:  # noqa: A002 - as Program.map
        return {"s": float(slice.data.sum())}


VERSION = """\
import sapwood

class Version(sapwood.Program):
    reduce = {{"n": "sum"}}

    def map(self, slice, state):
        return {{"n": {number} * len(slice)}}
"""


class Operations:
    """What users do again and again; each leaves nothing."""

    def __init__(self, cluster: sapwood.Cluster, folder: Path) -> None:
        self.cluster = cluster
        self._path = folder / "version.py"
        self._number = 0

    def stream(self) -> None:
        with self.cluster.stream(abs, reduce="sum") as stream:
            assert stream.broadcast(-1).result(PATIENCE).total == len(self.cluster.agents)

    def echo(self) -> None:
        with self.cluster.stream("echo", reduce={"x": "sum"}) as stream:
            stream.broadcast({"x": np.ones(20_000)}).result(PATIENCE)

    def group(self) -> None:
        group = self.cluster.group()
        group.broadcast("x", 3, timeout=PATIENCE)
        assert group.gather("x", timeout=PATIENCE) == [3] * len(self.cluster.agents)

    def run(self) -> None:
        assert self.cluster.run(Sum, data=np.ones(100)).result(PATIENCE) == {"s": 100.0}

    def program(self) -> None:
        self._number += 1
        self._path.write_text(VERSION.format(number=self._number))
        program = sapwood.load_program(str(self._path))
        found = self.cluster.run(program, data=range(4)).result(PATIENCE)
        assert found == {"n": 4 * self._number}

    def dataset(self) -> None:
        with self.cluster.persist(np.ones(5000)) as data:
            assert self.cluster.run(Sum, data=data).result(PATIENCE) == {"s": 5000.0}

    def task(self) -> None:
        assert self.cluster.submit(np.sum, np.ones(20_000)).result(PATIENCE) == 20_000

    def function(self) -> None:
        self._number += 1
        number = self._number
        assert self.cluster.submit(lambda: number).result(PATIENCE) == number

    def failure(self) -> None:
        with pytest.raises(sapwood.SapwoodError):
            self.cluster.submit(int, "x").result(PATIENCE)

    def cancelled(self) -> None:
        self.cluster.submit(abs, -3).cancel()


def descendants(pid: int) -> Iterator[int]:
    """Return a process and all below it."""
    yield pid
    with contextlib.suppress(FileNotFoundError):  # the process has ended meanwhile
        for task in list(Path(f"/proc/{pid}/task").iterdir()):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # so has this thread
                for child in (task / "children").read_text().split():
                    yield from descendants(int(child))


class Held:
    """What the processes of a cluster hold.

    Attributes:
        counts: Descriptors and threads of each process.
        memory: KiB of each.
        tables: Entries of each table of this process that belongs to the cluster.
    """

    def __init__(self, root: object) -> None:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # the allocator may keep free memory
        self.counts: dict[int, tuple[int, int]] = {}
        self.memory: dict[int, int] = {}
        for pid in descendants(os.getpid()):
            folder = Path(f"/proc/{pid}")
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                counts = [len(list((folder / name).iterdir())) for name in ("fd", "task")]
                pages = int((folder / "statm").read_text().split()[1])
                self.counts[pid] = (counts[0], counts[1])
                self.memory[pid] = pages * os.sysconf("SC_PAGE_SIZE") // 1024
        self.tables = tables_of(root)

    def more_than(self, before: Held, times: int) -> list[str]:
        """Return what there is more of than before."""
        grown = [
            f"{name}: {before.tables.get(name, 0)} to {size}"
            for name, size in self.tables.items()
            if size - before.tables.get(name, 0) >= times // 2 and name not in BOUNDED
        ]
        for pid, counts in self.counts.items():
            if pid not in before.counts:
                grown.append(f"process {pid}")
            elif counts > before.counts[pid]:
                grown.append(f"descriptors and threads of {pid}: {before.counts[pid]} to {counts}")
        for pid, memory in self.memory.items():
            most = (
                4 * GROWTH if pid == os.getpid() else GROWTH
            )  # here are the tests themselves, too
            if memory - before.memory.get(pid, memory) > most:
                grown.append(f"memory of {pid}: {before.memory[pid]} to {memory} KiB")
        return grown


def tables_of(root: object) -> dict[str, int]:
    """Return the sizes of all containers that belong to an object, by where they are found."""
    sizes: dict[str, int] = {}
    seen: set[int] = set()
    waiting: list[tuple[object, str]] = [(root, "")]
    while waiting:
        found, name = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, partial):
            waiting += [(one, name) for one in (found.func, *found.args)]
        elif isinstance(found, dict | list | set | tuple) or type(found).__name__ == "deque":
            sizes[name] = max(sizes.get(name, 0), len(found))  # type: ignore[arg-type]  # a deque has one, too
            values = list(found.values()) if isinstance(found, dict) else list(found)  # type: ignore[call-overload]  # as above
            waiting += [(one, f"{name}[]") for one in values]
        elif type(found).__module__.startswith("sapwood"):
            slots = {one for kind in type(found).__mro__ for one in getattr(kind, "__slots__", ())}
            for attribute in slots | getattr(found, "__dict__", {}).keys():
                value = getattr(found, attribute, None)
                waiting.append((value, f"{type(found).__name__}.{attribute}"))
        elif callable(found) and hasattr(found, "__self__"):
            waiting.append((found.__self__, name))
    return sizes


def nothing_more(until: Until, root: object, before: Held, times: int) -> None:
    """Wait until there is no more than before, for what is acknowledged a little later."""
    found: list[str] = []

    def is_so() -> bool:
        found[:] = Held(root).more_than(before, times)
        return not found

    try:
        until(is_so)
    except AssertionError:
        pytest.fail("; ".join(found))


NAMES = [name for name in vars(Operations) if not name.startswith("_")]


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("name", NAMES)
def test_an_operation_leaves_nothing(
    standing: sapwood.Cluster, until: Until, tmp_path: Path, name: str, times: int
) -> None:
    operations = Operations(standing, tmp_path)
    operation = getattr(operations, name)
    for _ in range(WARM):
        operation()
    before = Held(standing)
    for _ in range(times):
        operation()
    nothing_more(until, standing, before, times)


def test_what_is_left_is_seen(standing: sapwood.Cluster) -> None:
    before = Held(standing)
    streams = [standing.stream("echo") for _ in range(20)]
    with (Path(__file__)).open("rb"):
        found = " ".join(Held(standing).more_than(before, 20))
    assert "descriptors and threads" in found
    assert "_streams: " in found
    for stream in streams:
        stream.close()


@pytest.mark.parametrize("times", [10, pytest.param(200, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("abruptly", [False, True])
def test_clients_that_come_and_go_leave_nothing_at_the_root(
    until: Until, times: int, abruptly: bool
) -> None:
    settings = Settings()
    with local_session_server(settings, agents=1) as address:
        server = server_of(address)

        def come_and_go() -> None:
            cluster = attach_here(address, settings)
            cluster.session.content.offer(os.urandom(1000))
            with cluster.stream(abs, reduce="sum") as stream:
                stream.broadcast(-1).result(PATIENCE)
            assert cluster.run(Sum, data=np.ones(100)).result(PATIENCE) == {"s": 100.0}
            if abruptly:
                session: Any = cluster.session
                session.call(session.link._connection.abort)
            cluster.close()

        for _ in range(3):
            come_and_go()
        until(lambda: not server._clients)
        before = Held(server)
        for _ in range(times):
            come_and_go()
        until(lambda: not server._clients)
        nothing_more(until, server, before, times)
        assert len(server.session.content) == 0
