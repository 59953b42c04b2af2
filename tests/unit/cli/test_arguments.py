from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.cli.arguments import output_path, parameters
from sapwood.core.errors import InputError, ParameterError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("16", 16),
        ("-2", -2),
        ("1e-3", 1e-3),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ("random", "random"),
        ('"16"', "16"),
        ("", ""),
        ("a=b", "a=b"),
        ("2020-01-01", "2020-01-01"),
        ("1\nother = 2", "1\nother = 2"),
    ],
)
def test_values(text: str, value: object) -> None:
    read = parameters([f"name={text}"])["name"]
    assert read == value
    assert type(read) is type(value)


@given(st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False))
def test_numbers_come_back(number: float) -> None:
    assert parameters([f"x={number!r}"])["x"] == number


@pytest.mark.parametrize("text", ["colours", "=3", ""])
def test_not_an_assignment(text: str) -> None:
    with pytest.raises(ParameterError) as caught:
        parameters([text])
    assert "name=value" in caught.value.hint


def test_twice() -> None:
    with pytest.raises(ParameterError, match="twice"):
        parameters(["a=1", "a=2"])


def test_output_path(tmp_path: Path) -> None:
    assert output_path(None) is None
    assert output_path(tmp_path / "new.png") == tmp_path / "new.png"
    with pytest.raises(InputError, match="is a folder"):
        output_path(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        output_path(tmp_path / "missing" / "new.png")


def test_output_path_that_may_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root may write everywhere, so permissions alone would not show it.
    monkeypatch.setattr("os.access", lambda *_args: False)
    with pytest.raises(InputError, match="cannot be written"):
        output_path(tmp_path / "new.png")
