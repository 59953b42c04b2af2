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

import pytest

PATIENCE = 60.0

Until = Callable[[Callable[[], object]], None]


class Cli:
    """The command line, with folders of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "XDG_STATE_HOME": str(folder / "state"),
            "COLUMNS": "80",
            "SAPWOOD_COMM__HEARTBEAT": "0.5",
            "SAPWOOD_COMM__FAILURE_AFTER": "4",
        }
        self.nodes: list[subprocess.Popen[str]] = []

    def run(self, *words: str, status: int = 0) -> str:
        """Run a command; return what it writes, to standard error if it fails."""
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

    def states(self) -> dict[str, str]:
        """The states of all nodes, by name."""
        return {one["name"]: one["state"] for one in self.json("node", "list")["nodes"]}

    def close(self) -> None:
        for node in self.nodes:
            node.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                node.wait(10)
            node.kill()
            node.wait()
            if node.stdout is not None:
                node.stdout.close()


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """The command line; what is up at the end of the test is ended."""
    made = Cli(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", made.environment["XDG_STATE_HOME"])
    yield made
    made.close()
    info = tmp_path / "state/sapwood/heads/default/head.json"
    if info.exists():
        pid = json.loads(info.read_text())["pid"]
        with contextlib.suppress(ProcessLookupError):
            watch = os.pidfd_open(pid)
            os.kill(pid, signal.SIGTERM)
            wait_for_end(watch)
            os.close(watch)


def wait_for_end(watch: int) -> None:
    """Wait for the end of a process."""
    select.select([watch], [], [], 20.0)


@pytest.fixture
def head(cli: Cli) -> Any:
    """A cluster that is up, with no node of its own: what `sapwood up` says."""
    return cli.json("up", "--listen", "127.0.0.1:0", "--no-node")


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
