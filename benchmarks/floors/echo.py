"""Floor of a tree: a uvloop parent and forked children, each with its own uvloop loop.

A round sends a frame (length and payload) to every child and waits until every child has sent
one back. Protocols and transports are uvloop's; there is nothing else in between.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import uvloop

from floors.children import Child, forked

LENGTH = struct.Struct("!I")

WARM_UP = 20
"""Rounds before the first that counts."""


class Frames(asyncio.Protocol):
    """Cuts what arrives into frames and hands each to a function."""

    def __init__(self, on_frame: Callable[[asyncio.Transport, bytes], None]) -> None:
        self.on_frame = on_frame
        self.closed = asyncio.get_running_loop().create_future()
        self.received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's does not derive from it

    def data_received(self, data: bytes) -> None:
        """Cut frames off what has arrived."""
        self.received += data
        while len(self.received) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self.received)[0]
            if len(self.received) < end:
                return
            frame = bytes(self.received[LENGTH.size : end])
            del self.received[:end]
            self.on_frame(self.transport, frame)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell who waits for the end."""
        self.closed.set_result(None)


def send(transport: asyncio.Transport, payload: bytes) -> None:
    """Write one frame."""
    transport.write(LENGTH.pack(len(payload)) + payload)


def measure(agents: int, nbytes: int, rounds: int) -> list[float]:
    """Return the seconds of each of ``rounds`` rounds of ``nbytes`` down and up."""
    with forked(agents, _echo) as children:
        return uvloop.run(_rounds(children, nbytes, rounds))


def _echo(_rank: int, parent: socket.socket) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(lambda: Frames(send), sock=parent)
        await protocol.closed

    uvloop.run(serve())


async def _rounds(children: Sequence[Child], nbytes: int, rounds: int) -> list[float]:
    loop = asyncio.get_running_loop()
    payload = bytes(range(256)) * (nbytes // 256) + bytes(range(nbytes % 256))
    answers: dict[int, bytes] = {}
    done = loop.create_future()

    def on_answer(rank: int, _transport: asyncio.Transport, frame: bytes) -> None:
        answers[rank] = frame
        if len(answers) == len(children):
            done.set_result(None)

    transports = []
    for child in children:
        protocol = partial(Frames, partial(on_answer, child.rank))
        transport, _ = await loop.create_connection(protocol, sock=child.socket)
        transports.append(transport)
    seconds = []
    for _ in range(WARM_UP + rounds):
        answers.clear()
        done = loop.create_future()
        begin = time.perf_counter()
        for transport in transports:
            send(transport, payload)
        await done
        seconds.append(time.perf_counter() - begin)
        assert all(answer == payload for answer in answers.values())
    for transport in transports:
        transport.close()
    return seconds[WARM_UP:]
