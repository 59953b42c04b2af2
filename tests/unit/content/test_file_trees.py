"""The list of a tree of files is one message."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sapwood.comm import plain
from sapwood.content import file_trees
from sapwood.content.file_trees import FileEntry, FileTree, read_tree
from sapwood.core.errors import InputError


def test_a_list_within_the_bound_fits_into_a_message() -> None:
    entry = FileEntry(b"p" * 255, nbytes=2**63 - 1, sha256="f" * 64, executable=True, target=b"t")
    size = file_trees.ENTRY_COST + len(entry.path) + len(entry.target)
    tree = FileTree("n" * 255, [entry] * (file_trees.MAX_LISTED // size))
    assert len(msgspec.msgpack.encode(tree)) <= file_trees.MAX_LISTED < plain.MAX_BODY


def test_a_tree_with_too_long_paths_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_trees, "MAX_LISTED", 2000)
    folder = tmp_path / ("d" * 100)
    folder.mkdir()
    for number in range(5):
        (folder / str(number)).touch()
    assert len(read_tree(folder).entries) == 6
    for number in range(5, 15):
        (folder / str(number)).touch()
    with pytest.raises(InputError, match="too long paths"):
        read_tree(folder)
