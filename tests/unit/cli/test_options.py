from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from sapwood.cli.options import (
    CLUSTER_VARIABLE,
    Cluster,
    assignments,
    existing_file,
    output_path,
    require_together,
    variables,
)
from sapwood.core.errors import ConfigurationError, InputError
from sapwood.head.folder import HeadInfo, head_folder, write_info


def test_values_stay_text() -> None:
    assert assignments(["colours=16", "title=a=b", "empty="], "-p") == {
        "colours": "16",
        "title": "a=b",
        "empty": "",
    }


@pytest.mark.parametrize("text", ["colours", "=3", ""])
def test_not_an_assignment(text: str) -> None:
    with pytest.raises(InputError, match="-p cannot be") as caught:
        assignments([text], "-p")
    assert "name=value" in caught.value.hint


def test_twice() -> None:
    with pytest.raises(InputError, match="'a' is given twice"):
        assignments(["a=1", "a=2"], "--set")


def test_existing_file(tmp_path: Path) -> None:
    file = tmp_path / "sapwood.toml"
    with pytest.raises(InputError, match="no such file"):
        existing_file(file)
    with pytest.raises(InputError, match="folder"):
        existing_file(tmp_path)
    file.touch()
    assert existing_file(file) == file


def test_output_path(tmp_path: Path) -> None:
    assert output_path(None) is None
    assert output_path(tmp_path / "new.png") == tmp_path / "new.png"
    with pytest.raises(InputError, match="is a folder"):
        output_path(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        output_path(tmp_path / "missing" / "new.png")


def test_output_path_that_may_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root may write everywhere, so permissions alone would not show it.
    monkeypatch.setattr("os.access", lambda *_args: False)
    with pytest.raises(InputError, match="cannot be written"):
        output_path(tmp_path / "new.png")


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("--continue", "give --checkpoint FILE"),
        ("--continue --checkpoint --resume", "leave out --resume"),
        ("--watch --allocations", "and --allocations"),
        ("--detach --resume", "leave out --checkpoint, --resume and --continue"),
        ("--detach --report", "`sapwood report RUN` writes it"),
        ("--detach --env", "`sapwood session create NAME --env VARIABLE`"),
        ("--detach --dry-run", "leave out --watch and --dry-run"),
        ("--dry-run --watch", "one of them"),
    ],
)
def test_options_that_do_not_go_together(given: str, hint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        require_together(dict.fromkeys(given.split(), True))
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "given", ["", "--continue --checkpoint --allocations --report", "--detach --allocations"]
)
def test_options_that_go_together(given: str) -> None:
    require_together(dict.fromkeys(given.split(), True) | {"--resume": None, "--watch": False})


def test_variables_come_from_here_or_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAPWOOD_TEST_HERE", "a=b")
    monkeypatch.delenv("SAPWOOD_TEST_AWAY", raising=False)
    assert variables(["SAPWOOD_TEST_HERE", "X=1"]) == {
        "environment.variables.SAPWOOD_TEST_HERE": "a=b",
        "environment.variables.X": "1",
    }
    with pytest.raises(InputError, match="'SAPWOOD_TEST_AWAY' is not set here"):
        variables(["SAPWOOD_TEST_AWAY"])
    with pytest.raises(InputError, match="--env cannot be"):
        variables([""])


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Call a command about a cluster, while some are up; return which one it is about."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    command = typer.Typer()

    @command.command()
    def show(cluster: Cluster = "default") -> None:
        typer.echo(cluster)

    def call(*words: str, up: Sequence[str] = (), variable: str | None = None) -> str:
        for name in up:
            write_info(head_folder(name), HeadInfo(socket.gethostname(), os.getpid(), ""))
        done = CliRunner().invoke(command, list(words), env={CLUSTER_VARIABLE: variable})
        return done.stdout.strip()

    return call


@pytest.mark.parametrize(
    ("words", "up", "variable", "wanted"),
    [
        ((), (), None, "default"),
        ((), ("lab",), None, "lab"),
        ((), ("default", "lab"), None, "default"),
        ((), ("lab", "nw"), None, "default"),
        ((), ("lab",), "nw", "nw"),
        (("--cluster", "default"), ("lab",), "nw", "default"),
    ],
)
def test_a_command_is_about_the_only_cluster_that_is_up(
    shown: Callable[..., str],
    words: Sequence[str],
    up: Sequence[str],
    variable: str | None,
    wanted: str,
) -> None:
    assert shown(*words, up=up, variable=variable) == wanted
