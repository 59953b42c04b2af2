"""References to content, and where it lies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sapwood.content.refs import ContentFolder, ContentRef, FileStamp, checked_sha256
from sapwood.core.errors import ProtocolError

SHA256 = "5" * 64


def test_a_file_is_here_while_it_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    stamp = FileStamp.of(os.fsencode(path))
    assert stamp.is_here()
    os.utime(path, ns=(1, 1))
    assert not stamp.is_here()
    path.unlink()
    assert not stamp.is_here()
    assert not FileStamp(b"null\0byte", 3, 1).is_here()


def test_names_of_files_need_not_be_text(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff"
    Path(os.fsdecode(path)).write_bytes(b"abc")
    assert FileStamp.of(path).is_here()


@pytest.mark.parametrize("wrong", ["", "5" * 63, "5" * 65, "../" + "5" * 61, "A" * 64, "٣" * 64])
def test_a_hash_is_nothing_else_than_a_name_in_the_folder(wrong: str) -> None:
    with pytest.raises(ProtocolError):
        checked_sha256(wrong)


def test_what_is_seen_is_used_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "library"
    path.write_bytes(b"abc")
    ref = ContentRef(SHA256, 3, FileStamp.of(os.fsencode(path)))
    folder = ContentFolder("/content")
    assert folder.locate(ref) == os.fsencode(path)
    path.unlink()
    assert folder.locate(ref) == os.fsencode(f"/content/{SHA256}")
    assert ContentFolder().locate(ref) == os.fsencode(path)
    nameless = ContentRef("", 3, ref.file)
    assert folder.locate(nameless) == os.fsencode(path)
