"""A cluster that stays: machines join it, programs use it, and it outlives them."""

from __future__ import annotations

import operator
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import sapwood
from sapwood.cli.head_access import connected
from sapwood.cli.status_tables import status_of
from sapwood.core.errors import CommunicationError, NodeLostError
from sapwood.environment.settings import NodeSettings, Settings
from sapwood.head.folder import head_folder
from sapwood.head.head import Head
from sapwood.head.parts.nodes import Nodes
from sapwood.session.embedded import embedded
from sapwood.session_server.making import session_options, site_variables
from sapwood.store.sqlite import SqliteStore

from .conftest import PATIENCE, SECRET, Cli, Until


def total(cluster: sapwood.Cluster) -> Any:
    with cluster.stream(abs, reduce=operator.add) as stream:
        return stream.broadcast(-1).result(PATIENCE).total


@pytest.mark.nightly
def test_a_cluster_outlives_its_certificates(own_cli: Cli, until: Until) -> None:
    """From up to down: machines join, programs run, also two at a time, and commands do."""
    life = 15.0  # a third of it is for those that connect: this machine may be busy
    own_cli.environment["SAPWOOD_NODES__CERTIFICATE_LIFE"] = str(life)
    head = own_cli.up()
    own_cli.join(head["join"], "one")
    begun = time.monotonic()
    with sapwood.connect().start(agents=2) as first, sapwood.connect().start(agents=3) as second:
        assert [total(first), total(second)] == [2, 3]
        assert own_cli.run_apart("exec", "--on", "head", "--", "echo", "hi") == "hi\n"
        until(lambda: time.monotonic() - begun > 1.2 * life)  # the first certificates have ended
        assert total(first) == 2
        with sapwood.connect().start(
            agents=2
        ) as other:  # its processes connect by new certificates
            assert total(other) == 2
    own_cli.join(head["join"], "two")
    assert own_cli.states() == {"one": "ready", "two": "ready"}
    with sapwood.connect().start(agents=4) as again:
        assert total(again) == 4
    assert "is down" in own_cli.run("down")
    for node in own_cli.nodes:
        assert node.wait(PATIENCE) == 0
        assert node.stdout is not None
        assert "the cluster is down" in node.stdout.read()


@pytest.mark.row("A-ACT-1")
@pytest.mark.row("C1-BOOT-2")
def test_machines_come_and_go_while_sessions_run(cli: Cli, head: Any, until: Until) -> None:
    cli.join(head["join"], "one")
    with sapwood.connect().start(agents=2) as cluster:
        two = cli.join(head["join"], "two")
        with sapwood.connect().start(agents=2) as over_two:
            assert total(over_two) == 2
        assert "two is removed" in cli.run("node", "delete", "two")
        assert two.wait(PATIENCE) == 0
        assert total(cluster) == 2
        assert cli.states()["two"] == "removed"
        cli.join(head["join"], "two")
        until(lambda: cli.states() == {"one": "ready", "two": "ready"})  # the name is free again
    assert "node 'three' does not exist" in cli.run("node", "delete", "three", status=2)


@pytest.mark.row("C3-IOF")
def test_a_command_runs_on_some_nodes_of_a_head(cli: Cli, head: Any) -> None:
    for name in ("n1", "n2", "n3"):
        cli.join(head["join"], name)
    said = cli.run("exec", "--nodes", "n[1,3]", "--", "echo", "here")
    assert said == "n[1,3]: here\n"
    assert cli.run("exec", "--nodes", "n2", "--", "echo", "here") == "here\n"
    wrong = cli.run("exec", "--nodes", "n[2-4]", "--", "true", status=2)
    assert "node n4 takes no commands now" in wrong
    assert "nodes are n[1-3]" in wrong
    assert "'n[2-' is not a set of hosts" in cli.run(
        "exec", "--nodes", "n[2-", "--", "true", status=2
    )


@pytest.mark.nightly
def test_a_node_that_is_drained_finishes_first(cli: Cli, head: Any, until: Until) -> None:
    cli.join(head["join"], "one")
    cli.join(head["join"], "two")
    with sapwood.connect().start(agents=2) as cluster:
        draining = subprocess.Popen(
            [sys.executable, "-m", "sapwood", "node", "drain", "two"],
            env=cli.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        until(lambda: cli.states()["two"] == "draining")
        assert total(cluster) == 2
        assert draining.poll() is None
        with sapwood.connect().start(agents=1) as other:
            assert total(other) == 1  # the draining one is left out
    assert draining.communicate(timeout=PATIENCE)[0] == "two is removed.\n"


def test_nothing_is_left_of_a_client_that_is_killed(
    cli: Cli, head: Any, until: Until, tmp_path: Path
) -> None:
    node = cli.join(head["join"], "one")
    ready = tmp_path / "ready"
    text = (
        "import sapwood, pathlib, time\n"
        "with sapwood.connect().start(agents=3) as cluster:\n"
        f"    pathlib.Path({str(ready)!r}).touch(); time.sleep(600)\n"
    )
    client = subprocess.Popen([sys.executable, "-c", text], env=cli.environment)
    until(ready.exists)
    assert len(below(node.pid)) > 3
    client.kill()
    client.wait()
    until(lambda: not below(node.pid))
    for path in (tmp_path.parent, Path(os.environ.get("XDG_RUNTIME_DIR", "/nowhere"))):
        for left in path.glob("sapwood-*/links.sock"):  # a killed process cannot remove it
            left.unlink()
            left.parent.rmdir()
    assert cli.states() == {"one": "ready"}


def below(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += [int(word) for word in task.read_text().split()]
            except OSError:
                continue
    return found[1:]


def test_secrets_are_in_no_command_line_log_or_store(cli: Cli, head: Any) -> None:
    node = cli.join(head["join"], "one")
    secret = SECRET.search(head["join"])
    assert secret is not None
    word = secret[0].rpartition(".")[2].encode()
    for pid in (node.pid, head["pid"]):
        for name in ("cmdline", "environ"):
            assert word not in Path(f"/proc/{pid}/{name}").read_bytes()
    files = [path for path in (cli.folder / "state").rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert word not in path.read_bytes(), path
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.nightly
def test_tokens_are_for_so_many_machines_and_names(cli: Cli, head: Any) -> None:
    line = cli.run("token", "create", "--names", "gpu*").removeprefix("sapwood node join ").strip()
    said = cli.run("node", "join", line, "--as", "cpu1", status=7)
    assert "for a node called gpu*" in said
    cli.join(line, "gpu1")
    assert "used before" in cli.run("node", "join", line, "--as", "gpu2", status=7)
    made = cli.json("token", "create", "--uses", "3")
    known = {one["id"] for one in cli.json("token", "list")["tokens"]}
    assert made["id"] in known
    cli.run("token", "revoke", made["id"])
    assert "revoked" in cli.run("node", "join", made["text"], status=7)


def test_what_is_no_line_of_a_head_is_refused(own_cli: Cli) -> None:
    assert "has no address of a head" in own_cli.run("node", "join", "swd1.x", status=2)
    assert "not a join token" in own_cli.run("node", "join", "x@127.0.0.1:1", status=7)


def test_a_second_head_of_the_same_name_is_refused(cli: Cli, head: Any) -> None:
    assert str(head["pid"]) in cli.run("up", status=2)
    other = cli.json("up", "--cluster", "other", "--no-node", "--http", "127.0.0.1:0")
    assert other["pid"] != head["pid"]
    open_link = cli.json("dashboard", "--cluster", "other")["links"][0]
    assert open_link.startswith(f"{other['http'][0]}/login#")
    assert (other["http"][0][:17], other["http_trouble"]) == ("http://127.0.0.1:", "")
    assert cli.json("node", "list", "--cluster", "other") == {"nodes": []}
    cli.run("down", "--cluster", "other")


def test_without_a_head_the_error_says_what_to_do(own_cli: Cli) -> None:
    del own_cli
    with pytest.raises(sapwood.errors.NodeLostError, match="sapwood up"):
        sapwood.connect()


def test_a_port_that_is_taken_is_named(cli: Cli, head: Any) -> None:
    place = head["places"][0]
    said = cli.run("up", "--cluster", "other", "--listen", place, status=6)
    assert "Address already in use" in said
    assert place in said


def test_sessions_go_on_while_the_head_is_dead_and_nodes_come_back_to_the_next(
    own_cli: Cli, own_head: Any, until: Until
) -> None:
    """The next head has authority and tokens of the former one, which was killed."""
    node = own_cli.join(own_head["join"], "one")
    with (
        sapwood.connect().start(agents=2) as cluster,
        cluster.stream(abs, reduce=operator.add) as stream,
    ):
        assert stream.exchange(-1).total == 2
        assert cluster.page.url == f"https://{own_head['places'][0]}/#/tree"
        os.kill(own_head["pid"], signal.SIGKILL)
        port = own_head["places"][0].rpartition(":")[2]
        until(lambda: "does not answer" in own_cli.run("node", "list", status=6))
        assert stream.exchange(-2).total == 4
        again = own_cli.json("up", "--listen", f"127.0.0.1:{port}", "--no-node")
        assert again["pid"] != own_head["pid"]
        until(lambda: own_cli.states() == {"one": "ready"})
        assert stream.exchange(-3).total == 6
        with sapwood.connect().start(agents=3) as other:
            assert total(other) == 3
    own_cli.join(own_head["join"], "two")  # by a line that was shown before
    assert own_cli.states() == {"one": "ready", "two": "ready"}
    until(lambda: len(below(node.pid)) <= 1)  # what stands beside commands may be there


def test_the_next_head_gives_a_session_new_processes(
    own_cli: Cli, own_head: Any, until: Until
) -> None:
    for name in ("one", "two"):
        own_cli.join(own_head["join"], name)
    with (
        sapwood.connect().start(agents=4) as cluster,
        cluster.stream(abs, reduce=operator.add) as stream,
    ):
        assert stream.exchange(-1).total == 4
        before = {one.rank: one.pid for one in cluster.session.processes()}
        os.kill(own_head["pid"], signal.SIGKILL)
        os.kill(before[2], signal.SIGKILL)  # no head can start another one yet
        until(lambda: not cluster.session.processes([2])[0].is_ready)
        again = own_cli.json("up", "--no-node")
        assert again["places"] == own_head["places"]  # where nodes and sessions look for it
        until(lambda: all(one.is_ready for one in cluster.session.processes()))
        assert stream.exchange(-2).total == 8
        after = {one.rank: one.pid for one in cluster.session.processes()}
        assert {rank for rank in before if before[rank] != after[rank]} == {2}
        os.kill(after[1], signal.SIGKILL)  # and this one is replaced at once
        until(lambda: cluster.session.processes([1])[0].pid not in {0, after[1]})
        until(lambda: all(one.is_ready for one in cluster.session.processes()))
        assert stream.exchange(-3).total == 12
    until(lambda: all(len(below(node.pid)) <= 1 for node in own_cli.nodes))


@pytest.mark.nightly
def test_a_root_that_begins_again_ends_what_the_one_before_has_left(
    own_cli: Cli, own_head: Any, until: Until
) -> None:
    node = own_cli.join(own_head["join"], "one")
    made = own_cli.json("session", "create", "day", "--agents", "2")
    agents = {one for one in below(node.pid) if is_of_session(one)}
    os.kill(own_head["pid"], signal.SIGKILL)
    os.kill(made["pid"], signal.SIGKILL)
    own_cli.json("up", "--no-node")
    until(lambda: own_cli.json("session", "show", "day")["state"] == "detached")
    assert agents
    assert not agents & set(below(node.pid))
    assert own_cli.json("session", "show", "day")["agents"] == 2
    own_cli.json("session", "delete", "day")
    until(lambda: len(below(node.pid)) <= 1)


def is_of_session(pid: int) -> bool:
    return b"zygote" in Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.parametrize("far", [False, True])
def test_work_ends_with_its_cluster(own_cli: Cli, own_head: Any, until: Until, far: bool) -> None:
    """Two nodes: neither may take the processes of the other when both are gone."""
    for name in ("one", "two"):
        own_cli.join(own_head["join"], name)
    url, credential = "default", None
    if far:
        url, credential = f"sapwood://{own_head['places'][0]}", own_cli.folder / "credential"
        words = ("--rights", "connect,allocate,spawn,run", "--output", str(credential))
        own_cli.run("credential", "issue", *words)
    settings = Settings(nodes=NodeSettings(listen="127.0.0.1:0"))
    with sapwood.connect(url, credential=credential).start(agents=2, settings=settings) as cluster:
        assert total(cluster) == 2
        waiting = cluster.submit(signal.pause)
        own_cli.run("down")
        with pytest.raises(CommunicationError, match=f"the cluster '{url}' is down") as told:
            waiting.result(PATIENCE)
        assert told.value.exit_code == 6
        until(lambda: cluster.session.failure is not None)
        failure = cluster.session.failure
        assert isinstance(failure, NodeLostError)
        assert failure.hint == "start a cluster with `sapwood up`, then start this again"
        assert cluster.session.ready_hosts() == []


def test_a_killed_node_is_missed_at_once(own_cli: Cli, until: Until) -> None:
    """Its link could continue for a minute, but the node is not shown as ready meanwhile."""
    own_cli.environment["SAPWOOD_COMM__GRACE"] = "60s"
    up = own_cli.up()
    node = own_cli.join(up["join"], "one")
    node.kill()
    until(lambda: own_cli.states() == {"one": "disconnected"})
    (record,) = own_cli.records()
    assert record["reason"] == "its link ended (the connection was closed); it may come back"


def test_a_node_that_joins_again_has_its_name_and_place(own_cli: Cli, until: Until) -> None:
    own_cli.environment |= {
        "SAPWOOD_COMM__GRACE": "0.2s",
        "SAPWOOD_NODES__LOSS_TIMEOUT": "1s",
        "SAPWOOD_CLUSTER__NODE_PATIENCE": "60s",
    }
    up = own_cli.up()
    first = own_cli.join(up["join"], "one")
    with sapwood.connect().start(agents=1) as cluster:
        assert total(cluster) == 1
        first.kill()
        line = own_cli.json("token", "create")["text"]
        own_cli.join(line, "one")  # perhaps before the first one is known to be gone
        assert total(cluster) == 1
    (record,) = own_cli.records()
    assert (record["name"], record["state"]) == ("one", "ready")
    own_cli.join(own_cli.json("token", "create")["text"], "one")  # another machine of that name
    until(lambda: own_cli.states() == {"one": "ready", "one-2": "ready"})


@pytest.mark.nightly
def test_a_node_that_is_killed_with_its_head_is_recorded_as_lost(
    own_cli: Cli, own_head: Any, until: Until
) -> None:
    node = own_cli.join(own_head["join"], "one")
    own_cli.join(own_head["join"], "two")
    node.kill()
    os.kill(own_head["pid"], signal.SIGKILL)
    own_cli.json("up", "--no-node")

    def lost() -> list[tuple[str, str]]:
        events = own_cli.json("events", "--kind", "node.lost")["events"]
        return [(one["node"], one["text"]) for one in events]

    until(lambda: lost() == [("one", "it did not come back after the head was killed")])


def test_events_and_runs_become_parquet_files(cli: Cli, head: Any, tmp_path: Path) -> None:
    cli.join(head["join"], "one")
    events, runs = tmp_path / "events.parquet", tmp_path / "runs.parquet"
    said = cli.run("events", "--kind", "node.joined", "--parquet", str(events), "--limit", "1")
    assert said == f"{events} has 1 event.\n"
    assert pq.read_table(events).to_pylist()[0]["node"] == "one"
    cli.run("run", "list", "--all", "--parquet", str(runs))
    assert "calls" in pq.read_table(runs).column_names


def test_a_node_that_was_removed_does_not_come_back(cli: Cli, head: Any) -> None:
    cli.join(head["join"], "one")
    two = cli.join(head["join"], "two")
    two.send_signal(signal.SIGSTOP)  # it does not hear that it is removed
    cli.run("node", "delete", "two")
    two.send_signal(signal.SIGCONT)
    assert two.wait(PATIENCE) in {0, 7}  # it may find that it was notified, or ask again
    assert two.stdout is not None
    assert "was removed" in two.stdout.read()


@pytest.mark.nightly
def test_who_is_in_a_hurry_ends_a_drain(cli: Cli, head: Any, until: Until) -> None:
    cli.join(head["join"], "one")
    cli.join(head["join"], "two")
    with sapwood.connect().start(agents=2):
        draining = subprocess.Popen(
            [sys.executable, "-m", "sapwood", "node", "drain", "two"],
            env=cli.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        until(lambda: cli.states()["two"] == "draining")
        assert cli.run("node", "delete", "two") == "two is removed.\n"
        assert draining.communicate(timeout=PATIENCE)[0] == "two is removed.\n"
        assert draining.returncode == 0
        assert cli.states()["two"] == "removed"


@pytest.mark.nightly
def test_what_a_node_in_the_background_says(cli: Cli, head: Any) -> None:
    """Errors equal those in the foreground, and the head chooses the name."""
    del head
    line = cli.json("token", "create", "--uses", "9")["text"]
    for label in ("one", "one"):
        said = cli.run("node", "join", line, "--as", label, "--background")
        assert re.fullmatch(r"joined as one(-\d+)? at 127\.0\.0\.1:\d+, process \d+\n", said)
    assert "one" in cli.states()
    assert len(cli.states()) == 2
    said = cli.run("node", "join", line, "--as", "../x", "--background", status=7)
    assert "no node can be called '../x'" in said
    assert "--as NAME" in said
    cli.run("token", "revoke", line.split(".")[1])
    assert "revoked" in cli.run("node", "join", line, "--background", status=7)


def test_modules_of_the_current_folder_are_not_run(
    own_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who may write in a folder cannot make a head that starts there run their code."""
    (tmp_path / "sapwood").mkdir()
    (tmp_path / "sapwood/__init__.py").write_text("raise SystemExit('not this one')")
    (tmp_path / "sapwood/__main__.py").touch()
    monkeypatch.chdir(tmp_path)
    command = Path(sys.executable).parent / "sapwood"
    words = [str(command), "up", "--no-node"]
    done = subprocess.run(
        words, env=own_cli.environment, capture_output=True, text=True, check=False
    )
    assert "is up" in done.stdout, done.stderr


def test_a_store_with_something_else_in_it_is_named(own_cli: Cli) -> None:
    folder = own_cli.folder / "state/sapwood/heads/default"
    store = SqliteStore(folder)
    store.put("generation", b"many")
    store.close()
    said = own_cli.run("up", "--no-node", status=5)
    assert "entry 'generation' cannot be read" in said
    assert "move" in said


@pytest.mark.nightly
def test_a_node_may_be_below_another_one(cli: Cli, head: Any, until: Until, tmp_path: Path) -> None:
    """Where it cannot reach that one it reaches the root, and the status says so."""
    cli.join(head["join"], "one")
    cli.join(head["join"], "two")
    shape = tmp_path / "tree.toml"
    shape.write_text('one = ["two"]\n')

    def parents_where(listen: str, said: str) -> list[int]:
        """Return where junctions are attached, once the command has reported it."""
        nodes = NodeSettings(topology=f"file:{shape}", node_listen=listen)
        with sapwood.connect().start(agents=4, settings=Settings(nodes=nodes)) as cluster:
            router, tree = embedded(cluster.session).host.node.router, cluster.session.tree
            assert [tree.parents[rank] for rank in tree.junctions] == [0, 5]
            assert total(cluster) == 4
            until(lambda: said in " ".join(cli.run("node", "status", "--links").split()))
            placed = [router.placed(rank) for rank in tree.junctions]
            return [one.parent for one in placed if one is not None]

    # A node that listens keeps listening: the address that is not its own comes first.
    told = "two reaches the root instead of one, which it cannot reach: rank 6"
    assert parents_where("192.0.2.1:0", told) == [0, 0]
    assert parents_where("127.0.0.1:0", "") == [0, 5]


@pytest.mark.nightly
def test_drains_leave_room_for_questions(own_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits as long as a session works there, and status is answered meanwhile."""
    monkeypatch.setattr("sapwood.head.head.SLOW_CALLS", 1)
    monkeypatch.setattr("sapwood.head.removals.REMOVALS", 1)
    settings = Settings()
    options = session_options(settings, site_variables(settings))
    head = Head("default", head_folder("default"), options, NodeSettings(listen="127.0.0.1:0"))
    head.start()
    try:
        line = own_cli.json("token", "create", "--uses", "2")["text"]
        own_cli.join(line, "one")
        own_cli.join(line, "two")
        with connected("default") as access, sapwood.connect().start(agents=2) as cluster:
            drains = [access.client.ask(Nodes.remove, name, 600.0) for name in ("one", "two")]
            states = [one.record.state for one in status_of("default").nodes]
            assert states == ["draining", "draining"]
            assert total(cluster) == 2
            assert not any(one.done() for one in drains)
            cluster.close()
            for one in drains:
                assert one.result(PATIENCE).state == "removed"
    finally:
        head.close()
