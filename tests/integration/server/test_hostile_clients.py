"""Hostile clients at a real HTTP server: each is turned away, and those beside it never notice."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration.server.conftest import PATIENCE, WebHead, until
from typer.testing import CliRunner

import sapwood
from sapwood.cli.main import app
from sapwood.head.folder import find_head
from sapwood.head.parts.cluster import WholeCluster
from sapwood.head_client.connection import ServiceClient, UnixWay
from sapwood.server.api import PREFIX
from sapwood.server.limits import HttpLimits

LIMITS = HttpLimits()
MIB = 2**20


def connect(web: WebHead) -> socket.socket:
    host, _, port = web.url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE)


def rest(sock: socket.socket) -> bytes:
    """All that comes until the end."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := sock.recv(65536):
            found += piece
    return found


def memory(web: WebHead) -> int:
    process = web.head.front.http._process
    assert process is not None
    return int(psutil.Process(process.pid).memory_info().rss)


@contextlib.contextmanager
def beside(web: WebHead) -> Iterator[list[float]]:
    """Let good clients ask by HTTP and at the head's socket; yield the seconds of each answer."""
    over, took, wrong = threading.Event(), [], []
    local = ServiceClient(UnixWay(find_head("default").socket))

    def ask() -> None:
        with web.client("connect") as client:
            while not over.is_set():
                began = time.monotonic()
                if client.get(f"{PREFIX}/nodes").status_code != 200:
                    wrong.append("the good client got no answer")
                local.call_within(PATIENCE, WholeCluster.facts)
                took.append(time.monotonic() - began)
                over.wait(0.05)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        until(lambda: took)  # it runs before the others come
        yield took
    finally:
        over.set()
        thread.join()
        local.close()
    assert wrong == []
    assert took
    assert max(took) < PATIENCE / 2


@pytest.mark.row("B-API-1")
@pytest.mark.parametrize("declared", [True, False])
def test_a_body_of_a_gibibyte(web: WebHead, *, declared: bool) -> None:
    before, sent = memory(web), 0
    with beside(web), connect(web) as sock:
        how = f"content-length: {2**30}" if declared else "transfer-encoding: chunked"
        host = web.url.removeprefix("http://")
        head = f"POST {PREFIX}/login HTTP/1.1\r\nhost: {host}\r\norigin: {web.url}\r\n{how}\r\n"
        sock.sendall(f"{head}content-type: application/json\r\n\r\n".encode())
        piece = b"x" * MIB
        data = piece if declared else b"%x\r\n%b\r\n" % (MIB, piece)
        with contextlib.suppress(ConnectionError):
            while sent < 2**30 and not _answered(sock):
                sock.sendall(data)
                sent += MIB
        answer = rest(sock)
    assert answer.startswith(b"HTTP/1.1 413 "), (sent, web.events("request.refused"))
    assert sent < 2**30
    assert memory(web) - before < 64 * MIB
    until(lambda: any("has more than" in one.text for one in web.events("request.refused")))


def _answered(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], 0)[0])


def test_a_header_of_a_mebibyte(web: WebHead) -> None:
    before = memory(web)
    for line in (b"GET /", b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ", b"GET / HTTP/1.1\r\n"):
        with connect(web) as sock, contextlib.suppress(ConnectionError):
            filler = b"a: b\r\n" if line.endswith(b"\n") else b"a"
            sock.sendall(line + filler * (MIB // len(filler)))
            answer = rest(sock)
            assert answer[:12] in {b"", b"HTTP/1.1 400", b"HTTP/1.1 431"}
    assert memory(web) - before < 32 * MIB


def idle(web: WebHead, count: int) -> None:
    """Open so many connections that say nothing, while others ask."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count + 500:
        pytest.skip(f"this user may open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 500)), hard))
    try:
        with beside(web), contextlib.ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(connect(web))
            with web.client("connect", "observe") as client:
                answer = client.get(f"{PREFIX}/metrics").json()["metrics"]
            (there,) = [one for one in answer if one["name"] == "sapwood_http_connections"]
            assert there["samples"][0]["value"] <= LIMITS.connections
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_idle_connections(web: WebHead) -> None:
    idle(web, 1000)


@pytest.mark.nightly
def test_ten_thousand_idle_connections(web: WebHead) -> None:
    idle(web, 10_000)


@pytest.mark.nightly
def test_clients_that_read_and_write_a_byte_a_second(web: WebHead) -> None:
    token = web.issue("connect", "observe")
    asked = (
        f"GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n"
    ).encode()
    with beside(web), contextlib.ExitStack() as stack:
        writers = [stack.enter_context(connect(web)) for _ in range(20)]
        readers = [stack.enter_context(connect(web)) for _ in range(20)]
        for sock in readers:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(0.0)
            with contextlib.suppress(OSError):
                sock.sendall(asked * 200)  # more than buffers hold
        end = time.monotonic() + LIMITS.header_seconds + 30
        at, left = 0, set(writers)
        while left and time.monotonic() < end:
            for sock in list(left):
                try:
                    sock.sendall(asked[at % len(asked) : at % len(asked) + 1])
                    if at % 200 == 199 or _answered(sock):
                        left.discard(sock)
                except ConnectionError:
                    left.discard(sock)
            for sock in readers:
                with contextlib.suppress(OSError):
                    sock.recv(1)
            at += 1
            threading.Event().wait(1.0)
        assert not left
        late = "the headers of its request do not come"
        until(lambda: late in {one.text for one in web.events("request.refused")})


def raw_requests(web: WebHead, count: int, seed: int) -> None:
    """Send requests that a generator has damaged; none is answered by a 5xx, or makes it end."""
    made = random.Random(seed)  # noqa: S311 - requests, not secrets
    token = web.issue("connect")
    pid = web.head.front.http._process.pid if web.head.front.http._process else 0
    paths = ["/", "/metrics", "/healthz", "/openapi.json", "/static/x", "/login"]
    paths += [f"{PREFIX}/{one}" for one in ("nodes", "runs/a", "sessions/b", "login", "events")]
    methods = ["GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "TRACE", "X"]
    lines = [
        "host: localhost", f"authorization: Bearer {token}", "authorization: Bearer swc1.a.b",
        "authorization: \xff", "cookie: a=b; c", "content-length: 5", "content-length: -1",
        "content-length: 99999999999999999999", "transfer-encoding: chunked",
        "transfer-encoding: gzip, chunked", "origin: null", "expect: 100-continue",
        "range: bytes=9-1,0-", "upgrade: websocket", "connection: upgrade",
        "content-type: application/json", "last-event-id: x", "x" * 300 + ": 1",
        ": nothing", "a:b\rc", "host: other",
    ]  # fmt: skip
    bodies = [b"", b"{}", b'{"ticket": 1}', b"[" * 2000, b"\xff\xfe", b"5\r\nhello\r\n0\r\n\r\n"]
    statuses: set[bytes] = set()
    for _ in range(count):
        chosen = made.sample(lines, made.randrange(6))
        query = made.choice(["", "?a=b", "?limit=-1", "?%00", "?after=" + "9" * 30])
        text = (
            f"{made.choice(methods)} {made.choice(paths)}{query} HTTP/1.{made.choice('0119')}\r\n"
        )
        whole = text + "\r\n".join(["connection: close", *chosen, "", ""])
        data = bytearray(whole.encode("latin-1") + made.choice(bodies))
        for _ in range(made.randrange(4) if made.random() < 0.5 else 0):
            data[made.randrange(len(data))] = made.randrange(256)
        with connect(web) as sock:
            with contextlib.suppress(ConnectionError):
                sock.sendall(data)
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
            statuses.add(rest(sock)[9:12])
    assert not {one for one in statuses if one.startswith(b"5")}
    assert b"200" in statuses
    process = web.head.front.http._process
    assert process is not None
    assert process.pid == pid
    assert process.poll() is None


@pytest.mark.row("B-API-1")
def test_damaged_requests(web: WebHead) -> None:
    with beside(web):
        raw_requests(web, 300, seed=1)
    assert len(web.events("request.refused")) < 200  # it tells of some, and counts the others


@pytest.mark.nightly
def test_a_hundred_thousand_damaged_requests(web: WebHead) -> None:
    before = memory(web)
    with beside(web):
        raw_requests(web, 100_000, seed=int(os.environ.get("SAPWOOD_FRESH_SEED", "7")))
    assert memory(web) - before < 64 * MIB
    assert len(web.events("request.refused")) < 2000


WALK = """
import time
from pathlib import Path

import numpy as np
import sapwood


class Walk(sapwood.Program):
    reduce = {"total": "sum"}
    inputs = ("x",)
    gate: str = sapwood.parameter("")

    def default_data(self):
        return {"x": np.random.default_rng(5).normal(size=20_000)}

    def init(self, data):
        return {"round": 0, "at": 0.5}

    def map(self, data, state):
        while state["round"] == 500 and not Path(self.gate).exists():
            time.sleep(0.01)
        return {"total": float(np.sin(data["x"] * state["at"]).sum())}

    def update(self, state, total):
        return {"round": state["round"] + 1, "at": float(np.cos(total["total"]))}

    def done(self, state):
        return state["round"] >= 1000

    def result(self, state):
        return {"at": state["at"], "round": state["round"]}
"""
"""A program whose result is another one if any of its iterations is. It waits in the middle."""


def sapwood_json(*words: str) -> Any:
    done = CliRunner().invoke(app, [*words, "--json"], prog_name="sapwood")
    assert done.exit_code == 0, (words, done.output, done.exception)
    return json.loads(done.stdout)


def begun(program: Path, session: str, gate: Path) -> str:
    """Begin a detached run that waits in the middle; return its id when it is there."""
    run = sapwood_json("run", str(program), "--session", session, "--detach", "-p", f"gate={gate}")[
        "id"
    ]
    until(lambda: (sapwood_json("run", "show", run)["progress"] or {}).get("iteration") == 500)
    return str(run)


def ended(run: str, folder: Path) -> Any:
    """Wait for the end of a run; return what the command says of it."""
    return sapwood_json("run", "follow", run, "--answer", str(folder / f"{run}.json"))


@pytest.mark.nightly
@pytest.mark.row("B-API-1")
@pytest.mark.timeout(600)
def test_runs_never_notice(web: WebHead, tmp_path: Path) -> None:
    program, gate = tmp_path / "walk.py", tmp_path / "gate"
    program.write_text(WALK)
    with sapwood.connect().create_session(2, name="steady", on="local") as cluster:
        cluster.detach()
    try:
        calm = begun(program, "steady", gate)
        gate.touch()
        expected = ended(calm, tmp_path)["result"]
        gate.unlink()
        with contextlib.ExitStack() as stack:
            for _ in range(LIMITS.connections):  # they say nothing, and fill all places
                stack.enter_context(connect(web))
            raw_requests(web, 300, seed=101)
            beside = begun(program, "steady", gate)
            raw_requests(web, 300, seed=102)
            gate.touch()
            raw_requests(web, 300, seed=103)
            found = ended(beside, tmp_path)
    finally:
        web.head.sessions.end("steady").result(PATIENCE)
    assert found["result"] == expected
    assert (found["progress"]["state"], found["progress"]["iteration"]) == ("done", 1000)
    for kind in ("run.restarted", "session.restarted", "process", "runner.lost"):
        assert web.events(kind) == []


def conforms(web: WebHead, phases: str, examples: int, folder: Path) -> None:
    """Have schemathesis ask what the reference allows, and what it does not."""
    tool = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.skip("schemathesis is not installed")
    checks = "not_a_server_error,status_code_conformance,content_type_conformance"
    done = subprocess.run(
        [
            tool,
            "run",
            f"{web.url}/openapi.json",
            "-H",
            f"Authorization: Bearer {web.issue('connect', 'observe')}",
            "--checks",
            f"{checks},response_schema_conformance",
            "--warnings",
            "off",
            "--phases",
            phases,
            "--max-examples",
            str(examples),
            "--seed",
            "3",
            "--exclude-path",
            f"{PREFIX}/events/stream",
            "--exclude-path",
            f"{PREFIX}/live",
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.nightly
def test_answers_are_as_the_reference_says(web: WebHead, tmp_path: Path) -> None:
    with beside(web):
        conforms(web, "coverage,fuzzing", 1000, tmp_path)


@pytest.mark.row("B-API-1")
def test_some_answers_are_as_the_reference_says(web: WebHead, tmp_path: Path) -> None:
    conforms(web, "fuzzing", 5, tmp_path)
