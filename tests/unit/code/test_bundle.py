from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.code import bundle as module
from sapwood.code.bundle import Bundle, digest, native_files, with_sources
from sapwood.core.errors import ProgramError

PARTS = st.lists(st.tuples(st.text(max_size=4), st.binary(max_size=4)), max_size=4)


@given(PARTS, PARTS)
@pytest.mark.slow
def test_only_equal_lists_of_parts_have_the_same_digest(
    a: list[tuple[str, bytes]], b: list[tuple[str, bytes]]
) -> None:
    assert (digest(a) == digest(b)) == (a == b)


def bundle_in(folder: Path, *sources: str) -> Bundle:
    return with_sources(Bundle(origin=str(folder)), sources, folder=folder, named_by="test")


def test_local_headers_come_along_and_count(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.c").write_text('#include <stdio.h>\n#include "sub/b.h"\n  # include "none.h"\n')
    (tmp_path / "sub" / "b.h").write_text('#include "../c.h"\n')
    (tmp_path / "c.h").write_text("int x;\n")
    before = bundle_in(tmp_path, "a.c")
    assert sorted(before.files) == ["a.c", "c.h", "sub/b.h"]
    (tmp_path / "c.h").write_text("int y;\n")
    assert bundle_in(tmp_path, "a.c").hash != before.hash


def test_the_folder_does_not_count(tmp_path: Path) -> None:
    hashes = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.c").write_text("int a;\n")
        hashes.add(bundle_in(tmp_path / name, "a.c").hash)
    assert len(hashes) == 1


def test_a_missing_source_names_the_nearest_file(tmp_path: Path) -> None:
    (tmp_path / "assign.c").touch()
    with pytest.raises(ProgramError) as caught:
        bundle_in(tmp_path, "asign.c")
    assert "assign.c" in caught.value.hint


def test_native_files_are_sources_and_their_headers_only() -> None:
    files = {"p.py": b"", "a.c": b'#include "a.h"\n', "a.h": b"", "program.toml": b""}
    bundle = Bundle(origin="/", sources=("a.c",), files=files)
    assert sorted(native_files(bundle)) == ["a.c", "a.h"]
    assert sorted(bundle.without(native_files(bundle)).files) == ["p.py", "program.toml"]


def test_a_bundle_has_a_size_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BUNDLE_BYTES", 10)
    (tmp_path / "a.c").write_text("int abcdefgh;\n")
    with pytest.raises(ProgramError, match="MiB"):
        bundle_in(tmp_path, "a.c")


def test_an_absolute_source_is_refused_and_an_absolute_header_left_to_the_compiler(
    tmp_path: Path,
) -> None:
    header = tmp_path / "own.h"
    header.touch()
    source = tmp_path / "a.c"
    source.write_text(f'#include "{header}"\n#include "nul\0.h"\n')
    assert sorted(bundle_in(tmp_path, "a.c").files) == ["a.c"]
    with pytest.raises(ProgramError, match="not a path inside the program's folder") as caught:
        bundle_in(tmp_path, str(source))
    assert "relative to that folder" in caught.value.hint


def test_a_name_that_no_file_can_have_is_an_error_of_the_program(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="embedded null byte"):
        bundle_in(tmp_path, "a\0.c")
