"""Sessions and runs continue when the head is killed, and the next head finds them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

import sapwood
from sapwood.cli.main import app
from sapwood.core.errors import CommunicationError, NodeLostError
from sapwood.head.folder import find_head

from .conftest import PATIENCE, Until


def up() -> int:
    """Start a head in the background; return its process."""
    words = [sys.executable, "-m", "sapwood", "up", "--no-node", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=True)
    return int(json.loads(done.stdout)["pid"])


def asked(*words: str) -> Any:
    """Call the command line; return what it answers."""
    done = CliRunner().invoke(app, [*words, "--json"], prog_name="sapwood")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for heads; heads that run at the end of the test are stopped."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield tmp_path
    try:
        pid = find_head().pid
        watch = os.pidfd_open(pid)
    except (NodeLostError, ProcessLookupError):
        return
    signal.pidfd_send_signal(watch, signal.SIGTERM)
    wait_for(watch)


def wait_for(watch: int) -> None:
    select.select([watch], [], [], PATIENCE)
    os.close(watch)


def kill(pid: int) -> None:
    watch = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    wait_for(watch)


def test_a_session_outlives_its_head(state: Path, until: Until, tmp_path: Path) -> None:
    head = up()
    program = tmp_path / "waits.py"
    program.write_text(PROGRAM)
    cluster = sapwood.connect().create_session(1, name="on", on="local")
    run = asked("run", str(program), "--detach", "--session", "on", "-p", f"gate={tmp_path}/gate")
    kill(head)
    assert cluster.submit(pow, 2, 5).result(PATIENCE) == 32
    handle = cluster.detach()
    with sapwood.attach(handle) as again:  # no head runs that could be asked
        agent = again.agents[0].pid
        assert again.submit(pow, 2, 6).result(PATIENCE) == 64
    with pytest.raises(CommunicationError):
        sapwood.attach("nobody")
    up()
    until(lambda: asked("session", "show", handle)["state"] in {"ready", "detached"})
    assert asked("run", "show", run["id"])["state"] == "running"
    (tmp_path / "gate").touch()
    assert asked("run", "follow", run["id"])["result"]["n"] == 3
    with sapwood.attach(handle) as later:
        assert later.agents[0].pid == agent
        until(lambda: asked("session", "show", handle)["owner"] == f"process {os.getpid()}")
    assert asked("session", "delete", "on")["state"] == "ended"
    assert not list((state / "sapwood/heads/default/sessions").iterdir())


def test_a_session_whose_notice_the_next_head_cannot_read_continues(
    state: Path, until: Until
) -> None:
    """As one that a root of another version has written."""
    head = up()
    cluster = sapwood.connect().create_session(1, name="on", on="local")
    handle = cluster.detach()
    (notice,) = (state / "sapwood/heads/default/sessions").glob("*.json")
    whole = notice.read_bytes()
    kill(head)
    notice.write_bytes(b'{"format": 77}')
    head = up()
    until(lambda: asked("session", "show", handle)["state"] == "detached")
    with sapwood.attach(handle) as again:
        assert again.submit(pow, 2, 5).result(PATIENCE) == 32
    kill(head)
    notice.write_bytes(whole)
    up()
    with sapwood.attach(handle) as again:
        assert again.submit(pow, 2, 6).result(PATIENCE) == 64
    assert asked("session", "delete", "on")["state"] == "ended"
    assert not list((state / "sapwood/heads/default/sessions").iterdir())


PROGRAM = """
import time
from pathlib import Path
import numpy as np
import sapwood


class Waits(sapwood.Program):
    reduce = {"n": "sum"}
    inputs = ("x",)
    gate: str = sapwood.parameter("")

    def default_data(self):
        return {"x": np.arange(3.0)}

    def map(self, data, state):
        while not Path(self.gate).exists():
            time.sleep(0.01)
        return {"n": len(data["x"])}

    def update(self, state, total):
        return total
"""


@pytest.mark.nightly
def test_a_session_that_is_gone_when_the_next_head_comes(
    state: Path, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    monkeypatch.setenv("SAPWOOD_POLICY__RESTARTS__LIMIT", "0")
    head = up()
    made = asked("session", "create", "lost", "--on", "local", "--agents", "1")
    left = asked("session", "create", "left", "--on", "local", "--agents", "1")
    kill(head)
    kill(made["pid"])
    os.kill(left["pid"], signal.SIGTERM)
    until(lambda: not psutil.pid_exists(left["pid"]))
    up()
    ended = asked("session", "show", "left")
    assert (ended["state"], ended["reason"]) == ("ended", "it ended while the head was down")
    lost = asked("session", "show", "lost")
    assert (lost["state"], lost["reason"]) == (
        "failed",
        "its process ended while the head was down",
    )
    assert not Path(made["socket"]).parent.exists()
    assert not list((state / "sapwood/heads/default/sessions").iterdir())
