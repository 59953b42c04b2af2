"""Commands of other packages, and what is said where such a package is not installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from sapwood.cli import added_commands
from sapwood.cli.added_commands import OF_EXTRAS, WithAdded
from sapwood.cli.lazy import LazyEntry
from sapwood.cli.main import COMMANDS, main

PLUG_IN = """
def mine(*, name: str = "you") -> None:
    print(f"hello {name}")
"""


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    monkeypatch.setattr(sys, "argv", ["sapwood", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def add_package(folder: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    info = folder / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: mine\nVersion: 1.0\nSummary: Greet a friend.\n"
    )
    (info / "entry_points.txt").write_text(f"[sapwood.commands]\nmine = {place}\n")
    (folder / "mine_of_test.py").write_text(PLUG_IN)
    monkeypatch.syspath_prepend(folder)
    added_commands._added.cache_clear()


@pytest.fixture(autouse=True)
def looked_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(added_commands, "_added", added_commands._added)
    added_commands._added.cache_clear()


@pytest.mark.parametrize("command", OF_EXTRAS)
@pytest.mark.parametrize("more", [[], ["--help"], ["list"]])
@pytest.mark.slow
def test_a_command_that_is_not_installed_says_what_installs_it(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    more: list[str],
) -> None:
    monkeypatch.setattr(added_commands, "_added", dict)
    assert run(monkeypatch, command, *more) == 2
    said = capsys.readouterr().err
    assert f"'sapwood {command}' needs the package sapwood-{OF_EXTRAS[command]}" in said
    assert f"hint:  pip install 'sapwood[{OF_EXTRAS[command]}]'" in said


def test_so_does_its_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(added_commands, "_added", dict)
    assert run(monkeypatch, "lizard", "list", "--json") == 2
    assert json.loads(capsys.readouterr().out)["error"]["hint"] == "pip install 'sapwood[lizard]'"


def test_help_lists_a_command_of_another_package_with_its_summary(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_package(tmp_path, monkeypatch, "mine_of_test:mine")
    assert run(monkeypatch, "--help") == 0
    assert "mine" in (said := capsys.readouterr().out)
    assert "Greet a friend." in said
    assert "mine_of_test" not in sys.modules


def test_a_command_of_another_package_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_package(tmp_path, monkeypatch, "mine_of_test:mine")
    assert run(monkeypatch, "mine", "--name", "Ann") == 0  # no option of ours, so it keeps its name
    said = capsys.readouterr()
    assert (said.out, said.err) == ("hello Ann\n", "")
    del sys.modules["mine_of_test"]


def test_a_package_whose_command_cannot_be_imported_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_package(tmp_path, monkeypatch, "not_there_at_all:mine")
    assert run(monkeypatch, "mine") == 2
    said = capsys.readouterr().err
    assert "`sapwood mine` cannot be imported: No module named 'not_there_at_all'" in said
    assert "repair or uninstall the package mine" in said


def test_a_command_of_sapwood_is_never_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    add_package(tmp_path, monkeypatch, "mine_of_test:mine")
    own = {"mine": LazyEntry("sapwood.cli.up:up", "Start.")}
    assert WithAdded(own)["mine"].where == "sapwood.cli.up:up"
    assert list(WithAdded(own)).count("mine") == 1


def test_what_is_known_is_found_without_a_look_at_other_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def look() -> None:
        pytest.fail("other packages were looked at")

    monkeypatch.setattr(added_commands, "_added", look)
    assert WithAdded(COMMANDS)["run"] is COMMANDS["run"]
