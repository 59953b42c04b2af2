"""Single calls through the public API, with the semantics of ``concurrent.futures``."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import datetime as dt
import functools
import importlib
import itertools
import operator
import os
import resource
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import (
    ClosedError,
    ConfigurationError,
    DataValueError,
    InternalError,
    RunnerCrashError,
    SapwoodError,
    TimeLimitError,
    UserCodeError,
)
from sapwood.environment.settings import LimitSettings, TaskSettings
from sapwood.session.embedded import embedded

ROOTS = ("embedded", pytest.param("attached", marks=pytest.mark.nightly))

TIMEOUT = 60.0
TREE = (3, 0)
MakeCluster = Callable[..., sapwood.Cluster]
Until = Callable[[Callable[[], object]], None]


@pytest.fixture
def cluster(standing: sapwood.Cluster) -> sapwood.Cluster:
    """Three agents."""
    return standing


def test_results_come_back_in_order(cluster: sapwood.Cluster) -> None:
    futures = cluster.submit_each(lambda number: number**2, range(100))
    assert [future.result(TIMEOUT) for future in futures] == [n**2 for n in range(100)]


def test_async_functions_run_to_their_end(cluster: sapwood.Cluster) -> None:
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    assert cluster.submit(double, 4).result(TIMEOUT) == 8
    assert list(cluster.map(double, range(5), chunksize=2)) == [0, 2, 4, 6, 8]
    with cluster.stream(double, reduce="sum") as stream:
        assert stream.broadcast(3).result(TIMEOUT).total == 18


def test_arguments_and_results_are_what_values_may_be(cluster: sapwood.Cluster) -> None:
    def same(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    array = np.arange(100_000, dtype=">f4").reshape(1000, 100)
    (first, second), rest = cluster.submit(
        same, array, {"a": (1, {2, 3}), "b": None}, text="x" * 100_000, number=1 + 2j
    ).result(TIMEOUT)
    np.testing.assert_array_equal(first, array)
    assert first.dtype == array.dtype
    assert second == {"a": (1, {2, 3}), "b": None}
    assert rest == {"text": "x" * 100_000, "number": 1 + 2j}


def test_large_arrays_in_closures_stay_what_they_are(cluster: sapwood.Cluster) -> None:
    first, second = np.arange(2**16, dtype=np.float64), -np.arange(2**16, dtype=np.float64)
    for _ in range(3):  # the memory that they came in is used again meanwhile
        for large in (first, second):
            ends = list(cluster.map(lambda i, large=large: float(large[-i]), [1, 2, 3, 4]))
            assert ends == [float(large[-i]) for i in (1, 2, 3, 4)]
        assert cluster.submit(lambda a: float(a.sum()), np.ones(2**17)).result(60) == 2**17

    def write() -> bool:
        first[0] = 7.0
        return first.flags.owndata or first.flags.writeable

    assert cluster.submit(write).result(60)
    assert first[0] == 0.0


@pytest.mark.row("D-8")
def test_closures_and_their_arguments_travel(cluster: sapwood.Cluster) -> None:
    factor = 7

    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

    def scaled(point: Point) -> int:
        return point.x * factor

    assert cluster.submit(scaled, Point(3)).result(TIMEOUT) == 21
    assert list(cluster.map(scaled, [Point(1), Point(2)], timeout=TIMEOUT)) == [7, 14]


def test_tasks_use_all_agents_and_share_nothing_with_the_caller(
    cluster: sapwood.Cluster, tmp_path: Path
) -> None:
    agents = len(cluster.agents)

    def meet(number: int, folder: str, count: int) -> int:
        import time  # noqa: PLC0415 - in the runner

        Path(folder, f"meet-{number}").touch()
        while len(list(Path(folder).glob("meet-*"))) < count:
            time.sleep(0.001)
        return os.getpid()

    futures = [cluster.submit(meet, number, str(tmp_path), agents) for number in range(agents)]
    pids = {future.result(TIMEOUT) for future in futures}
    assert len(pids) == agents
    assert os.getpid() not in pids


def test_results_belong_to_the_caller(cluster: sapwood.Cluster) -> None:
    futures = [cluster.submit(np.full, 50_000, float(number)) for number in range(12)]
    arrays = [future.result(TIMEOUT) for future in futures]
    for number, array in enumerate(arrays):
        np.testing.assert_array_equal(array, np.full(50_000, float(number)))
        assert array.flags.writeable
        assert array.base is None or not any(array.base is other.base for other in arrays[:number])


def test_futures_are_those_of_the_standard_library(cluster: sapwood.Cluster) -> None:
    futures = cluster.submit_each(abs, range(-5, 0))
    done, waiting = concurrent.futures.wait(futures, TIMEOUT)
    assert len(done) == 5
    assert not waiting
    assert {f.result() for f in concurrent.futures.as_completed(futures)} == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("kind", [ValueError, KeyError, ZeroDivisionError, UnicodeDecodeError])
def test_an_exception_keeps_its_builtin_type(cluster: sapwood.Cluster, kind: type) -> None:
    def fail(name: str) -> None:
        print("trying")  # noqa: T201 - printing is what is tested
        wrong: dict[str, Callable[[], Any]] = {
            "UnicodeDecodeError": b"\xff".decode,
            "KeyError": lambda: wrong["missing"],
            "ZeroDivisionError": lambda: 1 / 0,
            "ValueError": lambda: int("x"),
        }
        wrong[name]()

    future = cluster.submit(fail, kind.__name__)
    error = future.exception(TIMEOUT)
    assert isinstance(error, UserCodeError)
    assert isinstance(error, kind)
    assert "in fail" in error.details["traceback"]
    assert error.details["output"] == "trying\n"


class OddError(LookupError):
    """Its constructor does not take what it holds, and one attribute cannot be pickled."""

    def __init__(self, key: str, *, depth: int) -> None:
        super().__init__(f"no {key} at depth {depth}")
        self.key = key
        self.code = 7
        self.lock = threading.Lock()


@pytest.mark.row("D-8")
def test_an_own_exception_keeps_its_class(cluster: sapwood.Cluster) -> None:
    def fail() -> None:
        raise OddError("a", depth=3)

    try:
        cluster.submit(fail).result(TIMEOUT)
    except OddError as error:
        caught: Any = error
    assert (caught.key, caught.args) == ("a", ("no a at depth 3",))
    assert isinstance(caught, UserCodeError)
    assert caught.what == "OddError: no a at depth 3"
    assert caught.code == "SW201"
    assert type(caught.__cause__) is OddError
    assert caught.__cause__.code == 7
    assert not hasattr(caught.__cause__, "lock")


def test_a_builtin_exception_keeps_what_it_holds(cluster: sapwood.Cluster) -> None:
    missing = cluster.submit({}.__getitem__, "a").exception(TIMEOUT)
    assert isinstance(missing, KeyError)
    assert missing.args == ("a",)
    file = cluster.submit(Path("/nowhere").read_text).exception(TIMEOUT)
    assert isinstance(file, FileNotFoundError)
    assert (file.errno, file.filename) == (2, "/nowhere")
    text = cluster.submit(b"a\xff".decode).exception(TIMEOUT)
    assert isinstance(text, UnicodeDecodeError)
    assert (text.start, text.object) == (1, b"a\xff")


def test_an_exception_of_a_users_module_keeps_its_class(
    cluster: sapwood.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "users_module.py").write_text(
        "class Missing(Exception):\n    pass\n\ndef fail():\n    raise Missing(1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("users_module")

    def fail(folder: str) -> None:
        sys.path.insert(0, folder)
        importlib.import_module("users_module").fail()

    with pytest.raises(module.Missing):
        cluster.submit(fail, str(tmp_path)).result(TIMEOUT)


def test_an_exception_that_cannot_be_pickled_at_all_is_one_of_its_base(
    cluster: sapwood.Cluster,
) -> None:
    def fail() -> None:
        lock = threading.Lock()

        class HeldError(KeyError):
            held = lock

        raise HeldError(lock)

    error = cluster.submit(fail).exception(TIMEOUT)
    assert isinstance(error, UserCodeError)
    assert isinstance(error, KeyError)
    assert "HeldError" in error.what


def test_a_group_of_exceptions_stays_one(cluster: sapwood.Cluster) -> None:
    def fail() -> None:
        raise ExceptionGroup("several", [KeyError("a"), ValueError("b")])

    error = cluster.submit(fail).exception(TIMEOUT)
    assert isinstance(error, ExceptionGroup)
    assert [type(one) for one in error.exceptions] == [KeyError, ValueError]


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a user might hold."""

    name: str
    sides: frozenset[int]
    area: Any = None


OBJECTS: dict[str, Any] = {
    "class": Shape,
    "dataclass": Shape("a", frozenset({1, 2})),
    "decimal": Decimal("1.10"),
    "path": Path("/nowhere/x"),
    "large number": 2**70,
    "frozenset": frozenset({1}),
    "bytearray": bytearray(b"abc"),
    "date": dt.datetime(2024, 1, 2, tzinfo=dt.UTC),
    "counter": Counter("aab"),
    "key": {Shape("b", frozenset()): 1},
    "long list": list(range(2**21)),
}


@pytest.mark.parametrize("value", OBJECTS.values(), ids=OBJECTS)
def test_any_object_travels_there_and_back(cluster: sapwood.Cluster, value: Any) -> None:
    def same(kind: type, *, value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(type(value))
        return value

    again = cluster.submit(same, type(value), value=value).result(TIMEOUT)
    assert type(again) is type(value)
    assert again == value


def test_arrays_in_objects_may_be_written_to(cluster: sapwood.Cluster) -> None:
    def twice(shape: Shape) -> Shape:
        shape.area[:] *= 2
        return shape

    shape = Shape("a", frozenset(), np.arange(100_000.0))
    again = cluster.submit(twice, shape).result(TIMEOUT)
    np.testing.assert_array_equal(again.area, 2 * shape.area)
    again.area[:] = 0  # and it is the caller's own
    assert shape.area[1] == 1.0


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("kind", [np.rec.array, np.ma.masked_array, np.matrix])
def test_derived_arrays_stay_what_they_are(
    cluster: sapwood.Cluster, kind: Callable[[Any], Any]
) -> None:
    array = kind(np.zeros(3, [("a", "i4")]) if kind is np.rec.array else np.eye(3))
    again = cluster.submit(lambda value: value, array).result(TIMEOUT)
    assert type(again) is type(array)
    assert again.tolist() == array.tolist()


@pytest.mark.nightly
def test_an_estimator_is_fitted_on_an_agent(cluster: sapwood.Cluster) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    x = np.arange(20.0).reshape(-1, 1)
    fitted = cluster.submit(linear_model.LinearRegression().fit, x, 3 * x[:, 0]).result(TIMEOUT)
    assert abs(fitted.predict([[7.0]])[0] - 21.0) < 1e-9


def test_a_result_that_cannot_be_pickled_is_a_clear_error(cluster: sapwood.Cluster) -> None:
    error = cluster.submit(lambda: (n for n in range(3))).exception(TIMEOUT)
    assert isinstance(error, DataValueError)
    assert "a result of type generator cannot travel" in error.what


def test_without_pickles_only_values_travel(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1, tasks=TaskSettings(pickle=False))
    assert cluster.submit(lambda a: a[::2], np.arange(5)).result(TIMEOUT).tolist() == [0, 2, 4]
    for value in (frozenset({1}), bytearray(b"a"), Path("/"), 2**70):
        with pytest.raises(DataValueError, match=r"tasks\.pickle = true"):
            cluster.submit(id, value)
        result = cluster.submit(lambda value=value: value)
        with pytest.raises(DataValueError, match="cannot travel"):
            result.result(TIMEOUT)

    def fail() -> None:
        raise OddError("a", depth=3)

    error = cluster.submit(fail).exception(TIMEOUT)
    assert isinstance(error, LookupError)
    assert not isinstance(error, OddError)
    assert error.__cause__ is None


def test_what_cannot_be_pickled_is_a_clear_error(cluster: sapwood.Cluster) -> None:
    lock = threading.Lock()
    with pytest.raises(DataValueError, match="lock"):
        cluster.submit(lambda: lock)
    with pytest.raises(DataValueError, match="lock"):
        cluster.submit(id, lock)


def test_a_task_that_uses_the_cluster_is_refused(cluster: sapwood.Cluster) -> None:
    future = cluster.submit(abs, -1)
    with cluster.stream(abs, reduce=operator.add) as stream:
        for one in (cluster, stream, cluster.group([1]), future):
            with pytest.raises(DataValueError, match="cannot be sent to an agent") as caught:
                cluster.submit(lambda one=one: one)
            assert "future" in caught.value.hint
        with pytest.raises(DataValueError, match="a Cluster cannot be sent to an agent"):
            cluster.submit(print, [cluster])


def test_results_of_tasks_are_arguments_of_others(cluster: sapwood.Cluster) -> None:
    squares = cluster.submit_each(pow, range(10), [2] * 10)
    total = cluster.submit(sum, squares)
    frame = cluster.submit(dict, {"a": [total]}, b=(cluster.submit(Decimal, total),))
    assert frame.result(TIMEOUT) == {"a": [285], "b": (Decimal(285),)}
    failed = cluster.submit(sum, [cluster.submit(int, "x")])
    assert isinstance(failed.exception(TIMEOUT), ValueError)


def test_a_cluster_is_an_executor(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    assert isinstance(cluster, concurrent.futures.Executor)
    assert list(cluster.map(pow, [2, 3, 4], [3, 2], timeout=TIMEOUT)) == [8, 9]
    assert list(cluster.map(pow, range(10), [2] * 10, chunksize=3)) == [n**2 for n in range(10)]
    assert list(cluster.map(abs, [])) == []

    async def count() -> list[Any]:
        loop = asyncio.get_running_loop()
        return await asyncio.gather(*(loop.run_in_executor(cluster, abs, -n) for n in range(5)))

    assert asyncio.run(count()) == list(range(5))
    future = cluster.submit(time.sleep, 0.1)
    cluster.shutdown()
    assert future.result(0) is None
    assert cluster.closed
    with pytest.raises(ClosedError) as refused:
        cluster.submit(abs, 1)
    assert isinstance(refused.value, RuntimeError)  # as executors have it


def test_the_end_of_with_waits_for_tasks(tmp_path: Path) -> None:
    with sapwood.local(agents=1) as cluster:
        futures = [cluster.submit(wait_for, tmp_path / "go") for _ in range(5)]
        threading.Timer(0.1, (tmp_path / "go").touch).start()
    assert [future.result(0) for future in futures] == [None] * 5


def test_shutdown_need_not_be_waited_for(tmp_path: Path, until: Until) -> None:
    cluster = sapwood.local(agents=1)
    futures = [cluster.submit(wait_for, tmp_path / "go") for _ in range(4)]
    until(futures[0].running)
    cluster.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(ClosedError, match="shut down"):
        cluster.submit(abs, 1)
    assert futures[3].cancelled()
    (tmp_path / "go").touch()
    assert futures[0].result(TIMEOUT) is None
    until(lambda: cluster.closed)


def test_a_map_that_fails_cancels_the_rest(cluster: sapwood.Cluster, tmp_path: Path) -> None:
    def one(number: int) -> None:
        if number == 0:
            raise KeyError("first")
        wait_for(tmp_path / "never")

    with pytest.raises(KeyError, match="first"):
        list(cluster.map(one, range(6)))
    assert cluster.submit(abs, -1).result(TIMEOUT) == 1


def test_a_map_has_a_timeout(cluster: sapwood.Cluster, tmp_path: Path) -> None:
    results = cluster.map(wait_for, [tmp_path / "never"], timeout=0.1)
    with pytest.raises(TimeoutError):
        next(results)


def wait_for(path: Path) -> None:
    """Wait until there is a file; in a runner."""
    while not path.exists():
        time.sleep(0.001)


@pytest.mark.row("D-8")
def test_an_idle_agent_takes_what_waits_behind_a_long_task(
    cluster: sapwood.Cluster, tmp_path: Path
) -> None:
    long = [cluster.submit(wait_for, tmp_path / "go") for _ in range(len(cluster.agents) - 1)]
    short = cluster.submit_each(abs, range(-12, 0))
    assert [future.result(TIMEOUT) for future in short] == list(range(12, 0, -1))
    assert not any(future.done() for future in long)
    (tmp_path / "go").touch()
    concurrent.futures.wait(long, TIMEOUT)


def test_an_idle_agent_takes_what_waits_behind_a_call_to_one_agent(
    cluster: sapwood.Cluster, tmp_path: Path
) -> None:
    long = cluster.submit_to(1, wait_for, tmp_path / "go")
    short = cluster.submit_each(abs, range(-12, 0))
    assert [future.result(TIMEOUT) for future in short] == list(range(12, 0, -1))
    (tmp_path / "go").touch()
    assert long.result(TIMEOUT) is None


@pytest.mark.row("D-8")
@pytest.mark.parametrize("to_one", [False, True])
def test_a_running_task_can_be_cancelled(
    make_cluster: MakeCluster, tmp_path: Path, until: Until, *, to_one: bool
) -> None:
    def endless(path: Path) -> None:
        path.write_text(str(os.getpid()))
        wait_for(path.with_name("never"))

    cluster = make_cluster(1)
    submit = functools.partial(cluster.submit_to, 1) if to_one else cluster.submit
    future = submit(endless, tmp_path / "pid")
    after = cluster.submit(abs, -3)
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    assert future.running()
    assert future.cancel()
    assert future.cancelled()
    with pytest.raises(sapwood.errors.CancelledError):
        future.result(TIMEOUT)
    with pytest.raises(concurrent.futures.CancelledError):
        future.exception(TIMEOUT)
    assert concurrent.futures.wait([future], TIMEOUT).done == {future}
    assert after.result(TIMEOUT) == 3
    until(lambda: not Path("/proc", (tmp_path / "pid").read_text()).exists())


def test_options_limit_and_repeat_calls(cluster: sapwood.Cluster, tmp_path: Path) -> None:
    def third_time(folder: Path) -> int:
        for name in "ab":
            if not (folder / name).exists():
                (folder / name).touch()
                os.abort() if name == "a" else wait_for(folder / "never")
        return 3

    careful = cluster.options(time_limit=1.0, retries=2)
    assert isinstance(careful, concurrent.futures.Executor)
    assert careful.submit(third_time, tmp_path).result(TIMEOUT) == 3
    with pytest.raises(TimeoutError) as caught:
        careful.options(retries=0).submit(wait_for, tmp_path / "never").result(TIMEOUT)
    assert isinstance(caught.value, TimeLimitError)
    assert careful.submit(dict, time_limit=1, retries=2).result(TIMEOUT) == {
        "time_limit": 1,
        "retries": 2,
    }
    careful.shutdown()
    with pytest.raises(ClosedError, match="shut down"):
        careful.submit(abs, 1)
    assert cluster.submit(abs, -1).result(TIMEOUT) == 1


@pytest.mark.parametrize("options", [{"time_limit": -1}, {"retries": -1}, {"retries": "many"}])
def test_options_that_are_none_are_refused(
    cluster: sapwood.Cluster, options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationError):
        cluster.options(**options)


def test_what_cannot_be_called_is_refused(cluster: sapwood.Cluster) -> None:
    with pytest.raises(ConfigurationError, match="5 cannot be called"):
        cluster.submit(5)  # type: ignore[arg-type]  # that is the test


def test_a_crash_fails_its_task_only(cluster: sapwood.Cluster) -> None:
    futures = [cluster.submit(os.abort), *cluster.submit_each(abs, range(10))]
    error = futures[0].exception(TIMEOUT)
    assert isinstance(error, RunnerCrashError)
    assert "SIGABRT" in error.what
    assert [future.result(TIMEOUT) for future in futures[1:]] == list(range(10))


def test_the_error_of_a_task_names_function_and_agent(cluster: sapwood.Cluster) -> None:
    def rec() -> None:
        raise RecursionError("the recursion is too deep")

    assert cluster.submit_to(2, rec).exception(TIMEOUT).where == f"{rec.__qualname__}, agent 2"  # type: ignore[union-attr]  # it is a SapwoodError
    crash = cluster.submit_to(1, os.abort).exception(TIMEOUT)
    assert isinstance(crash, RunnerCrashError)
    assert crash.what.endswith("in abort")
    assert crash.where == "agent 1"


def test_a_task_has_a_time_limit(make_cluster: MakeCluster) -> None:
    def rest() -> None:
        import signal  # noqa: PLC0415 - in the runner

        print("resting", flush=True)  # noqa: T201 - to see it in the error
        while True:
            signal.pause()

    cluster = make_cluster(1, limits=LimitSettings(time=6.0))
    error = cluster.submit(rest).exception(TIMEOUT)
    assert isinstance(error, TimeLimitError)
    assert error.details["output"] == "resting\n"
    assert cluster.submit(pow, 2, 3).result(TIMEOUT) == 8


def test_tasks_survive_the_end_of_their_agent(
    make_cluster: MakeCluster, until: Until, tmp_path: Path
) -> None:
    def slow(number: int, folder: str) -> int:
        import time  # noqa: PLC0415 - in the runner

        Path(folder, f"begun-{number}").touch()
        while not Path(folder, "go").exists():
            time.sleep(0.001)
        return number

    cluster = make_cluster(2)
    futures = [cluster.submit(slow, number, str(tmp_path)) for number in range(6)]
    until(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
    os.kill(cluster.agents[0].pid, signal.SIGKILL)
    until(lambda: cluster.agents[0].incarnation == 2)
    (tmp_path / "go").touch()
    assert [future.result(TIMEOUT) for future in futures] == list(range(6))


def test_waiting_tasks_can_be_cancelled(cluster: sapwood.Cluster, tmp_path: Path) -> None:
    futures = [cluster.submit(wait_for, tmp_path / "go") for _ in range(9)]
    for waiting in (futures[8], futures[5]):  # at the client, and at an agent
        assert waiting.cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            waiting.result(TIMEOUT)
    (tmp_path / "go").touch()
    for future in [*futures[:5], *futures[6:8]]:
        assert future.result(TIMEOUT) is None


def test_tasks_that_wait_fail_when_the_cluster_closes(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    def wait(folder: str) -> None:
        while not Path(folder, "go").exists():
            pass

    cluster = make_cluster(1)
    futures = [cluster.submit(wait, str(tmp_path)) for _ in range(5)]
    cluster.close()
    for future in futures:
        assert isinstance(future.exception(TIMEOUT), SapwoodError)


def test_what_tasks_print_is_shown_with_its_agent(
    cluster: sapwood.Cluster, capsys: pytest.CaptureFixture[str], until: Until
) -> None:
    said: list[str] = []

    def all_said() -> bool:
        said.append(capsys.readouterr().err)
        return "".join(said).count("hello") == 4

    cluster.submit(print, "hello\nhello").result(TIMEOUT)
    cluster.submit(os.write, 2, b"hello\nhello\n").result(TIMEOUT)
    until(all_said)
    lines = "".join(said).splitlines()
    assert all(line.startswith("agent ") and line.endswith(": hello") for line in lines)


def test_functions_see_the_usual_interpreter(cluster: sapwood.Cluster) -> None:
    def look() -> Any:
        import multiprocessing  # noqa: PLC0415 - in the runner

        return [sys.flags.no_site, sys.executable, multiprocessing.current_process().name]

    assert cluster.submit(look).result(TIMEOUT)[1] == sys.executable


def test_random_numbers_differ_between_agents(cluster: sapwood.Cluster) -> None:
    def draw() -> Any:
        import random  # noqa: PLC0415 - in the runner

        return [random.random(), float(np.random.random())]  # noqa: NPY002, S311 - what users do

    drawn = [tuple(future.result(TIMEOUT)) for future in [cluster.submit(draw) for _ in range(8)]]
    assert len(set(drawn)) == 8


def _faults_of_copies() -> list[int]:
    array, faults = np.ones(4 << 20), []
    for _ in range(6):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        copied = array.copy()
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        del copied
    return faults


def test_the_memory_of_large_arrays_is_used_again(
    cluster: sapwood.Cluster, make_cluster: MakeCluster
) -> None:
    for one, kept in ((cluster, True), (make_cluster(1, limits=LimitSettings(keep=0)), False)):
        faults = one.submit(_faults_of_copies).result(TIMEOUT)
        assert (min(faults[2:]) < 8) == kept  # 32 MiB are 16 huge pages, or 8192 others


def test_agents_and_runners_interrupt_nobody_when_they_wake(cluster: sapwood.Cluster) -> None:
    own = os.sched_getscheduler(0)
    wanted = os.SCHED_BATCH if own == os.SCHED_OTHER else own
    agents = [os.sched_getscheduler(agent.pid) for agent in cluster.agents]
    runners = [cluster.submit_to(agent.rank, os.sched_getscheduler, 0) for agent in cluster.agents]
    assert agents == [runner.result(TIMEOUT) for runner in runners] == [wanted] * TREE[0]


def test_coroutines_await_futures_and_runs(cluster: sapwood.Cluster) -> None:
    class Sums(sapwood.Program):
        reduce: ClassVar[Any] = {"s": "sum"}

        def map(self, slice: Any, state: Any) -> Any:  # noqa: A002 - its name
            return {"s": float(slice.data.sum())}

    async def work() -> tuple[int, Any]:
        run = cluster.run(Sums, data=[1.0, 2.0, 4.0])
        with pytest.raises(UserCodeError, match="ZeroDivisionError"):
            await cluster.submit(divmod, 1, 0)
        return await cluster.submit(pow, 2, 10), await run.future

    power, result = asyncio.run(work())
    assert power == 1024
    assert result["s"] == 7.0


def test_cancelling_a_coroutine_cancels_what_it_awaits(cluster: sapwood.Cluster) -> None:
    async def work() -> concurrent.futures.Future[Any]:
        future = cluster.submit(time.sleep, 60)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(future, 0.05)
        return future

    assert asyncio.run(work()).cancelled()


def test_a_cluster_closes_at_the_end_of_an_async_block() -> None:
    async def work() -> sapwood.Cluster:
        async with sapwood.local(agents=1) as cluster:
            assert await cluster.submit(pow, 2, 3) == 8
        return cluster

    assert asyncio.run(work()).closed


@pytest.mark.parametrize("chunksize", [1, 2])
def test_map_takes_from_an_endless_source_only_what_it_needs(
    cluster: sapwood.Cluster, chunksize: int
) -> None:
    taken: list[int] = []

    def endless() -> Iterator[int]:
        for number in itertools.count():
            taken.append(number)
            yield number

    results = cluster.map(abs, endless(), chunksize=chunksize, buffersize=3)
    assert len(taken) == 3 * chunksize
    assert list(itertools.islice(results, 10)) == list(range(10))
    assert len(taken) <= 10 + 4 * chunksize
    assert list(cluster.map(abs, [-1, -2, -3, -4], chunksize=chunksize, buffersize=2)) == [
        1,
        2,
        3,
        4,
    ]
    with pytest.raises(ConfigurationError, match="buffersize is 0"):
        cluster.map(abs, [1], buffersize=0)


def test_calls_of_a_map_that_are_not_done_in_time_are_cancelled(cluster: sapwood.Cluster) -> None:
    def wait_if_late(number: int) -> int:
        return sapwood.here().receive(source=0, tag=1).value if number else 0

    results = cluster.map(wait_if_late, range(8), timeout=3.0)
    assert next(results) == 0
    with pytest.raises(TimeoutError):
        next(results)
    assert list(cluster.map(abs, range(8), timeout=TIMEOUT)) == list(range(8))


def test_callers_learn_that_the_thread_of_their_cluster_has_ended() -> None:
    def broken() -> float:
        raise OSError("no such descriptor")

    with sapwood.local(agents=1) as cluster:
        running = cluster.submit(time.sleep, 60)
        waiting = [cluster.submit(abs, -1) for _ in range(4)]
        thread = embedded(cluster._session)._thread
        thread.post(setattr, thread.loop, "_patience", broken)
        for future in (running, *waiting):
            with pytest.raises((InternalError, ClosedError)):
                future.result(TIMEOUT)
        with pytest.raises(InternalError):
            running.result()


# --- in coroutines -------------------------------------------------------------------------------


def test_tasks_and_waves_can_be_awaited(cluster: sapwood.Cluster) -> None:
    async def both() -> list[Any]:
        with cluster.stream(abs, reduce="sum") as stream:
            wave = await stream.broadcast(-2)
            message = cluster.receive_later(1, tag=3)
            await cluster.submit_to(1, lambda: sapwood.here().send(0, "sent", tag=3))
            return [await cluster.submit(pow, 2, 5), wave.total, (await message).value]

    assert asyncio.run(both()) == [32, 2 * len(cluster.agents), "sent"]


@pytest.mark.parametrize("chunksize", [1, 3])
@pytest.mark.parametrize("buffersize", [None, 2])
def test_a_coroutine_reads_results_of_map_as_they_come(
    cluster: sapwood.Cluster, chunksize: int, buffersize: int | None
) -> None:
    async def read() -> list[int]:
        beside = asyncio.ensure_future(asyncio.sleep(0))
        results = cluster.map(abs, range(-7, 1), chunksize=chunksize, buffersize=buffersize)
        found = [one async for one in results]
        assert beside.done()  # the loop was not blocked
        return found

    assert asyncio.run(read()) == [*range(7, -1, -1)]


def test_a_coroutine_that_stops_to_read_cancels_the_rest(cluster: sapwood.Cluster) -> None:
    def fail(number: int) -> int:
        if number == 1:
            raise ValueError("one")
        return number

    async def read() -> list[int]:
        results = cluster.map(fail, [0, 1, 2, 3])
        found = [await anext(results)]
        with pytest.raises(ValueError, match="one"):
            await anext(results)
        with pytest.raises(StopAsyncIteration):
            await anext(results)
        late = cluster.map(time.sleep, [60] * len(cluster.agents), timeout=0.01)
        with pytest.raises(TimeoutError):
            await anext(late)
        return found

    assert asyncio.run(read()) == [0]
    assert cluster.submit(pow, 2, 3).result(TIMEOUT) == 8  # no agent sleeps
