from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from sapwood.cli import node_commands, run_commands, session_commands
from sapwood.cli.failures import EXIT_CODES
from sapwood.cli.lazy import LazyGroup
from sapwood.cli.main import SapwoodGroup, app, main

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


def modules_of(*words: str) -> list[str]:
    """Return our modules that a command imports."""
    code = (
        "import sys; before = set(sys.modules)\n"
        "from sapwood.cli.entry import main\n"
        f"sys.argv = ['sapwood', *{words!r}]\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*(set(sys.modules) - before), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stderr.splitlines()[-1].split()


def test_help_loads_no_command() -> None:
    loaded = set(modules_of("--help"))
    assert "sapwood.cli.main" in loaded
    assert not loaded & {entry.where.partition(":")[0] for entry in SapwoodGroup.entries.values()}
    assert not loaded & {"numpy", "uvloop", "tree_sitter", "psutil", "cloudpickle", "cryptography"}
    assert len([name for name in loaded if name.startswith("sapwood.")]) < 30


@pytest.mark.parametrize(
    ("words", "most"), [(("session", "list"), 60), (("node", "join", "no-token"), 40)]
)
def test_a_command_loads_little(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...], most: int
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    loaded = modules_of(*words)
    assert len([name for name in loaded if name.startswith("sapwood.")]) < most
    assert "numpy" not in loaded


@pytest.mark.parametrize(
    "words",
    [
        *((name,) for name in SapwoodGroup.entries),
        *(("node", name) for name in node_commands.COMMANDS),
        *(("run", name) for name in run_commands.COMMANDS),
        *(("session", name) for name in session_commands.COMMANDS),
    ],
)
def test_a_command_can_be_loaded_and_says_what_the_list_says(words: tuple[str, ...]) -> None:
    command, entry = typer.main.get_command(app), None
    for word in words:
        assert isinstance(command, LazyGroup)
        entry, command = command.entries[word], command.commands[word]
    assert entry is not None
    text = " ".join(inspect.cleandoc(command.help or "").split("\n\n")[0].split())
    assert (text, command.hidden) == (entry.about, entry.hidden)


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
