"""What a cluster over two nodes does is what one on a single machine does."""

from __future__ import annotations

import operator
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest

import sapwood
from sapwood.client.hosts import several, start_on
from sapwood.contexts.launchers.local import LocalLauncher
from sapwood.environment.settings import NodeSettings

from .conftest import PATIENCE, QUICK, OnNodes, below, control_of, daemons, places

LOOPBACK = "127.0.0.1"

Until = Callable[[Callable[[], object]], None]


@pytest.fixture(scope="module")
def over_nodes(nothing_is_left_behind_by_all: None) -> Iterator[sapwood.Cluster]:
    del nothing_is_left_behind_by_all  # it looks when the cluster has ended
    with several(2, 4, settings=QUICK) as cluster:
        with cluster.stream(abs, reduce=operator.add) as stream:
            stream.broadcast(-1).result(PATIENCE)
        yield cluster


def user_code() -> dict[str, Callable[..., Any]]:
    """Return what runs on agents: functions that travel with their code."""

    def vector(value: Any) -> dict[str, Any]:
        rank = sapwood.here().rank
        return {"sum": np.arange(50_000, dtype="f8") * rank + value, "n": 1, "most": float(rank)}

    def together(members: list[int]) -> dict[str, Any]:
        here = sapwood.here()
        with here.group(members, timeout=60) as group:
            group.barrier()
            return {
                "sum": int(group.allreduce(here.rank)),
                "all": group.allgather({"rank": here.rank}),
                "told": group.broadcast("from the first" if here.rank == members[0] else None),
            }

    def ring(value: int) -> list[int]:
        here = sapwood.here()
        count = len(here.agents)
        here.send(here.rank % count + 1, [value, here.rank], 7)
        received, source, _tag = here.receive((here.rank - 2) % count + 1, 7)
        return [source, *received]

    def twice(value: Any) -> Any:
        return 2 * value

    def process_of(_value: Any) -> int:
        return os.getpid()

    return {
        "vector": vector,
        "together": together,
        "ring": ring,
        "twice": twice,
        "process": process_of,
    }


CODE = user_code()


def test_tasks_run_on_both_nodes(over_nodes: sapwood.Cluster) -> None:
    assert over_nodes.submit(pow, 2, 10).result(PATIENCE) == 1024
    assert list(over_nodes.map(CODE["twice"], range(40))) == [2 * one for one in range(40)]
    with over_nodes.stream(CODE["process"], reduce="gather") as stream:
        gathered = stream.broadcast(0).result(PATIENCE).total
    tops = [set(below(daemon)) for daemon in daemons(over_nodes)]
    runners = list(gathered.values()) if isinstance(gathered, dict) else list(gathered)
    assert [sum(pid in top for pid in runners) for top in tops] == [2, 2]


def test_an_error_of_a_task_is_that_of_the_user(over_nodes: sapwood.Cluster) -> None:
    with pytest.raises(ZeroDivisionError):
        over_nodes.submit(divmod, 1, 0).result(PATIENCE)


def test_sums_are_those_of_one_machine(over_nodes: sapwood.Cluster) -> None:
    reduce = {"sum": "sum", "n": "count", "most": "max"}
    totals = []
    with sapwood.local(4) as local:
        for cluster in (local, over_nodes):
            with cluster.stream(CODE["vector"], reduce=reduce) as stream:
                totals.append([stream.broadcast(n).result(PATIENCE).total for n in range(3)])
    for here, there in zip(*totals, strict=True):
        assert np.array_equal(here["sum"], there["sum"])
        assert (here["n"], here["most"]) == (there["n"], there["most"])


def test_one_contribution_leaves_each_node(over_nodes: sapwood.Cluster) -> None:
    tree = over_nodes.session.tree
    assert tree.children(0) == [5, 6]
    assert [tree.children(junction) for junction in (5, 6)] == [[1, 2], [3, 4]]


def test_groups_reach_over_nodes(over_nodes: sapwood.Cluster) -> None:
    members = [1, 2, 3, 4]
    done = [over_nodes.submit(CODE["together"], members) for _ in members]
    for one in done:
        told = one.result(PATIENCE)
        assert told["sum"] == 10
        assert [entry["rank"] for entry in told["all"]] == members
        assert told["told"] == "from the first"


def test_messages_go_from_node_to_node(over_nodes: sapwood.Cluster) -> None:
    with over_nodes.stream(CODE["ring"], reduce="gather") as stream:
        gathered = stream.broadcast(5).result(PATIENCE).total
    found = list(gathered.values()) if isinstance(gathered, dict) else list(gathered)
    assert sorted(found) == [[1, 5, 1], [2, 5, 2], [3, 5, 3], [4, 5, 4]]


def test_another_tree_stands_over_the_same_agents(over_nodes: sapwood.Cluster) -> None:
    with over_nodes.topology(fanout=2) as deep:
        assert not deep.session.tree.junctions  # other machines would not reach them
        for cluster in (deep, over_nodes):
            with cluster.stream(CODE["twice"], reduce="sum") as stream:
                waves = [(n, stream.broadcast(float(n))) for n in range(10)]
                assert all(wave.result(PATIENCE).total == 8.0 * n for n, wave in waves)


def test_two_clusters_at_once_do_not_disturb_each_other(
    over_nodes: sapwood.Cluster, on_nodes: OnNodes
) -> None:
    other = on_nodes(2)
    assert not set(daemons(other)) & set(daemons(over_nodes))
    assert not set(places(other).values()) & set(places(over_nodes).values())
    for number in range(3):
        first = over_nodes.submit(pow, 2, number)
        second = other.submit(pow, 3, number)
        assert (first.result(PATIENCE), second.result(PATIENCE)) == (2**number, 3**number)
    other.close()
    assert over_nodes.submit(pow, 2, 5).result(PATIENCE) == 32


def test_nodes_say_what_they_are(over_nodes: sapwood.Cluster) -> None:
    nodes = control_of(over_nodes).nodes
    assert [(node.name, node.state, node.trouble) for node in nodes] == [
        ("local1", "ready", ""),
        ("local2", "ready", ""),
    ]
    for node in nodes:
        assert node.facts is not None
        assert abs(node.skew) < PATIENCE
        assert node.facts.pid in daemons(over_nodes)


def test_no_secret_is_in_what_others_see_of_a_process(over_nodes: sapwood.Cluster) -> None:
    control = control_of(over_nodes)
    token = control.desk._tokens.create()  # like the nodes' tokens, which are used up
    key = control.authority.key.splitlines()[1]
    secrets = [b"PRIVATE KEY", b"swd1.", token.secret.encode(), key]
    seen = 0
    for pid in below(os.getpid()):
        for name in ("cmdline", "environ"):
            try:
                text = Path(f"/proc/{pid}/{name}").read_bytes()
            except OSError:
                continue
            seen += len(text) > 0
            assert not [secret for secret in secrets if secret in text], (pid, name)
    assert seen > 10


def test_the_runtime_travels_where_it_is_wanted(
    on_nodes: OnNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def files(_value: Any) -> list[tuple[str, str]]:
        modules = [*sys.modules.items()]
        return [(name, str(one.__file__)) for name, one in modules if getattr(one, "__file__", "")]

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cluster = on_nodes(2, nodes=NodeSettings(start_timeout=90.0, runtime="send"))
    found = cluster.submit(files, 0).result(PATIENCE)
    packages = {"sapwood", "numpy", "msgspec", "cloudpickle"}
    of_packages = [one for one in found if one[0].partition(".")[0] in packages]
    assert {name for name, _ in of_packages} > packages
    assert not [one for one in of_packages if not Path(one[1]).is_relative_to(tmp_path)]
    assert len(list((tmp_path / "sapwood" / "runtime").iterdir())) == 1


def test_on_one_machine_no_agent_loads_what_only_nodes_need() -> None:
    code = """
import operator, os, sapwood
from sapwood.session.embedded import embedded

def main():
    with sapwood.local(2) as cluster:
        with cluster.stream(abs, reduce=operator.add) as stream:
            stream.broadcast(-1).result(60)
        places = list(embedded(cluster.session).supervisor.processes)
        pids = [place.pid for place in places if place.pid != os.getpid()]
        pids.append(embedded(cluster.session).supervisor.zygote_pid)
        maps = [open(f"/proc/{pid}/maps").read() for pid in pids]
        print(len(pids), [name for name in ("_ssl", "libssl", "cryptography", "_cffi_backend")
              for text in maps if name in text])

main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    assert done.stdout.strip() == "3 []", done.stdout


def test_one_port_that_the_user_names_serves_nodes_and_all_sessions(
    nothing_is_left_behind: None,
) -> None:
    """A firewall needs one hole: links of daemons, of agents, and of a second tree use it."""
    del nothing_is_left_behind
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port = int(probe.getsockname()[1])
    nodes = msgspec.structs.replace(QUICK.nodes, listen=f"{LOOPBACK}:{port}")
    settings = msgspec.structs.replace(QUICK, nodes=nodes)
    before = listening()
    with (
        start_on(LocalLauncher(2), 4, settings=settings) as cluster,
        cluster.topology(fanout=2) as deep,
        deep.stream(abs, reduce=operator.add) as stream,
    ):
        assert stream.exchange(-3).total == 12
        assert listening() - before == {port}


def listening() -> set[int]:
    """The ports at which this process and all below it listen."""
    mine = {os.getpid(), *below(os.getpid())}
    found = [one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    return {one.laddr.port for one in found if one.pid in mine}
