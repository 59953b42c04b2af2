"""Faults between hosts: links, disks, ports; their leftovers, and what neighbours notice.

The page on faults (docs/explanation/faults.md) has the table of which this is a part.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.hosts.network import Network, missing, until

pytestmark = [pytest.mark.timeout(300), pytest.mark.nightly]

GONE = 30.0
"""Seconds after which nothing of a client that ended is left on any host."""

FRONT_END = """
import json, sys
import sapwood
from sapwood.environment.settings import ClusterSettings, CommSettings, NodeSettings, Settings
from sapwood.session.embedded import embedded
given = json.loads(sys.argv[1])
settings = Settings(
    nodes=NodeSettings(ssh=given["ssh"], loss_timeout=given["loss_timeout"]),
    comm=CommSettings(heartbeat=0.5, failure_after=4.0),
    cluster=ClusterSettings(node_patience=given["node_patience"]),
)
with (
    sapwood.ssh(["n1", "n2"], 4, settings=settings) as cluster,
    cluster.stream(lambda x: x, reduce="sum", on_loss="replace") as stream,
):
    def places():
        table = embedded(cluster.session).supervisor.processes
        return [[one.pid, one.state.shown] for one in table]
    assert stream.exchange(1, timeout=60).total == 4
    print(json.dumps(places()), flush=True)
    for line in sys.stdin:
        if line == "look\\n":
            print(json.dumps(places()), flush=True)
        else:
            print(stream.exchange(int(line), timeout=100).total, flush=True)
"""


class FrontEnd:
    """A client with two agents on each of two hosts; it makes waves on demand.

    Args:
        hosts: The hosts.
        loss_timeout: Seconds until a node counts as lost.
        node_patience: Seconds for which its agents wait for it.
    """

    def __init__(
        self, hosts: Network, *, loss_timeout: float = 10.0, node_patience: float = 10.0
    ) -> None:
        given = {
            "ssh": [*hosts.ssh_options, "-o", "ConnectTimeout=5"],
            "loss_timeout": loss_timeout,
            "node_patience": node_patience,
        }
        self.process = subprocess.Popen(
            hosts.command("head", sys.executable, "-c", FRONT_END, json.dumps(given)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self.places = self._answer()

    def look(self) -> list[list[Any]]:
        """Return process and state of each place: four agents, and the junctions of both hosts."""
        self._say("look")
        return self._answer()  # type: ignore[no-any-return]  # it is JSON

    def states(self) -> list[str]:
        """Return the states of all places."""
        return [state for _, state in self.look()]

    def wave(self, number: int) -> int:
        """Make a wave; return its total."""
        self.begin_wave(number)
        return self.end_wave()

    def begin_wave(self, number: int) -> None:
        """Begin a wave, and do not wait for its end."""
        self._say(str(number))

    def end_wave(self) -> int:
        """Return the total of the wave that was begun."""
        return int(self._answer())

    def _say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the client has ended"
        return json.loads(line)

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self.process.communicate(timeout=60)
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def client(hosts: Network, **options: float) -> Iterator[FrontEnd]:
    made = FrontEnd(hosts, **options)
    try:
        yield made
    finally:
        for name in ("head", *hosts.names):
            hosts.heal(name)
        made.close()


def after(seconds: float) -> None:
    """Let a fault last."""
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() > end, 2 * seconds + 10)


@pytest.mark.parametrize("victim", ["n1", "head"])
def test_a_short_cut_costs_time_only(hosts: Network, victim: str) -> None:
    """The link is down for less than the silence that counts as an end; the processes stay."""
    with client(hosts) as front:
        hosts.cut(victim)
        front.begin_wave(2)
        after(2)
        hosts.heal(victim)
        assert front.end_wave() == 8
        assert front.look() == front.places


def test_what_was_silent_for_too_long_is_replaced_when_its_host_is_back(hosts: Network) -> None:
    with client(hosts, loss_timeout=60.0) as front:
        hosts.cut("n1")
        until(lambda: set(front.states()) != {"ready"})
        front.begin_wave(2)
        hosts.heal("n1")
        assert front.end_wave() == 8
        until(lambda: set(front.states()) == {"ready"})
        before, now = ({pid for pid, _ in found} for found in (front.places, front.look()))
        assert before & now  # the processes of the other host
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in before - now))


def test_the_head_may_be_unreachable_for_ten_seconds(hosts: Network) -> None:
    """With all settings about time as they are by default, but for how soon silence counts."""
    with client(hosts) as front:
        hosts.cut("head")
        front.begin_wave(2)
        after(10)
        hosts.heal("head")
        assert front.end_wave() == 8


def test_agents_of_a_host_that_stays_away_move_and_nothing_is_left_there(hosts: Network) -> None:
    with client(hosts, loss_timeout=4.0, node_patience=4.0) as front:
        begun = time.monotonic()
        hosts.cut("n1")
        assert front.wave(2) == 8  # n1 is still away
        until(lambda: not ours(hosts, "n1"), GONE - (time.monotonic() - begun))
        hosts.heal("n1")
        assert front.wave(3) == 12


TASKS = """
import sys, time
import sapwood
from sapwood.environment.settings import ClusterSettings, CommSettings, NodeSettings, Settings
settings = Settings(
    nodes=NodeSettings(ssh=[*sys.argv[1:], "-o", "ConnectTimeout=5"], loss_timeout=4.0),
    comm=CommSettings(heartbeat=0.5, failure_after=4.0),
    cluster=ClusterSettings(node_patience=4.0),
)
with sapwood.ssh(["n1", "n2"], 4, settings=settings) as cluster:
    cluster.submit(abs, -1).result()
    tasks = [cluster.submit(lambda x: time.sleep(5) or x, number) for number in range(4)]
    print("ready", flush=True)
    print([task.result() for task in tasks], cluster.submit(pow, 2, 10).result(), flush=True)
"""


def test_tasks_of_a_host_that_stays_away_are_done_on_another(hosts: Network) -> None:
    process = subprocess.Popen(
        hosts.command("head", sys.executable, "-c", TASKS, *hosts.ssh_options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        hosts.cut("n2")
        out, err = process.communicate(timeout=200)
    finally:
        hosts.heal("n2")
        process.kill()
        process.wait()
    assert (process.returncode, out) == (0, "[0, 1, 2, 3] 1024\n"), err


def ours(hosts: Network, name: str) -> list[str]:
    """Return what runs on a host, but for ssh servers that know nothing of the cut."""
    found: list[str] = []
    for pid in hosts.processes(name):
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/{pid}/comm").read_text().strip())
    return [comm for comm in found if not comm.startswith("sshd")]


def test_a_host_without_room_on_its_disk_is_named(hosts: Network) -> None:
    bare = os.path.realpath(sys.executable)  # noqa: PTH123, RUF100 - the interpreter of the venv
    words = ["--set", f'nodes.python=["{bare}", "-I"]', "--set", "nodes.runtime=send"]
    with small_disk(hosts, "n4"):
        done = hosts.sapwood("exec", *hosts.on("n3", "n4"), *words, "--", "true")
    assert done.returncode == 6, done.stderr
    assert "1 of 2 nodes did not come" in done.stderr
    assert "n4: its disk is full: 0 MiB are free" in done.stderr


SLICES = """
import json, sys
import numpy as np
import sapwood
from sapwood.environment.settings import NodeSettings, Settings

class Sum(sapwood.Program):
    reduce = {"x": "sum"}
    def init(self, data):
        return {"x": 0.0, "round": 0}
    def map(self, slice, state):
        return {"x": slice.data.sum()}
    def update(self, state, total):
        return {"x": float(total["x"]), "round": 1}
    def done(self, state):
        return state["round"] > 0
    def result(self, state):
        return state["x"]

data = np.ones(4_000_000)
with sapwood.ssh(["n1", "n2"], 4, settings=Settings(nodes=NodeSettings(ssh=sys.argv[1:]))) as one:
    print(one.run(Sum, data).result())
"""


def test_a_run_whose_data_find_no_room_on_a_host_says_so(hosts: Network) -> None:
    with small_disk(hosts, "n2"):
        done = hosts.run("head", sys.executable, "-c", SLICES, *hosts.ssh_options, check=False)
    assert done.returncode == 1, done.stdout
    last = done.stderr.rstrip().rpartition("\n")[2]
    assert "No space left on device" in done.stderr or "full" in last, done.stderr


@pytest.fixture
def own_hosts(tmp_path: Path) -> Iterator[Network]:
    """Hosts on which no other test has run."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    made = Network(tmp_path, 2, prefix="swf")
    try:
        made.up()
        yield made
    finally:
        made.down()


def test_a_full_run_folder_on_a_host_is_passed_over_and_nothing_is_left_in_it(
    own_hosts: Network,
) -> None:
    hosts = own_hosts
    server = str(hosts._servers[hosts.names.index("n2")])
    folder = hosts.sockets("n2")
    enter = ["nsenter", "--mount", "--target", server]
    full = f"mount -t tmpfs -o size=64k,mode=700 none {folder} && cat /dev/zero > {folder}/large"
    subprocess.run([*enter, "sh", "-c", full], capture_output=True, check=False)
    try:
        done = hosts.run("head", sys.executable, "-c", SLICES, *hosts.ssh_options, check=False)
        assert done.returncode == 0, done.stderr
        assert float(done.stdout) == 4_000_000
        until(hosts.is_clean)
        left = subprocess.run(
            [*enter, "ls", "-A", folder], capture_output=True, check=True, text=True
        )
        assert left.stdout.split() == ["large"]
    finally:
        subprocess.run([*enter, "umount", "-l", folder], capture_output=True, check=True)


@contextlib.contextmanager
def small_disk(hosts: Network, name: str) -> Iterator[None]:
    """Limit the storage of a host, as its ssh server sees it, to 64 KiB."""
    server = str(hosts._servers[hosts.names.index(name)])
    cache = hosts.folder / f"cache{name[1:]}"
    inside = ["nsenter", "--target", server, "--mount"]
    subprocess.run(
        [*inside, "mount", "-t", "tmpfs", "-o", "size=64k", "none", str(cache)], check=True
    )
    try:
        yield
    finally:
        until(lambda: not hosts.processes(name))
        subprocess.run([*inside, "umount", str(cache)], check=True)


def test_a_port_that_is_taken_is_named(hosts: Network) -> None:
    listen = "import socket; s = socket.create_server(('0.0.0.0', 7700)); print(1); input()"
    with subprocess.Popen(
        hosts.command("head", sys.executable, "-uc", listen),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"1\n"
        port = ("--set", "nodes.listen=0.0.0.0:7700")
        done = hosts.sapwood("exec", *hosts.on("n1"), *port, "--", "true")
        other.communicate(b"\n")
    assert done.returncode == 6, done.stderr
    assert "Address already in use" in done.stderr
    assert "7700" in done.stderr


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_the_neighbour_is_untouched_when_a_client_ends(hosts: Network, how: signal.Signals) -> None:
    """Two clusters are on the same hosts; one is ended."""
    names = ("head", *hosts.names)
    with client(hosts) as neighbour:
        before = {name: set(hosts.processes(name)) for name in names}
        other = FrontEnd(hosts)
        try:
            for name in ("head", "n1", "n2"):
                assert before[name] < set(hosts.processes(name))
            other.process.send_signal(how)
            other.process.wait(GONE)
            until(lambda: all(set(hosts.processes(name)) <= before[name] for name in names), GONE)
        finally:
            other.close()
        assert {name: set(hosts.processes(name)) for name in names} == before
        assert neighbour.wave(2) == 8
        assert neighbour.look() == neighbour.places


@pytest.mark.parametrize("what", ["agent", "junction", "zygote"])
def test_what_is_stopped_on_a_host_is_replaced(hosts: Network, what: str) -> None:
    with client(hosts) as front:
        agent, junction = front.places[0][0], front.places[4][0]
        zygote = int(Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[1])
        stopped = {"agent": agent, "junction": junction, "zygote": zygote}[what]
        os.kill(stopped, signal.SIGSTOP)
        if what == "zygote":
            os.kill(agent, signal.SIGKILL)  # which asks for another one
        assert front.wave(2) == 8
        until(lambda: not Path(f"/proc/{stopped}").exists())
        assert front.wave(3) == 12
