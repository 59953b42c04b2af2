from __future__ import annotations

import os
from pathlib import Path

import pytest

from sapwood.code.toolchain import available_compilers, find_compiler
from sapwood.core.errors import CompilerMissingError


def fake_compiler(folder: Path, name: str, version: str = "fake 1.0") -> Path:
    path = folder / name
    path.write_text(
        f'#!/bin/sh\ncase "$1" in --version) echo "{version}"; echo more;; '
        "-dumpmachine) echo sparc64-sun-solaris;; esac\n"
    )
    path.chmod(0o755)
    return path


def test_the_first_candidate_on_path_is_taken(tmp_path: Path) -> None:
    fake_compiler(tmp_path, "clang", "clang version 99")
    compiler = find_compiler("c", {"PATH": str(tmp_path)})
    assert compiler.command == (str(tmp_path / "clang"),)
    assert compiler.version == "clang version 99"
    assert compiler.triple == "sparc64-sun-solaris"
    assert compiler.is_clang


def test_the_environment_names_the_compiler_and_its_options(tmp_path: Path) -> None:
    fake_compiler(tmp_path, "cc")
    fake_compiler(tmp_path, "wrapper")
    compiler = find_compiler("c", {"PATH": str(tmp_path), "CC": "wrapper --as cc"})
    assert compiler.command == (str(tmp_path / "wrapper"), "--as", "cc")
    assert not compiler.is_clang


def test_an_updated_compiler_is_another_one(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "CC": "mine"}
    path = fake_compiler(tmp_path, "mine")
    before = find_compiler("c", environment).identity
    os.utime(path, (1, 1))
    find_compiler.__globals__["_find"].cache_clear()  # another process
    assert find_compiler("c", environment).identity != before


@pytest.mark.parametrize(("language", "package"), [("c", "gcc"), ("c++", "g++")])
def test_a_missing_compiler_names_the_package(tmp_path: Path, language: str, package: str) -> None:
    with pytest.raises(CompilerMissingError) as caught:
        find_compiler(language, {"PATH": str(tmp_path)})
    assert caught.value.hint == f"install one: apt-get install {package}"
    assert available_compilers({"PATH": str(tmp_path)}) == ()


def test_a_named_compiler_that_is_missing_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(CompilerMissingError) as caught:
        find_compiler("c++", {"PATH": str(tmp_path), "CXX": "nowhere++"})
    assert "nowhere++" in caught.value.what
    assert caught.value.where == "CXX"


def test_a_compiler_that_does_not_work_is_an_error(tmp_path: Path) -> None:
    path = fake_compiler(tmp_path, "cc")
    path.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(CompilerMissingError, match="does not answer"):
        find_compiler("c", {"PATH": str(tmp_path)}).version  # noqa: B018 - asking is the test
