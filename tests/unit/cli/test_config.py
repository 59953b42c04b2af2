from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sapwood.cli.config import app
from sapwood.environment.configuration import load_configuration


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_show_is_a_configuration_file(tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["show", "--set", "cluster.agents=7"])
    assert answer.exit_code == 0
    (tmp_path / "sapwood.toml").write_text(answer.stdout)
    assert load_configuration().settings.cluster.agents == 7


def test_origin_names_file_line_and_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sapwood.toml").write_text("[cluster]\n\nagents = 3\n")
    monkeypatch.setenv("SAPWOOD_LOG__CONSOLE", "error")
    answer = CliRunner().invoke(app, ["show", "--origin"])
    assert answer.exit_code == 0
    rows = {line.split()[0]: line.split()[1:] for line in answer.stdout.splitlines()}
    assert rows["cluster.agents"][:2] == ["3", "project"]
    assert rows["log.console"] == ['"error"', "variable", "SAPWOOD_LOG__CONSOLE"]
    assert " ".join(rows["comm.heartbeat"]) == '"2 s" default'
    assert "sapwood.toml:3" in "".join(answer.stdout.split())
    assert max(map(len, answer.stdout.splitlines())) <= 80


def test_json() -> None:
    answer = CliRunner().invoke(app, ["show", "--json", "--set", "limits.memory=2 GiB"])
    shown = json.loads(answer.stdout)
    assert shown["settings"]["limits"]["memory"] == 2 * 2**30
    assert shown["origins"]["limits.memory"] == "flag"


def test_a_misspelt_setting_is_exit_code_2() -> None:
    answer = CliRunner().invoke(app, ["show", "--set", "cluster.agnets=7"])
    assert answer.exit_code == 2
    assert answer.stdout == ""
    assert "did you mean 'agents' in cluster?" in answer.stderr


def test_validate(tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text("[limits]\nmemory = '2 GiB'\n")
    assert CliRunner().invoke(app, ["validate", str(file)]).exit_code == 0
    assert CliRunner().invoke(app, ["validate"]).exit_code == 0
    found = CliRunner().invoke(app, ["validate", "--json", str(file)])
    assert json.loads(found.stdout) == {"valid": True, "file": str(file)}
    file.write_text("[limits]\nmemory = 'much'\n")
    answer = CliRunner().invoke(app, ["validate", str(file)])
    assert answer.exit_code == 2
    assert f"where: {file}:2" in answer.stderr
    assert CliRunner().invoke(app, ["validate", str(tmp_path / "none.toml")]).exit_code == 2
