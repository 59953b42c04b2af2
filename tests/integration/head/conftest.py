"""Clusters that stay: heads in the background, and nodes that join them by hand."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from sapwood.cli.main import app

from .up_head import UpHead

PATIENCE = 60.0

Until = Callable[[Callable[[], object]], None]


class Cli:
    """The command line, with folders of the test's own.

    Attributes:
        nodes: Those that this test has begun.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "XDG_STATE_HOME": str(folder / "state"),
            "COLUMNS": "80",
            "SAPWOOD_POLICY__LIMITS__HEAD_MACHINE": "shared",
            "SAPWOOD_COMM__HEARTBEAT": "0.5",
            "SAPWOOD_COMM__FAILURE_AFTER": "4",
        }
        self.nodes: list[subprocess.Popen[str]] = []
        self._former = 0

    def run(self, *words: str, status: int = 0) -> str:
        """Run a command in this process; return what it writes, to standard error if it fails."""
        if words[0] == "up" or words[:2] == ("node", "join"):  # they make processes their own
            return self.run_apart(*words, status=status)
        with patch.dict(os.environ, self.environment):
            done = CliRunner().invoke(app, words, prog_name="sapwood")
        assert done.exit_code == status, (words, done.exit_code, done.stdout, done.stderr)
        return done.stderr if status else done.stdout

    def run_apart(self, *words: str, status: int = 0) -> str:
        """The same in a separate process."""
        done = subprocess.run(
            [sys.executable, "-m", "sapwood", *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == status, (words, done.returncode, done.stdout, done.stderr)
        return done.stderr if status else done.stdout

    def json(self, *words: str) -> Any:
        """Run a command; return what it writes as JSON."""
        return json.loads(self.run(*words, "--json"))

    def up(self) -> Any:
        """Start a cluster whose head is not a node; return what `sapwood up` says."""
        return self.json("up", "--listen", "127.0.0.1:0", "--no-node")

    def join(self, line: str, label: str, *before: str) -> subprocess.Popen[str]:
        """Begin a node in the foreground, behind some words; it has joined."""
        node = subprocess.Popen(
            [*before, sys.executable, "-m", "sapwood", "node", "join", line, "--as", label],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.nodes.append(node)
        assert node.stdout is not None
        said = node.stdout.readline()
        assert said.startswith("joined as "), said + node.stdout.read()
        return node

    def records(self) -> list[Any]:
        """The nodes that came after those of former tests."""
        return [one for one in self.json("node", "list")["nodes"] if one["host"] > self._former]

    def states(self) -> dict[str, str]:
        """Their states, by name."""
        return {one["name"]: one["state"] for one in self.records()}

    def forget(self) -> None:
        """Remove the nodes of this test from a head that stays."""
        for name, state in self.states().items():
            if state != "removed":
                self.run("node", "delete", name)
        self._former = max([one["host"] for one in self.records()], default=self._former)
        self.close()

    def close(self) -> None:
        """End the nodes."""
        nodes, self.nodes = self.nodes, []
        for node in nodes:
            node.send_signal(signal.SIGTERM)
        for node in nodes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                node.wait(10)
            node.kill()
            node.wait()
            if node.stdout is not None:
                node.stdout.close()

    def end_head(self) -> None:
        """End what is up, and with it its nodes."""
        info = self.folder / "state/sapwood/heads/default/head.json"
        if info.exists():
            pid = json.loads(info.read_text())["pid"]
            with contextlib.suppress(ProcessLookupError):
                watch = os.pidfd_open(pid)
                os.kill(pid, signal.SIGTERM)
                select.select([watch], [], [], 20.0)
                os.close(watch)


@pytest.fixture
def own_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """The command line; heads that run at the end of the test are stopped."""
    made = Cli(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", made.environment["XDG_STATE_HOME"])
    yield made
    made.end_head()
    made.close()


@pytest.fixture(scope="module")
def up(
    nothing_is_left_behind_by_all: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[UpHead]:
    """A head in this process, with two nodes."""
    del nothing_is_left_behind_by_all  # it looks when the head has ended
    folder = tmp_path_factory.mktemp("head")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        made = UpHead(folder)
        try:
            made.warm_up()
            yield made
        finally:
            made.head.close()


@pytest.fixture
def own_head(own_cli: Cli) -> Any:
    """A cluster that is up, for a test that ends its head: what `sapwood up` says."""
    return own_cli.up()


@pytest.fixture(scope="module")
def _standing(
    nothing_is_left_behind_by_all: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cli, Any]]:
    del nothing_is_left_behind_by_all  # it looks when the head has ended
    made = Cli(tmp_path_factory.mktemp("standing"))
    try:
        yield made, made.up()
    finally:
        made.end_head()


@pytest.fixture
def cli(_standing: tuple[Cli, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """The command line; the nodes of the test are removed at its end."""
    made, _ = _standing
    monkeypatch.setenv("XDG_STATE_HOME", made.environment["XDG_STATE_HOME"])
    try:
        yield made
        made.forget()
    finally:
        made.close()


@pytest.fixture
def head(_standing: tuple[Cli, Any]) -> Any:
    """The head of the module, which no test ends: what `sapwood up` says."""
    return _standing[1]


@pytest.fixture
def until() -> Until:
    """Wait for a condition."""

    def wait(condition: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, "it does not happen"
            threading.Event().wait(0.05)

    return wait


SECRET = re.compile(r"swd1\.[a-z0-9]+\.[a-z0-9]+")
