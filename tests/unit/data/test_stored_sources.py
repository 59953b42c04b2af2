"""Files that agents read: their content and their faults."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pyarrow import feather, parquet

from sapwood.core.errors import DataError, DataMissingError, DataShapeError, DataValueError
from sapwood.data import load
from sapwood.data.stored_dataset import StoredDataset

pytestmark = pytest.mark.row("A-DATA-1")


def numbers(start: int, count: int) -> dict[str, Any]:
    a = np.arange(start, start + count)
    return {"a": a, "w": a * 0.5}


def write(path: Path, start: int, count: int) -> None:
    """Write numbers as the suffix of the file says."""
    values = numbers(start, count)
    if path.suffix == ".parquet":
        parquet.write_table(pa.table(values), path, row_group_size=7)
    elif path.suffix == ".feather":
        feather.write_feather(pa.table(values), str(path), chunksize=7)
    elif path.suffix == ".csv":
        rows = zip(values["a"], values["w"], strict=True)
        path.write_text("a,w\n" + "".join(f"{a},{w}\n" for a, w in rows))


@pytest.fixture(scope="module", params=[".parquet", ".feather", ".csv"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of five files with 10, 11 … 14 rows, counted through."""
    path = tmp_path_factory.mktemp("parts")
    start = 0
    for number in range(5):
        write(path / f"part-{number}{request.param}", start, 10 + number)
        start += 10 + number
    (path / "_SUCCESS").touch()
    return path


def test_a_folder_is_one_dataset_in_the_order_of_names(folder: Path) -> None:
    data = load(folder, fields=("a", "w"))
    assert isinstance(data, StoredDataset)
    assert data["a"].tolist() == list(range(60))
    assert data["w"].tolist() == (np.arange(60) * 0.5).tolist()
    assert data.meta["file_rows"] == (10, 11, 12, 13, 14)
    assert len(data.meta["files"]) == 5


def test_a_pattern_chooses_files(folder: Path) -> None:
    data = load(f"{folder}/part-[34]*", fields=("a",))
    assert data["a"].tolist() == list(range(33, 60))


@settings(max_examples=12)
@given(cuts=st.lists(st.integers(0, 60), max_size=6))
@pytest.mark.slow
def test_rows_between_any_cuts_are_all_rows_once(folder: Path, cuts: list[int]) -> None:
    data = load(folder, fields=("a", "w"))
    borders = [0, *sorted(cuts), 60]
    found = [data.rows(start, stop)["a"] for start, stop in itertools.pairwise(borders)]
    assert np.concatenate(found).tolist() == list(range(60))


def test_a_sample_is_of_the_rows_that_were_drawn(folder: Path) -> None:
    data = load(folder, fields=("a", "w"))
    drawn = data.sample(20, seed=3)
    assert len(set(drawn["a"].tolist())) == 20
    assert (drawn["w"] == drawn["a"] * 0.5).all()
    assert data.sample(20, seed=3)["a"].tolist() == drawn["a"].tolist()


def test_columns_are_chosen_in_their_order(folder: Path) -> None:
    data = load(folder, fields=["points"], columns=["w", "a"])
    assert data.rows(3, 5)["points"].tolist() == [[1.5, 3], [2, 4]]
    with pytest.raises(DataShapeError, match="no column 'v'") as error:
        load(folder, fields=["points"], columns=["v"])
    assert "part-0" in error.value.where


def test_cuts_go_to_near_borders(tmp_path: Path) -> None:
    parquet.write_table(
        pa.table({"a": np.arange(1000)}), tmp_path / "a.parquet", row_group_size=249
    )
    data = load(tmp_path, fields=["a"])
    assert [part.stop for part in data.split(4)] == [249, 498, 747, 1000]
    assert [part.stop for part in data.split(4, chunk=1)] == [250, 500, 750, 1000]
    assert [part.stop for part in data.split(3)] == [334, 667, 1000]


def test_the_type_of_a_field_is_known_without_its_values(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"a": np.zeros(5, "f4")}), file)
    data = load(file, fields=["a"])
    file.unlink()
    assert data.prototype("a").dtype == np.float32
    assert data.prototype("a").shape == (5,)
    data.check("a", ndim=1, kind="f")
    with pytest.raises(DataShapeError, match="signed integer"):
        data.check("a", kind="i")
    with pytest.raises(DataMissingError, match="cannot be opened any more"):
        data.rows(0, 1)


@pytest.mark.parametrize("how", ["grown", "shrunk", "same size"])
def test_a_file_that_changes_is_no_data(folder: Path, how: str, tmp_path: Path) -> None:
    source = sorted(folder.glob("part*"))[4]
    file = tmp_path / source.name
    file.write_bytes(source.read_bytes())
    data = load(tmp_path, fields=("a",))
    content = file.read_bytes()
    file.write_bytes(
        {"grown": content + b"1,1\n", "shrunk": content[:-5], "same size": content[::-1]}[how]
    )
    with pytest.raises(DataMissingError, match="has changed since") as error:
        data.rows(0, 14)
    assert error.value.where == str(file.resolve())


def test_every_file_that_is_cut_short_says_so(folder: Path, tmp_path: Path) -> None:
    source = sorted(folder.glob("part*"))[4]
    content = source.read_bytes()
    if source.suffix == ".csv":
        pytest.skip("a text that ends early is a shorter text")
    file = tmp_path / source.name
    for length in range(1, len(content), max(1, len(content) // 40)):
        file.write_bytes(content[:length])
        with pytest.raises(DataError, match=r"damaged|cut short") as error:
            load(file, fields=("a", "w"))
        assert str(file) in error.value.where


def test_a_damaged_piece_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    table = pa.table({"a": np.random.default_rng(1).normal(size=4000)})
    options = {"write_page_checksum": True, "use_dictionary": False}
    parquet.write_table(table, file, row_group_size=1000, **options)
    group = parquet.read_metadata(file).row_group(2).column(0)
    content = bytearray(file.read_bytes())
    content[group.data_page_offset + group.total_compressed_size // 2] ^= 0xFF
    file.write_bytes(content)
    data = load(file, fields=["a"])
    assert len(data.rows(0, 2000)["a"]) == 2000
    with pytest.raises(DataValueError, match="damaged") as error:
        data.rows(0, 4000)
    assert error.value.where == f"{file.resolve()}, row group 2"


def test_a_bad_cell_of_a_large_text_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("sapwood.data.formats.csv.BLOCK_BYTES", 100)
    for number, bad in ((0, ""), (1, "x")):
        lines = [f"{row},{row}" for row in range(100)]
        lines[57] = f"57,{bad or 57}"
        (tmp_path / f"{number}.csv").write_text("a,b\n\n" + "\n".join(lines))
    data = load(tmp_path, fields=("a", "b"))
    assert len(data.rows(0, 140)["b"]) == 140
    with pytest.raises(DataValueError, match=r"column 2 \('b'\) is not a number: 'x'") as error:
        data.rows(150, 160)
    assert error.value.where == f"{tmp_path.resolve()}/1.csv:60"
    (tmp_path / "1.csv").write_text("a,b\n1,2\n1,2,3\n")
    with pytest.raises(DataShapeError, match="3 cells where 2") as ragged:
        load(tmp_path, fields=("a",))["a"]
    assert ragged.value.where.endswith("1.csv:3")


def test_nulls_are_nan_or_an_error(tmp_path: Path) -> None:
    table = pa.table({"a": [1.5, None, 2.5], "n": pa.array([1, None, 3], pa.int64())})
    parquet.write_table(table, tmp_path / "a.parquet")
    data = load(tmp_path / "a.parquet", fields=("a",))
    assert np.isnan(data["a"]).tolist() == [False, True, False]
    with pytest.raises(DataValueError, match="field 'a' is nan in row 1"):
        data.require_finite()
    with pytest.raises(DataValueError, match="'n' has 1 nulls, the first in row 1") as error:
        load(tmp_path / "a.parquet", fields=("n",))["n"]
    assert "fill_null" in error.value.hint


@pytest.mark.parametrize(
    ("values", "hint"),
    [
        (["a", "b"], "dictionary_encode"),
        (pa.array(["a", "b"]).dictionary_encode(), "indices"),
        (pa.array([1, 2], pa.timestamp("us")), "int64"),
        (pa.array([[1], [2, 3]]), "fixed size"),
        (pa.array([{"x": 1}, {"x": 2}]), "leave it out"),
    ],
)
def test_what_is_no_number_is_refused(tmp_path: Path, values: Any, hint: str) -> None:
    parquet.write_table(pa.table({"a": [1.0, 2.0], "s": values}), tmp_path / "a.parquet")
    with pytest.raises(DataShapeError, match="column 's' is of the Arrow type") as error:
        load(tmp_path / "a.parquet", fields=["points"])
    assert hint in error.value.hint
    assert load(tmp_path / "a.parquet", fields=["a"])["a"].tolist() == [1, 2]


def test_types_of_columns(tmp_path: Path) -> None:
    values = {
        "b": pa.array([True, False, True]),
        "i": pa.array([1, 2, 3], pa.uint16()),
        "h": pa.array(np.array([1, 2, 3], "f2")),
        "v": pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32(), 2)),
    }
    for name in ("a.parquet", "a.feather"):
        write_one = parquet.write_table if name.endswith("parquet") else feather.write_feather
        write_one(pa.table(values), str(tmp_path / name))
        data = load(tmp_path / name, fields=tuple(values))
        assert [str(data[f].dtype) for f in values] == ["bool", "uint16", "float16", "float32"]
        assert data.rows(1, 3)["v"].tolist() == [[3, 4], [5, 6]]
        assert load(tmp_path / name, fields=["p"], columns=["v"])["p"].shape == (3, 2)
        with pytest.raises(DataShapeError, match="several numbers a row"):
            load(tmp_path / name, fields=["p"])


def test_files_of_different_kinds_or_columns_are_no_dataset(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 0, 5)
    write(tmp_path / "b.csv", 0, 5)
    with pytest.raises(DataShapeError, match="different kinds: csv, parquet"):
        load(tmp_path)
    (tmp_path / "b.csv").unlink()
    parquet.write_table(pa.table({"a": [0.5], "w": [0.5]}), tmp_path / "b.parquet")
    with pytest.raises(DataShapeError, match="column 'a' is float64 here, and int64 in") as error:
        load(tmp_path, fields=("a", "w"))
    assert error.value.where.endswith("b.parquet")
    (tmp_path / "c.txt").touch()
    with pytest.raises(DataMissingError, match="cannot be read in pieces"):
        load(tmp_path)
    with pytest.raises(DataMissingError, match="no files match"):
        load(f"{tmp_path}/*.npy")


def test_arrays_and_pictures(tmp_path: Path) -> None:
    arrays, pictures = tmp_path / "arrays", tmp_path / "pictures"
    arrays.mkdir()
    pictures.mkdir()
    whole = np.arange(60, dtype=">i4").reshape(20, 3)
    np.save(arrays / "0.npy", whole[:7])
    np.save(arrays / "1.npy", whole[7:])
    data = load(arrays, fields=["x"])
    assert data["x"].tolist() == whole.tolist()
    assert data["x"].dtype.isnative
    np.save(arrays / "2.npy", np.zeros((2, 4), ">i4"))
    with pytest.raises(DataShapeError, match=r"is int32\[4\] here, and int32\[3\] in"):
        load(arrays)
    pixels = np.random.default_rng(2).integers(0, 255, (6, 5, 3), dtype=np.uint8)
    for number in range(3):
        Image.fromarray(pixels[: 2 + number]).save(pictures / f"{number}.png")
    seen = load(pictures, fields=["pixels"])
    expected = np.concatenate([pixels[:n].reshape(-1, 3) for n in (2, 3, 4)])
    assert (seen["pixels"] == expected).all()
    assert seen.meta["file_rows"] == (10, 15, 20)


def test_the_fingerprint_knows_files_and_not_who_looks(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 0, 10)
    first = load(tmp_path / "a.parquet", fields=("a",)).fingerprint()
    assert load(tmp_path / "a.parquet", fields=("a",)).fingerprint() == first
    write(tmp_path / "a.parquet", 1, 10)
    assert load(tmp_path / "a.parquet", fields=("a",)).fingerprint() != first


def test_columns_of_what_is_no_table(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(DataShapeError, match="the file names none"):
        load(tmp_path / "a.npy", columns=["a"])
    with pytest.raises(DataShapeError, match="are not a table"):
        load(np.zeros(3), columns=["a"])
    with pytest.raises(DataShapeError, match="is the text"):
        load(tmp_path / "a.npy", columns="a")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_of_blanks_in_a_text_are_none(tmp_path: Path, end: str) -> None:
    rows = ["a,b", "1,2", "  ", '"3",4', "", "\t", "5,6"]
    (tmp_path / "one.csv").write_bytes(end.join(rows).encode())
    data = load(str(tmp_path / "*.csv"), fields=["b"])
    assert data.array("b").tolist() == [2.0, 4.0, 6.0]


def test_a_cell_behind_lines_of_blanks_is_named(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("a,b\n1,2\n  \n3,x\n")
    data = load(str(tmp_path / "*.csv"), fields=["b"])
    with pytest.raises(DataValueError, match="not a number: 'x'") as caught:
        data.array("b")
    assert caught.value.where == f"{tmp_path / 'one.csv'}:4"
