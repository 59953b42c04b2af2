"""What it costs that the root of a session is a separate process, beside a head.

``sessions.attach``
    From the call of ``sapwood.attach`` to a cluster that can be used, in a process that has done
    so before. Floor: a process that answers one byte over a Unix socket: connect, ask, hear.
``sessions.exchange``
    64 bytes to every agent and back from each, concatenated, by an attached client. Floor: the
    same with the root in this process, without the shortcuts of one machine, plus a round trip to
    the root.
``sessions.sum``
    The sum of one float64 array of each agent, by an attached client. Floor: as above.
``sessions.expand``
    From the call of ``expand(16)`` to agents that are ready. Floor: the start of as many agents in
    a separate session.
``sessions.revocation``
    From the call of ``revoke`` at a head to the moment when the last of 10,000 endpoints refuses
    the credential and has said so. Real: the issuer with its store on disk, the feed, the requests
    and the protocol cores of all places, and the lists of all endpoints. Simulated: the endpoints
    are not processes, and their links to the head are virtual time, with 20 ms for each message on
    its way and 40 µs for each message that a place receives. The figure is the real time of the
    issuer plus that virtual time.

The head, its node and all agents are on this machine. Attached and embedded take turns, and the
first rounds do not count.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import msgspec
import numpy as np

import sapwood
from report import Figure, Report, read_options
from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.core.topology import ROOT, flat
from sapwood.environment.settings import CommSettings, Settings
from sapwood.head import calls
from sapwood.head.credential_issuer import CredentialIssuer, DenialFeed
from sapwood.nodes import messages
from sapwood.security.capabilities import Capability
from sapwood.security.denials import Denials, DenialUpdate
from sapwood.security.rights import ALL_RIGHTS
from sapwood.store.sqlite import SqliteStore
from sapwood_simulation.timed import TimedTree

SMALL = 64
LARGE = 8 << 20
WARM_UP = 20
MORE = 16
ENDPOINTS = 10_000
LATENCY = 0.02
"""Seconds that a message takes between the head and an endpoint: a continent."""

HANDLING = 40e-6
"""Seconds that a place is busy with a message."""

PLAIN = msgspec.structs.replace(Settings(), comm=CommSettings(fastpath=False))
"""Settings without the shortcuts of one machine, which no attached session has."""


def main() -> None:
    """Measure and print."""
    options = read_options("Sessions with their own session servers.", agents=(4, 16), runs=3)
    rounds = 20 if options.quick else 200
    large_rounds = 3 if options.quick else 20
    with Report("Sessions with their own session servers", options) as report, head():
        report.add(attaching(20 if options.quick else 100))
        for agents in options.agents:
            with sapwood.connect().create_session(
                agents, name=f"b{agents}", on="local"
            ) as attached:
                trip = round_trip(attached, rounds)
                report.add(Figure.of("sessions.round_trip", agents, trip, [], unit="us"))
                with sapwood.local(agents, settings=PLAIN) as embedded:
                    for name, nbytes, turns in (
                        ("sessions.exchange", SMALL, rounds * options.runs),
                        ("sessions.sum", 1 << 20 if options.quick else LARGE, large_rounds),
                    ):
                        values, floors = waves(attached, embedded, nbytes, turns)
                        floors = [one + float(np.median(trip)) for one in floors]
                        report.add(
                            Figure.of(name, agents, values, floors, unit="us", nbytes=nbytes)
                        )
        report.add(expanding())
        report.add(revoking(200 if options.quick else ENDPOINTS, options.runs))


@contextlib.contextmanager
def head(*words: str) -> Iterator[None]:
    """Have a head of the benchmark's own, begun with some options."""
    with tempfile.TemporaryDirectory(prefix="sapwood-bench-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        command = [sys.executable, "-m", "sapwood"]
        subprocess.run(
            [*command, "up", "--no-node", "--json", *words],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            subprocess.run([*command, "down"], check=True, stdout=subprocess.DEVNULL)


def attaching(rounds: int) -> Figure:
    """Measure how long it takes to come back to a session."""
    values: list[float] = []
    floors = plain_asking(rounds)
    with sapwood.connect().create_session(4, name="attaching", on="local") as owner:
        handle = owner.detach()
    for turn in range(5 + rounds):
        begin = time.perf_counter()
        cluster = sapwood.attach(handle)
        if turn >= 5:
            values.append(time.perf_counter() - begin)
        assert len(cluster.agents) == 4
        cluster.detach()
    with sapwood.attach(handle) as last:
        assert last.submit(pow, 2, 5).result() == 32
    subprocess.run(
        [sys.executable, "-m", "sapwood", "session", "delete", handle, "--json"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return Figure.of("sessions.attach", 4, values, floors, unit="ms")


def plain_asking(rounds: int) -> list[float]:
    """Return how long it takes to connect to another process and hear one byte."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "floor.sock")
        script = (
            "import socket, sys\n"
            "own = socket.socket(socket.AF_UNIX); own.bind(sys.argv[1]); own.listen()\n"
            "print('ready', flush=True)\n"
            "while True:\n"
            "    other = own.accept()[0]\n"
            "    if other.recv(1) == b'e': break\n"
            "    other.sendall(b'x')\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", script, path], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        found = []
        for word in [b"q"] * rounds + [b"e"]:
            begin = time.perf_counter()
            with socket.socket(socket.AF_UNIX) as way:
                way.connect(path)
                way.sendall(word)
                if word == b"q":
                    way.recv(1)
                    found.append(time.perf_counter() - begin)
        process.wait(10)
        process.stdout.close()
    return found


def round_trip(attached: sapwood.Cluster, rounds: int) -> list[float]:
    """Return how long the root takes to answer a question that it answers itself."""
    session = attached.session
    values = []
    for turn in range(WARM_UP + rounds):
        begin = time.perf_counter()
        session.ready_hosts()
        if turn >= WARM_UP:
            values.append(time.perf_counter() - begin)
    return values


def waves(
    attached: sapwood.Cluster, embedded: sapwood.Cluster, nbytes: int, rounds: int
) -> tuple[list[float], list[float]]:
    """Return the seconds of waves of both, in turns."""
    values: list[float] = []
    floors: list[float] = []
    small = nbytes == SMALL
    how = "concat" if small else "sum"
    sent = np.arange(SMALL, dtype=np.uint8) if small else np.ones(nbytes // 8)
    warm_up = WARM_UP if small else 2
    with (
        attached.stream("echo", reduce={"x": how}) as one,
        embedded.stream("echo", reduce={"x": how}) as other,
    ):
        for turn in range(warm_up + rounds):
            for stream, seconds in ((one, values), (other, floors)):
                begin = time.perf_counter()
                total = stream.exchange({"x": sent}).total["x"]
                passed = time.perf_counter() - begin
                if small:
                    assert total.nbytes == SMALL * len(attached.agents)
                else:
                    assert total[0] == total[-1] == len(attached.agents)
                if turn >= warm_up:
                    seconds.append(passed)
    return values, floors


def expanding() -> Figure:
    """Measure how long it takes to add agents."""
    with sapwood.connect().create_session(4, name="grows", on="local") as cluster:
        begin = time.perf_counter()
        cluster.expand(MORE)
        value = time.perf_counter() - begin
        assert len(cluster.agents) == 4 + MORE
    begin = time.perf_counter()
    with sapwood.local(MORE, settings=PLAIN):
        floor = time.perf_counter() - begin
    return Figure.of("sessions.expand", MORE, [value], [floor], unit="ms")


def revoking(endpoints: int, rounds: int) -> Figure:
    """Measure how long it takes until all endpoints refuse a credential; see above."""
    timed = TimedTree(flat(endpoints), latency=LATENCY, handling=HANDLING)
    lists = [Denials() for _ in range(timed.tree.size)]
    open_: dict[int, Future[object]] = {}

    def happened(rank: int, effect: ev.Effect) -> None:
        if isinstance(effect, ev.Asked):
            assert effect.handler == messages.DENY
            told = messages.from_value(plain.decode(effect.body), DenialUpdate)
            body = plain.encode(lists[rank].take(told))
            timed.post(rank, ev.Answer(effect.source, effect.number, body, None))
        elif isinstance(effect, ev.Answered):
            assert effect.error is None
            open_.pop(effect.number).set_result(plain.decode(effect.body))

    def ask(host: int, handler: str, value: object) -> Future[object]:
        number = len(open_) + 1
        answer = open_[number] = Future()
        timed.post(ROOT, ev.Ask(host, handler, number, plain.encode(value), None))
        return answer

    timed.on_effect = happened
    timed.start()
    values: list[float] = []
    with tempfile.TemporaryDirectory(prefix="sapwood-bench-") as folder:
        store = SqliteStore(Path(folder) / "store")
        try:
            issuer = CredentialIssuer(lambda: store, "bench", "00" * 32)
            feed = DenialFeed(ask, issuer.whole_list)
            wanted = calls.IssueCredential(rights=["connect"], lifetime=3600.0)
            for _ in range(rounds):
                made = Capability.parse(issuer.issue(wanted, ALL_RIGHTS, [], 3600.0).text)
                begin = time.perf_counter()
                update, _known = issuer.revoke(made.id)
                spent, since = time.perf_counter() - begin, timed.now
                told = [feed.tell(rank, update) for rank in range(1, endpoints + 1)]
                timed.run()
                assert all(one.result(0) for one in told)
                assert all(made.id in one for one in lists[1:])
                values.append(spent + timed.now - since)
        finally:
            store.close()
    return Figure.of("sessions.revocation", endpoints, values, [], unit="ms")


if __name__ == "__main__":
    main()
