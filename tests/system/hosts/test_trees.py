"""Trees between hosts: a machine may be below another one, and results are the same."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.hosts.network import Network, until

pytestmark = pytest.mark.timeout(300)

FIREWALL = """
table inet closed {
  chain input {
    type filter hook input priority 0; policy accept;
    ct state established,related accept
    tcp dport != 22 tcp flags syn drop
  }
}
"""

CLUSTER = """
import json, os, signal, sys
import numpy as np
import sapwood
from sapwood.environment.settings import CommSettings, NodeSettings, RestartSettings, Settings
from sapwood.session.embedded import embedded

SIZE = 250_000  # float64: 2 MB


def part(value):
    import numpy as np
    import sapwood

    return value * np.arange(SIZE, dtype="f8") * sapwood.here().rank


part.__globals__["SIZE"] = SIZE
nodes = NodeSettings(ssh=sys.argv[1:], start_timeout=60.0)
settings = Settings(
    nodes=nodes,
    comm=CommSettings(heartbeat=0.5, failure_after=8.0),
    restart=RestartSettings(limit=100, backoff=0.01, backoff_max=0.05),
)


def say(value):
    print(json.dumps(value), flush=True)


with sapwood.ssh(["n1", "n2", "n3", "n4"], 8, topology="kary:2", settings=settings) as cluster:
    host = embedded(cluster.session).host
    tree, hosts = host.tree, host.hosts
    hosts_of = range(1, tree.size)
    links = lambda: [one.rank for one in host.driver.figures()]
    expected = lambda n: n * np.arange(SIZE, dtype="f8") * sum(range(1, 9))
    with cluster.stream(part, reduce="sum") as stream:
        right = np.array_equal(stream.exchange(1.0, timeout=100).total, expected(1.0))
        say({
            "right": right,
            "hosts": hosts,
            "parents": tree.parents,
            "attached": {rank: placed.parent for rank, placed in host.node.router._placed.items()},
            "links": [hosts[rank] for rank in links()],
            "pids": {one.rank: one.pid for one in embedded(cluster.session).processes(hosts_of)},
        })
        for line in sys.stdin:
            if not line[0].isdigit():
                program = sapwood.load_program(f"{line.strip()}/sums.py::Sums")
                total = cluster.run(program, np.arange(80.0)).result(100)
                sent = embedded(cluster.session).content.sent
                say({"right": total == sum(range(80)), "sent": max(sent.values())})
                continue
            count = int(line)
            right = all(
                np.array_equal(stream.exchange(float(n), timeout=100).total, expected(float(n)))
                for n in range(count)
            )
            say({"right": right, "attached": {
                rank: placed.parent for rank, placed in host.node.router._placed.items()}})
"""

BYTES = 2_000_000
"""Of one partial result."""


SUMS_C = """
#include <stdint.h>
unsigned char large[{size}] = {{1, {seed}}};
double total(const double *x, int64_t n) {{
    double sum = large[0] - 1;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum;
}}
"""

SUMS_PY = """
import numpy as np
import sapwood


class Sums(sapwood.Program):
    sources = ["sums.c"]
    inputs = ("x",)
    reduce = {"sum": "sum"}
    total = sapwood.native("total")

    def init(self, data):
        return {"sum": np.zeros(1), "done": False}

    def map(self, part, state):
        x = np.ascontiguousarray(part.x, "f8").ravel()
        return {"sum": np.array([self.total(x, len(x))])}

    def update(self, state, total):
        return {"sum": total["sum"], "done": True}

    def done(self, state):
        return state["done"]

    def result(self, state):
        return float(state["sum"][0])
"""


def write_program(folder: Path, size: int, seed: int) -> Path:
    """Write a program whose library is large; machines do not see where it is built."""
    folder.mkdir()
    (folder / "sums.c").write_text(SUMS_C.format(size=size, seed=seed))
    (folder / "sums.py").write_text(SUMS_PY)
    return folder


class Front:
    """A client on the head, with a cluster over four machines of which two are below others."""

    def __init__(self, hosts: Network) -> None:
        command = hosts.command("head", sys.executable, "-c", CLUSTER, *hosts.ssh_options)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"XDG_CACHE_HOME": str(hosts.folder / "cache0")},
        )
        try:
            self.first = self.hear()
        except BaseException:
            self.kill()
            raise

    def hear(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            assert self.process.stderr is not None
            pytest.fail(self.process.stderr.read())
        return json.loads(line)

    def order(self, what: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()

    def waves(self, count: int) -> Any:
        self.order(count)
        return self.hear()

    def junction(self, machine: int) -> int:
        """Return the process id of the junction of a machine that is below the root."""
        for rank, parent in self.first["attached"].items():
            if parent == 0 and self.first["hosts"][int(rank)] == machine:
                return int(self.first["pids"][rank])
        pytest.fail(f"machine {machine} is not below the root")

    def kill(self) -> None:
        """End it if it still runs."""
        self.process.kill()
        self.process.communicate()

    def end(self) -> str:
        _, said = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, said
        return said


def sent(hosts: Network, name: str) -> int:
    """Return the bytes that a host has sent so far."""
    shown = hosts.run(name, "cat", "/proc/net/dev").stdout
    found = re.search(r"eth0:\s*(.*)", shown)
    assert found is not None
    return int(found.group(1).split()[8])


@pytest.fixture
def front(hosts: Network) -> Iterator[Front]:
    """A client with its cluster."""
    made = Front(hosts)
    yield made
    made.kill()


@pytest.fixture
def firewall(hosts: Network) -> Iterator[str]:
    """A host, machine 3, which accepts only connections of ssh."""
    space = hosts.namespace("n3")
    subprocess.run(
        ["ip", "netns", "exec", space, "nft", "-f", "-"], input=FIREWALL, text=True, check=True
    )
    yield "n3"
    subprocess.run(["ip", "netns", "exec", space, "nft", "flush", "ruleset"], check=True)


@pytest.mark.row("C3-TOPO")
def test_one_partial_result_leaves_each_machine(hosts: Network, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    capture = subprocess.Popen(
        hosts.command(
            "switch",
            "tcpdump",
            "-i",
            "bridge",
            "-U",
            "-s",
            "400",
            "-w",
            str(seen),
            "tcp and not port 22",
        ),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert capture.stderr is not None
    try:
        assert "listening" in capture.stderr.readline()
        front = Front(hosts)
        first = front.first
        assert first["right"]
        above = {
            first["hosts"][int(rank)]: first["hosts"][parent]
            for rank, parent in first["attached"].items()
            if first["hosts"][int(rank)] != first["hosts"][parent]
        }
        assert above == {1: 0, 2: 1, 3: 0, 4: 3}
        assert sorted(first["links"]) == [1, 3]
        before = {name: sent(hosts, name) for name in hosts.names}
        assert front.waves(5)["right"]
        for name in hosts.names:
            assert 5 * BYTES < sent(hosts, name) - before[name] < 5 * 1.3 * BYTES, name
        # A junction with machines below it is killed, and what is below heals.
        front.order(8)
        os.kill(front.junction(1), signal.SIGKILL)
        assert front.hear()["right"]
        until(lambda: front.waves(1)["attached"] == first["attached"], 60)
        said = front.end()
    finally:
        capture.send_signal(signal.SIGINT)
        capture.wait(10)
        capture.stderr.close()
    shown = hosts.run("switch", "tcpdump", "-nn", "-x", "-r", str(seen)).stdout
    greetings = re.findall(r"IP ([\d.]+)\.\d+ > ([\d.]+)\.\d+: Flags \[S\], ", shown)
    assert {
        (hosts.address("n2"), hosts.address("n1")),
        (hosts.address("n4"), hosts.address("n3")),
    } <= set(greetings)
    plain = "".join(re.findall(r"^\s+0x[0-9a-f]{4}:  (.*)$", shown, re.MULTILINE)).replace(" ", "")
    assert plain.count("002b0003020304") == len(greetings)
    assert "Traceback" not in said


@pytest.mark.nightly
def test_a_machine_that_nobody_can_connect_to_has_nobody_below_it(
    firewall: str, front: Front
) -> None:
    assert firewall == "n3"
    first = front.first
    assert first["right"]
    above = {
        first["hosts"][int(rank)]: first["hosts"][parent]
        for rank, parent in first["attached"].items()
        if first["hosts"][int(rank)] != first["hosts"][parent]
    }
    assert above == {1: 0, 2: 1, 3: 0, 4: 0}
    assert front.waves(3)["right"]
    said = front.end()
    assert "attached elsewhere" in said
    assert "n4" in said
    assert "n3" in said


@pytest.mark.row("A-CODE-4")
@pytest.mark.nightly
def test_content_leaves_the_root_once_for_each_machine_below_it(
    hosts: Network, front: Front, tmp_path: Path
) -> None:
    size = 8 * 2**20
    program = write_program(tmp_path / "first", size, os.getpid() % 251)
    front.order(program)
    told = front.hear()
    assert told["right"]
    assert 2 * size < told["sent"] < 2.2 * size  # of four machines two are below the root
    for name in hosts.names:
        folder = hosts.folder / f"cache{name[1:]}" / "sapwood" / "content"
        assert [path for path in folder.iterdir() if path.stat().st_size > size]
        assert not list(folder.glob("*.part"))
    front.order(program)
    assert front.hear() == told
    # The junction that passes it on is killed while it does.
    front.order(write_program(tmp_path / "second", 8 * size, 1 + os.getpid() % 251))
    below = hosts.folder / "cache2" / "sapwood" / "content"
    until(lambda: [one for one in below.iterdir() if one.stat().st_size > 8 * size])
    os.kill(front.junction(1), signal.SIGKILL)
    told = front.hear()
    assert told["right"]
    assert told["sent"] < 3.2 * 8 * size
    front.end()
