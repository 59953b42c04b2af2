from pathlib import Path

import numpy as np
import pytest

from sapwood.core.errors import DataShapeError, DataValueError
from sapwood.data import load

X = np.arange(12.0).reshape(6, 2)
Y = np.arange(6) % 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "both.npz"
    np.savez(path, x=X, y=Y, other=np.ones(3))
    return path


def test_each_wanted_array_is_a_field(path: Path) -> None:
    data = load(path, fields=("x", "y"))
    assert data.fields == ("x", "y")
    assert data.length == 6
    assert np.array_equal(data["x"], X)
    assert np.array_equal(data["y"], Y)


def test_a_single_array_needs_no_name(tmp_path: Path) -> None:
    path = tmp_path / "one.npz"
    np.savez_compressed(path, X)
    assert np.array_equal(load(path)["data"], X)


def test_an_array_that_is_missing_is_named(path: Path) -> None:
    with pytest.raises(DataShapeError, match="no array 'othr'") as caught:
        load(path, fields=("x", "othr"))
    assert "did you mean 'other'" in caught.value.hint


def test_arrays_of_different_lengths_are_refused(path: Path) -> None:
    with pytest.raises(DataShapeError, match="x 6, other 3"):
        load(path, fields=("x", "other"))


def test_objects_are_refused_and_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, data=np.array([{"a": 1}], object))
    with pytest.raises(DataShapeError, match="Python objects"):
        load(path)


def test_a_file_that_was_cut_short_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for length in (3, 100, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(DataValueError, match="damaged or cut short"):
            load(path, fields=("x", "y"))
