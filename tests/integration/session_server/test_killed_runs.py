"""Detached runs whose root, driver or head are killed: their result is the undisturbed one."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import sapwood
from sapwood.activity.checkpoint import previous
from sapwood.cli.head_connection import asked_head
from sapwood.cli.main import app
from sapwood.head.calls import RunRecord
from sapwood.head.parts.runs import Runs
from sapwood.head.parts.sessions import Sessions
from sapwood.head.runs import ANSWER, CHECKPOINT, PROGRESS, WORK
from sapwood.head.session_records import SessionRecord

from .conftest import PATIENCE, Until
from .test_head_killed import asked, kill, state, up

__all__ = ["state"]

PROGRAM = """
from pathlib import Path
import time
import numpy as np
import sapwood


class Means(sapwood.Program):
    reduce = {"sums": "sum:reproducible"}
    inputs = ("x",)
    gate: str = sapwood.parameter("")
    rounds: int = sapwood.parameter(30)

    def default_data(self):
        return {"x": np.random.default_rng(3).normal(size=(500, 3))}

    def init(self, data):
        self.number = len(data)
        return {"table": np.asfortranarray(np.ones((4, 3))), "round": 0}

    def map(self, data, state):
        while state["round"] == 20 and not Path(self.gate).exists():
            time.sleep(0.01)
        return {"sums": np.sin(data["x"] @ state["table"].T).sum(axis=0)}

    def update(self, state, total):
        table = state["table"] * 0.75
        table += (total["sums"] / self.number)[:, None]
        return {"table": table, "round": state["round"] + 1}

    def done(self, state):
        return state["round"] >= self.rounds
"""


class Detached:
    """A detached run that stops after its 20th iteration until a gate opens."""

    def __init__(self, folder: Path, until: Until, *words: str) -> None:
        self.until = until
        self.program = folder / "means.py"
        self.program.write_text(PROGRAM)
        self.gate, self.output = folder / "gate", folder / "result.npz"
        self.words = (str(self.program), "-p", f"gate={self.gate}")
        share = ("--set", "limits.checkpoints=1")  # after each iteration
        run = asked("run", *self.words, *words, *share, "--output", str(self.output), "--detach")
        self.id, self.folder = run["id"], Path(run["folder"])

    def record(self) -> RunRecord:
        return asked_head("default", PATIENCE, Runs.find, self.id)

    def waits(self) -> None:
        """Wait until it is at the gate."""
        self.until(lambda: progress(self.folder).get("iteration") == 20)
        self.until((self.folder / CHECKPOINT).exists)

    def ends_well(self) -> Any:
        """Continue it; compare its result with an undisturbed run."""
        self.gate.touch()
        self.until(lambda: self.record().state != "running")
        record = self.record()
        assert record.state == "done", (record, (self.folder / "output.log").read_text())
        with sapwood.local(2) as cluster:
            wanted = cluster.run(self.program, parameters={"gate": str(self.gate)}).result(PATIENCE)
        with np.load(self.output) as found:
            assert found["table"].tobytes() == wanted["table"].tobytes()
        assert not list(self.folder.glob(f"*{CHECKPOINT}*"))
        return json.loads((self.folder / ANSWER).read_bytes())["statistics"]


def day() -> SessionRecord:
    return asked_head("default", PATIENCE, Sessions.find, "day")


def progress(folder: Path) -> Any:
    try:
        return json.loads((folder / PROGRESS).read_bytes())
    except (OSError, ValueError):
        return {}


def test_root_head_and_driver_of_a_run_are_killed(
    state: Path, until: Until, tmp_path: Path
) -> None:
    head = up()
    session = asked("session", "create", "day", "--on", "local", "--agents", "2")
    run = Detached(tmp_path, until, "--session", "day")
    run.waits()
    kill(session["pid"])
    until(lambda: day().restarts and day().state == "ready")
    follower = CliRunner().invoke(app, ["session", "show", "day"], prog_name="sapwood")
    assert "restarted" in follower.stdout
    root = day().pid
    kill(head)
    kill(root)
    up()
    until(lambda: len(day().restarts) == 2 and day().state == "ready")
    assert (day().name, day().id) == ("day", session["id"])
    assert len(run.record().restarts) == 2
    os.kill(run.record().pid, signal.SIGKILL)
    until(lambda: len(run.record().restarts) == 3)
    statistics = run.ends_well()
    assert (statistics["resumed_from"], statistics["iterations"]) == (20, 30)
    kinds = [one["kind"] for one in asked("events")["events"]]
    assert (kinds.count("session.restarted"), kinds.count("run.restarted")) == (2, 3)
    shown = CliRunner().invoke(app, ["run", "follow", run.id], prog_name="sapwood")
    assert "restarted 3 times" in shown.stderr
    work = json.loads((run.folder / WORK).read_bytes())
    assert [one["iteration"] for one in work["iterations"]] == list(range(1, 31))
    starts = [one["started"] for one in work["iterations"]]
    assert starts == sorted(starts)
    assert work["counts"]["iterations"] >= 30


@pytest.mark.nightly
@pytest.mark.parametrize("harm", ["torn", "gone", "another program", "another version"])
def test_a_checkpoint_that_cannot_be_used(
    state: Path, until: Until, tmp_path: Path, harm: str
) -> None:
    up()
    run = Detached(tmp_path, until, "--set", "cluster.agents=2")
    run.waits()
    file = run.folder / CHECKPOINT
    if harm == "another program":
        run.program.write_text(PROGRAM.replace("0.75", "0.5"))
    os.kill(run.record().pid, signal.SIGSTOP)  # it writes no other one
    if harm == "torn":
        file.write_bytes(file.read_bytes()[:-10])
        previous(file).write_bytes(b"")
    elif harm == "gone":
        file.unlink()
        previous(file).unlink()
    elif harm == "another version":
        data = bytearray(file.read_bytes())
        data[len(b"sapwood checkpoint\n")] += 1
        file.write_bytes(data)
        previous(file).write_bytes(data)
    os.kill(run.record().pid, signal.SIGKILL)
    if harm in {"torn", "gone"}:
        assert run.ends_well()["resumed_from"] is None
        return
    until(lambda: run.record().state != "running")
    assert run.record().state == "failed"
    wrong = json.loads((run.folder / ANSWER).read_bytes())["error"]
    assert {"another program": "other sources", "another version": "format"}[harm] in wrong["what"]
    assert not run.output.exists()


@pytest.mark.nightly
def test_a_run_that_is_killed_too_often_fails(
    state: Path, until: Until, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAPWOOD_POLICY__RESTARTS__LIMIT", "1")
    up()
    run = Detached(tmp_path, until, "--set", "cluster.agents=1")
    for _ in range(2):
        run.waits()
        before = run.record()
        os.kill(before.pid, signal.SIGKILL)
        until(lambda: run.record().pid != before.pid or run.record().state == "failed")  # noqa: B023
    record = run.record()
    assert (record.state, len(record.restarts)) == ("failed", 1)
    shown = CliRunner().invoke(app, ["run", "follow", run.id], prog_name="sapwood")
    assert "was restarted once" in shown.stderr


@pytest.mark.row("C1-EXEC-1")
def test_the_policy_says_that_nothing_begins_again(
    state: Path, until: Until, tmp_path: Path
) -> None:
    up()
    asked("policy", "set", "restarts.run", "end")
    session = asked("session", "create", "day", "--on", "local", "--agents", "1")
    run = Detached(tmp_path, until, "--session", "day")
    run.waits()
    os.kill(run.record().pid, signal.SIGKILL)
    until(lambda: run.record().state == "failed")
    assert not run.record().restarts
    asked("policy", "set", "restarts.root", "end")
    kill(session["pid"])
    until(lambda: day().state == "failed")
    assert not day().restarts
