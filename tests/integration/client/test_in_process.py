"""Clusters whose agents are in the client's process: the same results, and debuggers work."""

import os
import subprocess
import sys
import textwrap
import threading
import trace
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import sapwood
from sapwood import Cluster
from sapwood.core.errors import (
    ClosedError,
    ConfigurationError,
    DataValueError,
    ProgramError,
    UserCodeError,
)

TREE = (3, 0)
DATA = np.arange(9.0)
OFFSET = 0.0
"""What a test changes to see whether a map finds it."""


class Mean(sapwood.Program):
    """Three iterations over numbers."""

    reduce: ClassVar = {"total": "sum", "n": "sum", "first": "concat"}
    wrong: str = sapwood.parameter("")

    def init(self, data: Any) -> dict[str, Any]:
        return {"total": 0.0, "iteration": 0, "all": np.zeros(3)}

    def map(self, part: Any, state: Any) -> Any:
        if self.wrong == "raises" and part.start == 0:
            raise LookupError("nothing here")
        if self.wrong == "writes":
            state["all"][0] = 1.0
        if self.wrong == "returns":
            return 7
        total = float(part.data.sum()) * 0.1 + OFFSET
        return {"total": total, "n": len(part), "first": part.data[:1]}

    def update(self, state: Any, total: Any) -> Any:
        if self.wrong == "update":
            raise ArithmeticError("too much")
        return {**total, "iteration": state["iteration"] + 1, "all": state["all"]}

    def done(self, state: Any) -> bool:
        return bool(state["iteration"] >= 3)

    def result(self, state: Any) -> Any:
        return state["total"], state["n"], list(state["first"])


class Largest(sapwood.Program):
    """A reduction by a function."""

    reduce: ClassVar = {"largest": max}

    def map(self, part: Any, state: Any) -> Any:
        return {"largest": float(part.data.max())}


class Doubled(sapwood.Filter):
    """A filter with state and parameters, up and down."""

    def __init__(self) -> None:
        self.calls = 0

    def up(self, values: list[Any]) -> Any:
        self.calls += 1
        return [self.calls, self.parameters.get("factor", 1) * sum(values)]

    def down(self, value: Any, child: int) -> Any:
        return value + child


class Maximum(sapwood.Filter):
    """Another filter with the same parameters."""

    def up(self, values: list[Any]) -> Any:
        return max(values)


class Failing(sapwood.Filter):
    """A filter that fails."""

    def down(self, value: Any, child: int) -> Any:
        raise LookupError(value)


def place(value: Any = None) -> Any:
    kept = sapwood.here().values
    kept["calls"] = kept.get("calls", 0) + 1
    return sapwood.here().rank, list(sapwood.here().agents), kept["calls"], value


def fail(text: Any) -> None:
    raise LookupError(text)


class Boxed:
    def __init__(self, value: Any) -> None:
        self.value = value


def unboxed(box: Boxed) -> Boxed:
    return Boxed(box.value + 1)


@pytest.fixture
def real(standing: Cluster) -> Cluster:
    """A cluster with processes, to compare with."""
    return standing


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with sapwood.local(agents=3, in_process=True) as cluster:
        yield cluster


def test_runs_give_the_same_as_on_agents(real: Cluster, cluster: Cluster) -> None:
    data = np.random.default_rng(7).random(101)
    one, other = cluster.run(Mean, data=data), real.run(Mean, data=data)
    assert one.done()
    assert one.result()[1:] == other.result()[1:]
    assert one.result()[0] == pytest.approx(other.result()[0])  # agents answer in any order
    assert one.statistics.iterations == other.statistics.iterations == 3
    items = [each.items for each in one.statistics.agents]
    assert items == [each.items for each in other.statistics.agents]
    assert cluster.run(Largest, data=data).result() == real.run(Largest, data=data).result()


def test_runs_give_the_same_with_chunks_and_data_that_stay(real: Cluster, cluster: Cluster) -> None:
    data = np.random.default_rng(8).random(50)
    results = []
    for each in (cluster, real):
        with each.persist(data) as kept:
            runs = [each.run(Mean, kept, chunk=chunk) for chunk in (None, 7)]
            results.append([run.result()[:2] for run in runs])
    assert results[0] == pytest.approx(np.array(results[1]))


@pytest.mark.parametrize("wrong", ["raises", "writes", "returns", "update"])
def test_runs_fail_with_the_same_errors(real: Cluster, cluster: Cluster, wrong: str) -> None:
    errors = []
    for each in (cluster, real):
        error = each.run(Mean(wrong=wrong), data=np.arange(9.0)).exception()
        assert isinstance(error, sapwood.errors.SapwoodError)
        errors.append(error)
    assert type(errors[0]) is type(errors[1])
    assert errors[0].what == errors[1].what
    assert errors[0].hint == errors[1].hint
    if wrong == "raises":  # else whichever agent is first
        assert errors[0].where == errors[1].where == "Mean.map, items 0:3, agent 1"


def test_tasks_give_the_same(real: Cluster, cluster: Cluster) -> None:
    for each in (cluster, real):
        assert each.submit(place, 5).result()[3] == 5
        assert each.submit(pow, each.submit(pow, 2, 3), 2).result() == 64
        assert list(each.map(pow, range(5), [2] * 5)) == [0, 1, 4, 9, 16]
        assert list(each.map(pow, range(5), [2] * 5, chunksize=2)) == [0, 1, 4, 9, 16]
        assert each.submit(unboxed, Boxed(1)).result().value == 2
        assert each.options(retries=1).submit(pow, 2, 2).result() == 4
        assert each.submit_to(2, place).result()[:2] == (2, [1, 2, 3])
        answers = each.query(place, 1).answers
        assert [answers[rank][0] for rank in (1, 2, 3)] == [1, 2, 3]
        with pytest.raises(LookupError, match="lost") as caught:
            each.submit(fail, "lost").result()
        assert isinstance(caught.value, UserCodeError)
        assert caught.value.where == "fail, agent 1" or each is real
        failed = each.submit(fail, "first")
        with pytest.raises(LookupError, match="first"):
            each.submit(pow, failed, 2).result()
        with pytest.raises(DataValueError, match="lock"):
            each.submit(threading.Lock).result()
        with pytest.raises(DataValueError):
            each.submit(len, [threading.Lock()])


def test_agents_keep_separate_values(cluster: Cluster) -> None:
    assert [cluster.submit_to(rank, place).result()[2] for rank in (1, 1, 2)] == [1, 2, 1]


def test_a_task_that_waits_for_a_foreign_future_is_made_when_that_is_done(
    cluster: Cluster,
) -> None:
    later: Future[int] = Future()
    task = cluster.submit(pow, later, 2)
    assert not task.done()
    later.set_result(3)
    assert task.result(30) == 9


def test_streams_give_the_same(real: Cluster, cluster: Cluster) -> None:
    for each in (cluster, real):
        with each.stream(abs, reduce="sum") as stream:
            assert stream.exchange(-2.5).total == 7.5
            assert stream.broadcast(-1).result().total == 3
            assert [result.wave for result in stream.waves()] == [2]
        filtered = each.stream(abs, up=Doubled, down=Doubled, parameters={"factor": 2})
        with filtered as stream:
            results = [stream.exchange(0), stream.exchange(0)]
            assert [one.total for one in results] == [[1, 12], [2, 12]]
            stream.configure(factor=1)
            result = stream.exchange(1)
            assert (result.total, result.version) == ([3, 9], 2)
            assert stream.update_filter(Maximum, down=Doubled) == 3
            assert stream.exchange(-4).total == 3
            stream.flush()
        with each.stream("echo", agents=[1, 3], sync="none") as stream:
            stream.broadcast({"a": np.arange(2)}).result()
            stream.close()
            came = list(stream.waves())
        assert sorted(one.agents for one in came) == [[1], [3]]
        assert all(list(one.total["a"]) == [0, 1] for one in came)
        with each.stream(fail) as stream, pytest.raises(LookupError, match="gone"):
            stream.exchange("gone")


def test_native_functions_and_maps_give_the_same(
    real: Cluster, cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "sums.c").write_text(
        "#include <stdint.h>\n"
        "double twice(double x) { return 2 * x; }\n"
        "/** @array data[n] */\n"
        "void sums(const double *data, int64_t n, double *total)\n"
        "{ for (int64_t i = 0; i < n; i++) *total += data[i]; }\n"
    )
    (tmp_path / "sums.py").write_text(
        "import sapwood\n\nclass Sums(sapwood.Program):\n    sources = ['sums.c']\n"
        "    reduce = {'total': 'sum'}\n    map = sapwood.native('sums')\n"
    )
    program = sapwood.load_program(tmp_path / "sums.py")
    for each in (cluster, real):
        assert each.submit(program["twice"], 4.0).result() == 8.0
        assert each.run(program, data=DATA).result() == {"total": DATA.sum()}


def test_all_code_runs_here_and_now(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def note(number: int) -> None:
        seen.append((number, os.getpid(), threading.get_ident()))

    list(cluster.map(note, range(2)))
    here = os.getpid(), threading.get_ident()
    assert seen == [(0, *here), (1, *here)]
    before = cluster.run(Mean, data=np.arange(3.0)).result()[0]
    monkeypatch.setattr(sys.modules[__name__], "OFFSET", 1.0)
    assert cluster.run(Mean, data=np.arange(3.0)).result()[0] == pytest.approx(before + 3)


FAILING: dict[str, tuple[str, Callable[[Cluster], Any]]] = {
    "run": ("map", lambda cluster: cluster.run(Mean(wrong="raises"), data=DATA).result()),
    "update": ("update", lambda cluster: cluster.run(Mean(wrong="update"), data=DATA).result()),
    "submit": ("fail", lambda cluster: cluster.submit(fail, "gone").result()),
    "submit_to": ("fail", lambda cluster: cluster.submit_to(1, fail, "gone").result()),
    "stream": ("fail", lambda cluster: cluster.stream(fail).exchange("gone")),
    "filter": ("down", lambda cluster: cluster.stream(str, down=Failing).exchange("gone")),
}


@pytest.mark.parametrize("what", FAILING)
def test_the_traceback_ends_in_the_code_that_raised(cluster: Cluster, what: str) -> None:
    name, failing = FAILING[what]
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whichever it is, its frames count
        failing(cluster)
    frame = caught.traceback[-1]
    assert (Path(str(frame.path)), frame.name) == (Path(__file__), name)


@pytest.mark.parametrize("what", ["map", "run"])
def test_an_interrupt_ends_the_caller_and_leaves_the_cluster(cluster: Cluster, what: str) -> None:
    calls = []

    def interrupt(number: int) -> int:
        calls.append(number)
        raise KeyboardInterrupt

    class Interrupted(Mean):
        def map(self, part: Any, state: Any) -> Any:
            return interrupt(part.start)

    work: dict[str, Callable[[], Any]] = {
        "map": lambda: list(cluster.map(interrupt, range(5))),
        "run": lambda: cluster.run(Interrupted, data=DATA),
    }
    with pytest.raises(KeyboardInterrupt):
        work[what]()
    assert len(calls) == 1
    assert cluster.submit(pow, 2, 3).result() == 8


def test_breakpoints_are_answered_at_the_prompt(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import numpy as np, sapwood

        class Sum(sapwood.Program):
            reduce = {"total": "sum"}

            def map(self, slice, state):
                total = slice.data.sum()
                breakpoint()
                return {"total": total}

        def twice(number):
            breakpoint()
            return 2 * number

        with sapwood.local(agents=2, in_process=True) as cluster:
            print("result", float(cluster.run(Sum, np.arange(10.0)).result()["total"]))
            print("task", cluster.submit(twice, 4).result())
        """)
    )
    typed = "p ('at', slice.start, slice.stop)\nc\nc\np ('number', number)\nc\n"
    done = subprocess.run(
        [sys.executable, str(script)],
        input=typed,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "('at', 0, 5)" in done.stdout
    assert f"{script}(10)map()" in done.stdout
    assert "result 45.0" in done.stdout
    assert "('number', 4)" in done.stdout
    assert "task 8" in done.stdout


def test_quitting_the_debugger_ends_the_program(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sapwood\n"
        "def stop(number):\n    breakpoint()\n    return number\n"
        "with sapwood.local(agents=2, in_process=True) as cluster:\n"
        "    print(list(cluster.map(stop, range(9))))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        input="q\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout.count("(Pdb)") == 1
    assert done.stderr.rstrip().endswith("bdb.BdbQuit")


def test_tools_that_trace_lines_see_the_code_of_agents(cluster: Cluster) -> None:
    tracer: Any = trace.Trace(trace=0)
    tracer.runfunc(lambda: cluster.run(Largest, data=DATA).result())
    first = Largest.map.__code__.co_firstlineno
    assert tracer.results().counts[__file__, first + 1] == 3


def test_what_needs_agents_side_by_side_says_so(cluster: Cluster) -> None:
    def generated(number: int) -> Iterator[int]:
        yield number

    def send() -> None:
        sapwood.here().send(2, 1)

    refused: list[Any] = [
        cluster.group,
        cluster.expand,
        cluster.invite,
        cluster.stacks,
        lambda: cluster.contract([1]),
        lambda: cluster.topology(2),
        lambda: cluster.send(1, "text"),
        lambda: cluster.stream(generated, sync="none"),
        lambda: cluster.submit(send).result(),
    ]
    for each in refused:
        with pytest.raises(ConfigurationError, match="in_process"):
            each()
    with cluster.stream(abs) as stream, pytest.raises(ConfigurationError, match="in_process"):
        stream.quiesce()
    with pytest.raises(ConfigurationError, match="fanout is for agents"):
        sapwood.local(agents=2, fanout=2, in_process=True)
    with pytest.raises(ConfigurationError):
        sapwood.here()


def test_a_closed_cluster_takes_nothing(tmp_path: Path) -> None:
    cluster = sapwood.local(agents=2, in_process=True)
    stream = cluster.stream(abs)
    cluster.close()
    cluster.close()
    for each in (lambda: cluster.submit(abs, 1), lambda: stream.exchange(1)):
        with pytest.raises(ClosedError):
            each()
    assert [agent.state for agent in cluster.agents] == ["closed", "closed"]


def test_a_program_that_cannot_travel_is_refused_here_too(cluster: Cluster) -> None:
    lock = threading.Lock()

    class Locked(Mean):
        def map(self, part: Any, state: Any) -> Any:
            with lock:
                return super().map(part, state)

    with pytest.raises(ProgramError, match="cannot be sent"):
        cluster.run(Locked, data=np.arange(3.0))
