"""What calls cost, per function and machine: in runs whose items moved, and in tasks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import sapwood

pytestmark = pytest.mark.row("A-ACT-3")

TIMEOUT = 120.0
ROUNDS = 6
MakeCluster = Callable[..., sapwood.Cluster]


class Uneven(sapwood.Program):
    """The second agent is eight times as fast as the first, so that items move."""

    reduce: ClassVar = {"items": "sum"}

    def init(self, data: Any) -> dict[str, Any]:
        return {"round": 0}

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - what it is
        time.sleep(len(slice) / (100 if os.environ["SAPWOOD_AGENT"] == "0" else 800))
        return {"items": len(slice)}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        return {"round": state["round"] + 1}

    def done(self, state: dict[str, Any]) -> bool:
        return bool(state["round"] >= ROUNDS)


def test_a_run_whose_items_moved_has_the_calls_of_all_its_iterations(
    make_cluster: MakeCluster,
) -> None:
    run = make_cluster(2).run(Uneven, range(40), delegate="measured")
    run.result(TIMEOUT)
    assert len(run.record.moves) > 0
    agents = run.statistics.agents
    assert [one.calls for one in agents] == [ROUNDS, ROUNDS]
    for agent in agents:
        (function,) = agent.functions
        assert (function.calls, function.total) == (ROUNDS, agent.map_seconds)
        assert sum(count for _, count in function.durations) == ROUNDS
    (function,) = run.statistics.functions
    assert (function.name, function.node) == ("Uneven.map", os.uname().nodename)
    assert (function.agents, function.calls, function.errors) == (2, 2 * ROUNDS, 0)
    assert function.total == pytest.approx(sum(one.map_seconds for one in agents))
    assert 0 < function.p50 <= function.p95 <= function.maximum
    assert function.bytes_out == sum(one.functions[0].bytes_out for one in agents) > 0


def test_tasks_are_counted_by_function_and_machine(make_cluster: MakeCluster) -> None:
    def halve(value: int) -> float:
        return 8 / value

    cluster = make_cluster(2)
    assert cluster.task_statistics() == ()
    assert [cluster.submit(halve, n).result(TIMEOUT) for n in (1, 2, 4)] == [8.0, 4.0, 2.0]
    with pytest.raises(sapwood.SapwoodError, match="division by zero"):
        cluster.submit(halve, 0).result(TIMEOUT)
    assert list(cluster.map(abs, range(-9, 0))) == list(range(9, 0, -1))
    found = {one.name: one for one in cluster.task_statistics()}
    assert {one.node for one in found.values()} == {os.uname().nodename}
    halved = found[halve.__qualname__]
    assert (halved.calls, halved.errors) == (4, 1)
    assert sum(count for _, count in halved.durations) == 3
    assert 0 < halved.p50 <= halved.maximum <= halved.total
    assert halved.bytes_in > 0
    assert halved.bytes_out > 0
    assert len(found) == 2
