from __future__ import annotations

from pathlib import Path

import pytest

from sapwood.cli.completion import programs


@pytest.fixture(autouse=True)
def _tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("examples/pi", "examples/quantize", "pictures", ".hidden"):
        (tmp_path / folder).mkdir(parents=True)
    for folder in ("examples/pi", "examples/quantize", ".hidden"):
        (tmp_path / folder / "program.toml").touch()
    (tmp_path / "moments.py").touch()
    (tmp_path / "notes.txt").touch()


def test_programs_files_and_folders_on_the_way() -> None:
    assert programs("") == ["examples/", "moments.py"]


def test_inside_a_folder() -> None:
    assert programs("examples/") == ["examples/pi", "examples/quantize"]
    assert programs("examples/q") == ["examples/quantize"]


def test_what_is_not_there() -> None:
    assert programs("nowhere/x") == []
