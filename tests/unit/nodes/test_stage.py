"""The folder of a node's staged files: one daemon has it, and its next life has the same."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from sapwood.content import messages as sm
from sapwood.content.file_trees import FileEntry, FileTree
from sapwood.content.refs import CHUNK
from sapwood.core.errors import InputError, ProtocolError
from sapwood.nodes import messages
from sapwood.nodes.stage import NodeStage, StageFolder
from sapwood.security.authority import Authority


def test_a_folder_is_one_daemons_and_then_the_next_ones(tmp_path: Path) -> None:
    authority, other = Authority.create("a").certificate, Authority.create("b").certificate
    first = StageFolder(str(tmp_path), authority, "n1")
    second = StageFolder(str(tmp_path), authority, "n1")  # another node of the same name
    third = StageFolder(str(tmp_path), authority, "n/../2")
    fourth = StageFolder(str(tmp_path), other, "n1")
    paths = [one.path for one in (first, second, third, fourth)]
    assert len(set(paths)) == 4
    assert {one.parent for one in paths} == {tmp_path}
    first.close()
    again = StageFolder(str(tmp_path), authority, "n1")
    assert again.path == first.path
    for one in (second, third, fourth, again):
        one.close()


def test_it_is_in_the_cache_folder_unless_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = StageFolder("", Authority.create("a").certificate, "n1")
    assert made.path.parent == tmp_path / "sapwood" / "stage"
    made.close()


def test_a_folder_that_cannot_be_made_does_not_end_the_daemon(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    made = StageFolder(str(tmp_path / "file"), Authority.create("a").certificate, "n1")
    assert made.path.parent == tmp_path / "file"
    made.close()


@pytest.mark.parametrize(("nbytes", "offset"), [(60 * 2**20, 0), (CHUNK + 1, 0), (-1, 0), (1, -1)])
def test_a_piece_has_a_bound(nbytes: int, offset: int) -> None:
    value = messages.to_value(sm.ReadPiece("/dev/zero", b"zero", offset, nbytes))
    stage: Any = SimpleNamespace()
    with pytest.raises(ProtocolError):
        NodeStage._read(stage, value)


def test_a_piece_within_the_bound_is_read(tmp_path: Path) -> None:
    (tmp_path / "zeros").write_bytes(bytes(CHUNK + 1))
    value = messages.to_value(sm.ReadPiece(str(tmp_path / "zeros"), b"zeros", 0, CHUNK))
    stage: Any = SimpleNamespace()
    assert NodeStage._read(stage, value) == bytes(CHUNK)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    """To open a pipe without a writer would stop the thread that answers all requests."""
    os.mkfifo(tmp_path / "pipe")
    stage: Any = SimpleNamespace()
    for path in ("/dev/zero", str(tmp_path / "pipe"), str(tmp_path)):
        value = messages.to_value(sm.ReadPiece(path, b"x", 0, 1))
        with pytest.raises(InputError, match="not a regular file"):
            NodeStage._read(stage, value)


MALFORMED = [
    sm.StagePiece("0" * 64, -5, 0, b""),
    sm.StagePiece("0" * 64, 5, -5, b""),
    sm.StagePiece("0" * 64, 2**63, 0, b""),
    sm.MissingPart("0" * 64, -5),
    sm.MissingPart("0" * 64, 5, -1),
    FileEntry(b"x", nbytes=-5, sha256="0" * 64),
    sm.FetchContent("d", "a", [sm.MissingPart("0" * 64, -5)]),
]


@pytest.mark.parametrize("message", MALFORMED, ids=repr)
def test_sizes_of_peers_are_checked(message: msgspec.Struct) -> None:
    with pytest.raises(ProtocolError, match=type(message).__name__):
        messages.from_value(messages.to_value(message), type(message))


def test_sizes_of_a_tree_are_checked_together() -> None:
    entries = [FileEntry(b"x", "folder")]
    entries += [FileEntry(b"x/%d" % one, nbytes=2**62, sha256="0" * 64) for one in (1, 2)]
    with pytest.raises(ProtocolError, match="sizes"):
        FileTree("x", entries).check()
