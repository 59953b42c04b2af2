"""``sapwood exec`` on hosts with separate addresses, through ssh."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.system.hosts.network import Network, until

from sapwood.core.hostset import expand_hosts

pytestmark = pytest.mark.timeout(300)


def execute(hosts: Network, *words: str) -> subprocess.CompletedProcess[str]:
    return hosts.sapwood("exec", *hosts.on(), *words)


@pytest.mark.row("C3-IOF")
def test_equal_lines_of_all_hosts_are_one(hosts: Network) -> None:
    script = "echo same; ip -4 -o addr show dev eth0 | awk '{print $4}'; exit 4"
    done = execute(hosts, "--", "sh", "-c", script)
    assert done.returncode == 4, done.stderr
    lines = done.stdout.splitlines()
    # One line for all of them, but for hosts that answer later than the others.
    same = [line.removesuffix(": same") for line in lines if line.endswith(": same")]
    assert sorted(name for several in same for name in expand_hosts(several)) == list(hosts.names)
    assert len(same) < len(hosts.names)
    others = [line for line in lines if not line.endswith(": same")]
    assert sorted(others) == [f"{name}: {hosts.address(name)}/24" for name in hosts.names]
    assert "sapwood: n[1-4]: exit code 4" in done.stderr


@pytest.mark.row("C3-IOF")
def test_standard_input_arrives_whole_on_all_hosts(hosts: Network, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(os.urandom(2**20) * 10)
    with data.open("rb") as file:
        done = hosts.sapwood("exec", *hosts.on(), "--stdin", "all", "--", "sha256sum", stdin=file)
    expected = hashlib.sha256(data.read_bytes()).hexdigest()
    assert (done.returncode, done.stdout) == (0, f"n[1-4]: {expected}  -\n"), done.stderr


ENDLESS = "trap '' HUP; setsid sleep 600 & echo ready; wait"
"""``wait``, and no command: dash loses a Ctrl-C that comes while it starts one."""


@pytest.mark.parametrize(
    ("how", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_nothing_is_left_on_any_host(hosts: Network, how: signal.Signals, status: int) -> None:
    sapwood = str(Path(sys.executable).with_name("sapwood"))
    words = ("--no-label", "--", "sh", "-c", ENDLESS)
    process = subprocess.Popen(
        hosts.command("head", sapwood, "exec", *hosts.on(), *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        for _ in hosts.names:
            assert process.stdout.readline() == b"ready\n"
        until(lambda: all(sleeping(hosts, name) == 1 for name in hosts.names))
        process.send_signal(how)
        assert process.wait(60) == status
    until(hosts.is_clean)


def sleeping(hosts: Network, name: str) -> int:
    """How many processes of the command have begun on a host."""
    found = 0
    for pid in hosts.processes(name):
        found += Path(f"/proc/{pid}/comm").read_text() == "sleep\n"
    return found


def test_a_killed_daemon_leaves_nothing_and_is_named(hosts: Network) -> None:
    """The command of that host is killed; on the others it runs to its end."""
    sapwood = str(Path(sys.executable).with_name("sapwood"))
    script = "echo $SSH_CONNECTION; setsid sleep 600 & read x; exit 0"
    process = subprocess.Popen(
        hosts.command(
            "head", sapwood, "exec", *hosts.on(), "--stdin", "all", "--", "sh", "-c", script
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        for _ in hosts.names:
            process.stdout.readline()
        daemon = hosts.daemon("n2")
        os.kill(daemon, signal.SIGKILL)
        out, err = process.communicate(b"\n", timeout=60)
        assert process.returncode == 6, (out, err)
        assert b"sapwood: n2: the node is gone" in err
    until(hosts.is_clean)
