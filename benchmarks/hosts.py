"""What the tree costs over several machines: TLS between them, shared memory inside.

The machines are four network namespaces of this one beside the benchmark's, with their own
addresses; all share its cores. Where namespaces cannot be made, all are on the loopback
interface. ``sapwood up`` and ``sapwood node join`` make the cluster, as users do.

``hosts.joined``
    From the call of ``sapwood node join --background`` to a node that is ready, all nodes at once.
    Floor: as many fresh Pythons that import the interpreter's ``ssl`` and make one TLS connection.
``hosts.ready``
    From the call of ``sapwood.start("head")`` to agents that are ready; nodes existed before.
    Floor: none.
``hosts.broadcast_gather``
    64 bytes to every agent and 64 bytes back from each, concatenated (``stream.exchange``).
    Floor: one process for each node, 64 bytes there and back to each by ``ssl`` sockets that block.
``hosts.sum``
    Every agent fills a float64 array, and the caller gets the sum; one partial result leaves each
    node. Floor: one such array from each node over the same ``ssl`` sockets, added by numpy.
``hosts.ssh_once``
    One command on one host by ``sapwood exec --on ssh:n1 -- true``: Sapwood goes there, runs it and
    leaves nothing. It has been there before, so the host has its runtime. Floor: ``ssh n1 true``.
``hosts.….mpi``, ``hosts.….ray``
    The same by Open MPI over TCP (``Bcast`` and ``Gather``, ``Reduce``; shared memory inside a
    machine) and by Ray (one actor for each agent), neither encrypted, over the same namespaces.

Floor and Sapwood take turns, and the first rounds do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import sapwood
from clusters import PATIENCE, SAPWOOD, head_up, join_all
from floors.tls_node import QUESTION
from machines import HEAD, Machines, machines
from peers.environment import PeerMissingError
from peers.hosts import PEERS, run_peer_over
from peers.running import PeerFailedError
from peers.work import Work
from programs.filling import Filling
from report import Figure, Options, Report, add_options, options_of
from sapwood.comm.transport.tls_identity import accepting_context
from sapwood.security.authority import Authority, make_request
from ssh_servers import ssh_servers, why_no_ssh

NODES = 4
SMALL = 64
LARGE = 8 << 20
WARM_UP = 20
SUM_WARM_UP = 2
FLOOR_SCRIPT = Path(__file__).resolve().parent / "floors" / "tls_node.py"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Several machines.")
    add_options(parser, runs=3)
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=None, help="mpi and ray")
    given = parser.parse_args()
    options = options_of(given, agents=(NODES, 4 * NODES, 16 * NODES), runs=3)
    peers = given.peers if given.peers is not None else [] if options.quick else list(PEERS)
    with machines(NODES) as lan, Report("Several machines", options) as report:
        with long_lived(lan, report) as name:
            for agents in options.agents:
                begin = time.perf_counter()
                with sapwood.start(f"head:{name}", agents) as cluster:
                    ready = time.perf_counter() - begin
                    report.add(Figure.of("hosts.ready", agents, [ready], [], unit="ms"))
                    with bare_nodes(lan) as links:
                        broadcast_gather(cluster, links, agents, options, report)
                        array_sum(cluster, links, agents, options, report)
        ssh_once(lan, options, report)
        for agents in options.agents:
            for peer in peers:
                by_peer(peer, lan, agents, options, report)


@contextmanager
def long_lived(lan: Machines, report: Report) -> Iterator[str]:
    """Start a head and its nodes, and yield its name."""
    name = f"bench{os.getpid()}"
    with head_up(lan, name, {}) as line:
        floors = [_plain_joining(lan)]
        begin = time.perf_counter()
        join_all(lan, line, {})
        seconds = time.perf_counter() - begin
        report.add(Figure.of("hosts.joined", NODES, [seconds], floors, unit="s"))
        yield name


def _plain_joining(lan: Machines) -> float:
    """Return the seconds in which fresh Pythons make one TLS connection each."""
    begin = time.perf_counter()
    with bare_nodes(lan):
        return time.perf_counter() - begin


def broadcast_gather(
    cluster: sapwood.Cluster,
    links: list[ssl.SSLSocket],
    agents: int,
    options: Options,
    report: Report,
) -> None:
    """Measure 64 bytes down and up."""
    rounds = 20 if options.quick else 200
    sent = np.arange(SMALL, dtype=np.uint8)
    seconds: list[float] = []
    floors: list[float] = []
    with cluster.stream("echo", reduce={"x": "concat"}) as stream:
        for _ in range(options.runs):
            for turn in range(WARM_UP + rounds):
                begin = time.perf_counter()
                ask(links, SMALL)
                middle = time.perf_counter()
                total = stream.exchange({"x": sent}).total
                end = time.perf_counter()
                assert len(total["x"]) == SMALL * agents
                if turn >= WARM_UP:
                    floors.append(middle - begin)
                    seconds.append(end - middle)
    name = "hosts.broadcast_gather"
    report.add(Figure.of(name, agents, seconds, floors, unit="us", nbytes=SMALL))


def array_sum(
    cluster: sapwood.Cluster,
    links: list[ssl.SSLSocket],
    agents: int,
    options: Options,
    report: Report,
) -> None:
    """Measure the sum of one array from each agent."""
    nbytes = sum_size(options)
    rounds = 2 if options.quick else 10
    program = Filling(nbytes=nbytes, rounds=SUM_WARM_UP + rounds)
    seconds: list[float] = []
    floors: list[float] = []
    for _ in range(options.runs):
        for turn in range(SUM_WARM_UP + rounds):
            begin = time.perf_counter()
            total = np.zeros(nbytes // 8)
            for data in ask(links, nbytes):
                total += np.frombuffer(data, np.float64)
            if turn >= SUM_WARM_UP:
                floors.append(time.perf_counter() - begin)
        cluster.run(program, range(agents)).result()
        seconds += Filling.seconds[SUM_WARM_UP:]
    report.add(Figure.of("hosts.sum", agents, seconds, floors, unit="ms", nbytes=nbytes))


def ssh_once(lan: Machines, options: Options, report: Report) -> None:
    """Measure a command on a host without a held connection, by Sapwood and by ssh alone."""
    reason = why_no_ssh(lan)
    if reason:
        report.note(f"hosts.ssh_once is left out: {reason}")
        return
    host = lan.names[0]
    with ssh_servers(lan) as arguments:
        listed = ", ".join(f'"{word}"' for word in arguments)
        ours = [*SAPWOOD, "exec", "--on", f"ssh:{host}", "--set", f"nodes.ssh=[{listed}]"]
        commands = ([*ours, "--", "true"], ["ssh", *arguments, host, "true"])
        values: list[float] = []
        floors: list[float] = []
        for number in range(1 + (1 if options.quick else 5 * options.runs)):
            for command, found in zip(commands, (values, floors), strict=True):
                begin = time.perf_counter()
                subprocess.run(command, stdin=subprocess.DEVNULL, check=True)
                if number:  # the first one sends the runtime there
                    found.append(time.perf_counter() - begin)
        report.add(Figure.of("hosts.ssh_once", 1, values, floors, unit="ms"))


def sum_size(options: Options) -> int:
    """Return the bytes of each agent's array."""
    return 1 << 20 if options.quick else LARGE


def by_peer(peer: str, lan: Machines, agents: int, options: Options, report: Report) -> None:
    """Measure a peer over the same machines."""
    nbytes = sum_size(options)
    work = Work(agents, 20 if options.quick else 200, 10, (nbytes,), 0)
    print(f"… {peer}, {agents} agents", file=sys.stderr, flush=True)
    try:
        found = run_peer_over(peer, lan, work)
    except (PeerMissingError, PeerFailedError) as error:
        report.note(f"{peer}, {agents} agents: left out: {error}")
        return
    small, large = found["gather"], found[f"sum_{nbytes}"]
    name = f"hosts.broadcast_gather.{peer}"
    report.add(Figure.of(name, agents, small, [], unit="us", nbytes=SMALL))
    report.add(Figure.of(f"hosts.sum.{peer}", agents, large, [], unit="ms", nbytes=nbytes))


# --- the floor: one process for each node, by sockets that block ----------------------------------


@contextmanager
def bare_nodes(lan: Machines) -> Iterator[list[ssl.SSLSocket]]:
    """Yield connections to processes that send back as many bytes as they are asked for."""
    authority = Authority.create("floor")
    key, request = make_request()
    own = authority.issue(request, HEAD, key)
    address = lan.address(HEAD)
    with (
        ExitStack() as stack,
        socket.create_server((address, 0)) as server,
        tempfile.TemporaryFile("w+") as nothing,
    ):
        server.settimeout(PATIENCE)
        links: list[ssl.SSLSocket] = []
        words = [sys.executable, str(FLOOR_SCRIPT), address, str(server.getsockname()[1])]
        for node in lan.names:
            process = subprocess.Popen(
                lan.command(node, words), stdin=subprocess.PIPE, stdout=nothing, text=True
            )
            stack.callback(process.wait, PATIENCE)
            assert process.stdin is not None
            print(_as_json(authority, node, own.node), file=process.stdin)
            process.stdin.close()
        for _ in lan.names:
            plain = stack.enter_context(server.accept()[0])
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            secure = accepting_context(own).wrap_socket(plain, server_side=True)
            links.append(stack.enter_context(secure))
        yield links


def _as_json(authority: Authority, node: str, head: str) -> str:
    """Return the credentials of a floor's process as its script reads them."""
    key, request = make_request()
    theirs = authority.issue(request, node, key)
    texts: dict[str, Any] = {"node": theirs.node, "head": head}
    for part in ("certificate", "key", "authority"):
        texts[part] = getattr(theirs, part).decode()
    return json.dumps(texts)


def ask(links: list[ssl.SSLSocket], nbytes: int) -> list[bytearray]:
    """Send 64 bytes to all, then take the answers."""
    question = nbytes.to_bytes(8, "little").ljust(QUESTION, b"\0")
    for link in links:
        link.sendall(question)
    answers = [bytearray(nbytes) for _ in links]
    for link, answer in zip(links, answers, strict=True):
        left = memoryview(answer)
        while left:
            left = left[link.recv_into(left) :]
    return answers


if __name__ == "__main__":
    main()
