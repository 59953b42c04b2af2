"""Processes of nodes that are killed or stopped: what returns, what continues, what is left."""

from __future__ import annotations

import json
import operator
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import sapwood
from sapwood.client.hosts import start_on
from sapwood.comm.transport.tls_identity import connecting_context
from sapwood.contexts.launchers.local import LocalLauncher
from sapwood.core.errors import NodeLostError, ProtocolError
from sapwood.environment.settings import NodeSettings, Settings
from sapwood.nodes import messages
from sapwood.security.authority import Authority, make_request
from sapwood.session.embedded import embedded
from sapwood.session.member import tree_protocol

from .conftest import PATIENCE, QUICK, OnNodes, below, control_of, daemons, parent, places, state

Until = Callable[[Callable[[], object]], None]


def works(cluster: sapwood.Cluster) -> bool:
    """Whether all agents of a cluster contribute."""
    with cluster.stream(abs, reduce=operator.add) as stream:
        return bool(stream.broadcast(-1).result(PATIENCE).total == cluster.session.tree.agents)


def zygotes(cluster: sapwood.Cluster) -> list[int]:
    """Return the zygotes of the nodes: parents of agents and children of daemons."""
    return sorted({parent(pid) for rank, pid in places(cluster).items() if rank and pid})


@pytest.mark.row("C1-EXEC-1")
@pytest.mark.row("A-ENV-6")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("victim", ["agent", "junction", "zygote", "daemon"])
def test_what_is_killed_comes_back_and_a_stream_goes_on(
    on_nodes: OnNodes, until: Until, victim: str
) -> None:
    cluster = on_nodes()
    assert works(cluster)
    before, heads = places(cluster), daemons(cluster)
    with cluster.stream(abs, reduce=operator.add) as stream:
        assert stream.broadcast(-2).result(PATIENCE).total == 8
        pid = {
            "agent": before[1],
            "junction": before[5],
            "zygote": zygotes(cluster)[0],
            "daemon": heads[0],
        }[victim]
        os.kill(pid, signal.SIGKILL)
        until(lambda: any(places(cluster)[rank] != before[rank] for rank in before))
        until(lambda: all(one.is_ready for one in embedded(cluster.session).processes(before)))
        until(lambda: stream.broadcast(-3).result(PATIENCE).total == 12)
    assert works(cluster)
    if victim == "daemon":
        until(lambda: all(node.state == "ready" for node in control_of(cluster).nodes))
        assert daemons(cluster)[0] != heads[0]
        assert daemons(cluster)[1] == heads[1]
    until(lambda: not [one for one in below(*daemons(cluster)) if state(one) == "Z"])


@pytest.mark.timeout(180)
def test_a_daemon_that_is_stopped_is_replaced(on_nodes: OnNodes, until: Until) -> None:
    cluster = on_nodes()
    stopped, other = daemons(cluster)
    before = below(stopped)
    os.kill(stopped, signal.SIGSTOP)
    until(lambda: daemons(cluster)[0] not in (0, stopped))
    until(lambda: all(node.state == "ready" for node in control_of(cluster).nodes))
    until(lambda: works(cluster))
    until(lambda: not [pid for pid in before if state(pid) not in ("", "Z")])
    assert daemons(cluster)[1] == other


@pytest.mark.timeout(120)
def test_what_waited_for_a_daemon_that_is_gone_counts_as_dropped(
    on_nodes: OnNodes, until: Until
) -> None:
    cluster = on_nodes()
    control, victim = control_of(cluster), daemons(cluster)[0]
    os.kill(victim, signal.SIGSTOP)
    asked = [control.ask(1, messages.STATUS, "x" * 100_000) for _ in range(100)]
    until(lambda: control.links().result(PATIENCE)[1].waiting)
    os.kill(victim, signal.SIGKILL)
    until(lambda: all(one.done() for one in asked))

    def dropped() -> int:
        link = control.links().result(PATIENCE).get(1)
        return 0 if link is None else link.dropped

    until(dropped)
    assert control.links().result(PATIENCE)[2].dropped == 0


@pytest.mark.timeout(120)
def test_closing_takes_no_longer_because_a_process_is_stopped(on_nodes: OnNodes) -> None:
    cluster = on_nodes()
    os.kill(places(cluster)[1], signal.SIGSTOP)
    begun = time.monotonic()
    cluster.close()
    assert time.monotonic() - begun < 5


FRONT_END = """
import json, os, sapwood, sys
from sapwood.client.hosts import several
from sapwood.session.embedded import embedded

def main():
    with several(2, 4) as cluster:
        assert cluster.submit(pow, 2, 3).result(60) == 8
        session = embedded(cluster.session)
        print(json.dumps([place.pid for place in session.supervisor.processes if place.rank]))
        sys.stdout.flush()
        sys.stdin.read()

if __name__ == "__main__":
    main()
"""


@pytest.mark.row("C1-BOOT-1")
@pytest.mark.timeout(120)
def test_nothing_is_left_when_the_client_is_killed(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(run))
    monkeypatch.setenv("SAPWOOD_NODES_START_TIMEOUT", "60")
    front = subprocess.Popen(
        [sys.executable, "-c", FRONT_END], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert front.stdout is not None
    assert len(json.loads(front.stdout.readline())) == 6
    everything = below(front.pid)
    own = {str(path) for path in run.iterdir()}
    front.kill()
    front.communicate()
    until(lambda: not [pid for pid in everything if state(pid) not in ("", "Z")])
    left = {str(path) for path in run.iterdir()}
    assert left <= own
    assert len(left) <= 2, "a node left a folder: only a client that is killed cannot clean up"


class Hanging(LocalLauncher):
    """The second machine never answers."""

    def start(self, host: str, command: str) -> subprocess.Popen[bytes]:
        return super().start(host, "exec sleep 600" if host == "local2" else command)


class Broken(LocalLauncher):
    """The second machine says why it cannot be a node."""

    def start(self, host: str, command: str) -> subprocess.Popen[bytes]:
        return super().start(host, "echo no licence >&2; exit 1" if host == "local2" else command)


@pytest.mark.row("C1-RES-1")
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("launcher", "cause"),
    [(Hanging(2), "local2: it did not answer within 15 s"), (Broken(2), "local2: no licence")],
    ids=["hangs", "fails"],
)
def test_a_node_that_does_not_come_is_named_with_its_cause(
    launcher: LocalLauncher, cause: str
) -> None:
    settings = Settings(nodes=NodeSettings(listen="127.0.0.1:0"))
    begun = time.monotonic()
    with pytest.raises(NodeLostError) as caught:
        start_on(launcher, 2, settings=settings)
    assert time.monotonic() - begun < 20
    assert cause in caught.value.where


class BrokenOnce(LocalLauncher):
    """The second machine can be a node at the second attempt."""

    attempts = 0

    def start(self, host: str, command: str) -> subprocess.Popen[bytes]:
        self.attempts += host == "local2"
        broken = host == "local2" and self.attempts == 1
        return super().start(host, "echo no licence >&2; exit 1" if broken else command)


@pytest.mark.timeout(120)
def test_the_others_may_go_on_without_a_node_that_does_not_come(
    capfd: pytest.CaptureFixture[str],
) -> None:
    nodes = msgspec.structs.replace(QUICK.nodes, listen="127.0.0.1:0", missing="partial")
    settings = msgspec.structs.replace(QUICK, nodes=nodes)
    with start_on(Broken(3), 4, settings=settings) as cluster:
        assert list(cluster.map(abs, [-1, -2, -3])) == [1, 2, 3]
        names = [node.name for node in control_of(cluster).nodes]
    assert names == ["local1", "local3"]
    assert "local2: no licence" in capfd.readouterr().err
    with pytest.raises(NodeLostError, match="1 of 1 nodes did not come"):
        start_on(OnlyBroken(1), 1, settings=settings)


class OnlyBroken(LocalLauncher):
    """No machine can be a node."""

    def start(self, host: str, command: str) -> subprocess.Popen[bytes]:
        del command
        return super().start(host, "echo no licence >&2; exit 1")


@pytest.mark.timeout(120)
def test_a_node_that_does_not_come_may_be_waited_for() -> None:
    nodes = msgspec.structs.replace(QUICK.nodes, listen="127.0.0.1:0", missing="wait")
    settings = msgspec.structs.replace(QUICK, nodes=nodes)
    with start_on(BrokenOnce(2), 4, settings=settings) as cluster:
        assert [node.name for node in control_of(cluster).nodes] == ["local1", "local2"]


def is_refused(context: ssl.SSLContext, host: str, port: int) -> bool:
    """Whether a port ends a connection before it says anything."""
    with socket.create_connection((host, port), PATIENCE) as plain:
        try:
            with context.wrap_socket(plain) as secure:
                return not secure.recv(1)
        except OSError:
            return True


def test_a_stranger_with_a_certificate_of_another_cluster_is_refused(on_nodes: OnNodes) -> None:
    cluster = on_nodes(2)
    name = embedded(cluster.session).host.node.identity.cluster
    stranger = Authority.create(control_of(cluster).authority.cluster)  # of the same name
    key, request = make_request()
    foreign = stranger.issue(request, "n1", key)
    for port in (control_of(cluster).session.host._port, embedded(cluster.session).host._port):
        assert port is not None
        host, number = port.address.rpartition("@")[2].split(",")[0].rsplit(":", 1)
        context = connecting_context(foreign)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # a stranger need not believe the head
        for protocol in (tree_protocol(name), "sapwood-join/2"):
            context.set_alpn_protocols([protocol])
            assert is_refused(context, host, int(number))
    assert works(cluster)


def test_a_request_that_a_node_cannot_do_does_not_end_it(on_nodes: OnNodes) -> None:
    cluster = on_nodes(2)
    before = daemons(cluster)
    control = control_of(cluster).session
    name = embedded(cluster.session).host.node.identity.cluster
    wrong = messages.to_value(messages.KillProcess(name, before[0], 999))
    with pytest.raises(ProtocolError, match="this is no KillProcess: Expected `int` <= 64"):
        control.ask(1, messages.KILL, wrong).result(PATIENCE)
    for handler in (messages.OPEN, messages.SPAWN, messages.KILL):
        with pytest.raises(ProtocolError, match="this is no"):
            control.ask(1, handler, b"nothing").result(PATIENCE)
    assert works(cluster)
    assert daemons(cluster) == before
