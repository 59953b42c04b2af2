"""The folder of a head, with what others may have put there."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from sapwood.core.errors import NodeLostError, SecurityError
from sapwood.environment.folders import make_private
from sapwood.head.folder import (
    HeadInfo,
    find_head,
    head_folder,
    remove_left_sockets,
    write_info,
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = head_folder("default")
    made.mkdir(parents=True)
    return made


@pytest.mark.parametrize("said", [b"", b"{}", b"\xff\xfe", b'{"host": 1}', b"[" * 5000])
def test_what_no_head_has_written_is_an_error_that_says_what_to_do(
    folder: Path, said: bytes
) -> None:
    (folder / "head.json").write_bytes(said)
    with pytest.raises(NodeLostError, match="cannot read where the head is") as caught:
        find_head()
    assert "remove that file" in caught.value.hint
    remove_left_sockets(folder)


def test_only_sockets_of_a_former_head_are_removed(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "sapwood-data"
    data.mkdir()
    (data / "precious").touch()
    info = {"host": socket.gethostname(), "pid": 1, "socket": str(data / "head.sock")}
    (folder / "head.json").write_text(json.dumps(info))
    remove_left_sockets(folder)
    assert (data / "precious").exists()
    left = tmp_path / "sapwood-left"
    left.mkdir()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(left / "head.sock"))
    info["socket"] = str(left / "head.sock")
    (folder / "head.json").write_text(json.dumps(info))
    remove_left_sockets(folder)
    assert not left.exists()


@pytest.mark.parametrize("above", [0, 1, 2], ids=["lab", "heads", "sapwood"])
def test_a_head_is_not_looked_for_where_others_may_write(
    above: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They could put another folder there, with their own socket."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = make_private(head_folder("lab"))
    [folder, *folder.parents][above].chmod(0o777)
    with pytest.raises(SecurityError, match="other users may write to the folder"):
        find_head("lab")


def test_several_clusters_that_are_up_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name in ("lab", "nw"):
        write_info(head_folder(name), HeadInfo(socket.gethostname(), os.getpid(), ""))
    with pytest.raises(NodeLostError, match="several clusters are up here: lab, nw") as caught:
        find_head()
    assert "--cluster lab" in caught.value.hint
