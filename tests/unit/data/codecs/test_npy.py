from pathlib import Path

import numpy as np
import pytest

from sapwood.core.errors import DataShapeError, DataValueError
from sapwood.data import load


def test_a_file_is_mapped_and_not_read(tmp_path: Path) -> None:
    # Sparse: 8 GiB of zeros that take no disk and would not all fit into some test machines.
    path = tmp_path / "large.npy"
    np.lib.format.open_memmap(path, "w+", np.float64, (2**20, 1024))
    data = load(path)
    assert (data.length, data.nbytes) == (2**20, 2**33)
    assert data["data"][2**20 - 1, 5] == 0


def test_what_is_no_array_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_text("1,2\n3,4\n")
    with pytest.raises(DataValueError, match="not a numpy array"):
        load(path)


def test_a_file_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.ones(1000))
    whole = path.read_bytes()
    for length in (7, 20, 100, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(DataValueError, match="damaged or cut short"):
            load(path)


def test_objects_are_refused_and_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(DataShapeError, match="Python objects"):
        load(path)


@pytest.mark.parametrize(
    ("array", "text"), [(np.zeros((0, 3)), "empty"), (np.float64(1), "single")]
)
def test_files_without_items_are_refused(
    tmp_path: Path, array: np.ndarray[tuple[int, ...], np.dtype[np.float64]], text: str
) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(DataShapeError, match=text):
        load(tmp_path / "a.npy")
