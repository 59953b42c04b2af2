"""``sapwood.Pool``: what CPython's own tests of pools do not look at."""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Iterator
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.client import pool as pools
from sapwood.client import shared_files
from sapwood.core.errors import (
    CancelledError,
    ClosedError,
    ConfigurationError,
    DataValueError,
    RunnerCrashError,
    TimeLimitError,
)
from sapwood.environment.settings import TaskSettings

WAIT = 60.0

table: Any = None


def set_table(value: Any) -> None:
    global table  # noqa: PLW0603 - as programs with multiprocessing do it
    table = value


def look_up(number: int) -> Any:
    return table[number]


def look_up_elsewhere(number: int) -> tuple[bool, float]:
    return table.flags.writeable, float(table[number])


def count(path: str) -> None:
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")


def pid(_number: int) -> int:
    return os.getpid()


class Held:
    """An object that can be watched."""


def same(value: Any) -> Any:
    return value


def fails(number: int) -> int:
    if number == 3:
        raise KeyError("three")
    return number


def refuses(_value: object) -> None:
    raise OSError(5, "no table")


def waits(_number: int) -> None:
    time.sleep(WAIT)


def kills(_number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def double(number: int) -> int:
    return 2 * number


@pytest.fixture(scope="module")
def standing() -> Iterator[sapwood.Cluster]:
    with sapwood.local(agents=2) as cluster:
        yield cluster


@pytest.fixture
def pool(standing: sapwood.Cluster) -> Iterator[sapwood.Pool]:
    with sapwood.Pool(cluster=standing) as made:
        yield made


def test_a_pool_has_processes() -> None:
    with sapwood.Pool(3) as made:
        assert len(set(made.map(pid, range(300), chunksize=1))) <= 3
        assert repr(made) == "<Pool: running, 3 processes>"
    made.join()
    assert made._own is not None
    assert made._own.closed


def test_the_cluster_of_a_pool_stays_open(standing: sapwood.Cluster) -> None:
    with (
        sapwood.Pool(cluster=standing.options(time_limit=0.2)) as made,
        pytest.raises(TimeLimitError),
    ):
        made.apply(waits, (0,))
    made.join()
    assert standing.submit(pow, 2, 3).result() == 8


def test_results_are_those_of_the_standard_library(pool: sapwood.Pool) -> None:
    items = list(range(1000))
    with ThreadPool(1) as other:
        assert pool.map(math.sqrt, items) == other.map(math.sqrt, items)
        assert list(pool.imap(math.sqrt, items, 7)) == list(other.imap(math.sqrt, items, 7))
        pairs = [(number, 3) for number in items]
        assert pool.starmap(pow, pairs, 7) == other.starmap(pow, pairs, 7)
        assert pool.apply(int, ("11",), {"base": 2}) == other.apply(int, ("11",), {"base": 2})
    assert sorted(pool.imap_unordered(math.sqrt, items, 7)) == [math.sqrt(one) for one in items]
    doubled: list[Any] = pool.map(double, [1, 2])
    assert doubled == [2, 4]


def test_the_initializer_of_a_script_sets_variables(standing: sapwood.Cluster) -> None:
    with sapwood.Pool(initializer=set_table, initargs=([5, 6, 7],), cluster=standing) as made:
        assert made.map(look_up, [2, 0, 1], chunksize=1) == [7, 5, 6]
        assert made.apply(lambda number: table[number], (1,)) == 6
        assert list(made.imap(look_up, [0, 1])) == [5, 6]
    with sapwood.Pool(initializer=set_table, initargs=(["other"],), cluster=standing) as made:
        assert made.map(look_up, [0, 0]) == ["other", "other"]


def test_each_process_is_initialized_once(standing: sapwood.Cluster, tmp_path: Path) -> None:
    path = tmp_path / "pids"
    with sapwood.Pool(initializer=count, initargs=(str(path),), cluster=standing) as made:
        used = set(made.map(pid, range(50), chunksize=1))
        used |= set(made.imap_unordered(pid, range(50)))
        assert sorted(path.read_text().split()) == sorted(map(str, used))
        with pytest.raises(RunnerCrashError):
            made.apply(kills, (0,))
        used |= set(made.map(pid, range(50), chunksize=1))
    assert sorted(path.read_text().split())[:1]
    assert set(map(str, used)) <= set(path.read_text().split())
    assert len(path.read_text().split()) == len(set(path.read_text().split()))


def test_large_arrays_of_the_initializer_are_stored_once(
    standing: sapwood.Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shared_files, "_MEMORY", tmp_path)
    array = np.arange(500_000.0)
    with sapwood.Pool(initializer=set_table, initargs=(array,), cluster=standing) as made:
        (folder,) = tmp_path.iterdir()
        assert [one.stat().st_size for one in folder.iterdir()] == [array.nbytes]
        found = made.map(look_up_elsewhere, range(20), chunksize=1)
        assert found == [(False, float(number)) for number in range(20)]
    assert not any(tmp_path.iterdir())


def test_an_initializer_that_fails_fails_the_calls(standing: sapwood.Cluster) -> None:
    with sapwood.Pool(initializer=refuses, initargs=(1,), cluster=standing) as made:
        for _ in range(2):
            with pytest.raises(OSError, match="no table") as caught:
                made.map(fails, [1, 2])
            assert caught.value.errno == 5
    lock = threading.Lock()
    with pytest.raises(DataValueError, match="the initializer cannot be sent"):
        sapwood.Pool(initializer=set_table, initargs=(lock,), cluster=standing)


def test_processes_are_replaced(standing: sapwood.Cluster) -> None:
    with sapwood.Pool(maxtasksperchild=5, cluster=standing) as made:
        found = made.map(pid, range(50), chunksize=1)
    assert max(map(found.count, found)) == 5
    assert len(set(found)) in {10, 11}, "one agent may make 25 calls and the other 25, or fewer"


def test_an_exception_is_the_function_s(pool: sapwood.Pool) -> None:
    result = pool.map_async(fails, range(10), chunksize=1)
    with pytest.raises(KeyError, match="three") as caught:
        result.get()
    assert type(caught.value) is KeyError
    assert "in fails" in str(caught.value.__cause__)
    assert not result.successful()
    results = pool.imap(fails, range(5))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError):
        next(results)
    assert list(results) == [4]


def test_callbacks_are_called_before_a_result_is_ready(pool: sapwood.Pool) -> None:
    found: list[Any] = []
    result = pool.map_async(fails, [1, 2], callback=found.append, error_callback=found.append)
    assert result.get() == [1, 2]
    assert found == [[1, 2]]
    failed = pool.apply_async(fails, (3,), callback=found.append, error_callback=found.append)
    failed.wait()
    assert failed.ready()
    with pytest.raises(KeyError):
        failed.get()
    assert isinstance(found[1], KeyError)
    assert pool.map_async(fails, [], callback=found.append).get() == []
    assert len(found) == 2, "as in the standard library"


def test_a_callback_may_use_the_pool(pool: sapwood.Pool) -> None:
    found: list[int] = []
    result = pool.apply_async(
        fails, (1,), callback=lambda number: found.append(pool.apply(fails, (number + 1,)))
    )
    assert result.get(WAIT) == 1
    assert found == [2]


def test_a_result_that_does_not_come(pool: sapwood.Pool) -> None:
    result = pool.apply_async(waits, (0,))
    assert not result.ready()
    with pytest.raises(ValueError, match="not ready"):
        result.successful()
    with pytest.raises(multiprocessing.TimeoutError):
        result.get(timeout=0.01)
    results = pool.imap(waits, [0])
    for _ in range(2):
        with pytest.raises(multiprocessing.TimeoutError):
            results.next(timeout=0.01)
    pool.terminate()
    with pytest.raises(CancelledError):
        result.get()
    with pytest.raises(CancelledError):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


def test_an_argument_that_cannot_travel(pool: sapwood.Pool) -> None:
    with pytest.raises(DataValueError, match="cannot pickle"):
        pool.map(fails, [threading.Lock()])
    assert next(pool.imap(fails, [1])) == 1
    with pytest.raises(DataValueError, match="a pool cannot be sent"):
        pool.apply(lambda: pool)


def test_a_function_as_a_result(pool: sapwood.Pool) -> None:
    assert pool.apply(lambda: lambda: 42)() == 42


def test_no_argument_or_result_is_kept(pool: sapwood.Pool) -> None:
    given = [Held() for _ in range(3)]
    references = [weakref.ref(one) for one in given]
    found = pool.map(same, given)
    references += [weakref.ref(one) for one in found]
    del given, found
    gc.collect()
    assert [reference() for reference in references] == [None] * 6


def test_what_is_not_to_be_pickled_travels_plainly() -> None:
    settings = sapwood.Settings(tasks=TaskSettings(pickle=False))
    with sapwood.local(agents=1, settings=settings) as cluster:
        made = sapwood.Pool(cluster=cluster)
        assert made.map(fails, range(3)) == [0, 1, 2]
        with pytest.raises(DataValueError, match=r"tasks\.pickle"):
            made.map(same, [Path("x")])
        assert next(made.imap(fails, [2])) == 2
        made.terminate()


def test_items_are_taken_as_calls_are_over(
    pool: sapwood.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "MAX_AHEAD", 4)
    taken: list[int] = []

    def endless() -> Iterator[int]:
        while True:
            taken.append(len(taken))
            yield 0

    results = pool.imap_unordered(waits, endless())
    with pytest.raises(multiprocessing.TimeoutError):
        results.next(timeout=0.2)
    assert len(taken) <= 5


def test_calls_of_a_closed_pool_are_made(standing: sapwood.Cluster) -> None:
    made = sapwood.Pool(cluster=standing)
    results = made.imap(fails, [0, 1, 2])
    with pytest.raises(ValueError, match="still running"):
        made.join()
    made.close()
    made.close()
    with pytest.raises(ValueError, match="not running"):
        made.map(fails, [1])
    made.join()
    assert list(results) == [0, 1, 2]
    made.terminate()
    made.join()


def test_a_closed_pool_ends_although_nobody_joins_it() -> None:
    made = sapwood.Pool(1)
    made.apply_async(fails, (1,))
    cluster = made._own
    assert cluster is not None
    made.close()
    finisher = made._finisher
    del made
    assert finisher is not None
    finisher.join()
    assert cluster.closed


def test_a_pool_that_nobody_closes(standing: sapwood.Cluster) -> None:
    made = sapwood.Pool(cluster=standing)
    with pytest.warns(ResourceWarning, match="unclosed running pool <Pool: running, 2 processes>"):
        made.__del__()
    made.terminate()
    assert standing.submit(pow, 2, 3).result() == 8


def test_a_pool_that_is_open_at_the_end_of_a_script() -> None:
    script = """
    import sapwood

    class Holder:
        def __init__(self):
            self.pool = sapwood.Pool(processes=1)

    def test():
        global holder
        holder = Holder()
        print(holder.pool.map(float, range(3)))

    if __name__ == "__main__":
        test()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"[0.0, 1.0, 2.0]\n")


def test_wrong_arguments(standing: sapwood.Cluster, pool: sapwood.Pool) -> None:
    for number in (0, -1, 1.5, "2"):
        with pytest.raises(ValueError, match="processes is"):
            sapwood.Pool(number)  # type: ignore[arg-type] # as said
    with pytest.raises(ConfigurationError, match="both given"):
        sapwood.Pool(2, cluster=standing)
    with pytest.raises(ConfigurationError, match="cluster is 'mine'"):
        sapwood.Pool(cluster="mine")  # type: ignore[arg-type] # as said
    with pytest.raises(ConfigurationError, match="initializer is 3"):
        sapwood.Pool(initializer=3, cluster=standing)  # type: ignore[arg-type] # as said
    for chunksize in (0, -1):
        with pytest.raises(ValueError, match="chunksize is"):
            pool.map(fails, [1], chunksize)
        with pytest.raises(ValueError, match="chunksize is"):
            pool.imap(fails, [1], chunksize)
    with pytest.raises(ConfigurationError, match="func is 3"):
        pool.map(3, [1])  # type: ignore[arg-type] # as said
    with pytest.raises(TypeError):
        pool.map(fails, 3)  # type: ignore[arg-type] # as said
    pool.terminate()
    with pytest.raises(ClosedError):
        pool.apply(fails, (1,))
