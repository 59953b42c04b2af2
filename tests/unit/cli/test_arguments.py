from __future__ import annotations

from pathlib import Path

import pytest

from sapwood.cli.arguments import output_path, parameters
from sapwood.core.errors import InputError, ParameterError


def test_values_stay_text() -> None:
    assert parameters(["colours=16", "title=a=b", "empty="]) == {
        "colours": "16",
        "title": "a=b",
        "empty": "",
    }


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
