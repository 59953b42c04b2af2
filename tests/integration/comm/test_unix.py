"""Places at work over real sockets: the node, the loop, the transport and shared memory."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop

from sapwood.comm import events as ev
from sapwood.comm import frames, values
from sapwood.comm import messages as msg
from sapwood.comm.driver import NodeDriver
from sapwood.comm.link import Identity, LinkTiming
from sapwood.comm.machine import machine_id
from sapwood.comm.messages import StreamSpec
from sapwood.comm.node import Node
from sapwood.comm.payload import Payload
from sapwood.comm.pool import BlockPool
from sapwood.comm.reduction import gathering
from sapwood.comm.transport.base import Listener
from sapwood.comm.transport.unix import MAX_PATH, UnixTransport
from sapwood.core.errors import CommunicationError
from sapwood.core.topology import ROOT, Tree, flat, kary

PATIENCE = 30.0


class Grove:
    """The places of a tree in one process, over real sockets."""

    def __init__(self, tree: Tree, folder: Path, machine: Callable[[int], str]) -> None:
        self.tree = tree
        self.folder = folder
        self.machine = machine
        self.loop = uvloop.new_event_loop()
        self.pool = BlockPool(64 * 1024)
        self.problems: list[str] = []
        self.effects: list[ev.Effect] = []
        self.places: dict[int, NodeDriver] = {}
        self.servers: list[Listener] = []
        self.failures: list[CommunicationError] = []
        for rank in tree.subtree(ROOT):
            self._grow(rank)
        self.until(lambda: len(self.seen(ev.PlaceJoined)) == tree.size - 1)

    def _grow(self, rank: int) -> None:
        identity = Identity("grove", rank, 1, os.getpid(), self.machine(rank))
        node = Node(identity, self.tree, LinkTiming(), gathering(self.pool.store))
        kinds = (ev.PlaceJoined, ev.PlacesLost, ev.WaveCompleted, ev.WaveFailed, ev.Answered)
        handlers: dict[Any, Any] = dict.fromkeys(kinds, self.effects.append)
        handlers[ev.WaveArrived] = lambda arrived: self._contribute(rank, arrived)
        handlers[ev.Asked] = lambda asked: self._answer(rank, asked)
        handlers[ev.Released] = self._released
        transport = UnixTransport()
        handlers[ev.Connect] = lambda effect: transport.connect(
            self.address(effect.rank), place, self.loop, self.failures.append
        )
        place: NodeDriver = NodeDriver(node, handlers, self.loop, self.problems.append)
        self.places[rank] = place
        if not self.tree.is_agent(rank):
            self.servers.append(transport.listen(self.address(rank), place, self.loop))
        if rank != ROOT:
            place.post(ev.Begin())
        place.start()

    def address(self, rank: int) -> str:
        return str(self.folder / f"{rank}.sock")

    def _released(self, effect: ev.Released) -> None:
        if effect.payload.owner is not None:
            self.pool.give_back(effect.payload.owner)

    def _contribute(self, rank: int, arrived: ev.WaveArrived) -> None:
        view = arrived.payload.view if arrived.payload is not None else b""
        value = values.decode(arrived.body, view)
        encoded = values.encode({"x": value["x"] * rank})
        stream, wave = arrived.spec.stream, arrived.wave
        payload = self.pool.store(encoded)
        self.places[rank].post(ev.Contribute(stream, wave, 1.0, encoded.body, payload))

    def _answer(self, rank: int, asked: ev.Asked) -> None:
        self.places[rank].post(ev.Answer(asked.source, asked.number, asked.body, asked.payload))

    def seen(self, kind: Any) -> list[Any]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def until(self, condition: Callable[[], object]) -> None:
        deadline = self.loop.time() + PATIENCE
        while not condition():
            assert self.loop.time() < deadline, (self.effects, self.problems)
            self.loop.run_until_complete(asyncio.sleep(0.001))

    def broadcast(self, value: Any) -> Any:
        before = len(self.seen(ev.WaveCompleted))
        encoded = values.encode(value)
        self.places[ROOT].post(ev.Broadcast(1, encoded.body, self.pool.store(encoded)))
        self.until(lambda: len(self.seen(ev.WaveCompleted)) > before)
        return self.seen(ev.WaveCompleted)[-1].total["x"]

    def close(self) -> None:
        self.places[ROOT].post(ev.CloseStream(1))
        self.until(lambda: not any(place.node.streams for place in self.places.values()))
        for server in self.servers:
            server.close()
        for place in self.places.values():
            place.close()
        self.loop.run_until_complete(asyncio.sleep(0.001))
        self.loop.close()
        self.pool.close()
        self.places.clear()
        self.effects.clear()


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Callable[..., Grove]]:
    grown: list[Grove] = []

    def plant(tree: Tree, machine: Callable[[int], str] = lambda _: machine_id()) -> Grove:
        grown.append(Grove(tree, tmp_path, machine))
        return grown[-1]

    yield plant
    for grove in grown:
        grove.close()


@pytest.mark.parametrize("tree", [flat(3), kary(5, 2)], ids=str)
@pytest.mark.parametrize("size", [1, 1000, 100_000])
@pytest.mark.parametrize("shared", [True, False])
def test_arrays_travel_down_and_sums_up(
    plant: Callable[..., Grove], tree: Tree, size: int, shared: bool
) -> None:
    grove = plant(tree, lambda rank: machine_id() if shared else f"machine {rank}")
    grove.places[ROOT].post(
        ev.OpenStream(StreamSpec(1, "x", ((1, tree.agents + 1),), {"x": "sum"}))
    )
    ranks = sum(range(1, tree.agents + 1))
    for wave in (1.0, 2.0):
        array = np.arange(size) * wave
        np.testing.assert_array_equal(grove.broadcast({"x": array}), array * ranks)
    assert grove.problems == []


def test_requests_and_their_payloads_come_back(plant: Callable[..., Grove]) -> None:
    grove = plant(kary(4, 2))
    data = Payload(bytes(range(200)) * 1000)
    grove.places[ROOT].post(ev.Ask(3, "echo", 1, b"\xc0", data))
    grove.until(lambda: grove.seen(ev.Answered))
    assert bytes(grove.seen(ev.Answered)[0].payload.view) == bytes(data.view)


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\n\r\n" + bytes(100),
        b"".join(bytes(part) for part in frames.encode(msg.Close(1), None, share=False)),
        b"".join(
            bytes(part)
            for part in frames.encode(
                msg.Hello(1, "grove", 1, 9, 1, "here", b"wrong"), None, share=False
            )
        ),
    ],
    ids=["http", "no greeting", "wrong credential"],
)
def test_a_stranger_is_cut_off_and_nobody_else_notices(
    plant: Callable[..., Grove], noise: bytes
) -> None:
    grove = plant(flat(2))
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(grove.address(ROOT))
        stranger.sendall(noise)
        stranger.setblocking(False)

        def cut_off() -> bool:
            try:
                while stranger.recv(1000):
                    pass
            except BlockingIOError:
                return False
            except ConnectionResetError:
                pass
            return True

        grove.until(cut_off)
    grove.places[ROOT].post(ev.OpenStream(StreamSpec(1, "x", ((1, 3),), {"x": "sum"})))
    assert grove.broadcast({"x": 1}) == 3


def test_the_loss_of_a_connection_is_noticed(plant: Callable[..., Grove]) -> None:
    grove = plant(kary(4, 2))
    grove.places[1].close()
    grove.until(lambda: grove.seen(ev.PlacesLost))
    assert grove.seen(ev.PlacesLost)[0].ranks == ((1, 2),)


def test_sockets_are_for_their_user_only(plant: Callable[..., Grove]) -> None:
    grove = plant(flat(1))
    assert Path(grove.address(ROOT)).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("what", ["too long", "taken", "no folder"])
def test_an_address_that_cannot_be_used_is_a_clear_error(tmp_path: Path, what: str) -> None:
    loop = uvloop.new_event_loop()
    place = NodeDriver(Node(Identity("c", 0, 1, 1, "m"), flat(1)), {}, loop, lambda _text: None)
    if what == "taken":
        (tmp_path / "x").mkdir()
    address = {
        "too long": str(tmp_path / ("x" * MAX_PATH)),
        "taken": str(tmp_path / "x"),
        "no folder": str(tmp_path / "y" / "z"),
    }[what]
    failures: list[CommunicationError] = []
    with pytest.raises(CommunicationError, match=r"cannot|longer"):
        UnixTransport().listen(address, place, loop)
    UnixTransport().connect(address, place, loop, failures.append)
    assert failures == []
    loop.run_until_complete(asyncio.sleep(0))
    assert "cannot connect" in failures[0].what
    loop.close()
