"""What the tree costs over several machines: TLS between them, shared memory inside.

The nodes are on this machine (``nodes:4``), so TLS goes over the loopback interface: this shows
what the runtime adds to a network, and nothing of a network itself. All share the cores.

``hosts.ready``
    From nothing to a cluster whose agents are ready: control tree, tokens, certificates, zygotes.
    Floor: none.
``hosts.broadcast_gather``
    64 bytes to every agent and 64 bytes back from each, concatenated (``stream.exchange``).
    Floor: one process for each node, 64 bytes there and back to each by ``ssl`` sockets that block.
``hosts.sum``
    Every agent fills a float64 array, and the caller gets the sum; one partial result leaves each
    node. Floor: one such array from each node over the same ``ssl`` sockets, added by numpy.

Floor and Sapwood take turns, and the first rounds do not count.
"""

from __future__ import annotations

import multiprocessing
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np

import sapwood
from programs.filling import Filling
from report import Figure, Options, Report, read_options
from sapwood.comm.transport.tls import accepting_context, connecting_context
from sapwood.security.authority import Authority, make_request
from sapwood.security.credentials import Credentials

NODES = 4
SMALL = 64
LARGE = 8 << 20
WARM_UP = 20
SUM_WARM_UP = 2


def main() -> None:
    """Measure and print."""
    options = read_options("Several machines.", agents=(NODES, 4 * NODES), runs=3)
    with Report("Several machines", options) as report:
        for agents in options.agents:
            begin = time.perf_counter()
            with sapwood.on(f"nodes:{min(NODES, agents)}", agents) as cluster:
                ready = time.perf_counter() - begin
                report.add(Figure.of("hosts.ready", agents, [ready], [], unit="ms"))
                with bare_nodes(min(NODES, agents)) as links:
                    broadcast_gather(cluster, links, agents, options, report)
                    array_sum(cluster, links, agents, options, report)


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
    nbytes = 1 << 20 if options.quick else LARGE
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


# --- the floor: one process for each node, by sockets that block ----------------------------------


@contextmanager
def bare_nodes(count: int) -> Iterator[list[ssl.SSLSocket]]:
    """Yield connections to processes that send back as many bytes as they are asked for."""
    authority = Authority.create("floor")
    own = credentials(authority, "head")
    with ExitStack() as stack:
        links: list[ssl.SSLSocket] = []
        for number in range(count):
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            theirs = credentials(authority, f"n{number}")
            process = multiprocessing.get_context("spawn").Process(
                target=serve, args=(theirs, own.node, server.getsockname()[1]), daemon=True
            )
            process.start()
            stack.callback(process.join)
            plain = stack.enter_context(server.accept()[0])
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            secure = accepting_context(own).wrap_socket(plain, server_side=True)
            links.append(stack.enter_context(secure))
        yield links


def credentials(authority: Authority, name: str) -> Credentials:
    """Return a certificate and its key."""
    key, request = make_request()
    return authority.issue(request, name, key)


def serve(own: Credentials, head: str, port: int) -> None:
    """Answer until the connection ends."""
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        connecting_context(own).wrap_socket(plain, server_hostname=head) as link,
    ):
        plain_options = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(*plain_options)
        answers: dict[int, bytes] = {}
        while asked := link.recv(SMALL):
            nbytes = int.from_bytes(asked[:8], "little")
            if nbytes not in answers:
                answers[nbytes] = bytes(np.ones(nbytes // 8))
            link.sendall(answers[nbytes])


def ask(links: list[ssl.SSLSocket], nbytes: int) -> list[bytearray]:
    """Send 64 bytes to all, then take the answers."""
    question = nbytes.to_bytes(8, "little").ljust(SMALL, b"\0")
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
