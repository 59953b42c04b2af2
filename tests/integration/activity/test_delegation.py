"""Runs on agents of unequal speed: items move, late agents are helped, each item counts once."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest

import sapwood
from sapwood.activity.rate_history import FileHistory, FunctionHistory
from sapwood.core import typed

TIMEOUT = 120.0
ITEMS = 120
MakeCluster = Callable[..., sapwood.Cluster]


class Uneven(sapwood.Program):
    """The second agent is four times as fast as the first."""

    rounds = sapwood.parameter(5)
    reduce: ClassVar = {"items": "sum", "total": "sum:reproducible"}

    def init(self, data: Any) -> dict[str, Any]:
        return {"round": 0, "counted": 0, "totals": []}

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - what it is
        first = os.environ["SAPWOOD_AGENT"] == "0"
        time.sleep(len(slice) / (100 if first else 400))
        return {"items": len(slice), "total": np.sum(slice.data) * (1 + state["round"])}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        return {
            "round": state["round"] + 1,
            "counted": state["counted"] + total["items"],
            "totals": [*state["totals"], total["total"]],
        }

    def done(self, state: dict[str, Any]) -> bool:
        return bool(state["round"] >= self.rounds)


class Keeping(Uneven):
    """It keeps what it has counted."""

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - what it is
        self.kept = len(slice)
        return super().map(slice, state)


class Hanging(sapwood.Program):
    """The first agent maps its slice when the iteration is over, and not before."""

    folder = sapwood.parameter("")
    reduce: ClassVar = {"items": "sum", "rounds": "max"}

    def init(self, data: Any) -> dict[str, Any]:
        return {"round": 0, "counted": 0}

    def map(self, slice: Any, state: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - what it is
        if state["round"] == 2 and os.environ["SAPWOOD_AGENT"] == "0":
            while not (Path(self.folder) / "over").exists():
                time.sleep(0.01)
        return {"items": len(slice), "rounds": state["round"]}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        if state["round"] == 2:
            (Path(self.folder) / "over").touch()
        return {"round": state["round"] + 1, "counted": state["counted"] + total["items"]}

    def done(self, state: dict[str, Any]) -> bool:
        return bool(state["round"] >= 5)


@pytest.fixture(scope="module")
def data() -> Any:
    return np.random.default_rng(1).normal(size=ITEMS)


@pytest.mark.row("A-ACT-4")
def test_items_move_to_the_faster_agent_with_the_same_bits(
    make_cluster: MakeCluster, data: Any, tmp_path: Path
) -> None:
    cluster = make_cluster(2)
    cluster.history = FileHistory(tmp_path)
    results = {}
    for how in ("static", "measured"):
        run = cluster.run(Uneven(), data, chunk=5, delegate=how)
        results[how] = run.result(TIMEOUT)
        record = run.record
        assert results[how]["counted"] == 5 * ITEMS
        assert sum(one.stop - one.start for one in record.agents) == ITEMS
        if how == "static":
            assert record.moves == ()
            assert record.kept_in_place == "delegate is static"
        else:
            slow, fast = record.agents
            assert record.moves[0].source == 1
            assert "agent 1 maps" in record.moves[0].reason
            assert fast.stop - fast.start > slow.stop - slow.start
    bits = [np.asarray(one["totals"]).tobytes() for one in results.values()]
    assert bits[0] == bits[1]


@pytest.mark.parametrize(
    ("program", "options", "reason"),
    [
        (Keeping, {"chunk": 5}, "its map seems to keep something: map stores kept"),
        (Uneven, {}, "sum:reproducible gives the same bits after a move only with a chunk size"),
    ],
    ids=["keeps something", "no chunks"],
)
def test_what_must_not_move_stays(
    make_cluster: MakeCluster,
    data: Any,
    program: type[sapwood.Program],
    options: dict[str, Any],
    reason: str,
) -> None:
    run = make_cluster(2).run(program(rounds=2), data, delegate="measured", **options)
    assert run.result(TIMEOUT)["counted"] == 2 * ITEMS
    assert run.record.moves == ()
    assert run.record.kept_in_place == reason


@pytest.mark.row("A-ACT-4")
def test_others_map_the_items_of_an_agent_that_hangs(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """Without them this run would never end."""
    run = make_cluster(3).run(Hanging(folder=str(tmp_path)), range(ITEMS), delegate="measured")
    assert run.result(TIMEOUT)["counted"] == 5 * ITEMS
    used = {(one.agent, one.iteration) for one in run.record.late if one.outcome == "used"}
    assert (1, 3) in used  # on a busy machine others may be late as well


@pytest.mark.row("A-ACT-4")
def test_the_next_run_begins_with_what_the_last_one_measured(
    make_cluster: MakeCluster, data: Any, tmp_path: Path
) -> None:
    cluster = make_cluster(2)
    cluster.history = FileHistory(tmp_path)
    first = cluster.run(Uneven(), data, chunk=5, delegate="measured")
    first.result(TIMEOUT)
    assert first.record.first_guess == ""
    run = cluster.run(Uneven(rounds=1), data, chunk=5, delegate="measured")
    assert run.result(TIMEOUT)["counted"] == ITEMS
    slow, fast = run.record.agents
    assert slow.stop - slow.start < fast.stop - fast.start
    assert f"what run {first.name} measured on" in run.record.first_guess
    assert "for all agents" in run.record.first_guess


def test_a_wrong_history_changes_no_result_and_is_corrected(
    make_cluster: MakeCluster, data: Any
) -> None:
    class Told:
        """Says something wrong of agents, once a run has said who they are."""

        place = "a test"
        kept: bytes | None = None
        rates = (1.0, 1.0)

        def read(self, key: str) -> bytes | None:
            if self.kept is None:
                return None
            known = typed.json_reader(FunctionHistory)(self.kept)
            agents = (
                msgspec.structs.replace(one, rate=rate)
                for one, rate in zip(known.agents, self.rates, strict=True)
            )
            return msgspec.json.encode(msgspec.structs.replace(known, agents=tuple(agents)))

        def write(self, key: str, history: bytes) -> None:
            self.kept = history

    cluster = make_cluster(2)
    wanted = cluster.run(Uneven(rounds=3), data, chunk=5).result(TIMEOUT)
    cluster.history = told = Told()
    for rates in ((1.0, 1.0), (4000.0, 100.0), (0.0, 0.0), (math.nan, 1.0)):
        told.rates = rates
        run = cluster.run(Uneven(rounds=3), data, chunk=5, delegate="measured")
        result = run.result(TIMEOUT)
        assert result["counted"] == 3 * ITEMS
        assert np.asarray(result["totals"]).tobytes() == np.asarray(wanted["totals"]).tobytes()
        slow, fast = run.record.agents
        assert fast.stop - fast.start > slow.stop - slow.start
