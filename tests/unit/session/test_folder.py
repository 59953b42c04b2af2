from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from sapwood.core.errors import ResourceError
from sapwood.session import folder as module
from sapwood.session.folder import make_folder


@pytest.fixture(autouse=True)
def _places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHORT", (str(tmp_path / "last"),))
    (tmp_path / "last").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")


def _temporary(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setattr(tempfile, "tempdir", place)


def test_the_runtime_folder_is_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made = make_folder()
    assert made.parent == tmp_path
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    made.rmdir()


def test_the_temporary_folder_is_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    _temporary(monkeypatch, str(tmp_path))
    made = make_folder()
    made.rmdir()
    assert made.parent == tmp_path


@pytest.mark.parametrize("name", ["x" * 100, os.fsdecode(b"odd\xff")])
def test_a_place_that_is_no_place_for_sockets_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).mkdir()
    _temporary(monkeypatch, str(tmp_path / name))
    made = make_folder()
    made.rmdir()
    assert made.parent == tmp_path / "last"
    assert not list((tmp_path / name).iterdir())


def test_where_there_is_none_all_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "last").rmdir()
    _temporary(monkeypatch, str(tmp_path / ("x" * 100)))
    with pytest.raises(ResourceError, match="no folder for the sockets") as caught:
        make_folder()
    assert "longer than 80 bytes" in caught.value.details["tried"]
    assert "No such file" in caught.value.details["tried"]
