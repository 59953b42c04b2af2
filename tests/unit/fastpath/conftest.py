"""A library that exchanges waves, between an event loop and children that are sockets."""

from __future__ import annotations

import os
import select
import socket
import ssl
from collections.abc import Callable, Iterator

import pytest

from sapwood.comm import frames, messages
from sapwood.comm import messages as msg
from sapwood.comm.messages import messaging
from sapwood.comm.messaging.active import ACTIVE
from sapwood.comm.payload import Payload
from sapwood.fastpath.carriers import Functions
from sapwood.fastpath.exchange_library import SLOT, ExchangeLibrary

STREAM, WAVE = 3, 9
HEAD = messages.encode(msg.Up(STREAM, WAVE, 0, (), 0.0, b""))[:5]
OWNER = 77
BODY = b"a value, whatever is in it"
OFF, BUSY, PAUSED, HANDED = 0, 2, 3, 4


def encoded(message: msg.AnyMessage, payload: bytes = b"") -> bytes:
    return b"".join(frames.encode(message, Payload(payload) if payload else None, share=False))


def down(body: bytes = BODY) -> bytes:
    return encoded(msg.Down(STREAM, WAVE, 0, body, WAVE - 1))


def up(rank: int, payload: bytes = b"", wave: int = 9) -> bytes:
    return encoded(msg.Up(3, wave, 0, ((rank, rank + 1),), 1.0, b"\x01"), payload)


CREDIT = encoded(msg.Credit(7))
ALIVE = encoded(msg.Heartbeat())


def receipt(source: int = 3, destination: int = 0, channel: int = ACTIVE, *missing: int) -> bytes:
    return encoded(
        messaging.Acknowledgement(source, destination, channel, 1 << 32, 1, 0, 12, missing)
    )


ODD = {
    "earlier": up(1, wave=8),
    "goodbye": encoded(msg.Goodbye("enough")),
    "twice": up(1) + up(1),
    "torn": up(1) + CREDIT[:5],
    "receipt of another": receipt(3, 2),
    "receipt of a message": receipt(3, 0, ACTIVE + 1),
    "receipt with a gap": receipt(3, 0, ACTIVE, 11),
    "receipt with a gap at 144": receipt(3, 0, ACTIVE, 144),
    "receipt with gaps": receipt(3, 0, ACTIVE, 11, 400),
    "receipt of no rank": receipt(2**40),
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "sizes": b"SW\x01\x00" + b"\xff" * 12,
    "large": encoded(msg.Up(3, 9, 0, ((1, 2),), 1.0, b"\x01"), b"z" * SLOT),
}
"""What a child may send that is not an answer, and cannot wait."""


def gather(library: ExchangeLibrary) -> int:
    """Wait until all answers are there; return how many came, or -1."""
    came = 0
    while library.memory.left:
        count = library.wait(OWNER, -1)
        if count < 0:
            return -1
        came += count
    return came


def frame_size(data: bytes) -> int:
    return 16 + int.from_bytes(data[4:8], "little") + int.from_bytes(data[8:16], "little")


def without(sent: bytes, waiting: list[bytes]) -> bytes:
    """Return what was sent without the frames that were put aside."""
    at, kept = 0, b""
    for frame in waiting:
        while not sent.startswith(frame, at):
            assert at < len(sent)
            after = at + frame_size(sent[at:])
            kept, at = kept + sent[at:after], after
        at += len(frame)
    return kept + sent[at:]


Encrypted = Callable[[socket.socket, socket.socket], tuple[ssl.SSLSocket, ssl.SSLSocket]]


class Front:
    """A library between an event loop's descriptors and three children.

    Args:
        encrypted: Returns a pair of sockets with TLS on top of a pair without.
    """

    def __init__(self, encrypted: Encrypted | None = None) -> None:
        self.outer, self.main = select.epoll(), select.epoll()
        self.bell = os.eventfd(0, os.EFD_NONBLOCK)
        self.main.register(self.bell, select.EPOLLIN)
        self.library = ExchangeLibrary(self.outer.fileno(), self.main.fileno(), self.bell)
        self.outer.register(self.main.fileno(), select.EPOLLIN)
        pairs = [socket.socketpair() for _ in range(3)]
        self.functions: list[Functions | None] = [None] * 3
        if encrypted is not None:
            secret = [encrypted(*pair) for pair in pairs]
            self.functions = [(own.read, own.write) for own, _ in secret]
            pairs = list(secret)
        self.own = [own for own, _ in pairs]
        self.children = [child for _, child in pairs]
        for own in self.own:
            own.setblocking(False)
            self.main.register(own.fileno(), select.EPOLLIN)
        self.ticket = self.arm()

    def arm(self) -> int:
        descriptors = [own.fileno() for own in self.own]
        return self.library.arm(descriptors, 2**20, 2**20, STREAM, 0, self.functions)

    def begin(self, body: bytes = BODY) -> int:
        """Begin a wave, whose number is always the same, so that its answers are."""
        memory = self.library.memory
        memory.first = WAVE - memory.waves
        return self.library.begin_wave(OWNER, self.ticket, body, len(body), b"", 0)

    def answer(self, *answers: bytes) -> None:
        for child, data in zip(self.children, answers, strict=False):
            child.sendall(data)

    def is_woken(self) -> bool:
        """Whether the event loop would wake now."""
        return bool(self.outer.poll(0))

    def close(self) -> None:
        for end in (*self.own, *self.children):
            end.close()
        self.outer.close()
        self.main.close()
        os.close(self.bell)


@pytest.fixture(name="front")
def front_fixture() -> Iterator[Front]:
    front = Front()
    yield front
    front.close()
