from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sapwood.code import installed_tools
from sapwood.code.installed_tools import (
    Found,
    _packaged,
    ask,
    compiler_items,
    find_zig,
    library_items,
)


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is the whole PATH; scripts in it are the only commands."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def script(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_no_compiler_is_missing_with_the_way_to_get_one(
    commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZIG", "none")
    assert [(one.name, one.status) for one in compiler_items()] == [
        ("C", "missing"),
        ("C++", "missing"),
    ]
    assert all("apt-get install" in one.hint for one in compiler_items())


def test_zig_compiles_where_nothing_else_does(commands: Path) -> None:
    script(commands, "zig", '[ "$1" = version ] && echo 0.13.0')
    script(commands, "g++", "echo 'g++ (Debian) 12.2.0'")
    found = {one.name: one for one in compiler_items()}
    assert found["C"] == Found("C", f"{commands}/zig: zig 0.13.0")
    assert found["C++"].value.endswith("g++ (Debian) 12.2.0")


def test_compilers_are_shown_with_their_versions(commands: Path) -> None:
    script(commands, "gcc", "echo 'gcc (Debian) 12.2.0'; echo more")
    script(commands, "g++", "exit 1")
    script(commands, "nvcc", "echo 'nvcc: NVIDIA'; echo 'release 12.8, V12.8.93'")
    script(commands, "zig", '[ "$1" = version ] && echo 0.13.0')
    found = {one.name: one for one in compiler_items()}
    assert found["C"] == Found("C", f"{commands}/gcc: gcc (Debian) 12.2.0")
    assert found["C++"].status == "warning"
    assert found["nvcc"].value.endswith("release 12.8, V12.8.93")
    assert found["zig"].value.endswith("0.13.0")
    assert "gcc" not in found  # it is shown as the compiler for C


def test_a_command_that_hangs_is_given_up(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_tools, "QUERY_TIME_LIMIT", 0.1)
    script(commands, "slow", "while :; do :; done")
    assert ask(str(commands / "slow")) is None


def test_a_missing_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_tools, "LIBRARIES", ("numpy", "no-such-package"))
    found = {one.name: one for one in library_items()}
    assert found["numpy"].status == "ok"
    assert found["no-such-package"].hint == "pip install no-such-package"


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
