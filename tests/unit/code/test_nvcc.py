from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sapwood.code import nvcc
from sapwood.code.nvcc import find_nvcc, find_nvrtc


def program(path: Path) -> str:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_the_variable_comes_first_then_the_path_then_the_usual_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setattr(nvcc, "_USUAL_PLACE", program(other / "usual"))
    empty = {"PATH": str(tmp_path)}
    assert find_nvcc(empty) == str(other / "usual")
    on_path = program(tmp_path / "nvcc")
    assert find_nvcc(empty) == on_path
    mine = program(other / "mine")
    assert find_nvcc({**empty, "NVCC": mine}) == mine
    assert find_nvcc({**empty, "NVCC": "nowhere"}) is None


def test_nvrtc_is_found_in_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("11.2", "12", "9"):
        place = tmp_path / "nvidia" / f"v{version}" / "lib"
        place.mkdir(parents=True)
        (place / f"libnvrtc.so.{version.partition('.')[0]}").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for name in [name for name in sys.modules if name.partition(".")[0] == "nvidia"]:
        monkeypatch.delitem(sys.modules, name)
    find_nvrtc.cache_clear()
    try:
        assert find_nvrtc() == str(tmp_path / "nvidia" / "v12" / "lib" / "libnvrtc.so.12")
    finally:
        find_nvrtc.cache_clear()
