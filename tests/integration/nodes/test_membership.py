"""A head that starts without nodes: machines join it, and leave for good."""

from __future__ import annotations

import json
import operator
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

import sapwood
from sapwood.client.hosts import cluster_over
from sapwood.core.errors import ConfigurationError, SapwoodError
from sapwood.nodes.control import ControlTree
from sapwood.nodes.registry import NodeView
from sapwood.session.embedded import embedded
from sapwood.session.options import PlacesChanged
from sapwood.session_server.making import session_options, site_variables

from .conftest import PATIENCE, QUICK

Until = Callable[[Callable[[], object]], None]

SETTINGS = msgspec.structs.replace(
    QUICK, nodes=msgspec.structs.replace(QUICK.nodes, listen="127.0.0.1:0")
)

JOIN = """
import json, sys
from sapwood.nodes.daemon import main

main(json.loads(sys.argv[1]), lambda **said: print(json.dumps(said), flush=True))
"""


class Head:
    """A head, and the daemons that the test starts as users do on other machines."""

    def __init__(self) -> None:
        base = session_options(SETTINGS, site_variables(SETTINGS))
        self.control = ControlTree(None, base, SETTINGS.nodes)
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.clusters: list[sapwood.Cluster] = []
        self.control.start()

    def join(self, **token: Any) -> dict[str, Any]:
        """Start a daemon with a token; return what it says of itself."""
        made = self.control.desk.create_token(**token)
        return self.join_by(made.text)

    def join_by(self, token: str) -> dict[str, Any]:
        """Start a daemon with the text of a token."""
        order = json.dumps({"token": token, "addresses": list(self.control.addresses)})
        daemon = subprocess.Popen(
            [sys.executable, "-c", JOIN, order], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.daemons.append(daemon)
        assert daemon.stdout is not None
        found: dict[str, Any] = json.loads(daemon.stdout.readline())
        return found

    def nodes(self) -> dict[int, NodeView]:
        """Return the nodes that are ready, by their numbers."""
        return {node.host: node for node in self.control.nodes if node.state == "ready"}

    def cluster(self, agents: int, **changed: Any) -> sapwood.Cluster:
        """Start a session over the nodes."""
        how = msgspec.structs.replace(SETTINGS.cluster, **changed)
        settings = msgspec.structs.replace(SETTINGS, cluster=how)
        self.clusters.append(cluster_over(self.control.access, agents, settings=settings))
        return self.clusters[-1]

    def close(self) -> None:
        """End everything."""
        for cluster in self.clusters:
            cluster.close()
        self.control.close()
        for daemon in self.daemons:
            daemon.wait(PATIENCE)
            for stream in (daemon.stdin, daemon.stdout):
                assert stream is not None
                stream.close()


@pytest.fixture
def head() -> Iterator[Head]:
    """Start a head without nodes."""
    made = Head()
    yield made
    made.close()


def hosts(cluster: sapwood.Cluster) -> set[int]:
    """Return the machines of a cluster's agents."""
    session = embedded(cluster.session)
    return {session.host.hosts[rank] for rank in session.tree.agent_ranks}


def total(cluster: sapwood.Cluster) -> Any:
    """Return what an exchange over all agents comes to: one for each of them."""
    with cluster.stream(abs, reduce=operator.add) as stream:
        return stream.broadcast(-1).result(PATIENCE).total


@pytest.mark.timeout(240)
def test_nodes_join_and_leave_while_the_head_runs(head: Head, until: Until) -> None:
    assert head.control.nodes == []
    assert head.join()["joined"]
    until(lambda: list(head.nodes()) == [1])
    head.join()
    until(lambda: list(head.nodes()) == [1, 2])
    first = head.cluster(4, lost_nodes="fail")
    assert total(first) == 4
    assert hosts(first) == {1, 2}

    told: list[PlacesChanged] = []
    embedded(first.session).subscribe(told.append)
    stream = first.stream(abs, reduce=operator.add, on_loss="partial")
    assert stream.broadcast(-1).result(PATIENCE).total == 4
    head.control.remove_node(2, reason="its machine is wanted elsewhere")
    assert head.daemons[1].wait(PATIENCE) == 0
    assert list(head.nodes()) == [1]
    until(lambda: {3, 4} <= {rank for one in told if one.for_good for rank in one.ranks})
    assert any("its machine is wanted elsewhere" in change.reason for change in told)
    result = stream.broadcast(-1).result(PATIENCE)
    assert result.total == 2
    assert result.agents == [1, 2]

    head.join()
    until(lambda: list(head.nodes()) == [1, 3])
    second = head.cluster(4)
    assert hosts(second) == {1, 3}
    assert total(second) == 4


@pytest.mark.timeout(240)
def test_a_node_whose_daemon_ended_may_join_again(head: Head, until: Until) -> None:
    head.join()
    until(lambda: list(head.nodes()) == [1])
    cluster = head.cluster(2)
    assert total(cluster) == 2
    head.daemons[0].send_signal(signal.SIGKILL)
    until(lambda: head.control.nodes[0].state == "starting")
    assert head.join(host=1)["joined"].startswith("n1.")
    until(lambda: list(head.nodes()) == [1])
    assert total(cluster) == 2


@pytest.mark.timeout(240)
def test_a_token_for_a_node_that_is_there_or_was_removed_is_refused(
    head: Head, until: Until
) -> None:
    head.join()
    until(lambda: list(head.nodes()) == [1])
    assert "which is there" in head.join(host=1)["error"]
    head.control.remove_node(1)
    assert "was removed" in head.join(host=1)["error"]
    with pytest.raises(ConfigurationError):
        head.control.remove_node(1)
    assert head.control.nodes == []


@pytest.mark.timeout(240)
def test_several_machines_may_use_one_token(head: Head, until: Until) -> None:
    token = head.control.desk.create_token(uses=2)
    head.join_by(token.text)
    head.join_by(token.text)
    until(lambda: list(head.nodes()) == [1, 2])
    names = [node.name for node in head.nodes().values()]
    assert len(set(names)) == 2
    assert "used before" in head.join_by(token.text)["error"]


def test_a_session_needs_a_node(head: Head) -> None:
    with pytest.raises(SapwoodError, match="no nodes"):
        head.cluster(2)


@pytest.mark.timeout(240)
def test_agents_of_a_node_that_is_removed_begin_on_the_others(head: Head, until: Until) -> None:
    """A stream continues with the same ranks; requests made meanwhile are answered or fail."""
    for _ in range(3):
        head.join()
    until(lambda: list(head.nodes()) == [1, 2, 3])
    cluster = head.cluster(6)
    with cluster.stream(abs, reduce=operator.add) as stream:
        assert stream.broadcast(-1).result(PATIENCE).total == 6
        head.control.remove_node(2)
        until(lambda: 2 not in hosts(cluster))
        result = stream.broadcast(-1).result(PATIENCE)
        assert result.total == 6
        assert result.agents == [1, 2, 3, 4, 5, 6]
        head.control.remove_node(3)
        until(lambda: hosts(cluster) == {1})
        assert stream.broadcast(-1).result(PATIENCE).total == 6
    assert cluster.submit(pow, 2, 10).result(PATIENCE) == 1024


@pytest.mark.timeout(240)
def test_agents_do_not_wait_for_ever_for_a_node_that_may_come_back(
    head: Head, until: Until
) -> None:
    head.join()
    head.join()
    until(lambda: list(head.nodes()) == [1, 2])
    cluster = head.cluster(4, node_patience=0.5)
    assert total(cluster) == 4
    head.daemons[1].send_signal(signal.SIGKILL)
    until(lambda: hosts(cluster) == {1})
    assert total(cluster) == 4


@pytest.mark.timeout(240)
def test_a_cluster_may_go_on_without_the_agents_of_a_node(head: Head, until: Until) -> None:
    head.join()
    head.join()
    until(lambda: list(head.nodes()) == [1, 2])
    cluster = head.cluster(4, lost_nodes="leave")
    with cluster.stream(abs, reduce=operator.add, on_loss="partial") as stream:
        assert stream.broadcast(-1).result(PATIENCE).total == 4
        head.control.remove_node(2)
        until(lambda: len(cluster.agents) == 2)
        assert stream.broadcast(-1).result(PATIENCE).total == 2
    assert total(cluster) == 2


@pytest.mark.timeout(240)
@pytest.mark.nightly
@pytest.mark.parametrize(("lost_nodes", "left"), [("leave", 4), ("move", 6)])
def test_a_machine_that_others_are_below_is_gone(
    head: Head, until: Until, lost_nodes: str, left: int
) -> None:
    for _ in range(3):
        head.join()
    until(lambda: list(head.nodes()) == [1, 2, 3])
    nodes = msgspec.structs.replace(SETTINGS.nodes, topology="kary:2", node_listen="127.0.0.1:0")
    how = msgspec.structs.replace(SETTINGS.cluster, lost_nodes=lost_nodes)
    settings = msgspec.structs.replace(SETTINGS, cluster=how, nodes=nodes)
    cluster = cluster_over(head.control.access, 6, settings=settings)
    head.clusters.append(cluster)
    host = embedded(cluster.session).host
    inner = [rank for rank in host.tree.junctions if host.hosts[rank] == 2]
    below = [rank for rank in host.tree.junctions if host.hosts[rank] == 3]
    assert host.tree.parents[below[0]] == inner[0]
    assert total(cluster) == 6
    head.control.remove_node(2)
    until(lambda: len(cluster.agents) == left and 2 not in hosts(cluster))
    until(lambda: all(one.is_ready for one in cluster.session.processes()))
    assert total(cluster) == left
    until(lambda: total(cluster) == left and host.node.router.placed(below[0]) is not None)


@pytest.mark.timeout(240)
def test_without_another_node_agents_wait_for_theirs(head: Head, until: Until) -> None:
    head.join()
    until(lambda: list(head.nodes()) == [1])
    cluster = head.cluster(2, node_patience=0.2)
    assert total(cluster) == 2
    head.daemons[0].send_signal(signal.SIGKILL)
    until(lambda: head.control.nodes[0].state == "starting")
    head.join()  # by the same name: it takes the place of the lost node
    until(lambda: list(head.nodes()) == [1])
    assert total(cluster) == 2
    assert hosts(cluster) == {1}


@pytest.mark.timeout(240)
def test_agents_that_are_added_are_spread_over_the_nodes_that_are_there_then(
    head: Head, until: Until
) -> None:
    head.join()
    until(lambda: list(head.nodes()) == [1])
    cluster = head.cluster(2)
    head.join()
    until(lambda: list(head.nodes()) == [1, 2])
    session = embedded(cluster.session)
    assert [session.hosts[rank] for rank in cluster.expand(3)] == [2, 2, 1]
    assert total(cluster) == 5
    assert list(cluster.map(abs, [-1, -2, -3])) == [1, 2, 3]
