"""Heads that announce themselves on a network, and machines that find and join them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.hosts.network import Network, missing, until

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(240)]

FORGER = """\
import sys, threading
from sapwood.nodes.discovery import AnnouncedCluster, Announcement
pin, place = sys.argv[1:]
made = Announcement(AnnouncedCluster(name="forged", cluster="sw-f", pin=pin, addresses=[place]))
made.start()
made.made.wait()
print("there", flush=True)
sys.stdin.read()
made.close()
"""


class Lan:
    """Machines on a network, and clusters that are up there.

    Attributes:
        up: What ``sapwood up`` said, by the name of the cluster.
    """

    def __init__(self, hosts: Network) -> None:
        self.hosts = hosts
        self.up: dict[str, Any] = {}
        self._where: dict[str, str] = {}

    def command(self, host: str, *words: str) -> list[str]:
        home = self.hosts.folder / f"home-{host}"
        return self.hosts.command(
            host, "env", f"XDG_STATE_HOME={home}/state", f"XDG_CACHE_HOME={home}/cache", *words
        )

    def sapwood(self, host: str, *words: str, status: int = 0, given: str = "") -> str:
        done = subprocess.run(
            self.command(host, sys.executable, "-m", "sapwood", *words),
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == status, (words, done.returncode, done.stdout, done.stderr)
        return done.stderr if status else done.stdout

    def begin(self, host: str, name: str, *words: str) -> None:
        said = self.sapwood(
            host, "up", "--cluster", name, "--no-node", "--listen", "0.0.0.0:0", *words, "--json"
        )
        self.up[name] = json.loads(said)
        self._where[name] = host

    def token(self, name: str) -> str:
        return str(self.up[name]["join"]).partition("@")[0]

    def pin(self, name: str) -> str:
        return self.token(name).split(".")[3]

    def found(self) -> dict[str, Any]:
        """What the last machine finds, by name."""
        said = self.sapwood("n2", "node", "find", "--for", "1.5s", "--json")
        assert not any(self.token(name).split(".")[2] in said for name in self.up)
        return {one["name"]: one for one in json.loads(said)["clusters"]}

    def down(self) -> None:
        for name, host in self._where.items():
            self.sapwood(host, "down", "--cluster", name)


@pytest.fixture(scope="module")
def lan(
    nothing_is_left_behind_by_all: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lan]:
    del nothing_is_left_behind_by_all  # it looks when the heads have ended
    reason = missing()
    if reason:
        pytest.skip(reason)
    hosts = Network(tmp_path_factory.mktemp("lan"), 2, prefix="swa", ssh=False)
    made = Lan(hosts)
    try:
        hosts.up()
        made.begin("head", "lab", "--announce")
        made.begin("head", "quiet")
        made.begin("n1", "den", "--announce")
        yield made
        made.down()
    finally:
        hosts.down()


def test_heads_are_found_that_announce_themselves_and_no_others(lan: Lan) -> None:
    found = lan.found()
    assert found.keys() == {"lab", "den"}
    for name, one in found.items():
        assert one["pin"] == lan.pin(name)
        assert set(one["places"]) <= set(lan.up[name]["places"])
        assert not any("127.0.0.1" in place for place in one["places"])
    shown = lan.sapwood("n2", "node", "find", "--for", "1.5s")
    assert found["lab"]["places"][0] in shown


@pytest.mark.row("A-ACT-1")
def test_a_machine_joins_by_the_token_alone(lan: Lan) -> None:
    lan.sapwood("n2", "node", "join", "-", "--find", "--background", given=lan.token("den"))
    nodes = json.loads(lan.sapwood("n1", "node", "list", "--cluster", "den", "--json"))["nodes"]
    assert [one["state"] for one in nodes] == ["ready"]
    lan.sapwood("n1", "node", "delete", nodes[0]["name"], "--cluster", "den")
    until(lambda: not lan.hosts.processes("n2"))


def test_a_token_whose_head_is_silent_says_who_is_announced(lan: Lan) -> None:
    said = lan.sapwood("n2", "node", "join", "--find", lan.token("quiet"), status=6)
    assert "no head on this network has made the token" in said
    assert "lab" in said
    assert lan.token("quiet").split(".")[2] not in said


def test_who_announces_the_pin_of_another_head_gets_no_secret(lan: Lan) -> None:
    place = lan.up["den"]["places"][0]
    with _running(lan, "n1", FORGER, lan.pin("quiet"), place):
        said = lan.sapwood("n2", "node", "join", "--find", lan.token("quiet"), status=7)
    assert "this is not the head that made the join token" in said
    nodes = json.loads(lan.sapwood("n1", "node", "list", "--cluster", "den", "--json"))["nodes"]
    assert {one["state"] for one in nodes} <= {"removed"}


def test_the_announcer_is_a_component_that_can_be_stopped(lan: Lan) -> None:
    lan.sapwood("head", "node", "stop", "announcer", "--nodes", "head", "--cluster", "lab")
    assert lan.found().keys() == {"den"}
    lan.sapwood("head", "node", "start", "announcer", "--nodes", "head", "--cluster", "lab")
    until(lambda: lan.found().keys() == {"lab", "den"})


def test_a_head_that_listens_on_its_machine_only_is_not_announced(lan: Lan) -> None:
    said = lan.sapwood("n2", "up", "--cluster", "own", "--announce", "--no-node", status=2)
    assert "there is nothing to announce" in said


@contextlib.contextmanager
def _running(lan: Lan, host: str, source: str, *words: str) -> Iterator[None]:
    """Have a Python source run on a host, which says when it is ready."""
    script = Path(lan.hosts.folder / "script.py")
    script.write_text(source)
    process = subprocess.Popen(
        lan.command(host, sys.executable, os.fspath(script), *words),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "there\n"
        yield
        process.stdin.close()
        assert process.wait(20) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
