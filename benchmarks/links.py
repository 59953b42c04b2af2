"""What links cost: TLS on TCP against plain TCP of the same code, and what an idle one keeps.

``links.round_trip``
    An empty request from this process to another one and its answer, over TCP on the loopback
    interface with mutual TLS 1.3. Floor: the same code over TCP without TLS, which is only here.
``links.megabyte``
    Time for one MiB of a 16 MiB wave that travels in its message, one frame; the answer is small.
    Floor: as above. One MiB in 1 ms is 1,049 MB/s.
``links.idle_link``, ``links.idle_stream``
    Memory that Python has allocated for a link that stands and is silent, at the root, and for a
    stream that is open with one member and silent, at both ends. There is no floor.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import ssl
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
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
from sapwood.comm.reduction import gathering
from sapwood.comm.transport.base import ConnectionHandler, Listener, Transport
from sapwood.comm.transport.stream_socket import StreamSocket
from sapwood.comm.transport.tcp import TcpTransport, split_address
from sapwood.core.clock import VirtualClock
from sapwood.core.topology import ROOT, flat
from sapwood_simulation.links import ClockLoop
from sapwood_simulation.network import Network

LARGE = 16 * 2**20
"""Bytes of a large wave."""

WARM_UP = 20
IDLE = 500
"""Links, and streams, of which the memory is taken."""


class PlainTcp:
    """TCP without TLS: what ``TcpTransport`` does, less the certificates; for this comparison."""

    async def listen(self, address: str, handler: ConnectionHandler) -> Listener:
        """Accept connections."""
        loop = asyncio.get_running_loop()
        return await loop.create_server(
            lambda: StreamSocket(handler, initiator=False), *split_address(address)
        )

    async def connect(self, address: str, handler: ConnectionHandler) -> None:
        """Connect."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(
            lambda: StreamSocket(handler, initiator=True), *split_address(address)
        )


def transport_of(folder: str) -> Transport:
    """Return TCP with the certificates of a folder, or without TLS if there is none."""
    if not folder:
        return PlainTcp()
    contexts = []
    for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(Path(folder) / "member.pem")
        context.load_verify_locations(Path(folder) / "authority.pem")
        contexts.append(context)
    return TcpTransport(*contexts)


def serve(folder: str, address: str) -> None:
    """Be the other process: answer requests and waves until the parent is lost."""
    import uvloop  # noqa: PLC0415 - in the child alone

    async def live() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def answer(asked: ev.Asked) -> None:
            place.post(ev.Answer(asked.source, asked.number, asked.body, None))

        def contribute(wave: ev.WaveArrived) -> None:
            body = plain.encode({"x": wave.payload.nbytes if wave.payload is not None else 0})
            number = wave.spec.stream
            place.post(ev.Contribute(number, wave.wave, 1.0, body, None))

        handlers: dict[Any, Any] = {
            ev.Asked: answer,
            ev.WaveArrived: contribute,
            ev.ParentLost: lambda _: ended.set(),
        }
        node = Node(Identity("b", 1, 1, os.getpid(), "child"), flat(1))
        place = NodeDriver(node, handlers, loop, print)
        place.post(ev.Begin())
        await transport_of(folder).connect(address, place)
        place.start()
        await ended.wait()

    uvloop.run(live())


class Pair:
    """This process as root and another one as its only agent."""

    def __init__(self, folder: str) -> None:
        import uvloop  # noqa: PLC0415 - as above

        self.loop = uvloop.new_event_loop()
        self._happened: asyncio.Future[Any] = self.loop.create_future()
        handlers: dict[Any, Callable[[Any], None]] = dict.fromkeys(
            (ev.PlaceJoined, ev.Answered, ev.WaveCompleted), self._note
        )
        node = Node(Identity("b", ROOT, 1, os.getpid(), "root"), flat(1), None, gathering())
        self.place = NodeDriver(node, handlers, self.loop, print)
        listening: Any = transport_of(folder).listen("127.0.0.1:0", self.place)
        self._listener = self.loop.run_until_complete(listening)
        port = self._listener.sockets[0].getsockname()[1]
        context = multiprocessing.get_context("spawn")
        self._child = context.Process(target=serve, args=(folder, f"127.0.0.1:{port}"))
        self._child.start()
        self._wait()
        self.place.start()
        self.place.post(ev.OpenStream(StreamSpec(1, "x", ((1, 2),), {"x": "sum"})))
        self._number = 0

    def _note(self, effect: ev.Effect) -> None:
        if not self._happened.done():
            self._happened.set_result(effect)

    def _wait(self) -> Any:
        effect = self.loop.run_until_complete(asyncio.wait_for(self._happened, 60))
        self._happened = self.loop.create_future()
        return effect

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
        self.loop.run_until_complete(asyncio.sleep(0.05))
        self._child.join()
        self.loop.close()


@contextmanager
def certificates() -> Iterator[str]:
    """Make a folder with the certificates that members show each other."""
    authority = trustme.CA()
    with tempfile.TemporaryDirectory() as folder:
        member = authority.issue_cert("127.0.0.1")
        member.private_key_and_cert_chain_pem.write_to_path(Path(folder) / "member.pem")
        authority.cert_pem.write_to_path(Path(folder) / "authority.pem")
        yield folder


def tls(options: Options, report: Report) -> None:
    """Compare TLS with plain TCP, taking turns."""
    asks, sends = (50, 3) if options.quick else (2000, 30)
    encoded = values.encode({"data": np.zeros(LARGE, "u1")})
    found: dict[tuple[str, str], list[float]] = {}
    with certificates() as folder:
        for _ in range(options.runs):
            for name, where in (("plain", ""), ("tls", folder)):
                pair = Pair(where)
                trips = [pair.ask() for _ in range(WARM_UP + asks)][WARM_UP:]
                waves = [pair.send(encoded) for _ in range(2 + sends)][2:]
                pair.close()
                found.setdefault((name, "trip"), []).extend(trips)
                megabytes = [seconds / (LARGE / 2**20) for seconds in waves]
                found.setdefault((name, "wave"), []).extend(megabytes)
    trip, floor = found["tls", "trip"], found["plain", "trip"]
    report.add(Figure.of("links.round_trip", 1, trip, floor, unit="us"))
    wave, floor = found["tls", "wave"], found["plain", "wave"]
    report.add(Figure.of("links.megabyte", 1, wave, floor, unit="ms", nbytes=LARGE))


def idle(report: Report) -> None:
    """Take the memory of what is silent."""
    report.add(Figure.of("links.idle_link", 1, [memory_of_links()], [], unit="KiB"))
    report.add(Figure.of("links.idle_stream", 1, [memory_of_streams()], [], unit="KiB"))


class Mute:
    """A connection whose other end says nothing by itself."""

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
