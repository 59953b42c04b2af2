"""Two heads over one etcd of three members: one is killed, hangs, or cannot reach etcd."""

from __future__ import annotations

import contextlib
import operator
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from tests.integration.store.members import Member, address, members, wait_for, why_no_etcd

import sapwood
from sapwood.core.errors import CommunicationError, SapwoodError
from sapwood.environment.configuration import load_configuration
from sapwood.head.folder import remove_left_sockets
from sapwood.head.leadership import LEASE
from sapwood.head.parts.tokens import JoinTokens
from sapwood.head_client.access import HeadAccess
from sapwood.head_client.connection import CALL_TIMEOUT, ServiceClient
from sapwood.head_client.remote import TlsWay, show
from sapwood.security.capabilities import Capability

from .conftest import Cli, Until

pytestmark = pytest.mark.skipif(bool(why_no_etcd()), reason=why_no_etcd())

TAKE_OVER = 20.0
"""Seconds in which another head must serve, on a busy machine; it takes less than 5."""


@pytest.fixture(scope="module")
def three(
    nothing_is_left_behind_by_all: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Member]]:
    del nothing_is_left_behind_by_all  # it looks when these have ended
    with members(tmp_path_factory.mktemp("three"), 3) as running:
        for member in running:
            wait_for(address([member], "warm"))
        yield running


class TwoHeads:
    """Two heads of one cluster, as if they were on two machines, and a node that joined by hand.

    Attributes:
        serving: What `sapwood up` says of the head that serves at first.
        standing_by: The same of the other one.
        url: Where both are found.
    """

    def __init__(self, folder: Path, store: str) -> None:
        self.clis = [Cli(folder / name) for name in ("a", "b")]
        self.store = store
        self.serving = self.up(0)
        self.standing_by = self.up(1)
        assert str(self.serving["pid"]) in self.standing_by["stands_by_for"]
        self.url = f"sapwood://{','.join(self.places)}"

    def up(self, number: int) -> Any:
        return self.clis[number].json(
            "up", "--listen", "127.0.0.1:0", "--no-node", "--store", self.store
        )

    @property
    def places(self) -> list[str]:
        return [self.serving["places"][0], self.standing_by["places"][0]]

    def begin(self, until: Until) -> None:
        """Have a node, which knows both heads, and a credential."""
        until(lambda: self.places[1] in self.clis[0].json("token", "create")["text"])
        line = self.clis[0].json("token", "create")["text"].partition("@")[0]
        self.clis[0].join(f"{line}@{self.places[0]}", "one")  # the head tells it of the other
        issued = self.clis[0].json("credential", "issue", "--role", "owner")
        assert issued["places"] == self.places
        self.credential = Capability.parse(issued["credential"])

    def connect(self, agents: int) -> Any:
        return sapwood.connect(self.url, credential=self.credential.text).start(
            agents=agents, settings=load_configuration({"nodes.listen": "127.0.0.1:0"}).settings
        )

    def who_serves(self) -> int:
        """Return the process of the head that serves; 0 if none does."""
        with contextlib.suppress(SapwoodError):
            head = HeadAccess(self.url, self.credential)
            head.close()
            return head.connection.facts.pid
        return 0

    def client(self, place: str) -> ServiceClient:
        """Be connected to the head at one place, with the credential shown."""
        way = TlsWay([place], self.credential.authority)
        client = ServiceClient(way)
        try:
            show(client, self.credential, None, way, CALL_TIMEOUT)
        except BaseException:
            client.close()
            raise
        return client

    def end(self) -> None:
        for cli in self.clis:
            for one in (self.serving, self.standing_by):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one["pid"], signal.SIGCONT)
            cli.close()
        for cli in reversed(self.clis):
            cli.end_head()
            standby = cli.folder / "state/sapwood/heads/default/standby.json"
            if standby.exists():
                cli.run("down")
        for one in (self.serving, self.standing_by):
            watch_end(one["pid"])
        for cli in self.clis:  # what a head that is killed leaves, until the next one
            remove_left_sockets(cli.folder / "state/sapwood/heads/default")


def watch_end(pid: int) -> None:
    end = time.monotonic() + TAKE_OVER
    while Path(f"/proc/{pid}/stat").exists() and time.monotonic() < end:
        threading.Event().wait(0.05)


@pytest.fixture
def heads(three: list[Member], tmp_path: Path, until: Until) -> Iterator[TwoHeads]:
    made = TwoHeads(tmp_path, address(three, tmp_path.name))
    try:
        made.begin(until)
        yield made
    finally:
        made.end()


class Waves:
    """Exchanges waves all the time on a separate thread.

    Attributes:
        longest: Seconds of the longest wave.
        count: How many there were.
    """

    def __init__(self, cluster: Any, agents: int) -> None:
        self.longest = 0.0
        self.count = 0
        self._agents = agents
        self._cluster = cluster
        self._over = threading.Event()
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._exchange)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._failed:
            raise self._failed[0]

    def _exchange(self) -> None:
        try:
            with self._cluster.stream(abs, reduce=operator.add) as stream:
                while not self._over.wait(0.005):
                    begun = time.monotonic()
                    assert stream.exchange(-1).total == self._agents
                    self.longest = max(self.longest, time.monotonic() - begun)
                    self.count += 1
        except BaseException as error:  # noqa: BLE001 - raised by the test's thread
            self._failed.append(error)


def replaced(cluster: Any, rank: int, until: Until) -> None:
    """Kill a process of a session; another one begins, by the head that serves."""
    (place,) = cluster.session.processes([rank])
    os.kill(place.pid, signal.SIGKILL)
    until(lambda: cluster.session.processes([rank])[0].pid not in {0, place.pid})
    until(lambda: cluster.session.processes([rank])[0].is_ready)


@pytest.mark.row("D-11")
def test_the_second_head_serves_when_the_first_is_killed(
    heads: TwoHeads, until: Until, record_testsuite_property: Callable[[str, object], None]
) -> None:
    """Sessions keep running all the time, and have their nodes again by the second head."""
    with heads.connect(agents=2) as cluster, Waves(cluster, 2) as waves:
        until(lambda: waves.count > 5)
        os.kill(heads.serving["pid"], signal.SIGKILL)
        begun = time.monotonic()
        until(lambda: heads.who_serves() == heads.standing_by["pid"])
        seconds = time.monotonic() - begun
        assert seconds < TAKE_OVER
        longest, before = waves.longest, waves.count
        replaced(cluster, 1, until)
        until(lambda: waves.count > before)
    record_testsuite_property("served after a kill, s", seconds)
    record_testsuite_property("longest wave, s", longest)
    states = heads.clis[1].json("node", "list")["nodes"]
    assert [(one["name"], one["state"]) for one in states] == [("one", "ready")]
    assert len(heads.clis[1].json("credential", "list")["credentials"]) == 1


def hang(pid: int, until: Until) -> None:
    """Stop a process, with all of its threads."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    until(
        lambda: all(
            one.read_text().rpartition(")")[2].split()[0] == "T" for one in tasks.glob("*/stat")
        )
    )


@pytest.mark.nightly
def test_a_head_that_hangs_does_not_serve_when_it_goes_on(heads: TwoHeads, until: Until) -> None:
    first = heads.serving["pid"]
    tokens = heads.clis[0].json("token", "list")
    with heads.connect(agents=2) as cluster, Waves(cluster, 2) as waves:
        client = heads.client(heads.places[0])
        try:
            hang(first, until)
            asked = client.ask(JoinTokens.create)
            until(lambda: heads.who_serves() == heads.standing_by["pid"])
            threading.Event().wait(LEASE)  # its lease is over for long
            os.kill(first, signal.SIGCONT)
            with pytest.raises(CommunicationError):
                asked.result(TAKE_OVER)
        finally:
            client.close()
        with pytest.raises(CommunicationError):
            heads.client(heads.places[0])
        assert heads.clis[1].json("token", "list") == tokens
        replaced(cluster, 1, until)
        before = waves.count
        until(lambda: waves.count > before)
        # It stands by from now on.
        os.kill(heads.standing_by["pid"], signal.SIGKILL)
        until(lambda: heads.who_serves() == first)
        replaced(cluster, 2, until)


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_one_member_of_etcd_may_go(
    heads: TwoHeads, three: list[Member], until: Until, how: str
) -> None:
    with heads.connect(agents=2) as cluster, Waves(cluster, 2) as waves:
        for member in three:
            member.kill() if how == "kill" else member.stop()
            try:
                before = waves.count
                until(lambda: made_token(heads))
                replaced(cluster, 1, until)
                until(lambda before=before: waves.count > before)  # type: ignore[misc]
            finally:
                member.start() if how == "kill" else member.go_on()
                wait_for(address([member], "warm"))


def made_token(heads: TwoHeads) -> bool:
    """Have whichever head serves write something."""
    with contextlib.suppress(SapwoodError):
        head = HeadAccess(heads.url, heads.credential)
        try:
            head.client.call_within(5.0, JoinTokens.create)
            return True
        finally:
            head.close()
    return False


def listens(place: str) -> bool:
    host, _, port = place.rpartition(":")
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection((host, int(port))):
        return True
    return False


@pytest.mark.nightly
def test_no_head_serves_without_etcd(heads: TwoHeads, three: list[Member], until: Until) -> None:
    """Most members are away; the waves of a session continue, and one head serves afterwards."""
    with heads.connect(agents=2) as cluster, Waves(cluster, 2) as waves:
        for member in three[:2]:
            member.stop()
        until(lambda: not heads.who_serves())
        until(lambda: not listens(heads.places[0]))  # it stands by, and keeps its lease
        before = waves.count
        until(lambda: waves.count > before + 10)
        for member in three[:2]:
            member.go_on()
        until(heads.who_serves)
        until(lambda: made_token(heads))
        replaced(cluster, 1, until)


@pytest.mark.nightly
def test_a_head_that_is_told_to_end_hands_over(
    heads: TwoHeads, until: Until, record_testsuite_property: Callable[[str, object], None]
) -> None:
    with heads.connect(agents=2) as cluster, Waves(cluster, 2):
        os.kill(heads.serving["pid"], signal.SIGTERM)
        begun = time.monotonic()
        until(lambda: heads.who_serves() == heads.standing_by["pid"])
        record_testsuite_property("served after a signal, s", time.monotonic() - begun)
        replaced(cluster, 1, until)


@pytest.mark.nightly
def test_down_ends_both(heads: TwoHeads, until: Until) -> None:
    heads.clis[0].run("down")
    until(lambda: heads.clis[0].nodes[0].poll() is not None)
    watch_end(heads.standing_by["pid"])
    assert not Path(f"/proc/{heads.standing_by['pid']}").exists()
    assert not list((heads.clis[1].folder / "state/sapwood/heads/default").glob("*.json"))


@pytest.mark.nightly
def test_a_store_that_cannot_be_used_is_named(own_cli: Cli, tmp_path: Path) -> None:
    said = own_cli.run("up", "--store", "etcd://me:secret@127.0.0.1/lab", status=2)
    assert "not the address of a store in etcd" in said
    assert "secret" not in said
    missing = tmp_path / "ca.pem"
    said = own_cli.run("up", "--store", f"etcds://127.0.0.1/lab?ca={missing}", status=2)
    assert "a file of TLS is not there" in " ".join(said.split())


@pytest.mark.nightly
def test_a_second_cluster_needs_a_prefix_of_its_own(
    own_cli: Cli, three: list[Member], tmp_path: Path
) -> None:
    store = address(three, tmp_path.name)
    own_cli.json("up", "--no-node", "--store", store)
    said = own_cli.run("up", "--cluster", "den", "--no-node", "--store", store, status=2)
    assert "belongs to the cluster 'default', not to 'den'" in " ".join(said.split())
