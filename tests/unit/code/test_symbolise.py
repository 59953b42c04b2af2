from __future__ import annotations

from pathlib import Path

from sapwood.code.symbolise import symbolise

TEXT = "/x/lib.so(f+0x12)[0x7f]\n/lib/libc.so.6(+0x3c050) [0x7f]\nFatal Python error: x\n"


def test_lines_of_which_nothing_is_known_stay_as_they_are(tmp_path: Path) -> None:
    assert symbolise(TEXT, {}) == TEXT
    (tmp_path / "no.debug").write_text("not ELF")
    assert symbolise(TEXT, {"/x/lib.so": tmp_path / "no.debug"}) == TEXT
    assert symbolise(TEXT, {"/x/lib.so": tmp_path / "missing"}) == TEXT
