"""Runs as users make them: results, progress, statistics, mistakes."""

from __future__ import annotations

import asyncio
import xml.etree.ElementTree as ET
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import (
    ConfigurationError,
    DataError,
    DataValueError,
    ExecutionError,
    ParameterError,
    ProgramError,
    SapwoodError,
    UserCodeError,
)

ROOTS = ("embedded", pytest.param("attached", marks=pytest.mark.nightly))

TIMEOUT = 60.0
TREE = (3, 0)
MakeCluster = Callable[..., sapwood.Cluster]
Programs = Callable[..., sapwood.Program]
Until = Callable[[Callable[[], object]], None]


@pytest.fixture
def cluster(standing: sapwood.Cluster) -> sapwood.Cluster:
    """Three agents."""
    return standing


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).normal(size=shape)


def check_moments(result: dict[str, Any], data: np.ndarray[Any, Any], agents: int) -> None:
    np.testing.assert_allclose(result["sum"], data.sum(axis=0))
    np.testing.assert_array_equal(result["least"], data.min(axis=0))
    np.testing.assert_array_equal(result["greatest"], data.max(axis=0))
    np.testing.assert_allclose(result["mean"], data.mean(axis=0), atol=1e-12)
    assert result["agents"] == agents == len(result["firsts"])
    np.testing.assert_array_equal(result["firsts"][0], data[0])


@pytest.mark.parametrize(
    ("agents", "fanout"),
    [
        (1, 0),
        (3, 2),
        (4, 0),
        (7, 2),
        *(
            pytest.param(agents, fanout, marks=pytest.mark.nightly)
            for agents, fanout in ((1, 2), (2, 0), (2, 2), (3, 0), (4, 2), (7, 0))
        ),
    ],
)
def test_any_tree_gives_what_numpy_gives(
    make_cluster: MakeCluster, program: Programs, agents: int, fanout: int
) -> None:
    cluster = make_cluster(agents, fanout)
    for shape in ((1003,), (1003, 5)):
        data = numbers(*shape)
        check_moments(cluster.run(program("Moments"), data).result(TIMEOUT), data, agents)


def test_fewer_items_than_agents_use_fewer_agents(
    cluster: sapwood.Cluster, program: Programs
) -> None:
    data = numbers(2)
    run = cluster.run(program("Moments"), data)
    check_moments(run.result(TIMEOUT), data, 2)
    assert run.progress.agents == 2
    assert [agent.items for agent in run.statistics.agents] == [1, 1]


def test_chunks_stay_together(cluster: sapwood.Cluster, program: Programs) -> None:
    data = numbers(100)
    run = cluster.run(program("Moments"), data, chunk=40)
    run.result(TIMEOUT)
    assert [(agent.start, agent.stop) for agent in run.statistics.agents] == [
        (0, 40),
        (40, 80),
        (80, 100),
    ]


def test_iterations_go_on_until_the_program_is_done(
    cluster: sapwood.Cluster, program: Programs
) -> None:
    run = cluster.run(program("Steps"), np.arange(10), parameters={"steps": 7})
    assert run.result(TIMEOUT) == 45 * sum(range(1, 8))
    assert run.progress.iteration == run.progress.iterations == 7
    assert run.progress.state is sapwood.types.RunState.DONE
    assert run.progress.metrics == {"x": 45.0 * 28}


def test_runs_share_the_agents(cluster: sapwood.Cluster, program: Programs) -> None:
    runs = [
        cluster.run(program("Steps", steps=steps), np.arange(100) * steps) for steps in range(1, 6)
    ]
    tasks = cluster.submit_each(abs, range(-10, 0))
    results = [run.result(TIMEOUT) for run in runs]
    assert results == [4950 * s * sum(range(1, s + 1)) for s in range(1, 6)]
    assert [task.result(TIMEOUT) for task in tasks] == list(range(10, 0, -1))
    assert len({run.name for run in runs}) == 5


def test_a_program_may_be_a_class_a_path_or_an_object(cluster: sapwood.Cluster) -> None:
    class Here(sapwood.Program):
        reduce = {"n": "sum"}  # noqa: RUF012 - the declared form of programs

        def init(self, data: Any) -> dict[str, Any]:
            return {}

        def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as Program.map
            return {"n": len(slice)}

        def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
            return total

    path = Path(__file__).with_name("programs.py")
    assert cluster.run(Here, range(10)).result(TIMEOUT) == {"n": 10}
    assert cluster.run(Here(), range(11)).result(TIMEOUT) == {"n": 11}
    assert cluster.run(f"{path}::Steps", np.ones(3), parameters={"steps": 1}).result(TIMEOUT) == 3.0


# --- what a run tells ----------------------------------------------------------------------------


def test_statistics_add_up(cluster: sapwood.Cluster, program: Programs) -> None:
    run = cluster.run(program("Steps", steps=20), numbers(1000))
    run.result(TIMEOUT)
    found = run.statistics
    assert (found.program, found.iterations, found.replaced_agents) == ("Steps", 20, 0)
    assert [agent.agent for agent in found.agents] == [1, 2, 3]
    assert [agent.pid for agent in found.agents] == [agent.pid for agent in cluster.agents]
    assert [(agent.start, agent.stop) for agent in found.agents] == [
        (0, 334),
        (334, 667),
        (667, 1000),
    ]
    for agent in found.agents:
        assert agent.items == agent.stop - agent.start
        assert (agent.calls, agent.errors) == (20, 0)
        (function,) = agent.functions
        assert function.name == "Steps.map"
        assert (function.calls, function.errors) == (20, 0)
        assert function.total == agent.map_seconds
        assert 0 < function.p50 <= function.p95 <= function.maximum <= function.total
        assert function.bytes_in > 0 < function.bytes_out
        assert agent.items_per_second == pytest.approx(20 * agent.items / agent.map_seconds)
        assert agent.map_seconds + agent.wait_seconds < found.seconds
    assert found.update_seconds < found.seconds
    assert 0 < found.prepare_seconds < found.seconds


def test_progress_only_goes_forward(cluster: sapwood.Cluster, program: Programs) -> None:
    run = cluster.run(program("Steps", steps=200), numbers(300))
    seen = [run.progress]
    while not run.wait(0.002):
        seen.append(run.progress)
    seen.append(run.progress)
    assert [p.iteration for p in seen] == sorted(p.iteration for p in seen)
    assert [p.seconds for p in seen] == sorted(p.seconds for p in seen)
    assert {p.items for p in seen} == {300}
    assert {p.iterations for p in seen} == {200}
    final = seen[-1]
    assert (final.iteration, final.agents) == (200, 3)
    assert final.items_per_second > 0 < final.seconds_per_iteration


def test_a_run_says_what_it_is(cluster: sapwood.Cluster, program: Programs) -> None:
    run = cluster.run(program("Steps", steps=3), numbers(30))
    run.wait(TIMEOUT)
    assert repr(run).startswith(f"<Run {run.name}: done, iteration 3/3, 3 agents, ")
    assert ", x " in repr(run)


def well_formed(html: str) -> ET.Element:
    return ET.fromstring(f"<page>{html}</page>")  # noqa: S314 - made by the code under test


def test_notebooks_get_well_formed_tables(cluster: sapwood.Cluster, program: Programs) -> None:
    run = cluster.run(program("Steps", steps=3), numbers(30))
    run.wait(TIMEOUT)
    statistics = well_formed(run.statistics._repr_html_())
    assert [cell.text for cell in statistics.findall(".//td")][:3] == ["1", "0:10", "3"]
    shown = well_formed(cluster._repr_html_())
    assert [row.findall("td")[0].text for row in shown.findall(".//tr")[1:]] == ["1", "2", "3"]


def test_a_cluster_says_what_it_is(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(4, 2)
    assert repr(cluster) == "<Cluster: 4 of 4 agents ready, 2 junctions, 0 runs>"
    assert [(a.rank, a.state, a.incarnation) for a in cluster.agents] == [
        (rank, "ready", 1) for rank in (1, 2, 3, 4)
    ]
    cluster.close()
    assert repr(cluster) == "<Cluster: closed>"
    assert {(agent.state, agent.pid) for agent in cluster.agents} == {("closed", 0)}


def test_callbacks_hear_of_the_end(cluster: sapwood.Cluster, program: Programs) -> None:
    ended: Future[sapwood.Run] = Future()
    run = cluster.run(program("Steps"), numbers(30))
    run.add_done_callback(ended.set_result)
    assert ended.result(TIMEOUT) is run
    assert run.exception(TIMEOUT) is None


def test_a_run_can_be_awaited(cluster: sapwood.Cluster, program: Programs) -> None:
    async def wait() -> Any:
        run = cluster.run(program("Steps", steps=2), np.ones(4))
        task = cluster.submit(pow, 2, 5)
        return [await run, await task, *await asyncio.gather(run, task)]

    assert asyncio.run(wait()) == [12.0, 32, 12.0, 32]


def test_giving_up_waiting_does_not_end_a_run(
    cluster: sapwood.Cluster, program: Programs, tmp_path: Path
) -> None:
    run = cluster.run(program("Lasting", folder=str(tmp_path)), np.ones(4))

    async def wait() -> None:
        assert run.running()
        await asyncio.wait_for(run, 0.001)

    with pytest.raises(TimeoutError):
        asyncio.run(wait())
    with pytest.raises(TimeoutError):
        run.result(0.0)
    assert not run.wait(0.0)
    (tmp_path / "end").touch()
    assert run.result(TIMEOUT) == 4.0 * sum(range(1, run.statistics.iterations + 1))


# --- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["init", "update", "done", "metrics", "result"])
def test_a_mistake_in_the_client_is_told_with_its_place(
    cluster: sapwood.Cluster, program: Programs, place: str
) -> None:
    run = cluster.run(program("Faulty", place=place), np.arange(10))
    error = run.exception(TIMEOUT)
    assert isinstance(error, UserCodeError)
    assert f"wrong in {place}" in error.what
    assert error.where == f"Faulty.{place}"
    assert run.progress.state is sapwood.types.RunState.FAILED
    assert isinstance(error.__cause__, ValueError)


def test_a_mistake_in_the_map_is_told_with_agent_traceback_and_output(
    cluster: sapwood.Cluster, program: Programs
) -> None:
    run = cluster.run(program("Faulty", place="map"), np.arange(10))
    with pytest.raises(ValueError, match="wrong in map") as caught:
        run.result(TIMEOUT)
    error = caught.value
    assert isinstance(error, UserCodeError)
    assert error.where.startswith("Faulty.map, items ")
    assert "agent " in error.where
    assert "programs.py" in error.details["traceback"]
    assert error.details["output"] == "about to fail\n"
    assert sum(agent.errors for agent in run.statistics.agents) >= 1


@pytest.mark.parametrize(
    ("kind", "kind_of_error", "said"),
    [
        ("missing", SapwoodError, "x"),
        ("unknown", SapwoodError, "y"),
        ("number", SapwoodError, "int"),
        ("shape", ExecutionError, "cannot reduce field 'x'"),
        ("object", DataValueError, "object cannot travel"),
        ("text", ExecutionError, "cannot reduce field 'x'"),
    ],
)
def test_a_wrong_result_of_a_map_is_a_clear_error(
    cluster: sapwood.Cluster, program: Programs, kind: str, kind_of_error: Any, said: str
) -> None:
    error = cluster.run(program("WrongResult", kind=kind), np.arange(10)).exception(TIMEOUT)
    assert isinstance(error, kind_of_error)
    assert said in str(error)
    assert "agent " in str(error)


@pytest.mark.parametrize("kind", ["object", "list", "none"])
def test_a_state_that_is_none_is_a_clear_error(
    cluster: sapwood.Cluster, program: Programs, kind: str
) -> None:
    error = cluster.run(program("WrongState", kind=kind), np.arange(10)).exception(TIMEOUT)
    assert isinstance(error, SapwoodError)
    said = {"object": "object cannot travel", "list": "must be a dictionary"}
    assert said.get(kind, "returned nothing") in error.what


def test_what_cannot_be_run_is_refused_at_once(cluster: sapwood.Cluster, program: Programs) -> None:
    data = np.arange(10)
    with pytest.raises(ParameterError, match="steps"):
        cluster.run(program("Steps"), data, parameters={"step": 3})
    with pytest.raises(ProgramError):
        cluster.run("/nowhere", data)
    with pytest.raises(DataError):
        cluster.run(program("Steps"), np.zeros(0))
    with pytest.raises(DataError, match="data="):
        cluster.run(program("Steps"))
    with pytest.raises(ConfigurationError, match="on_agent_loss"):
        cluster.run(program("Steps"), data, on_agent_loss="ignore")  # type: ignore[arg-type]  # that is the test


def test_data_that_are_not_numbers_end_the_run(cluster: sapwood.Cluster, program: Programs) -> None:
    run = cluster.run(program("Steps"), np.array([1.0, np.nan]))
    assert isinstance(run.exception(TIMEOUT), DataValueError)


def test_fields_that_are_missing_are_named(cluster: sapwood.Cluster, program: Programs) -> None:
    with pytest.raises(SapwoodError, match="data"):
        cluster.run(program("Steps"), {"x": np.arange(3)}).result(TIMEOUT)
