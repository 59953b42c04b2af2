from __future__ import annotations

import os
from pathlib import Path

import pytest

from sapwood.code.target import host_target, parse_target
from sapwood.code.toolchain import (
    by_zig,
    find_compiler,
    processor_flags,
    zig_processor,
    zig_target,
)
from sapwood.core.errors import CompilerMissingError, ConfigurationError


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


def test_a_path_with_blanks_and_words_in_quotes(tmp_path: Path) -> None:
    folder = tmp_path / "my tools"
    folder.mkdir()
    path = fake_compiler(folder, "cc 1")
    for given, rest in ((str(path), ()), (f"'{path}' -O1 '-D X'", ("-O1", "-D X"))):
        compiler = find_compiler("c", {"PATH": str(tmp_path), "CC": given})
        assert compiler.command == (str(path), *rest)
    with pytest.raises(ConfigurationError, match="CC cannot be read"):
        find_compiler("c", {"PATH": str(tmp_path), "CC": "'cc"})


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
        find_compiler(language, {"PATH": str(tmp_path), "ZIG": "none"})
    assert f"apt-get install {package}" in caught.value.hint
    assert "sapwood[cross]" in caught.value.hint


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


AARCH64 = parse_target("aarch64-linux-gnu")


@pytest.fixture
def zig(tmp_path: Path) -> dict[str, str]:
    """Return an environment whose only compiler is zig."""
    fake_compiler(tmp_path, "zig")
    return {"PATH": str(tmp_path)}


def test_where_there_is_no_compiler_zig_is_the_compiler(
    zig: dict[str, str], tmp_path: Path
) -> None:
    compiler = find_compiler("c++", zig)
    assert compiler.command[:3] == (str(tmp_path / "zig"), "c++", "-target")
    assert compiler.is_zig
    assert compiler.is_clang
    assert processor_flags(compiler, host_target()) == (zig_processor(host_target()),)


def test_a_compiler_of_the_machine_comes_before_zig(zig: dict[str, str], tmp_path: Path) -> None:
    fake_compiler(tmp_path, "cc")
    assert not find_compiler("c", zig).is_zig


def test_another_architecture_is_built_for_by_zig(zig: dict[str, str], tmp_path: Path) -> None:
    fake_compiler(tmp_path, "cc")
    compiler = find_compiler("c", {**zig, "CC": "cc"}, AARCH64)
    assert compiler.command[1:] == ("cc", "-target", "aarch64-linux-gnu.2.17", "-UNDEBUG")
    assert processor_flags(compiler, AARCH64) == ("-mcpu=baseline",)


def test_which_targets_zig_builds_for(zig: dict[str, str], tmp_path: Path) -> None:
    assert by_zig(parse_target("aarch64-linux-gnu"), zig)
    fake_compiler(tmp_path, "c++")
    assert not by_zig(host_target(), zig)
    assert not by_zig(parse_target("aarch64-linux-gnu"), {"PATH": str(tmp_path), "ZIG": "none"})


def test_a_cross_compiler_of_the_distribution_comes_before_zig(
    zig: dict[str, str], tmp_path: Path
) -> None:
    path = fake_compiler(tmp_path, "aarch64-linux-gnu-gcc")
    compiler = find_compiler("c", zig, AARCH64)
    assert compiler.command == (str(path),)
    assert processor_flags(compiler, AARCH64) == ()
    model = parse_target("aarch64-linux-gnu,cpu=neoverse_n1")
    assert processor_flags(compiler, model) == ("-mcpu=neoverse-n1",)


def test_without_a_cross_compiler_the_error_names_the_extra(tmp_path: Path) -> None:
    fake_compiler(tmp_path, "cc")
    with pytest.raises(CompilerMissingError, match="aarch64-linux-gnu") as caught:
        find_compiler("c", {"PATH": str(tmp_path), "ZIG": "none"}, AARCH64)
    assert "sapwood[cross]" in caught.value.hint


def test_a_portable_build_for_this_architecture_uses_its_baseline(tmp_path: Path) -> None:
    fake_compiler(tmp_path, "cc")
    portable = parse_target(host_target().triple)
    compiler = find_compiler("c", {"PATH": str(tmp_path)}, portable)
    assert "-march=native" not in processor_flags(compiler, portable)
    level = parse_target("x86_64-linux-gnu,cpu=x86_64_v3")
    assert processor_flags(compiler, level) == ("-march=x86-64-v3",)


@pytest.mark.parametrize(
    ("text", "name", "processor"),
    [
        ("aarch64-linux-gnu", "aarch64-linux-gnu.2.17", "-mcpu=baseline"),
        ("ppc64le-linux-gnu.2.28", "powerpc64le-linux-gnu.2.28", "-mcpu=baseline"),
        ("x86_64-linux-musl", "x86_64-linux-musl", "-mcpu=baseline"),
    ],
)
def test_targets_have_names_of_zig(text: str, name: str, processor: str) -> None:
    assert zig_target(parse_target(text)) == name
    assert zig_processor(parse_target(text)) == processor


def test_for_this_machine_zig_uses_its_processor() -> None:
    assert zig_processor(host_target()).startswith("-mcpu=native")


def test_clang_gets_no_avx512(tmp_path: Path) -> None:
    fake_compiler(tmp_path, "gcc")
    fake_compiler(tmp_path, "clang", "Debian clang version 14.0.6")
    level = parse_target("x86_64-linux-gnu,cpu=x86_64_v4")
    gcc, clang = (
        find_compiler("c", {"PATH": str(tmp_path), "CC": name}, level) for name in ("gcc", "clang")
    )
    assert processor_flags(gcc, level) == ("-march=x86-64-v4",)
    assert processor_flags(clang, level) == ("-march=x86-64-v4", "-mno-avx512f")
    assert zig_processor(level).startswith("-mcpu=x86_64_v4-avx512f-avx512")
