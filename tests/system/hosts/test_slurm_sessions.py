"""Sessions on machines of Slurm: they wait for their job without a client, and end with it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.hosts.cluster import Slurm
from tests.system.hosts.network import until

ROOT = Path(__file__).parents[3]
PROGRAM = (str(ROOT / "examples" / "quantize"), "-p", "colours=8")

pytestmark = [pytest.mark.timeout(600), pytest.mark.nightly, pytest.mark.row("C1-RES-2")]


class Desk:
    """What a user does on the login node of a cluster, at a head that is up there.

    Args:
        slurm: The cluster.
        state: The folder of the head.

    Attributes:
        head: The process of the first head.
    """

    head: int

    def __init__(self, slurm: Slurm, state: Path) -> None:
        self.slurm = slurm
        self.environment = slurm.environment | {"XDG_STATE_HOME": str(state)}

    def run(self, *words: str, status: int = 0) -> str:
        """Call the command line; return what it writes."""
        done = self.slurm.sapwood(*words, env=self.environment)
        assert done.returncode == status, (words, done.stdout, done.stderr)
        return done.stdout if status == 0 else done.stderr

    def asked(self, *words: str) -> Any:
        """Call the command line; return what it answers."""
        return json.loads(self.run(*words, "--json"))

    def python(self, text: str) -> subprocess.Popen[str]:
        """Begin a program."""
        return self.slurm.popen(sys.executable, "-c", text, env=self.environment)

    def up(self) -> int:
        """Start a head; return its process."""
        return int(self.asked("up", "--no-node")["pid"])

    def state(self, session: str) -> str:
        """Return the state of a session."""
        return str(self.asked("session", "show", session)["state"])

    def pending(self) -> list[str]:
        """Return the numbers of the jobs that wait."""
        return self.slurm.jobs("--states=pending")


@pytest.fixture
def desk(slurm: Slurm, tmp_path: Path) -> Iterator[Desk]:
    made = Desk(slurm, tmp_path)
    made.head = made.up()
    yield made
    made.run("down")
    until(slurm.is_clean)


WAVE = """
import operator
import sapwood
with sapwood.attach("night", on_wait=lambda what, _: print(what, flush=True)) as cluster:
    with cluster.stream(abs, reduce=operator.add) as stream:
        print("total", stream.broadcast(-1).result(60).total, flush=True)
"""

LEAVING = """
import sys
import sapwood
print(sapwood.connect().request_session(4, name="night", on="slurm:2"), flush=True)
sys.stdin.read()
"""


def test_a_session_begins_when_its_job_does_and_nobody_need_be_there(desk: Desk) -> None:
    slurm = desk.slurm
    with slurm.taken(4, "--exclusive") as blocker:
        with desk.python(LEAVING) as maker:
            assert maker.stdout is not None
            assert maker.stdout.readline().startswith("night#")
            maker.kill()
        (job,) = desk.pending()
        listed = " ".join(desk.run("session", "list").split())
        assert f"waits for its machines: Slurm: job {job} waits in partition main: " in listed
        assert desk.asked("session", "show", "night")["state"] == "delayed"
        assert "waits for its machines" in desk.run(
            "session", "follow", "night", "--no-wait", status=75
        )
        with desk.python(WAVE) as user:
            assert user.stdout is not None
            assert f"job {job} waits" in user.stdout.readline()
            assert blocker.stdin is not None
            blocker.stdin.close()
            said, err = user.communicate(timeout=120)
        assert said.endswith("total 4\n"), (said, err)
    shown = desk.asked("session", "show", "night")
    assert (shown["agents"], len(shown["nodes"])) == (4, 2)
    assert slurm.jobs("--states=running") == [job]
    alone = desk.asked("run", *PROGRAM, "--agents", "4")
    there = desk.asked("run", *PROGRAM, "--session", "night")
    assert there["result"] == alone["result"]
    slurm.run("scancel", job)
    until(lambda: desk.state("night") == "ended", 60.0)
    reason = desk.asked("session", "show", "night")["reason"]
    assert re.fullmatch(f"Slurm's job {job} (was cancelled|is over)", reason)  # it says that first
    assert "session.allocated" in desk.run("events", "--session", "night")
    until(lambda: not slurm.jobs())


def test_a_session_ends_with_the_time_of_its_job(desk: Desk) -> None:
    limit = ("--set", 'nodes.slurm=["--time=1"]')
    desk.run("session", "create", "short", "--on", "slurm:1", "--agents", "1", *limit)
    (job,) = desk.slurm.jobs("--states=running")
    until(lambda: desk.state("short") == "ended", 180.0)
    reason = desk.asked("session", "show", "short")["reason"]
    assert reason in {f"the time of Slurm's job {job} is over", f"Slurm's job {job} is over"}
    until(lambda: not desk.slurm.jobs())


def test_a_session_that_waits_leaves_nothing_when_it_is_deleted(desk: Desk) -> None:
    with desk.slurm.taken(4, "--exclusive"):
        words = ("session", "create", "night", "--on", "slurm:2", "--agents", "4")
        assert "waits for its machines: Slurm: job " in desk.run(*words)
        assert len(desk.pending()) == 1
        assert "has ended" in desk.run("session", "delete", "night")
        assert not desk.pending()
        desk.run(*words)
        desk.slurm.run("scancel", *desk.pending())
        until(lambda: desk.state("night") == "failed", 60.0)
        assert "was cancelled" in desk.asked("session", "show", "night")["reason"]


@pytest.mark.parametrize("victims", [["head"], ["root"], ["head", "root"]], ids=str)
def test_no_job_is_left_that_nobody_owns(desk: Desk, victims: list[str]) -> None:
    slurm = desk.slurm
    with slurm.taken(4, "--exclusive") as blocker:
        made = desk.asked("session", "create", "night", "--on", "slurm:2", "--agents", "2")
        (job,) = desk.pending()
        for victim in victims:
            slurm.run(
                "kill",
                f"-{signal.SIGKILL.value}",
                str(desk.head if victim == "head" else made["pid"]),
            )
        if "head" in victims:
            desk.up()
        if "root" in victims:
            until(lambda: len(desk.asked("session", "show", "night")["restarts"]) == 1, 60.0)
            until(lambda: len(desk.pending()) == 1 and desk.pending() != [job], 60.0)
        until(lambda: desk.state("night") == "delayed", 60.0)
        assert blocker.stdin is not None
        blocker.stdin.close()
        with desk.python(WAVE) as user:
            said, err = user.communicate(timeout=120)
        assert said.endswith("total 2\n"), (said, err)
    assert len(slurm.jobs()) == 1
    desk.run("session", "delete", "night")
    until(lambda: not slurm.jobs())


def test_a_detached_run_waits_for_its_job_without_its_user(desk: Desk) -> None:
    alone = desk.asked("run", *PROGRAM, "--agents", "4")
    with desk.slurm.taken(4, "--exclusive") as blocker:
        run = desk.asked("run", *PROGRAM, "--detach", "--on", "slurm:2", "--agents", "4")["id"]
        until(lambda: len(desk.pending()) == 1, 60.0)
        (job,) = desk.pending()
        until(lambda: f"job {job} waits in" in desk.asked("run", "show", run)["waits"], 60.0)
        assert "it waits for its machines: Slurm: job" in desk.run("run", "show", run)
        other = desk.asked("run", *PROGRAM, "--detach", "--on", "slurm:2", "--agents", "4")["id"]
        until(lambda: len(desk.pending()) == 2, 60.0)
        desk.run("run", "stop", other)
        until(lambda: len(desk.pending()) == 1, 60.0)
        assert blocker.stdin is not None
        blocker.stdin.close()
        answer = desk.asked("run", "follow", run)
    assert answer["result"] == alone["result"]
    assert desk.asked("run", "show", run)["waits"] == ""
    until(lambda: not desk.slurm.jobs())
