"""Clusters through ssh: several hosts with separate addresses, one result."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.system.hosts.network import Network, until

ROOT = Path(__file__).parents[3]
QUANTIZE = str(ROOT / "examples" / "quantize")
PROGRAM = (QUANTIZE, "--json", "-p", "colours=8")

AGENTS = 4

pytestmark = pytest.mark.timeout(300)


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.row("A-CI-1")
@pytest.mark.row("C1-RES-1")
@pytest.mark.row("D-5")
def test_the_picture_is_that_of_one_machine(hosts: Network, tmp_path: Path) -> None:
    here, there = tmp_path / "here.png", tmp_path / "there.png"
    alone = answer(hosts.sapwood("run", *PROGRAM, "--agents", str(AGENTS), "-o", str(here)))
    run = ("run", *PROGRAM, "--agents", str(AGENTS), "-o", str(there))
    several = answer(hosts.sapwood(*run, *hosts.on("n1", "n2")))
    assert several["progress"]["iteration"] == alone["progress"]["iteration"]
    assert several["result"] == alone["result"]
    assert there.read_bytes() == here.read_bytes()


@pytest.mark.row("A-DATA-3")
def test_nothing_but_tls_passes_between_hosts(hosts: Network, tmp_path: Path) -> None:
    """What the bridge sees: ssh, and TLS records of version 1.3 on the port of the head."""
    seen = tmp_path / "seen"
    filtered = "tcp and not port 22"
    capture = subprocess.Popen(
        hosts.command(
            "switch",
            *("tcpdump", "--immediate-mode", "-i", "bridge", "-U"),
            "-w",
            str(seen),
            filtered,
        ),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert capture.stderr is not None
    try:
        assert "listening" in capture.stderr.readline()
        code = (
            "import sapwood, sys\n"
            "from sapwood.environment.settings import *\n"
            "nodes = NodeSettings(ssh=sys.argv[1:])\n"
            "with sapwood.ssh(['n1', 'n2'], 4, settings=Settings(nodes=nodes)) as cluster:\n"
            "    for answer in cluster.map(lambda x: x * 'sapwood-marker', [1000] * 8):\n"
            "        assert len(answer) == 14000\n"
        )
        done = hosts.run("head", sys.executable, "-c", code, *hosts.ssh_options, check=False)
        assert done.returncode == 0, done.stderr
    finally:
        capture.send_signal(signal.SIGINT)
        capture.wait(10)
        capture.stderr.close()
    packets = seen.read_bytes()
    assert len(packets) > 20_000
    assert b"sapwood-marker" not in packets
    assert b"cloudpickle" not in packets
    shown = hosts.run("switch", "tcpdump", "-nn", "-x", "-r", str(seen)).stdout
    greetings = re.findall(r"Flags \[S\], ", shown)
    assert greetings
    # A client greets with a handshake record (22) of legacy version 3.1 in which it offers TLS 1.3
    # (supported_versions, 43: one version of two bytes, 3.4), and there are as many as connections.
    plain = "".join(re.findall(r"^\s+0x[0-9a-f]{4}:  (.*)$", shown, re.MULTILINE)).replace(" ", "")
    assert plain.count("002b0003020304") == len(greetings)


def test_hosts_that_do_not_come_are_named_with_their_cause(hosts: Network) -> None:
    names = hosts.on("n1", "n7", "n8")
    done = hosts.sapwood("run", *PROGRAM, *names)
    assert done.returncode == 6, done.stderr
    assert "2 of 3 nodes did not come" in done.stderr
    assert "n[7-8]: the name is not known" in done.stderr


def test_a_host_without_the_key_is_named(hosts: Network, tmp_path: Path) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True
    )
    config = (hosts.folder / "ssh_config").read_text()
    wrong = tmp_path / "config"
    wrong.write_text(config.replace(str(hosts.folder / "user_key"), str(tmp_path / "other")))
    words = ("--on", "ssh:n1", "--set", f'nodes.ssh=["-F", "{wrong}"]')
    done = hosts.sapwood("run", *PROGRAM, *words)
    assert done.returncode == 6, done.stderr
    assert "n1: it refuses the login (publickey)" in done.stderr


def test_a_host_without_python_is_named(hosts: Network) -> None:
    words = (*hosts.on("n1"), "--set", 'nodes.python=["/nowhere/python"]')
    done = hosts.sapwood("run", *PROGRAM, *words)
    assert done.returncode == 6, done.stderr
    assert "n1: it has no Python 3.11 or newer" in done.stderr


def test_the_runtime_travels_once(hosts: Network) -> None:
    """A bare Python is all that a host needs; what it is sent it keeps."""
    bare = os.path.realpath(sys.executable)  # noqa: PTH123, RUF100 - the interpreter of the venv
    words = ("--set", f'nodes.python=["{bare}", "-I"]', "--set", "nodes.runtime=send")
    first = hosts.sapwood("run", *PROGRAM, *hosts.on("n3"), *words)
    kept = list((hosts.folder / "cache3" / "sapwood" / "runtime").iterdir())
    assert answer(first)["progress"]["agents"] >= 1
    assert [(one / "sapwood" / "__init__.py").is_file() for one in kept] == [True]
    inode = (kept[0] / "sapwood" / "__init__.py").stat().st_ino
    answer(hosts.sapwood("run", *PROGRAM, *hosts.on("n3"), *words))
    assert (kept[0] / "sapwood" / "__init__.py").stat().st_ino == inode


ENDLESS = """
import sys, time
import sapwood
from sapwood.environment.settings import NodeSettings, Settings
nodes = NodeSettings(ssh=sys.argv[1:])
with sapwood.ssh(["n1", "n2"], 4, settings=Settings(nodes=nodes)) as cluster:
    tasks = [cluster.submit(time.sleep, 600) for _ in range(4)]
    print("ready", flush=True)
    tasks[0].result()
"""


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)]
)
def test_nothing_is_left_when_the_client_is_ended(hosts: Network, how: signal.Signals) -> None:
    command = hosts.command("head", sys.executable, "-c", ENDLESS, *hosts.ssh_options)
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    assert all(hosts.processes(name) for name in ("n1", "n2"))
    process.send_signal(how)
    process.wait(30)
    process.stdout.close()
    until(hosts.is_clean)


LOST = """
import sys
import numpy as np
import sapwood
from sapwood.environment.settings import NodeSettings, RestartSettings, Settings
nodes = NodeSettings(ssh=sys.argv[1:])
settings = Settings(nodes=nodes, restart=RestartSettings(limit=100))
with sapwood.ssh(["n1", "n2"], 4, settings=settings) as cluster:
    with cluster.stream(lambda x: x, reduce="sum", on_loss="replace") as stream:
        assert stream.exchange(1, timeout=60).total == 4
        print("ready", flush=True)
        sys.stdin.readline()
        print(stream.exchange(2, timeout=60).total, flush=True)
"""


def test_a_node_whose_daemon_is_killed_comes_back(hosts: Network) -> None:
    process = subprocess.Popen(
        hosts.command("head", sys.executable, "-c", LOST, *hosts.ssh_options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.kill(hosts.daemon("n1"), signal.SIGKILL)
    out, err = process.communicate("\n", timeout=120)
    assert process.returncode == 0, err
    assert out == "8\n"
