"""Sessions over hosts: clients on other machines come, are killed, and come back elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.system.hosts.network import Network, missing, until

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(240)]

NODES = ("n1", "n2")

FRONT_END = """
import json, operator, sys
import sapwood
line, begin = sys.argv[1:]
with sapwood.attach(line) as session:
    if begin == "begin":
        stream = session.stream(abs, reduce=operator.add)
    else:
        (stream,) = session.kept_streams
    for value in sys.stdin:
        result = stream.broadcast(int(value)).result(60)
        print(json.dumps([result.total, result.agents]), flush=True)
    session.detach()
"""


class Cluster:
    """A cluster that stays on some hosts."""

    def __init__(self, hosts: Network) -> None:
        self.hosts = hosts

    def command(self, host: str, *words: str) -> list[str]:
        home = self.hosts.folder / f"home-{host}"
        folders = [f"XDG_{kind}_HOME={home}/{kind.lower()}" for kind in ("STATE", "CACHE")]
        return self.hosts.command(host, "env", *folders, sys.executable, *words)

    def sapwood(self, host: str, *words: str, given: str = "") -> str:
        done = subprocess.run(
            self.command(host, "-m", "sapwood", *words),
            input=given,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def session(self) -> dict[str, Any]:
        (found,) = json.loads(self.sapwood("head", "session", "list", "--json"))["sessions"]
        return dict(found)


class FrontEnd:
    """A program on a host that is attached to a session."""

    def __init__(self, cluster: Cluster, host: str, line: str, begin: str) -> None:
        self._process = subprocess.Popen(
            cluster.command(host, "-c", FRONT_END, line, begin),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wave(self, value: int) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{value}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def leave(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(60)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    reason = missing()
    if reason:
        pytest.skip(reason)
    hosts = Network(tmp_path_factory.mktemp("sessions"), 4, prefix="swd", ssh=False)
    made = Cluster(hosts)
    try:
        hosts.up()
        place = f"{hosts.address('head')}:7700"
        said = json.loads(made.sapwood("head", "up", "--no-node", "--listen", place, "--json"))
        token = made.sapwood("head", "token", "create", "--uses", "9", "--json")
        line = json.loads(token).get("join") or said["join"]
        for host in NODES:
            made.sapwood(host, "node", "join", "-", "--as", host, "--background", given=line)
        yield made
        made.sapwood("head", "down")
        until(hosts.is_clean)
    finally:
        hosts.down()


@pytest.mark.row("C3-SESS-1")
@pytest.mark.row("C3-SESS-3")
def test_clients_on_other_hosts_come_and_go(cluster: Cluster) -> None:
    cluster.sapwood("head", "session", "create", "night", "--agents", "4")
    text = cluster.sapwood("head", "session", "credential", "night").strip()
    begun: list[FrontEnd] = []
    try:
        first = FrontEnd(cluster, "n3", text, "begin")
        begun.append(first)
        assert first.wave(-2) == [8, [1, 2, 3, 4]]
        first.kill()
        until(lambda: cluster.session()["state"] == "detached")
        second = FrontEnd(cluster, "n4", text, "again")  # another host, the same stream
        begun.append(second)
        assert second.wave(-3) == [12, [1, 2, 3, 4]]
        cluster.hosts.cut("n4")  # the network, and not the program
        until(lambda: cluster.session()["state"] == "detached", 90)
        cluster.hosts.heal("n4")
        third = FrontEnd(cluster, "n3", text, "again")
        begun.append(third)
        assert third.wave(-4) == [16, [1, 2, 3, 4]]
        third.leave()
        assert cluster.session()["state"] == "detached"
    finally:
        for one in begun:
            one.kill()
    cluster.sapwood("head", "session", "delete", "night")


@pytest.mark.row("C1-RES-1")
def test_a_session_brings_hosts_along_by_ssh(hosts: Network) -> None:
    """Nothing of it is on them when it is over."""
    cluster = Cluster(hosts)
    cluster.sapwood("head", "up", "--no-node", "--listen", f"{hosts.address('head')}:0")
    try:
        created = ("session", "create", "two", *hosts.on(*NODES), "--agents", "4")
        assert "is ready: 4 agents" in cluster.sapwood("head", *created)
        assert cluster.session()["nodes"] == list(NODES)
        line = cluster.sapwood("head", "session", "credential", "two").strip()
        client = FrontEnd(cluster, "n3", line, "begin")
        try:
            assert client.wave(-7) == [28, [1, 2, 3, 4]]
            client.leave()
        finally:
            client.kill()
        cluster.sapwood("head", "session", "delete", "two")
        until(lambda: not any(hosts.processes(name) for name in NODES))
    finally:
        cluster.sapwood("head", "down")
