from __future__ import annotations

import os
import signal
import socket
import stat
import tempfile
from pathlib import Path

import pytest

from sapwood.core.errors import ResourceError
from sapwood.environment.folders import SOCKET_FOLDER
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


def _made_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, alive: bool) -> Path:
    """A folder that another process has made, with a socket that has its name there."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    other = os.fork()
    if not other:
        signal.pause()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: other)
        made = make_folder()
    if not alive:
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)
    return made


@pytest.mark.row("C1-BOOT-1")
@pytest.mark.slow
def test_what_killed_processes_have_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = _made_by_another(tmp_path, monkeypatch, alive=False)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(left / "0.sock"))
        listening.listen()
        make_folder().rmdir()
        assert left.exists()  # a process of the session still uses it
    make_folder().rmdir()
    assert not left.exists()


@pytest.mark.slow
def test_what_others_have_put_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = _made_by_another(tmp_path, monkeypatch, alive=False)
    (left / "file").touch()
    make_folder().rmdir()
    assert left.exists()


@pytest.mark.slow
def test_folders_of_those_that_live_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _made_by_another(tmp_path, monkeypatch, alive=True)
    other = int(made.name.removeprefix(SOCKET_FOLDER)[:6], 16)
    try:
        make_folder().rmdir()
        assert made.exists()
    finally:
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)


def test_a_place_where_others_could_replace_sockets_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o777)
    made = make_folder()
    assert made.parent != tmp_path
    made.rmdir()
    tmp_path.chmod(0o1777)  # with the sticky bit, only its owner renames a folder
    made = make_folder()
    assert made.parent == tmp_path
    made.rmdir()
