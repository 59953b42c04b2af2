from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sapwood.environment.zig import _packaged, find_zig


def program(path: Path) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_variable_comes_first_then_the_path(tmp_path: Path) -> None:
    own = program(tmp_path / "mine")
    on_path = program(tmp_path / "zig")
    assert find_zig({"PATH": str(tmp_path)}) == str(on_path)
    assert find_zig({"PATH": str(tmp_path), "ZIG": str(own)}) == str(own)
    assert find_zig({"PATH": str(tmp_path), "ZIG": "none"}) is None


@pytest.mark.parametrize("there", [True, False])
def test_the_package_is_found_in_this_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    (tmp_path / "ziglang").mkdir()
    (tmp_path / "ziglang" / "__init__.py").touch()
    if there:
        program(tmp_path / "ziglang" / "zig")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "ziglang", raising=False)
    _packaged.cache_clear()
    try:
        found = find_zig({"PATH": "/nowhere"})
    finally:
        _packaged.cache_clear()
    assert found == (str(tmp_path / "ziglang" / "zig") if there else None)
