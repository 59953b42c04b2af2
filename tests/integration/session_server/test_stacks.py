"""``sapwood stack``: the stacks of sessions of a cluster."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import cloudpickle
import pytest
from typer.testing import CliRunner

import sapwood
from sapwood.cli.main import app
from sapwood.head.head import Head
from sapwood.head.session_records import SessionReport

from .conftest import PATIENCE, Until


def run(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["stack", *words], prog_name="sapwood")
    assert done.exit_code == code, done.output
    return done.output


def hangs() -> None:
    threading.Event().wait()


@pytest.fixture(autouse=True, scope="module")
def pickled_by_value() -> None:
    """Send the functions of this file as code."""
    import sys  # noqa: PLC0415 - only here

    cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_the_stacks_of_a_session_while_its_owner_waits(head: Head, until: Until) -> None:
    with sapwood.connect().create_session(3, name="night", on="local") as owner:
        calls = [owner.submit_to(rank, hangs) for rank in (1, 3)]
        until(lambda: run("night").count("hangs (") == 1)
        lines = run("night").splitlines()
        assert lines[0].startswith("agent[1,3]: busy in hangs for ")
        assert lines[-1] == "agent 2: idle"
        found = json.loads(run("--json"))
        (session,) = found["sessions"]
        assert session["session"] == head.sessions.find("night").handle
        assert [one["state"] for one in session["agents"]] == ["busy", "idle", "busy"]
        assert run("night", "--agents", "2") == "agent 2: idle\n"
        here = ["--nodes", os.uname().nodename]
        assert run("night", "--agents", "2", *here) == "agent 2: idle\n"
        assert run("night", "--nodes", "elsewhere[1-2]") == "\n"
        assert not any(one.done() for one in calls)
        owner.close()
    until(lambda: head.sessions.find("night").state == "ended")


def test_several_sessions_are_told_apart(head: Head) -> None:
    for name in ("one", "two"):
        sapwood.connect().create_session(1, name=name, on="local").detach()
    said = run().splitlines()
    handles = [head.sessions.find(name).handle for name in ("one", "two")]
    assert sorted(said) == sorted([*(f"Session {one}" for one in handles), *["agent 1: idle"] * 2])
    for name in ("one", "two"):
        head.sessions.end(name).result(PATIENCE)


def says_later(path: str) -> None:
    def say() -> None:
        while not Path(path).exists():
            threading.Event().wait(0.01)
        print("kept for the owner", flush=True)  # noqa: T201 - it is the output

    threading.Thread(target=say, daemon=True).start()


def test_looking_at_a_session_takes_nothing_from_its_owner(
    head: Head, until: Until, tmp_path: Path
) -> None:
    owner = sapwood.connect().create_session(1, name="left", on="local")
    owner.submit_to(1, says_later, str(tmp_path / "now")).result(PATIENCE)
    owner.detach()

    def report() -> SessionReport:
        found = head.sessions.find("left").report
        assert found is not None
        return found

    until(lambda: not report().clients)
    (tmp_path / "now").touch()
    until(lambda: report().kept)
    before = report()
    said = run("left")
    assert "kept for the owner" not in said
    until(lambda: not report().clients)
    assert (report().since, report().kept) == (before.since, before.kept)
    head.sessions.end("left").result(PATIENCE)


def test_mistakes_are_named(head: Head) -> None:
    assert "no session is running in this cluster" in run(code=2)
    assert "is not a set of agents" in run("any", "--agents", ",", code=2)
    assert "any" in run("any", code=2)


@pytest.mark.row("D-19")
def test_a_profile_of_a_session_while_its_owner_waits(
    head: Head, until: Until, tmp_path: Path
) -> None:
    del head
    with sapwood.connect().create_session(3, name="profiled", on="local") as owner:
        for rank in (1, 3):
            owner.submit_to(rank, hangs)
        file = tmp_path / "hangs.json"
        words = ["profile", "profiled", "--seconds", "0.5", "--rate", "100"]
        until(lambda: "hangs (" in CliRunner().invoke(app, words, prog_name="sapwood").output)
        done = CliRunner().invoke(app, [*words, "-o", str(file)], prog_name="sapwood")
        assert done.output.startswith(f"Wrote {file}"), done.output
        assert "hangs" in [one["name"] for one in json.loads(file.read_text())["shared"]["frames"]]
        done = CliRunner().invoke(app, [*words, "--agents", "2"], prog_name="sapwood")
        assert "hangs" not in done.output
        done = CliRunner().invoke(app, [*words[:3], "61"], prog_name="sapwood")
        assert "sample for up to 60 s" in done.output
