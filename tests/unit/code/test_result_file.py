from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sapwood.code.result_file import write_result
from sapwood.core.errors import ProgramError


def test_json_holds_arrays_as_lists(tmp_path: Path) -> None:
    write_result({"a": np.eye(2), "n": np.int64(3)}, tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text()) == {"a": [[1, 0], [0, 1]], "n": 3}


def test_npy_holds_one_array(tmp_path: Path) -> None:
    write_result(np.arange(4), tmp_path / "r.npy")
    assert np.load(tmp_path / "r.npy").tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("result", "name"),
    [([1], "r.npz"), ({"a": object()}, "r.npz"), ({"a": object()}, "r.json"), (object(), "r.npy")],
)
def test_a_result_that_does_not_fit_is_an_error(tmp_path: Path, result: Any, name: str) -> None:
    with pytest.raises(ProgramError, match="does not fit"):
        write_result(result, tmp_path / name)


def test_an_unknown_suffix_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ProgramError) as caught:
        write_result(1, tmp_path / "r.png")
    assert ".json" in caught.value.hint
