"""D-2: runs over a tree of three levels whose junctions and agents end, hang and wake up."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sapwood
from sapwood.environment.settings import ClusterSettings, CommSettings, RestartSettings, Settings
from sapwood.session.embedded import embedded
from sapwood_simulation.local_session_server import root_of

ROOTS = ("embedded", pytest.param("attached", marks=pytest.mark.nightly))

AGENTS, FANOUT, ITERATIONS = 6, 2, 7
PATIENCE = 60.0

SILENCE = 4.0
"""Seconds after which a place is taken for dead; a busy machine keeps a living one from less."""

Until = Callable[[Callable[[], object]], None]


class Counting(sapwood.Program):
    """Sums the data in each iteration; each map leaves a mark in a folder, and may wait for one."""

    reduce = {"x": "sum", "n": "count"}  # noqa: RUF012 - as users write it
    inputs = ("value",)
    folder: str = sapwood.parameter("")
    wait_in: int = sapwood.parameter(4)

    def init(self, data: Any) -> dict[str, Any]:
        return {"iteration": 1, "sum": 0.0}

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as in Program
        import pathlib  # noqa: PLC0415 - runs in a runner
        import time  # noqa: PLC0415 - as above

        folder, iteration = pathlib.Path(self.folder), state["iteration"]
        first = int(slice["value"][0])
        with (folder / f"{iteration}-{first}").open("a") as marks:
            marks.write("x")
        while iteration == self.wait_in and first == 0 and not (folder / "go").exists():
            time.sleep(0.002)
        return {"x": float(slice["value"].sum()) * iteration, "n": 1}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        if total["n"] != AGENTS:  # an ``assert`` would have each runner import pytest
            raise ValueError(total["n"])
        return {"iteration": state["iteration"] + 1, "sum": state["sum"] + total["x"]}

    def done(self, state: dict[str, Any]) -> bool:
        return bool(state["iteration"] > ITERATIONS)


@pytest.fixture
def quick() -> Settings:
    return Settings(
        comm=CommSettings(heartbeat=0.5, failure_after=SILENCE),
        restart=RestartSettings(limit=100, backoff=0.01, backoff_max=0.05),
    )


class Course:
    """A run that waits in the middle of an iteration."""

    def __init__(self, cluster: sapwood.Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.tree = cluster.session.tree
        self.before = self.pids()
        data = {"value": np.arange(AGENTS * 3, dtype="f8")}
        self.run = cluster.run(Counting(folder=str(folder)), data)

    def pids(self) -> dict[int, int]:
        return {
            record.rank: record.pid
            for record in embedded(self.cluster.session).supervisor.processes
        }

    def waits(self) -> bool:
        """Whether all but the one that waits have mapped in the iteration that waits."""
        return len(list(self.folder.glob("4-*"))) == AGENTS

    def finish(self) -> dict[str, Any]:
        (self.folder / "go").touch()
        result: dict[str, Any] = self.run.result(PATIENCE)
        return result

    def maps(self) -> dict[str, int]:
        """Return how often each part was mapped in each iteration."""
        return {path.name: len(path.read_text()) for path in self.folder.glob("*-*")}


EXPECTED = float(np.arange(AGENTS * 3).sum()) * sum(range(1, ITERATIONS + 1))


@pytest.fixture
def course(tmp_path: Path, quick: Settings, until: Until) -> Any:
    with sapwood.local(AGENTS, fanout=FANOUT, settings=quick) as cluster:
        begun = Course(cluster, tmp_path)
        until(begun.waits)
        yield begun


def changed(course: Course) -> set[int]:
    after = course.pids()
    return {rank for rank, pid in course.before.items() if after[rank] != pid}


@pytest.mark.row("D-2")
@pytest.mark.parametrize("level", [1, 2])
def test_of_a_killed_junction_the_agents_live_on_and_map_nothing_twice(
    course: Course, until: Until, level: int
) -> None:
    junction = list(course.tree.ancestors(1))[level - 1]
    os.kill(course.before[junction], signal.SIGKILL)
    until(lambda: changed(course) == {junction})
    assert course.finish()["sum"] == EXPECTED
    assert changed(course) == {junction}
    assert set(course.maps().values()) == {1}
    assert len(course.maps()) == AGENTS * ITERATIONS


@pytest.mark.row("D-2")
def test_several_that_are_killed_at_once_cost_nothing_but_themselves(
    course: Course, until: Until
) -> None:
    junctions = set(course.tree.ancestors(1)) - {0}
    for rank in (*junctions, 5):
        os.kill(course.before[rank], signal.SIGKILL)
    until(lambda: changed(course) == {*junctions, 5})
    assert course.finish()["sum"] == EXPECTED
    assert changed(course) == {*junctions, 5}


@pytest.mark.row("D-2")
def test_a_junction_that_is_killed_while_its_replacement_starts(
    course: Course, until: Until
) -> None:
    junction = course.tree.parents[1]
    seen = {course.before[junction]}
    os.kill(course.before[junction], signal.SIGKILL)
    for _ in range(3):
        until(lambda: course.pids()[junction] not in {0, *seen})
        seen.add(course.pids()[junction])
        os.kill(course.pids()[junction], signal.SIGKILL)
    assert course.finish()["sum"] == EXPECTED
    assert changed(course) <= {junction}
    assert set(course.maps().values()) == {1}


@pytest.mark.row("D-2")
@pytest.mark.parametrize("kind", ["junction", "agent"])
def test_a_stopped_place_is_noticed_and_replaced(course: Course, until: Until, kind: str) -> None:
    victim = course.tree.parents[1] if kind == "junction" else 5
    os.kill(course.before[victim], signal.SIGSTOP)
    until(lambda: victim in changed(course) and course.pids()[victim])
    assert course.finish()["sum"] == EXPECTED
    assert changed(course) == {victim}


@pytest.mark.row("D-2")
def test_a_place_that_wakes_up_after_it_was_taken_for_dead_ends_and_disturbs_nobody(
    course: Course, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    junction = course.tree.parents[1]
    stopped = course.before[junction]
    supervisor = embedded(course.cluster.session).supervisor
    kill = supervisor._starters.main.kill
    # As if it were on a machine that cannot be reached: the supervisor cannot kill it.
    monkeypatch.setattr(supervisor._starters.main, "kill", lambda pid: pid != stopped and kill(pid))
    os.kill(stopped, signal.SIGSTOP)
    until(lambda: supervisor.processes[junction].state.shown == "lost")
    until(lambda: all(supervisor.processes[rank].state.value == "ready" for rank in (1, 2)))
    os.kill(stopped, signal.SIGCONT)
    until(lambda: changed(course) == {junction})  # it ended without being killed, and was replaced
    assert course.finish()["sum"] == EXPECTED
    assert changed(course) == {junction}
    assert set(course.maps().values()) == {1}


@pytest.mark.row("D-2")
def test_a_spare_junction_stands_in_while_another_one_is_away(until: Until) -> None:
    settings = Settings(cluster=ClusterSettings(spares=True))
    with sapwood.local(4, fanout=2, settings=settings) as cluster, cluster.stream("echo") as stream:
        session = cluster.session
        (spare,) = session.tree.spares
        pids = [agent.pid for agent in cluster.agents]
        router = embedded(session).host.driver.node.router

        def parents() -> list[int]:
            return [placed.parent for placed in map(router.placed, (1, 2)) if placed is not None]

        assert parents() == [5, 5]
        os.kill(
            embedded(session).supervisor.zygote_pid, signal.SIGSTOP
        )  # so that nothing is replaced
        os.kill(embedded(session).supervisor.processes[5].pid, signal.SIGKILL)
        until(lambda: parents() == [spare, spare])
        assert stream.broadcast(1).result(PATIENCE).agents == [1, 2, 3, 4]
        os.kill(embedded(session).supervisor.zygote_pid, signal.SIGCONT)
        until(lambda: parents() == [5, 5])
        assert stream.broadcast(1).result(PATIENCE).agents == [1, 2, 3, 4]
        assert [agent.pid for agent in cluster.agents] == pids


@pytest.mark.row("D-2")
@pytest.mark.timeout(300)
def test_no_run_is_cancelled_that_begins_while_places_move(tmp_path: Path, quick: Settings) -> None:
    """Agents may hear of its stream before the junction does to which they move back."""
    chance = random.Random(1)  # noqa: S311 - only moments
    data = {"value": np.arange(AGENTS * 3, dtype="f8")}
    with sapwood.local(AGENTS, fanout=FANOUT, settings=quick) as cluster:
        places, tree = root_of(cluster).supervisor.processes, cluster.session.tree
        junctions = sorted({above for rank in range(1, AGENTS + 1) for above in tree.above(rank)})
        for number in range(6):
            folder = tmp_path / str(number)
            folder.mkdir()
            for rank in chance.sample(junctions[1:], 2):
                with contextlib.suppress(ProcessLookupError):  # it is being replaced
                    if places[rank].pid:
                        os.kill(places[rank].pid, signal.SIGKILL)
            run = cluster.run(Counting(folder=str(folder), wait_in=0), data)
            assert run.result(PATIENCE)["sum"] == EXPECTED
