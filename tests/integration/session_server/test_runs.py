"""Runs that continue without the user: started, followed, cancelled, found again."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

import sapwood
from sapwood.cli.main import app
from sapwood.head.head import Head

from .conftest import PATIENCE, Until

PROGRAM = """
import time
from pathlib import Path
import numpy as np
import sapwood


class Count(sapwood.Program):
    reduce = {"n": "sum"}
    inputs = ("x",)
    rounds: int = sapwood.parameter(2)
    gate: str = sapwood.parameter("")

    def default_data(self):
        return {"x": np.arange(10.0)}

    def map(self, data, state):
        while self.gate and not Path(self.gate).exists():
            time.sleep(0.01)
        print("mapping", flush=True)
        if self.rounds == 7:
            raise ValueError("seven")
        return {"n": len(data["x"])}

    def init(self, data):
        return {"round": 0}

    def update(self, state, total):
        return {"round": state["round"] + 1, "n": total["n"]}

    def done(self, state):
        return state["round"] >= self.rounds

    def result(self, state):
        return {"n": state["n"]}
"""


def sapwood_cli(*words: str, status: int = 0) -> str:
    """Call the command line; return what it writes."""
    done = CliRunner().invoke(app, list(words), prog_name="sapwood")
    assert done.exit_code == status, (words, done.output, done.exception)
    return done.stdout


def as_json(*words: str) -> Any:
    return json.loads(sapwood_cli(*words, "--json"))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program that counts its data in some rounds."""
    file = tmp_path_factory.mktemp("program") / "count.py"
    file.write_text(PROGRAM)
    return str(file)


@pytest.fixture(scope="module")
def day(head: Head) -> Iterator[str]:
    """A session of two agents without clients."""
    with sapwood.connect().create_session(2, name="day", on="local") as cluster:
        cluster.detach()
    yield "day"
    head.sessions.end("day").result(PATIENCE)


@pytest.fixture
def standing(day: str) -> str:
    """The same session; its runners run before the test begins."""
    with sapwood.attach(day) as cluster, cluster.stream(abs, reduce="sum") as stream:
        stream.broadcast(-1).result(PATIENCE)
    return day


@pytest.mark.row("A-ACT-2")
def test_a_run_goes_on_without_its_user(
    standing: str, program: str, head: Head, tmp_path: Path, until: Until
) -> None:
    gate = tmp_path / "gate"
    run = as_json("run", program, "--session", standing, "--detach", "-p", f"gate={gate}")
    assert (run["state"], run["session"]) == ("running", "day")
    until(lambda: (as_json("run", "show", run["id"])["progress"] or {}).get("state") == "running")
    assert [one["id"] for one in as_json("run", "list")["runs"]] == [run["id"]]
    assert run["id"] in sapwood_cli("run", "list")
    driver = [f"process {run['pid']} (user)"]
    until(lambda: as_json("session", "show", standing)["clients"] == driver)
    gate.touch()
    answer = tmp_path / "answer.json"
    said = as_json("run", "follow", run["id"], "--answer", str(answer))
    assert (said["result"]["n"], said["progress"]["iteration"]) == (10, 2)
    assert json.loads(answer.read_text())["result"] == said["result"]
    assert as_json("run", "list")["runs"] == []
    assert as_json("run", "show", run["id"][:4])["answer"]["result"]["n"] == 10
    assert "2 iterations" in sapwood_cli("run", "show", run["id"])
    assert "done" in sapwood_cli("run", "list", "--all")
    assert "mapping" in (Path(run["folder"]) / "output.log").read_text()


@pytest.mark.row("A-ACT-2")
def test_a_run_is_cancelled(
    standing: str, program: str, head: Head, tmp_path: Path, until: Until
) -> None:
    run = as_json("run", program, "--session", standing, "--detach", "-p", f"gate={tmp_path}/never")
    until(lambda: (as_json("run", "show", run["id"])["progress"] or {}).get("state") == "running")
    assert "is cancelled" in sapwood_cli("run", "stop", run["id"])
    assert not Path(f"/proc/{run['pid']}").exists()
    until(lambda: head.sessions.find(standing).state == "detached")
    assert "cancelled already" in sapwood_error("run", "stop", run["id"])
    sapwood_cli("run", "follow", run["id"], status=4)
    with sapwood.attach(standing) as cluster:
        assert cluster.submit(pow, 2, 2).result(PATIENCE) == 4


def sapwood_error(*words: str) -> str:
    done = CliRunner().invoke(app, list(words), prog_name="sapwood")
    assert done.exit_code == 2, done.output
    return done.stderr


def test_a_run_that_fails_says_why(standing: str, program: str, head: Head) -> None:
    run = as_json("run", program, "--session", standing, "--detach", "-p", "rounds=7")
    done = CliRunner().invoke(app, ["run", "follow", run["id"]], prog_name="sapwood")
    assert done.exit_code == 4
    assert "ValueError: seven" in done.stderr
    assert head.runs.find(run["id"]).state == "failed"
    assert "no run begins with 'x'" in sapwood_error("run", "show", "x")


def test_a_detached_run_that_cannot_begin_is_refused(
    standing: str, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = as_json("run", "list", "--all")
    without_data = tmp_path / "bare.py"
    without_data.write_text(PROGRAM.replace("default_data", "other_data"))

    def refused(*words: str) -> str:
        return sapwood_error("run", *words, "--detach")

    assert "no such program" in refused("NO_SUCH_FOLDER")
    assert "unknown parameter x" in refused(program, "-p", "x=1")
    assert "there is no such file" in refused(program, "--data", "no.csv")
    assert "no files match" in refused(program, "--data", "*.npy")
    assert "has no default data" in refused(str(without_data))
    assert "session 's9' does not exist" in refused(program, "--session", "s9")
    assert "names no machines" in refused(program, "--on", "moon")
    assert as_json("run", "list", "--all") == before


def test_files_of_a_session_are_found_from_the_folder_of_the_client(
    head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep.tree").write_text('root = ["left"]\nleft = ["1-2"]\n')
    (tmp_path / "site.sh").write_text("export SITE=here\n")
    more = ("--topology", "file:deep.tree", "--set", 'environment.source=["site.sh"]')
    made = as_json("session", "create", "deep", "--on", "local", "--agents", "2", *more)
    with sapwood.attach(made["handle"]) as cluster:
        assert cluster.submit(os.getenv, "SITE").result(PATIENCE) == "here"
    head.sessions.end("deep").result(PATIENCE)


def test_a_run_at_a_session(standing: str, program: str) -> None:
    answer = as_json("run", program, "--session", standing)
    assert answer["result"]["n"] == 10
    assert "has its agents" in sapwood_error("run", program, "--session", standing, "--agents", "2")
    assert "session 'absent' does not exist" in sapwood_error("run", program, "--session", "absent")
    assert "leave out" in sapwood_error("run", program, "--detach", "--watch")


def test_sessions_from_the_command_line(head: Head, standing: str) -> None:
    del standing
    made = as_json("session", "create", "shell", "--on", "local", "--agents", "1", "--idle", "0")
    assert made["handle"] == f"shell#{made['id']}"
    listed = {one["name"]: one for one in as_json("session", "list")["sessions"]}
    assert listed["shell"]["state"] == "detached"
    assert listed["shell"]["idle"] == 0
    assert "shell#" in sapwood_cli("session", "list")
    assert "never" in sapwood_cli("session", "show", "shell")
    assert "agent[2-3] more: 3 altogether" in sapwood_cli("session", "expand", "shell", "2")
    contracted = sapwood_cli("session", "contract", "shell", "1,3")
    assert "agent[1,3] left the session shell: 1 remain" in contracted
    assert as_json("session", "contract", "shell", "2") == {"removed": [2], "agents": 0}
    assert as_json("session", "expand", "shell") == {"added": [4], "agents": 1}
    assert "not a set of agents" in sapwood_error("session", "contract", "shell", "all")
    assert "agent 2 does not exist" in sapwood_error("session", "contract", "shell", "2")
    both = ("session", "create", "--on", "local", "--fanout", "2", "--topology", "kary:2")
    assert "leave one of them out" in sapwood_error(*both)
    assert "has ended" in sapwood_cli("session", "delete", "shell")
    assert as_json("session", "show", made["id"])["state"] == "ended"
    assert "shell" not in sapwood_cli("session", "list")
    assert "it was deleted" in sapwood_cli("session", "list", "--all")
    assert "session 'shel' does not exist" in sapwood_error("session", "show", "shel")
    assert not os.path.exists(made["socket"])  # noqa: PTH110 - as it was returned


async def awaited(run: sapwood.types.DetachedRun) -> Any:
    return await run


@pytest.mark.row("A-ACT-2")
def test_programs_see_runs_as_users_do(
    standing: str, program: str, head: Head, tmp_path: Path, until: Until
) -> None:
    gate, runs = tmp_path / "gate", sapwood.connect().runs
    words = ["run", program, "--session", standing, "--detach", "-p"]
    begun = as_json(*words, f"gate={gate}")["id"]
    (run,) = runs.list()
    assert (run.id, run.session, run.state) == (begun, "day", sapwood.types.RunState.RUNNING)
    assert run.program in repr(run)
    assert f'{head.control.addresses[0]}/#/runs/{begun}"' in run._repr_html_()
    assert run.error is None
    until(lambda: (found := run.progress) and found.state is sapwood.types.RunState.RUNNING)
    with pytest.raises(TimeoutError, match="has not ended"):
        run.result(timeout=0.0)
    assert (run.running(), run.done(), run.cancelled()) == (True, False, False)
    gate.touch()
    assert asyncio.run(awaited(run))["n"] == 10
    said: list[bytes] = []
    assert runs.find(begun[:6]).result(PATIENCE, on_output=said.append)["n"] == 10
    assert b"mapping" in b"".join(said)
    assert (run.running(), run.done(), run.wait(PATIENCE)) == (False, True, True)
    with pytest.warns(DeprecationWarning, match=r"use result\(\)"):
        assert run.attach(timeout=PATIENCE)["n"] == 10
    assert run.refresh().state is sapwood.types.RunState.DONE
    assert run.answer["progress"]["iteration"] == 2
    assert 0 < run.seconds < PATIENCE
    other = runs.find(as_json(*words, f"gate={tmp_path / 'never'}")["id"])
    other.cancel()
    assert other.state is sapwood.types.RunState.CANCELLED
    assert other.cancelled()
    with pytest.raises(sapwood.errors.CancelledError, match="was cancelled"):
        other.result()
    with pytest.raises(sapwood.errors.ConfigurationError, match="is cancelled already"):
        other.cancel()
    assert [one.id for one in runs.history()][-2:] == [begun, other.id]
    assert runs.list() == ()
    with pytest.raises(sapwood.errors.ConfigurationError, match="no run begins with 'zz'"):
        runs.find("zz")
    elsewhere = msgspec.structs.replace(run.record, machine="another")
    head.runs._records[run.id] = elsewhere
    with pytest.raises(sapwood.errors.ConfigurationError, match="on the machine of its head"):
        run.refresh().result()
