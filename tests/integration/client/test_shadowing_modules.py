"""Modules of a user's that have the names of modules of the standard library."""

import importlib
from pathlib import Path

import pytest

import sapwood


def test_processes_use_the_standard_library_and_user_code_the_modules_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("types", "enum", "typing", "socket", "logging", "random", "nturl2path"):
        (tmp_path / f"{name}.py").write_text("MINE = True")
    monkeypatch.syspath_prepend(tmp_path)
    with sapwood.local(agents=1) as cluster:

        def is_mine(name: str) -> bool:
            return hasattr(importlib.import_module(name), "MINE")

        # Loaded before user code runs, and not loaded.
        assert not cluster.submit(is_mine, "enum").result(60)
        assert cluster.submit(is_mine, "nturl2path").result(60)
