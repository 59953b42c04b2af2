from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sapwood.cli.main import app

CHECK = ["node", "check", "--compilers"]


def fake(folder: Path, name: str, says: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NVCC", "nowhere")
    fake(tmp_path, "gcc", "gcc 99.1")
    fake(tmp_path, "clang++", "clang version 98")
    fake(tmp_path, "aarch64-linux-gnu-gcc", "cross 97")
    fake(tmp_path, "zig", "0.96.0")
    return tmp_path


@pytest.mark.row("A-TOOL-1")
def test_compilers_are_listed_with_what_they_build(tools: Path) -> None:
    answer = CliRunner().invoke(app, [*CHECK, "--json"])
    assert answer.exit_code == 0
    found = {each["name"]: each for each in json.loads(answer.stdout)["toolchains"]}
    assert {"gcc", "clang++", "aarch64-linux-gnu-gcc", "zig"} <= set(found)
    assert found["gcc"]["version"] == "gcc 99.1"
    assert found["gcc"]["chosen"] == ["c"]
    assert found["clang++"]["chosen"] == ["c++"]
    assert found["aarch64-linux-gnu-gcc"]["targets"] == ["aarch64-linux-gnu"]
    assert "riscv64-linux-musl" in found["zig"]["targets"]
    assert found["zig"]["path"] == str(tools / "zig")


def test_the_table_is_at_most_80_columns_wide(tools: Path) -> None:
    fake(tools, "gcc", "a compiler with a " + "very " * 30 + "long name")
    answer = CliRunner().invoke(app, CHECK)
    assert answer.exit_code == 0
    assert max(map(len, answer.stdout.splitlines())) <= 80
    assert "c++*" in answer.stdout


def test_a_language_that_cannot_be_built_says_what_is_missing(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZIG", "none")
    (tools / "gcc").unlink()
    listed = json.loads(CliRunner().invoke(app, [*CHECK, "--json"]).stdout)
    missing = {each["name"]: each["missing"] for each in listed["languages"]}
    assert "apt-get install gcc" in missing["c"]
    assert missing["c++"] == ""
    assert missing["python"] == ""


def test_a_compiler_that_does_not_run_is_said_so(tools: Path) -> None:
    (tools / "gcc").write_text("#!/bin/sh\nexit 1\n")
    listed = json.loads(CliRunner().invoke(app, [*CHECK, "--json"]).stdout)
    assert {each["name"]: each["version"] for each in listed["toolchains"]}["gcc"] == "does not run"
