import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sapwood.core.errors import DataMissingError, DataShapeError, DataValueError
from sapwood.data import load
from sapwood.data.sources import check_source


def test_an_array_gets_the_name_that_is_wanted() -> None:
    data = load(np.arange(6.0).reshape(3, 2), fields=["points"])
    assert data.fields == ("points",)
    assert data.length == len(data) == 3
    assert data["points"].tolist() == [[0, 1], [2, 3], [4, 5]]


def test_a_dictionary_keeps_its_names_and_order() -> None:
    data = load({"y": [1, 2], "x": np.zeros((2, 3))}, fields=["other"])
    assert data.fields == ("y", "x")
    assert data["y"].tolist() == [1, 2]


def test_lists_become_arrays() -> None:
    assert load([[1, 2], [3, 4]])["data"].shape == (2, 2)


def test_a_range_has_indices_and_no_fields() -> None:
    data = load(range(10, 25))
    assert (data.fields, data.length, data.items) == ((), 15, range(10, 25))
    assert data.split(2) == [range(10, 18), range(18, 25)]


def test_a_dataset_is_returned_as_it_is() -> None:
    data = load({"x": [1.0]})
    assert load(data, fields=["other"]) is data


def test_a_dataset_without_own_names_takes_the_one_that_is_wanted() -> None:
    data = load(load(np.ones(3)), fields=["points"])
    assert data.fields == ("points",)


def test_not_finite_values_of_records_are_found() -> None:
    records = np.zeros(3, [("id", "i4"), ("place", [("x", "f8"), ("y", "f8")])])
    records["place"]["y"][1] = np.nan
    with pytest.raises(DataValueError, match="1 NaN; the first at row 1") as caught:
        load(records).require_finite()
    assert caught.value.where.endswith("place, y")


def test_what_cannot_be_used_is_refused() -> None:
    cases: list[tuple[Any, str]] = [
        (np.zeros((0, 3)), "empty"),
        (np.zeros((3, 0)), "empty"),
        (np.float64(3.0), "single value"),
        (np.array([object()]), "Python objects"),
        ([[1, 2], [3]], "different lengths"),
        (np.ma.masked_array([1.0, 2.0], [True, False]), "masked"),
        ({}, "no arrays"),
        ({"a b": [1]}, "cannot name a field"),
        ({1: [1]}, "cannot name a field"),
        ({"x": [1, 2], "y": [1]}, "x 2, y 1"),
        (range(0), "empty"),
        (range(5, 2), "empty"),
        (range(0, 10, 2), "step 2"),
    ]
    for source, text in cases:
        with pytest.raises(DataShapeError, match=text) as caught:
            load(source)
        assert caught.value.hint


def test_one_array_is_not_enough_for_two_fields() -> None:
    with pytest.raises(DataShapeError, match="2 fields are wanted"):
        load(np.ones(3), fields=["x", "y"])


def test_a_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    np.save(tmp_path / "points.npy", np.ones(2))
    with pytest.raises(DataMissingError, match=r"did you mean 'points\.npy'"):
        load(tmp_path / "ponits.npy")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataMissingError, match=r"folder .*nowhere does not exist"):
        load(tmp_path / "nowhere" / "a.npy")


def test_a_folder_is_no_data_file(tmp_path: Path) -> None:
    with pytest.raises(DataMissingError, match="folder"):
        load(tmp_path)


def test_a_pipe_is_no_data_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.npy")
    with pytest.raises(DataMissingError, match="regular file"):
        load(tmp_path / "a.npy")


def test_an_unknown_suffix_lists_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "a.xyz").write_text("1")
    with pytest.raises(
        DataMissingError, match=r"'\.xyz' cannot be read.*\.npy, \.npz, \.csv, \.png"
    ):
        load(tmp_path / "a.xyz")


def test_an_empty_file_is_said_to_be_empty(tmp_path: Path) -> None:
    (tmp_path / "a.npy").touch()
    with pytest.raises(DataShapeError, match="empty"):
        load(tmp_path / "a.npy")


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.ones(2))

    def refuse(*_args: object, **_options: object) -> None:
        raise PermissionError(13, "Permission denied")

    # Permissions do not bind the superuser, as whom tests may run.
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataMissingError, match="Permission denied"):
        load(path)


def test_a_path_is_taken_relative_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "a.npy", np.ones(2))
    monkeypatch.chdir(tmp_path)
    data = load("a.npy")
    assert data.origin == "a.npy"
    monkeypatch.chdir("/")
    with data.publish() as published:
        place = published.ref(0, 2).fields[0].place
    assert str(tmp_path / "a.npy") in repr(place)


@pytest.mark.parametrize(
    "items", [range(10**23), range(10**30, 10**30 + 5), range(-(2**64), 0), range(2**63)]
)
def test_a_range_beyond_64_bits_is_too_large(items: range) -> None:
    with pytest.raises(DataShapeError, match="the range is too large") as caught:
        load(items)
    assert caught.value.where == repr(items)


def test_sources_are_checked_without_being_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("not a number\n")
    (tmp_path / "b.parquet").write_bytes(b"damaged")
    for found in (tmp_path / "a.csv", tmp_path / "*.parquet", "https://example.org/none.csv"):
        check_source(str(found))
    with pytest.raises(DataMissingError, match="there is no such file"):
        check_source(str(tmp_path / "c.csv"))
    with pytest.raises(DataMissingError, match="no files match"):
        check_source(str(tmp_path / "*.arrow"))
    with pytest.raises(DataShapeError, match="of different kinds"):
        check_source(str(tmp_path))
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(DataShapeError, match="the file is empty"):
        check_source(f"file://{tmp_path}/a.csv")
