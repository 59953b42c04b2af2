from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from sapwood.cli import node_check
from sapwood.cli.main import app
from sapwood.cli.platform_check import PlatformItem, PlatformReport


def shows(monkeypatch: pytest.MonkeyPatch, *items: PlatformItem) -> None:
    monkeypatch.setattr(
        node_check, "check_platform", lambda _settings, _devices: PlatformReport(items)
    )


@pytest.mark.slow
def test_this_machine() -> None:
    answer = CliRunner().invoke(app, ["node", "check"])
    assert answer.exit_code in {0, 5}
    assert "usable cores" in answer.stdout
    assert max(map(len, answer.stdout.splitlines())) <= 80


@pytest.mark.row("A-ENV-2")
def test_missing_things_are_marked_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    shows(
        monkeypatch,
        PlatformItem("compiler", "C", "not found", "missing", "apt-get install gcc"),
        PlatformItem("compiler", "C++", "[c++] 12"),
        PlatformItem("limits", "open files", "256", "warning", "ulimit -n 4096"),
    )
    answer = CliRunner().invoke(app, ["node", "check"])
    assert answer.exit_code == 5
    lines = [line.split() for line in answer.stdout.splitlines()]
    assert ["✗", "compiler", "C", "not", "found"] in lines
    assert ["→", "apt-get", "install", "gcc"] in lines
    assert ["✓", "C++", "[c++]", "12"] in lines
    assert lines[-1] == ["missing:", "C;", "warnings:", "open", "files"]


def test_json(monkeypatch: pytest.MonkeyPatch) -> None:
    shows(monkeypatch, PlatformItem("compiler", "C", "cc 12"))
    answer = CliRunner().invoke(app, ["node", "check", "--json"])
    assert answer.exit_code == 0
    shown = json.loads(answer.stdout)
    assert shown["ok"] is True
    assert shown["items"][0] == {
        "group": "compiler", "name": "C", "value": "cc 12", "status": "ok", "hint": "",
    }  # fmt: skip
