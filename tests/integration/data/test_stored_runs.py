"""Runs over rows that agents read themselves."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import sapwood
from sapwood.core.errors import ClosedError, DataMissingError, DataValueError, SapwoodError

pytestmark = pytest.mark.row("A-DATA-1")
LIMIT = 100.0


class Sums(sapwood.Program):
    inputs = ("a", "w")
    reduce: ClassVar = {"a": "sum", "w": "sum", "n": "sum"}

    def init(self, data: Any) -> dict[str, Any]:
        data.check("a", ndim=1, kind="i")
        return {"round": 0}

    def map(self, slice: Any, state: Any) -> dict[str, Any]:  # noqa: A002 - as its base
        return {"a": int(slice.a.sum()), "w": float(slice.w.sum()), "n": len(slice)}


@pytest.fixture(autouse=True)
def pickled_by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    module = request.module
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    a = np.arange(9000)
    for number in range(3):
        part = a[number * 3000 : (number + 1) * 3000]
        table = pa.table({"a": part, "w": part * 0.5, "name": ["x"] * 3000})
        parquet.write_table(table, tmp_path / f"{number}.parquet", row_group_size=1000)
    return tmp_path


EXPECTED = {"a": 8999 * 4500, "w": 8999 * 2250.0, "n": 9000}


def test_agents_read_their_rows(folder: Path) -> None:
    with sapwood.local(agents=2) as cluster:
        for chunk in (None, 700):
            assert cluster.run(Sums, folder, chunk=chunk).result(LIMIT) == EXPECTED
        cluster.expand(2)
        assert cluster.run(Sums, f"{folder}/*.parquet").result(LIMIT) == EXPECTED


def test_values_that_are_not_finite_are_found_by_agents(folder: Path) -> None:
    table = pa.table({"a": np.arange(5), "w": [1.0, 2.0, 3.0, None, 5.0]})
    parquet.write_table(table, folder / "9.parquet")
    with sapwood.local(agents=2) as cluster:
        with pytest.raises(DataValueError, match="field 'w' is nan in row 9003") as error:
            cluster.run(Sums, folder).result(LIMIT)
        assert str(folder / "9.parquet") in error.value.where
        found = cluster.run(Sums, folder, allow_nan=True).result(LIMIT)
        assert found["n"] == 9005
        assert np.isnan(found["w"])


def test_a_file_that_goes_in_the_middle_ends_the_run(folder: Path) -> None:
    data = sapwood.load(folder, fields=("a", "w"))
    (folder / "1.parquet").unlink()
    with sapwood.local(agents=2) as cluster:
        with pytest.raises(DataMissingError, match="cannot be opened any more") as error:
            cluster.run(Sums, data).result(LIMIT)
        assert "1.parquet" in error.value.where
        with pytest.raises(SapwoodError):
            cluster.run(Sums, f"{folder}/none*.parquet")


def read(run: sapwood.Run) -> list[int]:
    """Return how many bytes each agent read for a run."""
    assert run.result(LIMIT) == EXPECTED
    return [agent.read_bytes for agent in run.statistics.agents]


def test_persistent_data_are_read_once_and_again_by_a_new_agent(folder: Path) -> None:
    with sapwood.local(agents=2) as cluster:
        with cluster.persist(folder, fields=("a", "w")) as points:
            assert min(read(cluster.run(Sums, points))) > 0
            assert read(cluster.run(Sums, points)) == [0, 0]
            assert max(read(cluster.run(Sums, points, chunk=1000))) > 0  # cut elsewhere
            assert read(cluster.run(Sums, points, chunk=1000)) == [0, 0]
            os.kill(cluster.agents[0].pid, signal.SIGKILL)
            first, second = read(cluster.run(Sums, points, chunk=1000))
            assert first > 0
            assert second == 0
            file = folder / "0.parquet"
            file.write_bytes(file.read_bytes() + b"x")  # it is not read again
            assert read(cluster.run(Sums, points, chunk=1000)) == [0, 0]
        assert points.released
        with pytest.raises(ClosedError, match="was released"):
            cluster.run(Sums, points).result(LIMIT)


def test_persistent_data_in_memory_are_copied_once(folder: Path) -> None:
    data = {"a": np.arange(9000), "w": np.arange(9000) * 0.5}
    with sapwood.local(agents=2) as cluster:
        handle = cluster.persist(data)
        assert read(cluster.run(Sums, handle)) == [0, 0]
        data["a"][0] = 7  # a copy was made
        assert read(cluster.run(Sums, handle)) == [0, 0]
        handle.release()
        handle.release()
    with pytest.raises(ClosedError):
        cluster.persist(data)
