"""Runs that continue from a checkpoint give the result of an undisturbed run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import sapwood
from sapwood.activity.checkpoint import DISK, previous
from sapwood.activity.run_driver import RunDriver
from sapwood.core.errors import DataMissingError, DataValueError, InputError, UserCodeError
from sapwood.environment.settings import LimitSettings, Settings

EACH = Settings(limits=LimitSettings(checkpoints=1.0))
"""A checkpoint after each iteration."""

TIMEOUT = 60.0
DATA = np.random.default_rng(3).normal(size=(500, 3))


class Means(sapwood.Program):
    """Moves a table by sums over the data; its arrays are stored by columns."""

    reduce: ClassVar = {"sums": "sum:reproducible"}
    inputs = ("x",)
    rounds: int = sapwood.parameter(9)

    def init(self, data: Any) -> dict[str, Any]:
        self.number = len(data)
        return {"table": np.asfortranarray(np.ones((4, 3))), "round": 0}

    def map(self, data: Any, state: dict[str, Any]) -> dict[str, Any]:
        return {"sums": np.sin(data["x"] @ state["table"].T).sum(axis=0)}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        table = state["table"] * 0.75
        table += (total["sums"] / self.number)[:, None]
        return {"table": table, "round": state["round"] + 1, "spread": table.sum(axis=1)}

    def done(self, state: dict[str, Any]) -> bool:
        return bool(state["round"] >= self.rounds)


class Ending(Means):
    """The same, which ends in the middle while a file is there."""

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        if state["round"] == 5 and self.gate.exists():
            raise RuntimeError("here it ends")
        return super().update(state, total)

    gate: ClassVar[Path]


@pytest.fixture(scope="module")
def cluster(nothing_is_left_behind_by_all: None) -> Iterator[sapwood.Cluster]:
    """A cluster for all tests of this module, whose runs keep each iteration."""
    del nothing_is_left_behind_by_all  # it looks when the cluster has ended
    with sapwood.local(2, settings=EACH) as made:
        made.run(Means(), DATA).result(TIMEOUT)  # its runners are there now
        yield made


def test_a_run_goes_on_with_the_same_result(cluster: sapwood.Cluster, tmp_path: Path) -> None:
    file, Ending.gate = tmp_path / "state", tmp_path / "gate"
    wanted = cluster.run(Ending(), DATA).result(TIMEOUT)
    Ending.gate.touch()
    broken = cluster.run(Ending(), DATA, checkpoint=file)
    with pytest.raises(UserCodeError, match="here it ends"):
        broken.result(TIMEOUT)
    assert broken.statistics.checkpoints == 5
    Ending.gate.unlink()
    again = cluster.run(Ending(), DATA, checkpoint=file, resume=file)
    found = again.result(TIMEOUT)
    assert {name: np.asarray(one).tobytes() for name, one in found.items()} == {
        name: np.asarray(one).tobytes() for name, one in wanted.items()
    }
    assert (again.statistics.resumed_from, again.statistics.iterations) == (5, 9)
    assert again.statistics.checkpoints == 3
    assert 0 < again.statistics.checkpoint_seconds < again.statistics.seconds
    assert again.progress.seconds_per_iteration < again.statistics.seconds


def test_a_checkpoint_is_never_of_a_run_that_is_done(
    cluster: sapwood.Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "state"
    wanted = cluster.run(Means(), DATA, checkpoint=file).result(TIMEOUT)
    found = cluster.run(Means(), DATA, resume=file).result(TIMEOUT)
    assert found["round"] == wanted["round"] == 9
    np.testing.assert_array_equal(found["table"], wanted["table"])


class Reads:
    """The files of this machine, and how often each was read."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(DISK, name)

    def read(self, file: Path) -> bytes:
        self.files[file.name] += 1
        return DISK.read(file)


def test_a_run_continues_if_it_can_and_reads_its_checkpoint_once(
    cluster: sapwood.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, reads = tmp_path / "state", Reads()
    monkeypatch.setattr(RunDriver, "files", reads)
    for resumed_from, read in ((None, {"state": 1, "state.previous": 1}), (8, {"state": 1})):
        run = cluster.run(Means(), DATA, checkpoint=file, auto_resume=True)
        assert run.result(TIMEOUT)["round"] == 9
        assert run.statistics.resumed_from == resumed_from
        assert reads.files == read
        reads.files.clear()
    file.write_bytes(b"damaged")
    previous(file).write_bytes(b"damaged")
    run = cluster.run(Means(), DATA, checkpoint=file, auto_resume=True)
    assert run.result(TIMEOUT)["round"] == 9
    assert run.statistics.resumed_from is None
    with pytest.raises(InputError, match="auto_resume needs a checkpoint"):
        cluster.run(Means(), DATA, auto_resume=True)


def test_what_is_another_run_is_refused(cluster: sapwood.Cluster, tmp_path: Path) -> None:
    file = tmp_path / "state"
    with pytest.raises(DataMissingError, match="the checkpoint does not exist"):
        cluster.run(Means(), DATA, resume=file).result(TIMEOUT)
    cluster.run(Means(), DATA, checkpoint=file).result(TIMEOUT)
    for program, data, said in (
        (Means(rounds=8), DATA, "parameters differ"),
        (Means(), DATA + 1, "the data are others"),
        (Ending(), DATA, "other sources"),
    ):
        with pytest.raises(DataValueError, match=said):
            cluster.run(program, data, resume=file).result(TIMEOUT)
    with pytest.raises(InputError, match="of iteration 8, and the run is to end after 3"):
        cluster.run(Means(), DATA, resume=file, max_iterations=3).result(TIMEOUT)
    with pytest.raises(InputError, match="no checkpoint can be written there"):
        cluster.run(Means(), DATA, checkpoint=tmp_path / "no" / "such").result(TIMEOUT)


def test_a_run_that_is_too_short_writes_none(
    clusters: list[sapwood.Cluster], tmp_path: Path
) -> None:
    run = clusters[0].run(Means(rounds=1), DATA, checkpoint=tmp_path / "state")
    run.result(TIMEOUT)
    assert run.statistics.checkpoints == 0
    assert not list(tmp_path.iterdir())
