"""``sapwood logs``: what a run has logged, merged, chosen, and followed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sapwood import local
from sapwood.cli.main import app
from sapwood.environment.configuration import load_configuration

COMMAND = (sys.executable, "-m", "sapwood")


def logged(path: Path) -> None:
    """Let a session log to a file."""
    settings = load_configuration({"log.file": str(path)}).settings
    with local(agents=1, settings=settings):
        pass


def sapwood(*args: object) -> Result:
    return CliRunner().invoke(app, ["logs", *map(str, args)], prog_name="sapwood")


@pytest.mark.row("A-LOG-1")
def test_sessions_are_merged_and_chosen_from(tmp_path: Path) -> None:
    paths = tmp_path / "a.log", tmp_path / "b.log"
    for path in paths:
        logged(path)
    shown = sapwood(*paths)
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert [line for line in lines if "session: ready  agents=1" in line]
    assert lines == sorted(lines)
    ready = sapwood(*paths, "--component", "session", "--level", "info", "--json")
    found = [json.loads(line) for line in ready.stdout.splitlines()]
    assert [one["event"] for one in found] == ["ready", "ready"]
    node = found[0]["node"]
    assert sapwood(paths[0], "--nodes", node).stdout.count("session: ready") == 1
    assert sapwood(paths[0], "--nodes", "nowhere").stdout == ""
    assert sapwood("--set", f"log.file={paths[0]}").stdout in shown.stdout


def test_a_log_is_followed_until_ctrl_c(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    logged(path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:1]))
    command = [*COMMAND, "logs", str(path), "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as following:
        assert following.stdout is not None
        assert b"ready" in following.stdout.readline()
        with path.open("a") as more:
            more.write("".join(lines[1:]))
        assert b"closed" in following.stdout.readline()
        following.send_signal(signal.SIGINT)
        assert following.wait(60) == 130


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--level", "loud", "x.log"), "unknown level"),
        ((), "no log file is known"),
        (("/nowhere/x.log",), "cannot be read"),
    ],
)
def test_what_is_wrong_is_said(args: tuple[str, ...], said: str) -> None:
    refused = sapwood(*args)
    assert refused.exit_code == 2
    assert said in refused.stderr


def test_a_reader_that_has_enough_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    path.write_text('{"timestamp": "2026", "level": "info", "event": "x"}\n' * 100_000)
    command = f"{sys.executable} -m sapwood logs {path} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602 - a pipe
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1
