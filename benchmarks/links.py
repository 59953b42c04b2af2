"""What links cost: TLS on the event loop against bare blocking TLS, and what an idle one keeps.

``links.round_trip``
    64 bytes from this process to another one and back, over a connection of ``TlsTransport`` on
    the loopback interface. Floor: the same over two ``ssl.SSLSocket`` that block.
``links.stream``
    64 MiB, written at once, until the other process has all of it and has said so. Floor:
    ``ssl.SSLSocket.sendall`` to ``recv_into``.
``links.request``, ``links.wave``
    What the protocol adds: an empty request and its answer, and one MiB of a 16 MiB wave that
    travels in one frame and is answered by a number. Floors: those above, for as many bytes.
``links.idle_link``, ``links.idle_stream``
    Memory that Python has allocated for an idle link, at the root, and for a
    stream that is open with one member and silent, at both ends. Floor: none.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import ssl
import time
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, cast

import numpy as np
import trustme

from report import Figure, Options, Report, read_options
from sapwood.comm import events as ev
from sapwood.comm import frames, plain, values
from sapwood.comm.driver import NodeDriver
from sapwood.comm.link import Identity, LinkTiming
from sapwood.comm.messages import StreamSpec
from sapwood.comm.node import Node
from sapwood.comm.payload import Payload
from sapwood.comm.reactor import Reactor
from sapwood.comm.reduction import gathering
from sapwood.comm.transport.base import Connection
from sapwood.comm.transport.tls import TlsTransport
from sapwood.comm.transport.tls_identity import accepting_context, connecting_context
from sapwood.core.clock import VirtualClock
from sapwood.core.topology import ROOT, flat
from sapwood.security.credentials import Credentials
from sapwood_simulation.links import ClockLoop
from sapwood_simulation.network import Network

WAVE = 16 * 2**20
"""Bytes of a large wave."""

STREAM = 64 * 2**20
"""Bytes that are written at once."""

SMALL = 64
"""Bytes that go there and back."""

WARM_UP = 20
IDLE = 500
"""Links, and streams, of which the memory is taken."""

HOST = "127.0.0.1"
PROTOCOL = "sapwood-tree/benchmark"
PATIENCE = 60.0

_spawn = multiprocessing.get_context("spawn")


def new_credentials() -> tuple[Credentials, Credentials]:
    """Return what the two processes show each other."""
    authority = trustme.CA()
    made = []
    for node in ("root.benchmark.sapwood", "child.benchmark.sapwood"):
        issued = authority.issue_cert(node)
        chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
        key = issued.private_key_pem.bytes()
        made.append(Credentials(node, chain, key, authority.cert_pem.bytes()))
    return made[0], made[1]


# --- the floor: sockets that block ----------------------------------------------------------------


def read_exactly(sock: ssl.SSLSocket, view: memoryview) -> None:
    """Fill a buffer."""
    filled = 0
    while filled < len(view):
        count = sock.recv_into(view[filled:])
        assert count
        filled += count


def serve_bare(credentials: Credentials, port: int, node: str, trips: int, sends: int) -> None:
    """Be the other process: send back what is small, confirm what is large."""
    raw = socket.create_connection((HOST, port))
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    view = memoryview(bytearray(STREAM))
    with connecting_context(credentials).wrap_socket(raw, server_hostname=node) as sock:
        for _ in range(trips):
            read_exactly(sock, view[:SMALL])
            sock.sendall(view[:SMALL])
        for _ in range(sends):
            read_exactly(sock, view)
            sock.sendall(b"!")


def measure_bare(trips: int, sends: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each round trip and of each large send, without a loop."""
    here, there = new_credentials()
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        child = _spawn.Process(target=serve_bare, args=(there, port, here.node, trips, sends))
        child.start()
        raw, _ = server.accept()
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    view = memoryview(bytearray(STREAM))
    found: tuple[list[float], list[float]] = ([], [])
    with accepting_context(here).wrap_socket(raw, server_side=True) as sock:
        for times, count, size, answer in (
            (found[0], trips, SMALL, SMALL),
            (found[1], sends, STREAM, 1),
        ):
            for _ in range(count):
                begin = time.perf_counter()
                sock.sendall(view[:size])
                read_exactly(sock, view[:answer])
                times.append(time.perf_counter() - begin)
    child.join()
    return found


# --- connections on the loop ----------------------------------------------------------------------


class Server:
    """Sends back what is small, confirms what is large: the other process on the loop."""

    def __init__(self, loop: Reactor, trips: int, sends: int) -> None:
        self._loop = loop
        self._sizes = iter([*[SMALL] * trips, *[STREAM] * sends])
        self._missing = next(self._sizes)
        self._connection: Connection

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Keep it."""
        assert initiator
        self._connection = connection
        return 1

    def bytes_received(self, number: int, data: bytes) -> None:
        """Count, and answer when all is there."""
        assert number == 1
        self._missing -= len(data)
        if not self._missing:
            self._connection.write([data if len(data) == SMALL else b"!"])
            self._missing = next(self._sizes, -1)

    def connection_closed(self, number: int, reason: str) -> None:
        """Nothing more comes."""
        assert number == 1, reason
        self._loop.stop()


def serve_on_loop(credentials: Credentials, address: str, trips: int, sends: int) -> None:
    """Be the other process."""
    with closing(Reactor()) as loop:
        server = Server(loop, trips, sends)
        TlsTransport(credentials, PROTOCOL).connect(address, server, loop, print)
        loop.run()


class Client:
    """Sends one thing after the other and notes how long each takes."""

    def __init__(self, loop: Reactor, trips: int, sends: int) -> None:
        self.times: dict[int, list[float]] = {SMALL: [], STREAM: []}
        self._loop = loop
        self._sizes = iter([*[SMALL] * trips, *[STREAM] * sends])
        self._size = self._missing = 0
        self._view = memoryview(bytes(STREAM))
        self._begin = 0.0
        self._connection: Connection

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Begin."""
        assert not initiator
        self._connection = connection
        self._send()
        return 1

    def bytes_received(self, number: int, data: bytes) -> None:
        """Go on when the answer is complete."""
        assert number == 1
        self._missing -= len(data)
        if not self._missing:
            self.times[self._size].append(time.perf_counter() - self._begin)
            self._send()

    def connection_closed(self, number: int, reason: str) -> None:
        """It was this side that closed it."""
        assert number == 1, reason
        self._loop.stop()

    def _send(self) -> None:
        self._size = next(self._sizes, 0)
        if not self._size:
            self._connection.close()
            return
        self._missing = SMALL if self._size == SMALL else 1
        self._begin = time.perf_counter()
        self._connection.write([self._view[: self._size]])


def measure_loop(trips: int, sends: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each round trip and of each large send, on the loop."""
    here, there = new_credentials()
    with closing(Reactor()) as loop:
        client = Client(loop, trips, sends)
        listener = TlsTransport(here, PROTOCOL).listen(f"{HOST}:0", client, loop)
        child = _spawn.Process(target=serve_on_loop, args=(there, listener.address, trips, sends))
        child.start()
        loop.run()
        listener.close()
    child.join()
    return client.times[SMALL], client.times[STREAM]


# --- the protocol on them -------------------------------------------------------------------------


def serve_place(credentials: Credentials, address: str) -> None:
    """Be the other process: answer requests and waves until the parent is lost."""
    loop = Reactor()

    def answer(asked: ev.Asked) -> None:
        place.post(ev.Answer(asked.source, asked.number, asked.body, None))

    def contribute(wave: ev.WaveArrived) -> None:
        body = plain.encode({"x": wave.payload.nbytes if wave.payload is not None else 0})
        place.post(ev.Contribute(wave.spec.stream, wave.wave, 1.0, body, None))

    handlers: dict[Any, Any] = {
        ev.Asked: answer,
        ev.WaveArrived: contribute,
        ev.ParentLost: lambda _: loop.stop(),
    }
    node = Node(Identity("b", 1, 1, os.getpid(), "child"), flat(1))
    place = NodeDriver(node, handlers, loop, print)
    place.post(ev.Begin())
    TlsTransport(credentials, PROTOCOL).connect(address, place, loop, print)
    place.start()
    loop.run()


class Pair:
    """This process as root and another one as its only agent."""

    def __init__(self) -> None:
        here, there = new_credentials()
        self.loop = Reactor()
        self._happened: list[Any] = []
        handlers: dict[Any, Callable[[Any], None]] = dict.fromkeys(
            (ev.PlaceJoined, ev.Answered, ev.WaveCompleted), self._note
        )
        node = Node(Identity("b", ROOT, 1, os.getpid(), "root"), flat(1), None, gathering())
        self.place = NodeDriver(node, handlers, self.loop, print)
        self._listener = TlsTransport(here, PROTOCOL).listen(f"{HOST}:0", self.place, self.loop)
        address = self._listener.address
        self._child = _spawn.Process(target=serve_place, args=(there, address))
        self._child.start()
        self._wait()
        self.place.start()
        self.place.post(ev.OpenStream(StreamSpec(1, "x", ((1, 2),), {"x": "sum"})))
        self._number = 0

    def _note(self, effect: ev.Effect) -> None:
        self._happened.append(effect)
        self.loop.stop()

    def _wait(self) -> Any:
        late = self.loop.call_later(PATIENCE, self.loop.stop)
        self.loop.run()
        late.cancel()
        return self._happened.pop()

    def ask(self) -> float:
        """Return the seconds of one empty request."""
        self._number += 1
        begin = time.perf_counter()
        self.place.post(ev.Ask(1, "echo", self._number, b"\xc0", None))
        answered = self._wait()
        seconds = time.perf_counter() - begin
        assert answered.error is None
        return seconds

    def send(self, encoded: values.Encoded) -> float:
        """Return the seconds of one large wave."""
        begin = time.perf_counter()
        self.place.post(ev.Broadcast(1, encoded.body, Payload(encoded.payload())))
        total = self._wait().total
        seconds = time.perf_counter() - begin
        assert total["x"] == encoded.nbytes
        return seconds

    def close(self) -> None:
        """End the other process."""
        self._listener.close()
        self.place.close()
        self._child.join()
        self.loop.close()


def measure_places(asks: int, waves: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each request and of each wave."""
    pair = Pair()
    encoded = values.encode({"data": np.zeros(WAVE, "u1")})
    found = [pair.ask() for _ in range(asks)], [pair.send(encoded) for _ in range(waves)]
    pair.close()
    return found


def tls(options: Options, report: Report) -> None:
    """Compare, taking turns."""
    trips, sends = (50, 1) if options.quick else (3000, 12)
    found: dict[tuple[Any, str], list[float]] = {}
    for _ in range(options.runs):
        for measure in (measure_bare, measure_loop, measure_places):
            small, large = measure(WARM_UP + trips, 1 + sends)
            found.setdefault((measure, "small"), []).extend(small[WARM_UP:])
            found.setdefault((measure, "large"), []).extend(large[1:])
    small, floor = found[measure_loop, "small"], found[measure_bare, "small"]
    report.add(Figure.of("links.round_trip", 1, small, floor, unit="us", nbytes=SMALL))
    large, bare = found[measure_loop, "large"], found[measure_bare, "large"]
    report.add(Figure.of("links.stream", 1, large, bare, unit="ms", nbytes=STREAM))
    request = found[measure_places, "small"]
    report.add(Figure.of("links.request", 1, request, floor, unit="us"))
    wave = [seconds * 2**20 / WAVE for seconds in found[measure_places, "large"]]
    megabyte = [seconds * 2**20 / STREAM for seconds in bare]
    report.add(Figure.of("links.wave", 1, wave, megabyte, unit="ms", nbytes=2**20))


def idle(report: Report) -> None:
    """Take the memory of what is silent."""
    report.add(Figure.of("links.idle_link", 1, [memory_of_links()], [], unit="KiB"))
    report.add(Figure.of("links.idle_stream", 1, [memory_of_streams()], [], unit="KiB"))


class Mute:
    """A connection whose other end never sends data unasked."""

    peer = ""

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Take it."""

    def close(self) -> None:
        """Nothing to close."""

    def abort(self) -> None:
        """Nothing to close."""


def memory_of_links() -> float:
    """Return the bytes of a silent link at a root with many."""

    def greeted(count: int) -> int:
        tracemalloc.start()
        timing = LinkTiming()
        node = Node(Identity("b", ROOT, 1, 1, "root"), flat(IDLE), timing, gathering())
        place = NodeDriver(node, {}, cast("Any", ClockLoop(VirtualClock())), print)
        before = tracemalloc.get_traced_memory()[0]
        for rank in range(1, count + 1):
            number = place.connection_opened(Mute(), initiator=False)
            hello = Identity("b", rank, 1, rank, "child").hello(link=number)
            place.bytes_received(number, b"".join(frames.encode(hello, None, share=False)))
        used = tracemalloc.get_traced_memory()[0] - before
        assert len(place.channels) == count
        tracemalloc.stop()
        return used

    return (greeted(IDLE) - greeted(1)) / (IDLE - 1)


def memory_of_streams() -> float:
    """Return the bytes of a silent stream at a root and its one agent together."""
    network = Network(flat(1))
    network.start()
    network.open_stream(1, {"x": "sum"})
    network.run()
    network.advance(2.0)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(2, IDLE + 2):
        network.open_stream(number, {"x": "sum"})
    network.run()
    network.advance(2.0)
    network.observations.clear()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return used / IDLE


def main() -> None:
    """Measure and print."""
    options = read_options("Links: TLS, and memory while idle.", agents=(1,), runs=3)
    with Report("Links", options) as report:
        tls(options, report)
        idle(report)


if __name__ == "__main__":
    main()
