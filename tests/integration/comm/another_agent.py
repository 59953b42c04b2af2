"""An agent written from ``docs/reference/protocol.md`` alone: it imports nothing of Sapwood.

``python another_agent.py ADDRESS RANK`` attaches to the place that listens at a Unix socket,
multiplies the ``x`` of waves by its rank and answers requests with what they ask.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections import deque
from typing import Any

import msgspec
import numpy as np

HELLO, WELCOME, REFUSED, HEARTBEAT, GOODBYE, CREDIT, RESUME, RESUMED = range(1, 9)
OPEN, CLOSE, DOWN, UP, SWEEP, SWEPT = 10, 11, 12, 13, 30, 31
OFFER, ANNOUNCED, DRAW, PIECE, ROUTED, ACKNOWLEDGEMENT = 34, 35, 36, 37, 50, 51
NOT_COUNTED = range(HELLO, RESUMED + 1)
PIECE_BYTES = 256 * 1024
AT_A_TIME = 16 * PIECE_BYTES
MESSAGE_COST = 256
VERSION, WINDOW, INCARNATION = 6, 4 * 2**20, 3

unpack, pack = msgspec.msgpack.decode, msgspec.msgpack.encode


def connected(address: str) -> socket.socket:
    """Return a connection to a place as soon as that listens."""
    while True:
        link = socket.socket(socket.AF_UNIX)
        try:
            link.connect(address)
        except OSError:
            link.close()
            time.sleep(0.02)
        else:
            return link


class Agent:
    """One agent of a tree."""

    def __init__(self, address: str, rank: int) -> None:
        self.rank = rank
        self.link = connected(address)
        self.consumed = 0  # counted messages that have been dealt with
        self.costs: deque[int] = deque()  # of what was sent and is not consumed
        self.confirmed = 0  # how many of those messages the parent has consumed
        self.window = 0  # of the parent
        self.waiting: deque[bytes] = deque()
        self.routed = 0  # that this agent has sent
        self.drawing: list[Any] = []  # the value that comes in pieces: message, bytes, asked for
        self.offered: dict[int, bytes] = {}

    def run(self) -> None:
        """Greet, then do what is said until the parent ends the link."""
        hello = [HELLO, VERSION, "grove", self.rank, INCARNATION, os.getpid(), "another machine"]
        self.send([*hello, b"", WINDOW, 1, 1])
        self.link.settimeout(0.2)
        buffer = b""
        while True:
            try:
                data = self.link.recv(2**20)
            except TimeoutError:
                self.send([HEARTBEAT])
                continue
            if not data:
                return
            buffer += data
            while len(buffer) >= 16:
                magic, frame, flags, header, payload = struct.unpack("<2sBBIQ", buffer[:16])
                assert (magic, frame, flags) == (b"SW", 1, 0)
                end = 16 + header + payload
                if len(buffer) < end:
                    break
                message = unpack(buffer[16 : 16 + header])
                if message[0] == GOODBYE:
                    return
                self.take(message, buffer[16 + header : end])
                buffer = buffer[end:]

    def send(self, message: list[Any], payload: bytes = b"") -> None:
        """Send a message, or keep it until the parent has credit for it."""
        header = pack(message)
        frame = struct.pack("<2sBBIQ", b"SW", 1, 0, len(header), len(payload)) + header + payload
        if message[0] in NOT_COUNTED:
            self.link.sendall(frame)
        else:
            self.waiting.append(frame)
            self.flow()

    def flow(self) -> None:
        """Send what waits, as far as there is credit."""
        while self.waiting and sum(self.costs) < self.window:
            frame = self.waiting.popleft()
            self.costs.append(len(frame) + MESSAGE_COST)
            self.link.sendall(frame)

    def take(self, message: list[Any], payload: bytes) -> None:
        """Do what a message says, and say that it is consumed."""
        tag, *fields = message
        if tag in NOT_COUNTED:
            self.take_of_link(tag, fields)
            return
        if tag == DOWN:
            stream, wave, attempt, body = fields[:4]
            self.contribute(stream, wave, attempt, body, payload)
        elif tag == ANNOUNCED:
            self.drawing = [fields, b"", 0]
            self.draw()
        elif tag == PIECE:
            assert fields[3] == len(self.drawing[1])  # pieces come in order
            self.drawing[1] += payload
            self.draw()
        elif tag == DRAW:
            stream, wave, _ranks, number, start, stop, piece = fields
            for begin in range(start, stop, piece):
                part = self.offered[wave][begin : min(begin + piece, stop)]
                self.send([PIECE, stream, wave, number, begin], part)
        elif tag == SWEEP:
            self.send([SWEPT, fields[0], fields[1], [[self.rank, self.rank + 1]]])
        elif tag == ROUTED:
            self.answer(fields)
        self.consumed += 1
        self.send([CREDIT, self.consumed])

    def take_of_link(self, tag: int, fields: list[Any]) -> None:
        """Do what a message about the link says."""
        if tag == WELCOME:
            self.window = fields[4]
        elif tag == REFUSED:
            raise SystemExit(fields[0])
        elif tag == CREDIT:
            for _ in range(fields[0] - self.confirmed):
                self.costs.popleft()
            self.confirmed = fields[0]
            self.flow()

    def draw(self) -> None:
        """Ask for the next bytes of a value, or contribute when all are there."""
        (stream, wave, attempt, body, *_, size), got, asked = self.drawing
        if len(got) == size:
            self.contribute(stream, wave, attempt, body, got)
        elif asked - len(got) <= AT_A_TIME // 2 and asked < size:
            stop = min(len(got) + AT_A_TIME, size)
            self.send([DRAW, stream, wave, [], 1, asked, stop, PIECE_BYTES])
            self.drawing[2] = stop

    def contribute(self, stream: int, wave: int, attempt: int, body: bytes, payload: bytes) -> None:
        """Give the value times the rank: in the body, in the payload, or to be drawn."""
        value = unpack(body)["x"]
        if isinstance(value, msgspec.msgpack.Ext):
            offset, kind, _shape = unpack(value.data)
            assert (value.code, offset) == (1, 0)
            payload = (np.frombuffer(payload, kind) * self.rank).astype(kind).tobytes()
        else:
            body = pack({"x": value * self.rank})
        head = [stream, wave, attempt, [[self.rank, self.rank + 1]], 1.0, body]
        if len(payload) > PIECE_BYTES:
            self.offered = {wave: payload}
            self.send([OFFER, *head, len(payload)])
        else:
            self.send([UP, *head], payload)

    def answer(self, routed: list[Any]) -> None:
        """Acknowledge a routed message, and answer it with its own body if it is a request."""
        source, _, channel, epoch, _, number, _, kind, tag, _, body, *_ = routed
        self.send([ACKNOWLEDGEMENT, self.rank, source, channel, epoch, INCARNATION, 0, number, []])
        if (channel, kind) == (0, 1):
            self.routed += 1
            begun = INCARNATION * 2**32
            mine = [self.rank, source, 0, begun, 0, self.routed, 0, 2, tag]
            self.send([ROUTED, *mine, "", body])


if __name__ == "__main__":
    Agent(sys.argv[1], int(sys.argv[2])).run()
