from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sapwood.cli.new import LANGUAGES

Sapwood = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(environment: dict[str, str]) -> dict[str, str]:
    """Variables with the build cache of all tests."""
    return {**environment, "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"]}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_new_program_runs(sapwood: Sapwood, language: str) -> None:
    made = sapwood("new", "line", "--language", language)
    assert made.returncode == 0, made.stderr
    assert "next:  sapwood run line" in made.stdout.splitlines()
    done = sapwood("run", "line", "--agents", "2", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["program"] == "line"
    assert answer["result"]["slope"] == pytest.approx(3.0, abs=0.01)
    assert answer["result"]["offset"] == pytest.approx(-2.0, abs=0.01)
    assert answer["progress"]["iteration"] == answer["progress"]["iterations"] == 30


def test_what_is_there_is_not_overwritten(sapwood: Sapwood, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "fit.c").write_text("mine")
    done = sapwood("new", "taken")
    assert done.returncode == 2
    assert "not empty" in done.stderr
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["fit.c"]
    (tmp_path / "file").write_text("")
    assert "name a folder" in sapwood("new", "file").stderr
    (tmp_path / "empty").mkdir()
    assert sapwood("new", "empty").returncode == 0
