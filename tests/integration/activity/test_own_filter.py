"""Programs whose results are combined by a user filter in the tree."""

import os
from collections.abc import Callable
from typing import Any

import pytest

import sapwood
from sapwood.code.filter import Filter
from sapwood.core.errors import RunnerCrashError, UserCodeError

ROOTS = ("embedded", pytest.param("attached", marks=pytest.mark.nightly))

TREE = (7, 2)


class Ranges(Filter):
    def up(self, values: list[Any]) -> Any:
        """Put neighbouring ranges together: wrong unless they come in order."""
        first = values[0]["range"]
        for value in values[1:]:
            start, stop = value["range"]
            if first[1] != start:
                raise ValueError(f"{first} does not continue at {start}")
            first = (first[0], stop)
        pids = {os.getpid(), *(pid for value in values for pid in value["pids"])}
        return {"range": first, "pids": pids}


class Broken(Filter):
    def up(self, values: list[Any]) -> Any:
        os.abort()


class Spans(sapwood.Program):
    reduce = {"range": "gather", "pids": "union"}  # noqa: RUF012 - as users write it
    kind: str = sapwood.parameter("ranges")

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - as Program.map
        return {"range": (slice.start, slice.stop), "pids": set()}

    def own_filter(self) -> Filter:
        return Broken() if self.kind == "broken" else Ranges()


@pytest.mark.parametrize("agents", [1, 3])
def test_results_come_together_in_order(
    make_cluster: Callable[..., sapwood.Cluster], agents: int
) -> None:
    result = make_cluster(agents).run(Spans(), range(100)).result(60)
    assert tuple(result["range"]) == (0, 100)
    assert len(result["pids"]) == 1
    assert os.getpid() not in result["pids"]


def test_results_come_together_in_order_at_every_place(standing: sapwood.Cluster) -> None:
    result = standing.run(Spans(), range(100)).result(60)
    assert tuple(result["range"]) == (0, 100)
    # One process for each place with children, none of them this one.
    assert len(result["pids"]) == 1 + len(standing.session.tree.junctions)
    assert os.getpid() not in result["pids"]


def test_a_crash_of_a_filter_ends_the_run_and_nothing_else(standing: sapwood.Cluster) -> None:
    cluster = standing
    with pytest.raises((RunnerCrashError, UserCodeError)):
        cluster.run(Spans(kind="broken"), range(100)).result(60)
    assert tuple(cluster.run(Spans(), range(9)).result(60)["range"]) == (0, 9)
