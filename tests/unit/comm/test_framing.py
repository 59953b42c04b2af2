"""The one framing: cut anywhere, too large, ended in the middle, of another version."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.comm import frames, framing
from sapwood.comm.framing import (
    FRAME_VERSION,
    MAGIC,
    PREFIX,
    PREFIX_SIZE,
    SMALL_PAYLOAD,
    FrameReader,
    MessageReader,
    SocketFrames,
    framed,
)
from sapwood.core.errors import ProtocolError
from sapwood.head.protocol import caller as head_caller
from sapwood.head.protocol import framing as head
from sapwood.nodes import joining
from sapwood.session_server import wire

PATIENCE = 20.0

Cut = tuple[int, bytes, bytes]


class Plain(FrameReader[Cut]):
    """Returns frames as they are."""

    __slots__ = ()

    def read(self, kind: int, header: memoryview, payload: memoryview) -> Cut:
        return kind, bytes(header), bytes(payload)


class Word(msgspec.Struct):
    text: str


frames_sent = st.lists(
    st.tuples(st.integers(0, 255), st.binary(max_size=60), st.binary(max_size=60)), max_size=4
)


def joined(sent: list[Cut]) -> bytes:
    return b"".join(part for one in sent for part in framed(*one))


@given(frames_sent)
def test_frames_arrive_whatever_byte_they_are_cut_at(sent: list[Cut]) -> None:
    data = joined(sent)
    for cut in range(len(data) + 1):
        reader = Plain(100, 100)
        assert reader.feed(data[:cut]) + reader.feed(data[cut:]) == sent
        assert reader.empty


@given(frames_sent, st.lists(st.integers(0, 1000), max_size=8))
def test_frames_arrive_in_any_number_of_pieces(sent: list[Cut], cuts: list[int]) -> None:
    data = joined(sent)
    reader, found = Plain(100, 100), []
    edges = [0, *sorted(min(one, len(data)) for one in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        found += reader.feed(data[start:end])
    assert found == sent


@given(frames_sent)
def test_an_end_in_the_middle_gives_only_the_whole_frames(sent: list[Cut]) -> None:
    data = joined([*sent, (1, b"header", b"payload")])
    for missing in range(1, PREFIX_SIZE + len(b"headerpayload")):
        reader = Plain(100, 100)
        assert reader.feed(data[:-missing]) == sent
        assert not reader.empty


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_a_size_over_its_bound_is_refused_before_anything_of_it_arrives(
    header: int, payload: int
) -> None:
    reader = Plain(1000, 10_000)
    data = PREFIX.pack(MAGIC, FRAME_VERSION, 1, header, payload)
    if header <= 1000 and payload <= 10_000:
        assert reader.feed(data) == ([] if header or payload else [(1, b"", b"")])
    else:
        with pytest.raises(ProtocolError, match="over the limit of 1000 \\+ 10000"):
            reader.feed(data)


@given(st.binary(min_size=PREFIX_SIZE, max_size=40))
def test_other_bytes_are_refused_at_once(data: bytes) -> None:
    if data[:3] != MAGIC + bytes([FRAME_VERSION]):
        with pytest.raises(ProtocolError, match="does not speak this protocol"):
            Plain(2**32, 2**64).feed(data)


@pytest.mark.parametrize("version", [0, FRAME_VERSION + 1, 255])
def test_another_version_is_refused_with_what_to_do(version: int) -> None:
    with pytest.raises(ProtocolError) as refused:
        Plain(100, 100).feed(PREFIX.pack(MAGIC, version, 1, 0, 0))
    assert "the same version of Sapwood" in refused.value.hint


def test_a_large_payload_is_not_copied() -> None:
    payload = bytes(SMALL_PAYLOAD + 1)
    assert framed(1, b"x", payload)[1] is payload
    assert len(framed(1, b"x", payload[:-1])) == 1


BOUNDS: dict[str, tuple[FrameReader[Any], int, int, int]] = {
    "tree": (frames.FrameDecoder(), 0, frames.MAX_HEADER, frames.MAX_PAYLOAD),
    "greeting": (frames.FrameDecoder.of_stranger(), 0, frames.MAX_GREETING, 0),
    "reference": (
        *(frames.FrameDecoder(), frames.FLAG_SHARED, frames.MAX_HEADER, frames.MAX_REFERENCE),
    ),
    "call": (head.reader_of_calls(), 16, head.MAX_MESSAGE, 0),
    "stranger": (
        head.reader_of_calls(head_caller.MAX_STRANGE_MESSAGE),
        *(16, head_caller.MAX_STRANGE_MESSAGE, 0),
    ),
    "answer": (head.reader_of_answers(), 17, head.MAX_MESSAGE, 0),
    "message to a session": (
        wire.WireReader(wire.TO_SERVER),
        2,
        wire.MAX_MESSAGE,
        wire.MAX_PAYLOAD,
    ),
    "event to a session": (wire.WireReader(wire.TO_SERVER), 17, wire.MAX_EVENT, wire.MAX_PAYLOAD),
    "client that was not let in": (
        wire.WireReader(wire.TO_SERVER, limit=wire.MAX_STRANGE),
        *(1, wire.MAX_STRANGE, wire.MAX_STRANGE),
    ),
    "message of a session": (
        *(wire.WireReader(wire.TO_CLIENT), 16, wire.MAX_MESSAGE, wire.MAX_PAYLOAD),
    ),
    "request to join": (
        MessageReader(joining.FROM_MACHINE, joining.MAX_REQUEST),
        *(1, joining.MAX_REQUEST, 0),
    ),
    "answer to a request to join": (
        MessageReader(joining.FROM_HEAD, joining.MAX_MESSAGE),
        *(3, joining.MAX_MESSAGE, 0),
    ),
}
"""A reader of each protocol, a kind of it, and the most bytes of header and payload."""


@pytest.mark.parametrize("name", BOUNDS)
def test_each_protocol_has_its_bounds(name: str) -> None:
    reader, kind, header, payload = BOUNDS[name]
    assert reader.limits(kind) == (header, payload)


@given(st.text(max_size=50))
def test_a_message_arrives_whatever_byte_it_is_cut_at(text: str) -> None:
    data = b"".join(framing.packed({Word: 7}, Word(text), 1000))
    for cut in range(len(data) + 1):
        reader = MessageReader({7: Word}, 1000)
        assert reader.feed(data[:cut]) + reader.feed(data[cut:]) == [Word(text)]


def test_what_is_no_message_is_refused() -> None:
    for said, why in (
        (framed(8, b""), "unknown kind 8"),
        (framed(7, b""), "malformed"),
        (framed(7, b"\xc1"), "malformed"),
        (framed(7, b"\x91" * 900), "malformed"),
        (framed(7, b"\x81\xa4text\xa2\xff\xfe"), "malformed"),
        (framed(7, b"\x81\xa4text\xa1x", b"more"), "over the limit"),
    ):
        with pytest.raises(ProtocolError, match=why):
            MessageReader({7: Word}, 1000).feed(b"".join(said))
    with pytest.raises(ProtocolError, match="more than 10 bytes"):
        framing.packed({Word: 7}, Word("x" * 10), 10)
    with pytest.raises(ProtocolError, match="cannot be written"):
        framing.encoded({"x": object()}, 10)


def test_frames_over_a_blocking_socket() -> None:
    ours, theirs = socket.socketpair()
    data = joined([(1, b"one", b""), (2, b"two", bytes(100_000)), (3, b"", b"three")])

    def say() -> None:
        theirs.sendall(data)
        theirs.close()

    with ours, theirs:
        writer = threading.Thread(target=say)
        writer.start()
        way = SocketFrames(ours, Plain(100, 100_000))
        end = time.monotonic() + PATIENCE
        assert [way.receive(end)[:2] for _ in range(3)] == [(1, b"one"), (2, b"two"), (3, b"")]
        with pytest.raises(ConnectionResetError, match=r"closed the connection$"):
            way.receive(end)
        writer.join()


def test_a_blocking_socket_that_ends_in_the_middle_or_says_nothing() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        way = SocketFrames(ours, Plain(100, 100))
        with pytest.raises(TimeoutError):
            way.receive(time.monotonic() + 0.01)
        with pytest.raises(TimeoutError, match="too slow"):
            way.receive(time.monotonic())
        theirs.sendall(joined([(1, b"one", b"")])[:-1])
        theirs.close()
        with pytest.raises(ConnectionResetError, match="in the middle of a message"):
            way.receive(time.monotonic() + PATIENCE)


def test_what_is_sent_over_a_blocking_socket_is_a_frame() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        SocketFrames(ours, Plain(0)).send(framed(5, b"x", bytes(SMALL_PAYLOAD + 1)))
        ours.close()
        reader, found = Plain(10, 2**20), []
        while data := theirs.recv(1000):
            found += reader.feed(data)
        assert found == [(5, b"x", bytes(SMALL_PAYLOAD + 1))]
