"""Firewalls: no machine need accept a connection, but for ssh on those that are reached by it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.hosts.network import Network, until

from sapwood.contexts.launchers.ssh import SHORT

ROOT = Path(__file__).parents[3]
PROGRAM = (str(ROOT / "examples" / "quantize"), "--json", "-p", "colours=8", "--agents", "4")

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("nft") is None, reason="the program nft is missing"),
]


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What one machine makes."""
    here = tmp_path_factory.mktemp("here") / "here.png"
    command = [str(Path(sys.executable).with_name("sapwood")), "run", *PROGRAM, "-o", str(here)]
    subprocess.run(command, check=True, capture_output=True)
    return here.read_bytes()


@pytest.fixture
def clean(hosts: Network) -> Iterator[Network]:
    """Hosts on which no socket is left after a test."""
    yield hosts
    until(hosts.is_clean)
    for name in hosts.names:
        assert list(hosts.sockets(name).iterdir()) == []


WAYS = """
import json, sys
import sapwood
from sapwood.environment.settings import NodeSettings, Settings
from sapwood.nodes import control
made, of = [], control.ControlTree.__init__
def init(self, *args, **options):
    made.append(self)
    of(self, *args, **options)
control.ControlTree.__init__ = init
nodes = NodeSettings(ssh=sys.argv[1:])
with sapwood.ssh(["n1", "n2"], 4, settings=Settings(nodes=nodes)) as cluster:
    tasks = [cluster.submit(pow, 2, 10) for _ in range(4)]
    assert [task.result() for task in tasks] == [1024] * 4
    print(json.dumps({view.name: view.way for view in made[0].nodes}), flush=True)
    for line in sys.stdin:
        tasks = [cluster.submit(pow, 2, 10) for _ in range(8)]
        print([task.result() for task in tasks] == [1024] * 8, flush=True)
"""


def begun(hosts: Network) -> subprocess.Popen[str]:
    """Return a client that has a cluster on two hosts."""
    return subprocess.Popen(
        hosts.command("head", sys.executable, "-c", WAYS, *hosts.ssh_options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


NIGHTLY = pytest.mark.nightly  # the way is the same, and other tests here take it, too


@pytest.mark.row("D-9")
@pytest.mark.parametrize(
    "closed",
    [
        pytest.param(("head",), marks=NIGHTLY),
        pytest.param(("n1", "n2"), marks=NIGHTLY),
        ("head", "n1", "n2"),
    ],
)
def test_the_picture_is_that_of_one_machine(
    clean: Network, tmp_path: Path, picture: bytes, closed: tuple[str, ...]
) -> None:
    there = tmp_path / "there.png"
    with clean.refusing(*closed):
        words = ("-o", str(there), "--set", "log.console=info", *clean.on("n1", "n2"))
        done = clean.sapwood("run", *PROGRAM, *words)
        answer(done)
    assert there.read_bytes() == picture
    told = [line for line in done.stderr.splitlines() if "node joined" in line and "host=" in line]
    assert len(told) == 2, done.stderr
    assert all(("way=ssh" in line) == ("head" in closed) for line in told)


@pytest.mark.nightly
def test_the_way_in_use_is_told_and_found_again_by_another_daemon(clean: Network) -> None:
    """Nothing but ssh passes; a daemon that is killed comes back by the same way."""
    with clean.refusing("head", "n1"):
        process = begun(clean)
        assert process.stdin is not None
        assert process.stdout is not None
        assert json.loads(process.stdout.readline() or "{}") == {"n1": "ssh", "n2": "ssh"}
        assert [one.name for one in clean.sockets("n1").glob("*/head.sock")] == ["head.sock"]
        for folder in clean.sockets("n1").iterdir():
            assert folder.stat().st_mode & 0o777 == 0o700
        ports = clean.run("n1", "ss", "-Hltn").stdout  # that of ssh, and no other
        assert {line.split()[3].rpartition(":")[2] for line in ports.splitlines()} == {"22"}
        os.kill(clean.daemon("n1"), signal.SIGKILL)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "True\n"
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err


@pytest.mark.nightly  # without a firewall, all other tests of this folder take it
def test_the_direct_way_is_taken_where_there_is_one(clean: Network) -> None:
    with clean.refusing("n1", "n2"):
        process = begun(clean)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline() or "{}") == {"n1": "", "n2": ""}
        assert not list(clean.sockets("n1").glob("*/head.sock"))
        process.communicate(timeout=60)


@pytest.mark.parametrize(
    "how", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.nightly)]
)
@pytest.mark.nightly
def test_nothing_is_left_when_the_client_is_ended(clean: Network, how: signal.Signals) -> None:
    with clean.refusing("head"):
        process = begun(clean)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline() or "{}") == {"n1": "ssh", "n2": "ssh"}
        masters = f"sapwood-ssh-{process.pid}-*"
        process.send_signal(how)
        process.communicate(timeout=60)
        until(clean.is_clean)
    assert not list(Path(SHORT).glob(masters))


@pytest.mark.nightly  # what ssh is asked for is tested without hosts, too
def test_a_master_of_the_user_s_own_is_used_and_lives_on(
    clean: Network, tmp_path: Path, picture: bytes
) -> None:
    config = tmp_path / "config"
    shared = f"Host *\n  ControlMaster auto\n  ControlPath {tmp_path}/%h\n"
    config.write_text((clean.folder / "ssh_config").read_text() + shared)
    ssh = ["ssh", "-F", str(config)]
    there = tmp_path / "there.png"
    clean.run("head", *ssh, "-fN", "n1", capture_output=False)  # the user is logged in already
    try:
        words = ("--on", "ssh:n1", "--set", f'nodes.ssh=["-F", "{config}"]', "-o", str(there))
        with clean.refusing("head"):
            answer(clean.sapwood("run", *PROGRAM, *words))
        assert there.read_bytes() == picture
        assert "Master running" in clean.run("head", *ssh, "-O", "check", "n1").stderr
        assert list(clean.sockets("n1").iterdir()) == []
    finally:
        clean.run("head", *ssh, "-O", "exit", "n1")
