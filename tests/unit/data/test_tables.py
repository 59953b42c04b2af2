from typing import Any

import numpy as np
import pytest

from sapwood.comm.shared_memory import MappedBlocks
from sapwood.core.errors import DataShapeError
from sapwood.data import load, open_slice
from sapwood.data.tables import native_arguments

pandas = pytest.importorskip("pandas")
sparse = pytest.importorskip("scipy.sparse")


@pytest.fixture
def frame() -> Any:
    return pandas.DataFrame({"x": np.arange(6), "y": np.arange(6) * 0.5, "name": list("abcdef")})


@pytest.fixture
def matrix() -> Any:
    return sparse.random(40, 9, density=0.3, format="csr", random_state=3)


def test_columns_of_a_frame_go_in_by_name(frame: Any) -> None:
    data = load(frame, fields=["y", "x"])
    assert data.fields == ("y", "x")
    assert data["y"].tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert len(data) == 6


def test_a_frame_is_one_field_where_none_of_its_columns_is_wanted(frame: Any) -> None:
    data = load(frame[["x", "y"]])
    assert data["data"].shape == (6, 2)
    assert data.meta["columns"] == ("x", "y")


def test_columns_that_are_not_there_or_hold_text_are_told(frame: Any) -> None:
    with pytest.raises(DataShapeError, match=r"no column 'names'.*did you mean 'name'"):
        load(frame, fields=["x", "names"])
    with pytest.raises(DataShapeError, match="column 'name'"):
        load(frame, fields=["name"])


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
@pytest.mark.parametrize("agents", [1, 3, 7])
def test_slices_of_a_sparse_matrix_are_its_rows(matrix: Any, kind: str, agents: int) -> None:
    data = load({"A": matrix.asformat(kind), "y": np.arange(40.0)})
    assert data.meta["A_shape"] == (40, 9)
    rows = []
    with data.publish() as published:
        for part in data.split(agents):
            blocks = MappedBlocks()
            one = open_slice(published.ref(part.start, part.stop), blocks)
            arrays = (one["A_data"], one["A_indices"], one["A_indptr"])
            rows.append(sparse.csr_matrix(arrays, shape=(len(part), 9)).toarray())
            assert one["y"].tolist() == list(map(float, part))
    np.testing.assert_array_equal(np.concatenate(rows), matrix.toarray())


def test_a_matrix_of_zeros_has_rows_all_the_same() -> None:
    data = load(sparse.csr_matrix((5, 3)), fields=["data", "indices", "indptr"])
    with data.publish() as published:
        blocks = MappedBlocks()
        one = open_slice(published.ref(1, 4), blocks)
        assert one["indptr"].tolist() == [0, 0, 0, 0]
        assert len(one["data"]) == 0


def test_a_sparse_matrix_is_never_taken_for_its_values(matrix: Any) -> None:
    with pytest.raises(DataShapeError, match="toarray"):
        load(matrix)
    with pytest.raises(DataShapeError, match="cannot be sampled"):
        load({"A": matrix}).sample(3, 1)


def test_arguments_of_native_functions_become_arrays(frame: Any, matrix: Any) -> None:
    found = native_arguments({"A": matrix, "x": frame["x"], "n": 3})
    assert list(found) == ["A_data", "A_indices", "A_indptr", "x", "n"]
    assert type(found["x"]) is np.ndarray
    assert found["n"] == 3


@pytest.mark.parametrize("kind", ["table", "batch", "slice"])
def test_an_arrow_table_is_a_table_although_it_can_be_made_an_array(kind: str) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"x": [1, 2, 3], "other": [10.0, 20.0, 30.0], "name": ["a", "b", "c"]})
    source: Any = {"table": table, "batch": table.to_batches()[0], "slice": table.slice(1, 2)}[kind]
    data = load(source, fields=["x", "other"])
    first = 1 if kind == "slice" else 0
    assert data["x"].tolist() == [1, 2, 3][first:]
    assert data["other"].tolist() == [10.0, 20.0, 30.0][first:]
