from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from sapwood.core.errors import DataShapeError, DataValueError
from sapwood.data import Dataset, load


def load_text(folder: Path, text: str, fields: tuple[str, ...] = ("data",)) -> Dataset:
    path = folder / "table.csv"
    path.write_text(text, encoding="utf-8")
    return load(path, fields=fields)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", " "])
@pytest.mark.parametrize("header", [True, False])
def test_delimiter_and_header_are_found(tmp_path: Path, delimiter: str, header: bool) -> None:
    rows = [["a", "b"]] * header + [["1", "2.5"], ["-3e2", "4"], ["5", "nan"]]
    data = load_text(tmp_path, "\n".join(delimiter.join(row) for row in rows))
    np.testing.assert_array_equal(data["data"], [[1, 2.5], [-300, 4], [5, np.nan]])
    assert dict(data.meta) == ({"columns": ("a", "b")} if header else {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1\n2\n3\n", [[1], [2], [3]]),
        ("x\n1\n", [[1]]),
        ("my value\n1\n2\n", [[1], [2]]),
        ("first name;x\n1;2\n", [[1, 2]]),
        ("1,2", [[1, 2]]),
        ("\n\n1,2\n\n3,4\n\n", [[1, 2], [3, 4]]),
        ("\ufeffa,b\r\n1,2\r\n", [[1, 2]]),
        ('"a","b"\n"1","2"\n', [[1, 2]]),
        ("a, b\n 1, 2\n", [[1, 2]]),
        ("1  2\n3 \t 4\n", [[1, 2], [3, 4]]),
    ],
)
def test_the_forms_that_tables_take(tmp_path: Path, text: str, expected: list[list[float]]) -> None:
    assert load_text(tmp_path, text)["data"].tolist() == expected


def test_columns_become_fields_when_all_are_named(tmp_path: Path) -> None:
    data = load_text(tmp_path, "x,y,z\n1,2,3\n4,5,6\n", ("z", "x"))
    assert data.fields == ("z", "x")
    assert data["z"].tolist() == [3, 6]
    with data.publish() as published:
        assert published.nbytes


def test_a_missing_column_suggests_the_right_one(tmp_path: Path) -> None:
    with pytest.raises(DataShapeError, match=r"no column 'pirce'.*'price'"):
        load_text(tmp_path, "price,size\n1,2\n", ("pirce", "size"))
    with pytest.raises(DataShapeError, match="header line"):
        load_text(tmp_path, "1,2\n", ("price", "size"))


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a,b\n1,2\n3,x\n", 3, r"column 2 \('b'\) is not a number: 'x'"),
        ("1,2\n\n3,4\nq,5\n", 4, r"column 1 is not a number: 'q'"),
        ("1,2\n,4\n", 2, "column 1 is empty"),
        ("1;2\n1,5;2\n3;4\n", 2, "decimal point"),
        ("1,2\n3,1_000\n", 2, "1_000"),
    ],
)
def test_a_bad_cell_is_located(tmp_path: Path, text: str, line: int, words: str) -> None:
    with pytest.raises(DataValueError, match=words) as caught:
        load_text(tmp_path, text)
    assert caught.value.where.endswith(f"table.csv:{line}")


@pytest.mark.parametrize(
    ("text", "line"),
    [("1,2\n3\n", 2), ("1,2\n3,4,5\n", 2), ("a,b,c\n1,2\n3,4\n", 2), ("a,b\n1,2\n\n3\n", 4)],
)
def test_a_ragged_row_is_located(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(DataShapeError, match="cells where") as caught:
        load_text(tmp_path, text)
    assert caught.value.where.endswith(f"table.csv:{line}")


@pytest.mark.parametrize("text", ["a,b\n", "\n\n  \n", "a,b\n\n\n"])
def test_a_table_without_rows_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataShapeError, match="no rows"):
        load_text(tmp_path, text)


def test_other_encodings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("größe\n1\n".encode("latin-1"))
    with pytest.raises(DataValueError, match="UTF-8"):
        load(path)


@given(
    npst.arrays(np.float64, npst.array_shapes(min_dims=2, max_dims=2, max_side=8)),
    st.sampled_from([",", ";", "\t", "|", " "]),
    st.booleans(),
)
@pytest.mark.slow
def test_any_table_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    table: np.ndarray[Any, Any],
    delimiter: str,
    header: bool,
) -> None:
    names = [delimiter.join(f"c{i}" for i in range(table.shape[1]))] * header
    rows = [delimiter.join(repr(float(cell)) for cell in row) for row in table]
    data = load_text(tmp_path_factory.mktemp("csv"), "\n".join(names + rows))
    np.testing.assert_array_equal(data["data"], table)


def test_columns_that_are_not_wanted_may_hold_anything(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("name,height,note,weight\nann,1.7,,60\n'bo, b',1.8,x,80\n".replace("'", '"'))
    data = load(path, fields=["weight", "height"])
    assert data["weight"].tolist() == [60, 80]
    assert data["height"].tolist() == [1.7, 1.8]


def test_among_other_columns_rows_have_as_many_cells_as_the_header(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("name,height\nann,1.7\nbo,1.8,80\n")
    with pytest.raises(DataShapeError, match="a row has 3 cells where 2") as caught:
        load(path, fields=["height"])
    assert caught.value.where.endswith("people.csv:3")
