"""The status of a cluster: links, why a node is missing, sessions and runs, and logs."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import sapwood
from sapwood.cli.status_tables import explanations, status_of
from sapwood.head import calls

from .conftest import PATIENCE, Cli, Until

DELAY = 0.05
"""Seconds by which the slow way delays everything, in each direction."""


_LISTEN = """
import socket, sys
way = socket.socket(fileno=int(sys.argv[1]))
port = socket.create_server(("127.0.0.1", int(sys.argv[2])))
socket.send_fds(way, [b"."], [port.fileno()])
"""


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, ...]]:
    """Words that run a command in a separate network, where nothing can be reached."""
    name = f"swstatus{os.getpid()}"
    if os.geteuid() != 0 or None in (shutil.which("ip"), shutil.which("ss")):
        pytest.skip("a network namespace needs root and the programs ip and ss")
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"no network namespace can be made: {made.stderr.decode().strip()}")
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield ("ip", "netns", "exec", name)
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def listening_elsewhere(port: str, elsewhere: tuple[str, ...]) -> socket.socket:
    """Return a socket that listens in another network."""
    mine, theirs = socket.socketpair()
    with mine, theirs:
        command = [*elsewhere, sys.executable, "-c", _LISTEN, str(theirs.fileno()), port]
        subprocess.run(command, pass_fds=[theirs.fileno()], check=True)
        _, (descriptor,), _, _ = socket.recv_fds(mine, 1, 1)
    return socket.socket(fileno=descriptor)


@contextmanager
def slow_way(place: str, elsewhere: tuple[str, ...]) -> Iterator[None]:
    """Make an address reachable from elsewhere, but slowly."""
    host, _, port = place.rpartition(":")
    loop = asyncio.new_event_loop()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            data = b"?"
            while data:
                due, data = await waiting.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                writer.write(data)
            writer.close()

        delivering = asyncio.create_task(deliver())
        data = b"?"
        while data:
            try:
                data = await reader.read(65536)
            except OSError:
                data = b""
            waiting.put_nowait((loop.time() + DELAY, data))
        await delivering

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        try:
            await asyncio.gather(pump(reader, back), pump(there, writer))
        finally:
            for end in (writer, back):
                end.close()

    async def end() -> None:
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        if rest:
            _, left = await asyncio.wait(rest, timeout=PATIENCE)  # both ends are closed by now
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        for _ in range(3):
            await asyncio.sleep(0)  # the transports close

    listening = listening_elsewhere(port, elsewhere)
    server = loop.run_until_complete(asyncio.start_server(serve, sock=listening))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(end())
        loop.close()


def nodes() -> dict[str, calls.NodeStatus]:
    return {one.record.name: one for one in status_of("default").nodes}


def resent(one: calls.NodeStatus) -> int:
    """How many segments a node's kernel has sent again."""
    link = one.activity.link if one.activity else None
    return (link.connection.resent or 0) if link and link.connection else 0


def lose_segments(elsewhere: tuple[str, ...], until: Until) -> None:
    """Cut another network off until the kernel there has something to send again."""
    network = elsewhere[-1]
    subprocess.run(["ip", "-n", network, "link", "set", "lo", "down"], check=True)
    look = [*elsewhere, "ss", "-tni", "state", "established"]
    try:
        until(lambda: "backoff:" in subprocess.check_output(look, text=True))
    finally:
        subprocess.run(["ip", "-n", network, "link", "set", "lo", "up"], check=True)


def samples(one: calls.NodeStatus) -> bool:
    """Whether the round trip is known at both ends."""
    near, far = one.link, one.activity.link if one.activity else None
    return bool(near and near.round_trip and far and far.round_trip)


@pytest.mark.row("A-LOG-1")
def test_links_have_their_round_trips_and_clocks_and_certificates(
    cli: Cli, head: Any, until: Until, elsewhere: tuple[str, ...]
) -> None:
    place = head["places"][0]
    with slow_way(place, elsewhere):
        cli.join(head["join"], "n1")
        cli.join(head["join"], "n2", *elsewhere)
        found: dict[str, calls.NodeStatus] = {}

        def known() -> bool:
            found.update(nodes())
            return all(map(samples, found.values()))

        until(known)
        fast, late = found["n1"], found["n2"]
        assert fast.link is not None
        assert late.link is not None
        assert late.activity is not None
        for link in (late.link, late.activity.link):
            assert link is not None
            assert 2 * DELAY <= (link.round_trip or 0.0) < 6 * DELAY
            assert link.round_trip_least is not None
            assert 2 * DELAY <= link.round_trip_least < 3 * DELAY
        assert (fast.link.round_trip_least or 1.0) < DELAY
        for one in found.values():
            assert one.skew_error is not None
            assert abs(one.skew) <= one.skew_error  # all of them have this machine's clock
            assert 86000 < one.certificate_end - time.time() <= 86400
            assert one.interface == "lo"
            assert one.activity is not None
            assert one.activity.interface == "lo"
            assert one.link is not None
            assert one.link.connection is not None
            assert one.link.connection.local_address == place
            assert one.link.connection.protocol == "TLSv1.3"
            assert (one.link.state, one.link.resumptions, one.link.dropped) == ("up", 0, 0)
        direct = fast.activity.link if fast.activity else None
        assert direct is not None
        assert direct.connection is not None
        assert fast.link.connection is not None
        assert direct.connection.local_address == fast.link.connection.address
        shown = cli.run("node", "status", "--links")
        assert [line.split()[:4] for line in shown.splitlines()[1:3]] == [
            ["n1", "ready", "127.0.0.1", "lo"],
            ["n2", "ready", "127.0.0.1", "lo"],
        ]
        assert max(map(len, shown.splitlines())) <= 80
        before = resent(nodes()["n2"])
        lose_segments(elsewhere, until)
        until(lambda: resent(nodes()["n2"]) > before)
        cli.forget()


def test_why_a_node_is_not_there_is_said(
    cli: Cli, head: Any, until: Until, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed, removed, never let in: each with its cause, and since when."""
    n1 = cli.join(head["join"], "n1")
    cli.join(head["join"], "n2")
    line = cli.json("token", "create")["text"]
    cli.join(line, "n3")
    assert "used before" in cli.run("node", "join", line, "--as", "n7", status=7)
    cli.run("node", "delete", "n2")
    before = time.time()
    n1.kill()
    until(lambda: nodes()["n1"].record.state == "lost")
    with sapwood.connect().start(agents=2) as cluster:  # on what is there
        assert len(cluster.agents) == 2
    (left_out,) = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    assert "node=n1 " in left_out  # and not n2, which was removed
    killed = nodes()["n1"]
    assert killed.link is None
    assert killed.record.reason
    assert before <= killed.record.since <= time.time()
    said = "\n".join(explanations(status_of("default")))
    assert f"n1 is lost since {time.strftime('%H:')}" in said
    assert "n2 is removed since " in said
    assert ": it was removed" in said
    assert "'n7' was not let in at " in said
    assert "the join token was used before, or revoked; it let in n3" in said
    assert "n3 is" not in said
    shown = cli.run("node", "status", "--links")
    assert max(map(len, shown.splitlines())) <= 80
    listed = {one["name"]: one["reason"] for one in cli.json("node", "list")["nodes"]}
    assert listed["n1"] == killed.record.reason


def test_a_node_that_does_not_answer_keeps_nobody_waiting(cli: Cli, head: Any) -> None:
    cli.join(head["join"], "n1")
    n2 = cli.join(head["join"], "n2")
    n2.send_signal(signal.SIGSTOP)
    try:
        begun = time.monotonic()
        found = nodes()
        assert time.monotonic() - begun < 10
        assert found["n1"].activity is not None
        assert found["n2"].activity is None
        assert "does not answer" in found["n2"].unanswered or found["n2"].record.reason
    finally:
        n2.send_signal(signal.SIGCONT)


@pytest.mark.row("A-ENV-1")
def test_what_runs_on_a_node_is_shown(cli: Cli, head: Any, until: Until, tmp_path: Path) -> None:
    node = cli.join(head["join"], "n1")

    def activity() -> Any:
        return nodes()["n1"].activity

    assert activity().daemon.pid == node.pid
    assert activity().sessions == []
    with sapwood.connect().start(agents=3) as cluster:
        cluster.submit(abs, -1).result(PATIENCE)
        (session,) = activity().sessions
        assert session.session.startswith("connection-")
        assert len(session.processes) >= 3
        assert len({one.rank for one in session.processes}) == len(session.processes)
        for one in (session.zygote, *session.processes):
            assert Path(f"/proc/{one.pid}").exists()
            assert one.memory > 2**20
            assert abs(one.since - time.time()) < PATIENCE
        ready = tmp_path / "ready"
        words = ["sh", "-c", f"touch {ready}; exec sleep 600"]
        command = subprocess.Popen(
            [sys.executable, "-m", "sapwood", "exec", "--on", "head", "--", *words],
            env=cli.environment,
        )
        try:
            until(ready.exists)
            (running,) = activity().commands
            assert running.arguments == words
            assert Path(f"/proc/{running.process.pid}").exists()
            shown = cli.run("node", "status", "--nodes", "n1")
        finally:
            command.send_signal(signal.SIGINT)
            command.wait(PATIENCE)
    assert [line.split()[1] for line in shown.splitlines()[1:3]] == ["daemon", "zygote"]
    assert "sleep 600" in shown
    assert max(map(len, shown.splitlines())) <= 80
    until(lambda: not activity().sessions and not activity().commands)
    assert "node n9 does not exist" in cli.run("node", "status", "--nodes", "n9", status=2)


@pytest.mark.row("A-LOG-1")
def test_logs_of_all_nodes_are_merged_and_followed(cli: Cli, head: Any, until: Until) -> None:
    for name in ("n1", "n2"):
        cli.join(head["join"], name)
    follow = subprocess.Popen(
        [sys.executable, "-m", "sapwood", "logs", "--cluster", "default", "--follow"],
        env=cli.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follow.stdout is not None
    watchdog = threading.Timer(PATIENCE, follow.kill)
    watchdog.start()
    try:
        first = follow.stdout.readline()
        assert " head[" in first
        with sapwood.connect().start(agents=2):
            seen = next(line for line in follow.stdout if "session opened" in line)
        assert " n[1-2] info" in seen
        os.kill(follow.pid, signal.SIGTERM)
        follow.stdout.read()
        assert follow.wait(PATIENCE) == 130
    finally:
        watchdog.cancel()
        follow.kill()
        follow.wait()
        follow.stdout.close()
    text = cli.run("logs", "--cluster", "default", "--json")
    lines = [json.loads(line) for line in text.splitlines()]
    assert {one["node"] for one in lines} == {"head", "n1", "n2"}
    assert [one["timestamp"] for one in lines] == sorted(one["timestamp"] for one in lines)
    joined = {one["node"] for one in lines if one["event"] == "node joined"}
    assert joined == {"n1", "n2"}
    one = cli.run("logs", "--cluster", "default", "--nodes", "n[2-2]", "--since", "10min")
    assert one
    assert all(" n2[" in line for line in one.splitlines())
    assert cli.run("logs", "--cluster", "default", "--since", "1us") == ""
    assert cli.run("logs", "--cluster", "default", "--level", "error") == ""
    assert "node n9 does not exist" in cli.run(
        "logs", "--cluster", "default", "--nodes", "n9", status=2
    )


@pytest.mark.row("D-7")
def test_top_shows_the_cluster_and_a_report_has_a_run(
    cli: Cli, head: Any, until: Until, tmp_path: Path
) -> None:
    cli.join(cli.json("token", "create")["text"], "n1")
    shown = cli.run("top", "--once")
    assert "n1" in shown
    until(lambda: cli.json("top")["nodes"][-1]["load"] is not None)
    assert head["pid"] > 0
    program = tmp_path / "mean.py"
    program.write_text(_MEAN)
    words = ("run", str(program), "--detach", "--set", "cluster.agents=1")
    run = cli.json(*words)["id"]
    until(lambda: cli.json("run", "show", run)["state"] == "done")
    file = tmp_path / "run.html"
    said = cli.json("report", run, "-o", str(file))
    assert (said["run"], said["state"], said["bytes"]) == (run, "done", file.stat().st_size)
    assert '"program":"Mean"' in file.read_text("utf-8")


_MEAN = """
import sapwood

class Mean(sapwood.Program):
    reduce = {"n": "sum"}

    def default_data(self):
        return range(10)

    def map(self, slice, state):
        return {"n": len(slice)}

    def update(self, state, total):
        return total
"""
