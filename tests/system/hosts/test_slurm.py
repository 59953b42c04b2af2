"""Clusters through Slurm: jobs that wait, run, and end with whoever asked for them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.paused_means import PAUSED_MEANS
from tests.system.hosts.cluster import Slurm
from tests.system.hosts.network import Network, until

import sapwood
from sapwood.contexts.launchers.slurm import SlurmLauncher
from sapwood.core.hostset import expand_hosts
from sapwood.testing.launchers import CHECKS

ROOT = Path(__file__).parents[3]
PROGRAM = (str(ROOT / "examples" / "quantize"), "--json", "-p", "colours=8", "--agents", "4")

pytestmark = pytest.mark.timeout(300)


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


POISON = {
    "SLURM_NTASKS": "7",
    "SLURM_NNODES": "9",
    "SLURM_NODELIST": "n9",
    "SLURM_JOB_NODELIST": "n9",
    "SLURM_PARTITION": "nosuch",
    "SLURM_GPUS": "3",
    "SLURM_GPUS_ON_NODE": "3",
    "SLURM_MEM_PER_CPU": "999999",
    "SLURM_CPU_BIND": "x",
    "SRUN_DEBUG": "x",
    "SBATCH_TIMELIMIT": "x",
}
"""What a job around this one may have set: each would change what a step gets, or refuse it."""


@pytest.mark.row("C1-RES-1")
@pytest.mark.row("D-5")
def test_the_result_is_that_of_one_machine(slurm: Slurm) -> None:
    alone = answer(slurm.sapwood("run", *PROGRAM))
    environment = slurm.environment | POISON
    several = answer(slurm.sapwood("run", *PROGRAM, "--on", "slurm:2", env=environment))
    assert several["result"] == alone["result"]
    assert several["progress"]["iteration"] == alone["progress"]["iteration"]
    assert not slurm.jobs()


@pytest.mark.row("D-5")
def test_conformance(slurm: Slurm) -> None:
    """All checks in one allocation, which takes longer than each of them."""
    with closing(SlurmLauncher(2, cores=1, environment=slurm.environment | POISON)) as launcher:
        launcher.request()
        for check in CHECKS:
            check(launcher)
    until(slurm.is_clean)


@pytest.mark.nightly
def test_nodes_are_hosts_of_their_own(slurm_over_hosts: tuple[Slurm, Network]) -> None:
    """Each node of Slurm has its own address, and nothing is left when the job is gone."""
    slurm, hosts = slurm_over_hosts
    alone = answer(slurm.sapwood("run", *PROGRAM))
    several = answer(slurm.sapwood("run", *PROGRAM, "--on", "slurm:4"))
    assert several["result"] == alone["result"]
    show = ("sh", "-c", "ip -4 -o addr show dev eth0 | awk '{print $4}'")
    done = slurm.sapwood("exec", "--on", "slurm:4", "--", *show)
    expected = {f"{name}: {hosts.address(name)}/24" for name in hosts.names}
    assert set(done.stdout.splitlines()) == expected, done.stderr
    with slurm.popen(sys.executable, "-c", ENDLESS) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        slurm.run("scancel", *slurm.jobs())
        process.communicate(timeout=120)
    until(slurm.is_clean)


@pytest.mark.nightly
def test_inside_an_allocation_that_one_is_used_and_left(slurm: Slurm) -> None:
    inside = slurm.program("run", *PROGRAM, "--on", "slurm")
    done = slurm.run("salloc", "--nodes=2", *inside, check=False)
    assert answer(done)["progress"]["agents"] == 4
    assert done.stderr.count("Granted job allocation") == 1
    script = slurm.folder / "job.sh"
    told = slurm.folder / "told"
    script.write_text(
        f"#!/bin/sh\n{' '.join(inside)} > {told}\n"
        f"squeue --noheader --jobs=$SLURM_JOB_ID --format=%T > {told}.state\n"
    )
    slurm.run("sbatch", "--wait", "--nodes=2", "--output=/dev/null", str(script))
    assert json.loads(told.read_text())["progress"]["agents"] == 4
    assert Path(f"{told}.state").read_text() == "RUNNING\n"


@pytest.mark.row("C1-RES-2")
def test_an_allocation_that_waits_is_shown(slurm: Slurm) -> None:
    with (
        slurm.taken(4, "--exclusive") as blocker,
        slurm.popen(*slurm.program("run", *PROGRAM, "--on", "slurm:2")) as process,
    ):
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("sapwood: Slurm: job ")
        assert "waits in partition main: " in line
        assert blocker.stdin is not None
        blocker.stdin.close()
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert json.loads(out)["progress"]["agents"] == 4


@pytest.mark.parametrize("how", ["scancel", "interrupt", "kill"])
def test_a_wait_that_ends_leaves_no_job(slurm: Slurm, how: str) -> None:
    with slurm.taken(4, "--exclusive"):
        with slurm.popen(*slurm.program("run", *PROGRAM, "--on", "slurm:2")) as process:
            until(lambda: slurm.jobs("--states=pending"))
            if how == "scancel":
                slurm.run("scancel", *slurm.jobs("--states=pending"))
            else:
                assert process.stderr is not None
                process.stderr.readline()
                process.send_signal(signal.SIGINT if how == "interrupt" else signal.SIGKILL)
            _, err = process.communicate(timeout=60)
            if how == "scancel":
                assert "was cancelled" in err
            assert process.returncode == {"scancel": 5, "interrupt": 130, "kill": -9}[how], err
        until(lambda: not slurm.jobs("--states=pending"))
        assert len(slurm.jobs("--states=running")) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--on", "slurm:9"), "9 nodes are wanted, and partition main of Slurm has 4"),
        (
            ("--on", "slurm:2", "--set", 'nodes.slurm=["--partition=nosuch"]'),
            "invalid partition specified: nosuch",
        ),
        (
            ("--on", "slurm:2", "--set", 'nodes.slurm=["--nosuch"]'),
            "unrecognized option '--nosuch'",
        ),
        (("--on", "slurm"), "SLURM_JOB_ID is not set"),
    ],
)
def test_what_cannot_be_is_named(slurm: Slurm, words: tuple[str, ...], said: str) -> None:
    done = slurm.sapwood("run", *PROGRAM, *words)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr


ENDLESS = """
import sys, time
import sapwood
with sapwood.slurm(2, 4) as cluster:
    tasks = [cluster.submit(time.sleep, 600) for _ in range(4)]
    print("ready", flush=True)
    tasks[0].result()
"""


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)]
)
def test_nothing_is_left_when_the_client_is_ended(slurm: Slurm, how: signal.Signals) -> None:
    with slurm.taken(1):
        (other,) = slurm.jobs()
        with slurm.popen(sys.executable, "-c", ENDLESS, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(how)
            process.wait(30)
        until(lambda: slurm.jobs() == [other])
        assert slurm.jobs("--states=running") == [other]


def test_a_cancelled_job_is_named(slurm: Slurm) -> None:
    with slurm.popen(sys.executable, "-c", ENDLESS) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        slurm.run("scancel", *slurm.jobs())
        _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    # Whoever hears of the end of its node first says that the job is over, not yet why.
    last = err.rstrip().rpartition("\n")[2]
    assert re.search(r"Slurm's job \d+ (was cancelled|is over)", last), err


def slow(folder: Path, rounds: int, pause: float) -> tuple[list[str], Path, bytes]:
    """Return a run of so many rounds, what its maps tell, and what it is to give."""
    program, told = folder / "slow.py", folder / "told"
    program.write_text(PAUSED_MEANS)
    with sapwood.local(4) as cluster:
        names = {"rounds": rounds, "pause": 0.0}
        table = cluster.run(program, parameters=names).result(60)["table"]
    words = ["run", str(program), "-p", f"told={told}", "-p", f"rounds={rounds}", "--json"]
    words += ["-p", f"pause={pause}", "--agents", "4", "--output", str(folder / "result.npz")]
    return words, told, np.asarray(table).tobytes()


def found(folder: Path) -> bytes:
    with np.load(folder / "result.npz") as result:
        return np.asarray(result["table"]).tobytes()


def rounds_told(told: Path) -> int:
    return len(told.read_text().splitlines()) // 4 if told.exists() else 0


@pytest.mark.row("D-10")
def test_a_run_goes_on_when_its_job_is_taken_away(slurm: Slurm, tmp_path: Path) -> None:
    words, told, wanted = slow(tmp_path, 30, 0.1)
    every = ("--allocations", "2", "--set", "limits.checkpoints=1")
    with slurm.popen(*slurm.program(*words, "--on", "slurm:2", *every)) as process:
        until(lambda: rounds_told(told) > 5, 60.0)
        slurm.run("scancel", *slurm.jobs())
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "continuing on machines 2 of 2" in err
    assert json.loads(out)["statistics"]["resumed_from"] > 0
    assert found(tmp_path) == wanted


@pytest.mark.row("D-10")
@pytest.mark.row("C1-EXEC-1")
@pytest.mark.nightly
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("lost", [1, 2])
def test_a_run_goes_on_when_nodes_go_down(
    own_slurm: Slurm, tmp_path: Path, lost: int, killed: bool
) -> None:
    """On the other machine of its job; or in the next job, where both are gone."""
    slurm = own_slurm
    words, told, wanted = slow(tmp_path, 60, 0.1)
    words += ["--on", "slurm:2", "--allocations", "2", "--set", "limits.checkpoints=1"]
    words += ["--set", "cluster.node_patience=1s"]
    with slurm.popen(*slurm.program(*words)) as run:
        until(lambda: rounds_told(told) > 5, 60.0)
        (job,) = slurm.jobs()
        names = expand_hosts(slurm.ask("squeue", "--noheader", f"--jobs={job}", "--format=%N"))
        assert len(names) == 2
        for name in names[:lost]:
            slurm.lose(name, killed=killed)
        out, err = run.communicate(timeout=200)
    assert run.returncode == 0, err
    assert found(tmp_path) == wanted
    assert json.loads(out)["progress"]["agents"] == 4
    assert ("continuing on machines 2 of 2" in err) == (lost == 2), err
    with sapwood.local(1):
        pass  # it removes the folders of processes that were killed


@pytest.mark.row("D-10")
@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("minutes", "nodes"), [(1, 2), (3, 4)])
def test_a_run_goes_on_over_the_end_of_its_job(
    slurm: Slurm, tmp_path: Path, minutes: int, nodes: int
) -> None:
    """With four nodes the next job can begin only when the first has ended."""
    rounds = 80 * minutes
    words, told, wanted = slow(tmp_path, rounds, 1.0)
    limits = ("--set", f'nodes.slurm=["--time={minutes}", "--exclusive"]', "--set")
    done = slurm.sapwood(
        *(*words, "--on", f"slurm:{nodes}", "--allocations", "4", *limits),
        f"nodes.drain={10 * minutes}s",
        timeout=800,
    )
    assert done.returncode == 0, done.stderr
    assert "continuing on machines 2 of 4" in done.stderr
    assert found(tmp_path) == wanted
    counted = Counter(told.read_text().splitlines())
    assert counted == {f"{one} {rank}": 1 for one in range(rounds) for rank in range(1, 5)}
