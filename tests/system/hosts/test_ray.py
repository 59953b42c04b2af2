"""Clusters through Ray: machines that are waited for, used, lost, and given back."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.system.hosts.network import until
from tests.system.hosts.ray_cluster import RayCluster

from sapwood.testing.launchers import CHECKS

ROOT = Path(__file__).parents[3]
PROGRAM = (str(ROOT / "examples" / "quantize"), "--json", "-p", "colours=8", "--agents", "4")

pytestmark = pytest.mark.timeout(300)


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def sapwood(ray: RayCluster, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return ray.run("head", *ray.program(*words), **{"check": False, **options})


CONFORMANCE = """
import json, traceback
from sapwood.contexts.launchers.ray import RayLauncher
from sapwood.testing.launchers import CHECKS
launcher = RayLauncher(2, cpus=1)
launcher.request()
found = {"hosts": launcher.hosts}
for check in CHECKS:
    try:
        check(launcher)
    except Exception:
        found[check.__name__] = traceback.format_exc()
print(json.dumps(found))
"""


@pytest.mark.row("D-5")
@pytest.mark.nightly
def test_conformance(ray: RayCluster) -> None:
    """All checks in one process, as only the hosts of the cluster reach it."""
    assert len(CHECKS) > 10
    done = ray.run("head", sys.executable, "-c", CONFORMANCE, check=False)
    assert answer(done) == {"hosts": ["n1", "n2"]}, done.stdout


@pytest.mark.row("C1-RES-1")
@pytest.mark.row("D-5")
def test_the_picture_is_that_of_one_machine(ray: RayCluster, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the folder of the user is imported')")
    here, there = tmp_path / "here.png", tmp_path / "there.png"
    alone = answer(sapwood(ray, "run", *PROGRAM, "-o", str(here)))
    run = ("run", *PROGRAM, "-o", str(there), "--on", "ray:2")
    several = answer(sapwood(ray, *run, cwd=tmp_path))
    assert several["progress"]["iteration"] == alone["progress"]["iteration"]
    assert several["result"] == alone["result"]
    assert there.read_bytes() == here.read_bytes()


@pytest.mark.nightly  # a Ray cluster is slow, and takes the memory of the tests beside it
def test_by_default_there_is_an_agent_for_each_cpu_of_ray(ray: RayCluster) -> None:
    code = (
        "import sapwood\n"
        "with sapwood.ray(2) as cluster:\n"
        "    print(len(cluster.agents), *cluster.map(pow, range(4), [2] * 4), flush=True)\n"
        "    input()\n"
    )
    with ray.popen(sys.executable, "-c", code, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "4 0 1 4 9\n"
        until(lambda: ray.asked()["free"] == 0)
        _, err = process.communicate("\n", timeout=60)
        assert process.returncode == 0, err
    until(lambda: ray.asked()["free"] == 4)


@pytest.mark.nightly
def test_a_command_runs_on_each_machine(ray: RayCluster, tmp_path: Path) -> None:
    """It gets its input, and the machine's variables and signals, not a worker's."""
    data = tmp_path / "data"
    data.write_bytes(os.urandom(2**20) * 3)
    script = (
        "sha256sum; ip -4 -o addr show dev eth0 | awk '{print $4}'; "
        "echo threads=$OMP_NUM_THREADS; grep SigBlk /proc/self/status; exit 4"
    )
    with data.open("rb") as file:
        words = ("exec", "--on", "ray:2", "--stdin", "all", "--", "sh", "-c", script)
        done = sapwood(ray, *words, stdin=file)
    assert done.returncode == 4, done.stderr
    expected = hashlib.sha256(data.read_bytes()).hexdigest()
    found = done.stdout.splitlines()
    assert {f"{name}: {ray.address(name)}/24" for name in ray.names} < set(found)
    plain = {line.partition(": ")[2] for line in found if "/24" not in line}
    assert plain == {f"{expected}  -", "threads=", "SigBlk:\t0000000000000000"}
    assert "sapwood: n[1-2]: exit code 4" in done.stderr


@pytest.mark.nightly  # a Ray cluster is slow, and takes the memory of the tests beside it
@pytest.mark.parametrize(
    ("how", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_a_command_leaves_nothing(ray: RayCluster, how: signal.Signals, status: int) -> None:
    # `wait`, and no command: dash loses a Ctrl-C that comes while it starts one.
    script = "trap '' HUP; setsid sleep 600 & echo ready; wait"
    words = ray.program("exec", "--on", "ray:2", "--no-label", "--", "sh", "-c", script)
    with ray.popen(*words, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in ray.names] == ["ready\n"] * 2
        process.send_signal(how)
        assert process.wait(60) == status
    until(ray.is_clean)


# --- waiting -------------------------------------------------------------------------------------


@pytest.mark.nightly  # a Ray cluster is slow, and takes the memory of the tests beside it
@pytest.mark.row("C1-RES-2")
def test_machines_that_others_have_are_waited_for_and_shown(ray: RayCluster) -> None:
    with ray.taken(1):
        process = ray.popen(*ray.program("run", *PROGRAM, "--on", "ray:2"))
        assert process.stderr is not None
        line = process.stderr.readline()
        while "Ray: no answer yet" in line:
            line = process.stderr.readline()
        assert line == (
            "sapwood: Ray: 2 machines with 2 CPUs each wanted; 2 in the cluster, "
            "2 of 4 CPUs free (NO_RESOURCES)\n"
        )
    with process:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert json.loads(out)["progress"]["agents"] == 4


@pytest.mark.row("C1-RES-2")
@pytest.mark.parametrize("command", ["run", "exec"])
def test_machines_that_do_not_come_are_waited_for_and_named(ray: RayCluster, command: str) -> None:
    words = PROGRAM if command == "run" else ("true",)
    options = ("--on", "ray:3", "--set", "nodes.ray_timeout=4")
    done = sapwood(ray, command, *options, *words)
    assert done.returncode == 5, done.stderr
    lines = [line for line in done.stderr.splitlines() if "Ray: no answer yet" not in line]
    first, second, *_ = lines
    assert first.startswith("sapwood: Ray: 3 machines with ")
    assert "each wanted; 2 in the cluster, 4 of 4 CPUs free" in first
    assert "Ray did not have 3 machines with " in second
    assert second.endswith(" each within 4 s")


@pytest.mark.nightly  # a Ray cluster is slow, and takes the memory of the tests beside it
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_wait_that_ends_leaves_nothing(ray: RayCluster, how: signal.Signals) -> None:
    with ray.popen(*ray.program("run", *PROGRAM, "--on", "ray:3")) as process:
        assert process.stderr is not None
        assert "3 machines" in process.stderr.readline()
        assert ray.asked()["groups"] == 1
        process.send_signal(how)
        process.communicate(timeout=60)
        assert process.returncode == (130 if how == signal.SIGINT else -9)
    until(ray.is_clean)


def test_no_cluster_is_named(ray: RayCluster, tmp_path: Path) -> None:
    """In a separate PID namespace: Ray would find other clusters among the processes."""
    environment = {name: value for name, value in os.environ.items() if "RAY_" not in name}
    done = subprocess.run(
        ["unshare", "-p", "-n", "-f", "--mount-proc", *ray.program("exec", "--on", "ray:2", "ls")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment | {"RAY_TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 2, done.stderr
    assert "no Ray cluster runs on this machine" in done.stderr
    assert "ray start --head" in done.stderr


@pytest.mark.nightly  # a Ray cluster is slow, and takes the memory of the tests beside it
def test_other_versions_are_named(ray: RayCluster) -> None:
    version = ".".join(map(str, sys.version_info[:3]))
    ray.asked("python", "3.9.1")
    try:
        done = sapwood(ray, "exec", "--on", "ray:2", "true")
    finally:
        ray.asked("python", version)
    assert done.returncode == 2, done.stderr
    assert "the Ray cluster has other versions of Ray or Python" in done.stderr
    assert "Python: 3.9.1" in done.stderr


# --- ends ----------------------------------------------------------------------------------------

ENDLESS = """
import time
import sapwood
with sapwood.ray(2, 4) as cluster:
    tasks = [cluster.submit(time.sleep, 600) for _ in range(4)]
    print("ready", flush=True)
    tasks[0].result()
"""


@pytest.mark.nightly  # a Ray cluster is slow, and takes the memory of the tests beside it
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_when_the_client_is_ended(ray: RayCluster, how: signal.Signals) -> None:
    with ray.popen(sys.executable, "-c", ENDLESS, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert all(ray.processes(name) for name in ray.names)
        process.send_signal(how)
        process.wait(30)
    until(ray.is_clean)


@pytest.mark.nightly  # a Ray cluster is slow, and takes the memory of the tests beside it
def test_nothing_is_left_when_what_holds_the_machines_is_killed(ray: RayCluster) -> None:
    with ray.popen(sys.executable, "-c", ENDLESS) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(ray.holder(), signal.SIGKILL)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "the connection with Ray has ended" in err
    until(ray.is_clean)


LOST = """
import sys
import sapwood
from sapwood.environment.settings import RestartSettings, Settings
settings = Settings(restart=RestartSettings(limit=100))
with sapwood.ray(2, 4, settings=settings) as cluster:
    with cluster.stream(lambda x: x, reduce="sum", on_loss="replace") as stream:
        assert stream.exchange(1, timeout=60).total == 4
        print("ready", flush=True)
        sys.stdin.readline()
        print(stream.exchange(2, timeout=60).total, flush=True)
"""


@pytest.mark.nightly  # a Ray cluster is slow, and takes the memory of the tests beside it
@pytest.mark.parametrize("what", ["daemon", "actor"])
def test_a_node_whose_daemon_is_killed_comes_back(ray: RayCluster, what: str) -> None:
    with ray.popen(sys.executable, "-c", LOST, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(ray.daemon("n1") if what == "daemon" else ray.actor("n1"), signal.SIGKILL)
        out, err = process.communicate("\n", timeout=120)
        assert process.returncode == 0, err
        assert out == "8\n"


NAMED = """
from sapwood.contexts.launchers.ray import RayLauncher
launcher = RayLauncher(2, cpus=1)
launcher.request()
for said in ("ready", "again"):
    process = launcher.start("n2", "echo begun; exec cat")
    if said == "ready":
        assert process.stdout.readline() == b"begun\\n"
        print(said, flush=True)
    status = process.wait(60)
    print(launcher.explain("n2", status, process.stderr.read().decode()), flush=True)
    process.communicate()
launcher.close()
"""


@pytest.mark.nightly  # a Ray cluster is slow, and takes the memory of the tests beside it
def test_a_machine_that_ray_loses_is_named(ray: RayCluster) -> None:
    try:
        with ray.popen(sys.executable, "-c", NAMED) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            ray.kill_node("n2")
            out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        first, second = out.splitlines()  # Ray knows of the actor's end before the machine's
        assert first.startswith(("Ray ended the command: ", "Ray has lost this machine: "))
        assert second.startswith("Ray has lost this machine: ")
        until(ray.is_clean)
    finally:
        ray.start_ray("n2")
        until(lambda: ray.asked()["nodes"] == 3)


MOVED = """
import sys
import sapwood
with sapwood.ray(2, 4) as cluster:
    with cluster.stream(lambda x: x, reduce="sum", on_loss="replace") as stream:
        assert stream.exchange(1, timeout=60).total == 4
        print("ready", flush=True)
        sys.stdin.readline()
        print(stream.exchange(2, timeout=100).total, flush=True)
"""


@contextmanager
def machine_to_lose(ray: RayCluster, how: str) -> Iterator[Callable[[], None]]:
    """Give what takes the machine n2 away; afterwards it is in the cluster again."""
    try:
        yield partial(ray.kill_node if how == "killed" else ray.cut, "n2")
    finally:
        ray.heal("n2")
        ray.kill_node("n2")
        until(lambda: ray.asked()["nodes"] == 2, 60)
        ray.start_ray("n2")
        until(lambda: ray.asked()["nodes"] == 3)
    until(ray.is_clean)


@pytest.mark.nightly  # a Ray cluster is slow, and takes the memory of the tests beside it
@pytest.mark.parametrize("how", ["killed", "cut off"])
def test_agents_of_a_machine_that_ray_loses_move_to_another(ray: RayCluster, how: str) -> None:
    with machine_to_lose(ray, how) as lose:
        with ray.popen(sys.executable, "-c", MOVED, stdin=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            lose()
            out, err = process.communicate("\n", timeout=150)
        assert process.returncode == 0, err
        assert out == "8\n", err


TASKS = """
import time
import sapwood
with sapwood.ray(2, 4) as cluster:
    cluster.submit(abs, -1).result()
    tasks = [cluster.submit(lambda x: time.sleep(5) or x, number) for number in range(4)]
    print("ready", flush=True)
    print([task.result() for task in tasks], cluster.submit(pow, 2, 10).result(), flush=True)
"""


@pytest.mark.nightly  # a Ray cluster is slow, and takes the memory of the tests beside it
@pytest.mark.parametrize("how", ["killed", "cut off"])
def test_tasks_of_a_machine_that_ray_loses_are_done_on_the_other(ray: RayCluster, how: str) -> None:
    with machine_to_lose(ray, how) as lose:
        with ray.popen(sys.executable, "-c", TASKS) as process:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said == "ready\n", process.communicate(timeout=60)[1]
            lose()
            out, err = process.communicate(timeout=200)
        assert process.returncode == 0, err
        assert out == "[0, 1, 2, 3] 1024\n", err
