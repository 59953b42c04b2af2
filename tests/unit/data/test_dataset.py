import os
from pathlib import Path

import numpy as np
import pytest

from sapwood.core.errors import DataShapeError, DataValueError
from sapwood.data import load


def test_a_misspelt_field_suggests_the_right_one() -> None:
    with pytest.raises(DataShapeError, match="did you mean 'points'"):
        load({"points": [1.0], "weights": [2.0]})["pionts"]


def test_arrays_are_read_only_and_the_source_stays_writable() -> None:
    source = np.ones(3)
    data = load(source)
    with pytest.raises(ValueError, match="read-only"):
        data["data"][0] = 5
    source[0] = 2


def test_require_returns_what_fits() -> None:
    data = load(np.ones((4, 3), np.float32))
    assert data.require("data", ndim=2, kind="f", columns=3).shape == (4, 3)


def test_require_says_what_does_not_fit() -> None:
    data = load({"flat": np.arange(4), "table": np.ones((4, 3))})
    with pytest.raises(DataShapeError, match=r"2 dimensions is expected.*\(4,\).*reshape\(-1, 1\)"):
        data.require("flat", ndim=2)
    with pytest.raises(DataShapeError, match=r"floating-point numbers are expected.*int64"):
        data.require("flat", kind="f")
    with pytest.raises(DataShapeError, match=r"items of 2 numbers.*\(4, 3\)"):
        data.require("table", columns=2)


def test_values_that_are_not_finite_are_counted_and_located() -> None:
    table = np.zeros((2000, 1000))  # more than one block
    table[1500, 7] = np.nan
    table[1999, 0] = np.inf
    table[1999, 1] = -np.inf
    with pytest.raises(DataValueError, match=r"1 NaN and 2 infinite.*row 1500, column 7"):
        load({"x": np.arange(2000), "table": table}).require_finite()


def test_finite_values_and_whole_numbers_pass() -> None:
    load({"x": [1, 2], "y": [0.5, 1.5], "z": [1j, 2]}).require_finite()
    load({"x": [1.0], "y": [np.nan]}).require_finite(["x"])


def test_a_sample_is_different_rows_and_the_same_for_the_same_seed() -> None:
    data = load({"x": np.arange(100), "y": np.arange(100) * 2})
    drawn = data.sample(40, seed=1)
    assert len(set(drawn["x"].tolist())) == 40
    assert (drawn["y"] == drawn["x"] * 2).all()
    assert (data.sample(40, seed=1)["x"] == drawn["x"]).all()
    assert (data.sample(40, seed=2)["x"] != drawn["x"]).any()


def test_a_sample_of_everything_is_everything() -> None:
    drawn = load(np.arange(10)).sample(10, seed=0)
    assert sorted(drawn["data"].tolist()) == list(range(10))


def test_a_sample_that_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(DataShapeError, match="11 different items out of 10"):
        load(np.arange(10)).sample(11, seed=0)
    with pytest.raises(DataShapeError, match="range"):
        load(range(10)).sample(1, seed=0)


def test_the_texts_tell_length_fields_bytes_and_origin(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((5, 3), np.float32))
    data = load(tmp_path / "a.npy", fields=["points"])
    assert repr(data) == (
        f"<Dataset 5 items, points: float32[3], 60 bytes, from {tmp_path / 'a.npy'}>"
    )
    page = data._repr_html_()
    assert "5 items, 60 bytes" in page
    assert "<td>points</td><td>float32</td><td>[3]</td>" in page


def test_html_from_the_outside_is_escaped(tmp_path: Path) -> None:
    folder = tmp_path / "<b>"
    folder.mkdir()
    np.save(folder / "a.npy", np.zeros(2))
    assert "<b>/" not in load(folder / "a.npy")._repr_html_()


def test_data_have_another_fingerprint_when_they_are_others(tmp_path: Path) -> None:
    whole = np.arange(6.0)
    known = load(whole).fingerprint()
    assert load(whole.copy()).fingerprint() == known
    others = (whole[::-1], whole.astype(np.float32), whole[:5], whole.reshape(3, 2), {"x": whole})
    assert known not in {load(one).fingerprint() for one in others}
    file = tmp_path / "data.npy"
    np.save(file, whole)
    data = load(file)
    assert data.hashed_bytes == 0  # it counts by its size and the time of its last change
    os.utime(file, ns=(1, 1))
    assert load(file).fingerprint() != data.fingerprint()
