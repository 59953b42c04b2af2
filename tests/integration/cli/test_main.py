from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sapwood.cli.failures import EXIT_CODES
from sapwood.cli.main import main

Sapwood = Callable[..., subprocess.CompletedProcess[str]]


def test_help_lists_the_commands_and_exit_codes(sapwood: Sapwood) -> None:
    done = sapwood("--help")
    assert done.returncode == 0
    for command in ("run", "program", "node", "config", "cache"):
        assert command in done.stdout
    words = " ".join(done.stdout.split())
    for code in EXIT_CODES:
        assert f"{code} " in words
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; import sapwood.cli.main; "
        "print(*{'numpy', 'uvloop', 'tree_sitter', 'elftools', 'psutil', 'cloudpickle'}"
        " & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_version(sapwood: Sapwood) -> None:
    done = sapwood("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("sapwood 0.")


@pytest.mark.parametrize("arguments", [["rnu"], ["run"], ["run", "x", "--agents", "0"]])
def test_wrong_usage_is_exit_code_2(sapwood: Sapwood, arguments: list[str]) -> None:
    done = sapwood(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rnu", "--json"], "No such command 'rnu'."),
        (["run", "--json"], "Missing argument"),
        (["run", "x", "--json", "--agents", "0"], "--agents"),
        (["build", "x", "--json", "--bogus"], "--bogus"),
    ],
)
def test_wrong_usage_is_json_where_that_is_wanted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["sapwood", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    done = capsys.readouterr()
    assert ended.value.code == 2
    error = json.loads(done.out)["error"]
    assert said in error["what"]
    assert said in done.err


def test_completion_of_programs_and_parameters(sapwood: Sapwood, squares: Path) -> None:
    def complete(line: str) -> list[str]:
        done = sapwood(_SAPWOOD_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS=line, COMP_WORDS=line)
        return done.stdout.split('"')

    assert squares.name in " ".join(complete("sapwood run sq"))
    assert "rounds=" in " ".join(complete("sapwood run squares -p ro"))
