from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.comm import frames, framing
from sapwood.comm import messages as msg
from sapwood.comm.frames import FLAG_SHARED, MAX_HEADER, Frame, FrameDecoder, encode
from sapwood.comm.framing import PREFIX
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import SharedRef
from sapwood.core.errors import ProtocolError

REF = SharedRef(1, 2, 3, 4096, 0, 100)

payloads = st.one_of(
    st.none(),
    st.binary(max_size=200).map(Payload),
    st.just(Payload(bytes(framing.SMALL_PAYLOAD + 1))),
    st.just(Payload(bytes(100), REF)),
)
some_messages = st.one_of(
    st.builds(msg.Close, st.integers(0, 2**31)),
    st.builds(msg.Down, st.integers(0, 9), st.integers(0, 9), st.just(0), st.binary(max_size=50)),
    st.builds(msg.Refused, st.text(max_size=20)),
)
several = st.lists(st.tuples(some_messages, payloads), max_size=5)


def stream_of(sent: list[tuple[msg.AnyMessage, Payload | None]], *, share: bool) -> bytes:
    return b"".join(
        bytes(buffer) for message, body in sent for buffer in encode(message, body, share=share)
    )


def comparable(frame: Frame) -> tuple[msg.AnyMessage, bytes, SharedRef | None]:
    return frame.message, bytes(frame.payload or b""), frame.shared


@given(several, st.booleans(), st.data())
@pytest.mark.slow
def test_any_split_of_the_bytes_gives_the_same_frames(
    sent: list[tuple[msg.AnyMessage, Payload | None]], share: bool, data: st.DataObject
) -> None:
    stream = stream_of(sent, share=share)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    decoder = FrameDecoder()
    found: list[Frame] = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += decoder.feed(stream[start:stop])
    expected = [
        (message, b"", body.ref)
        if body is not None and share and body.ref is not None
        else (message, bytes(body.view) if body is not None else b"", None)
        for message, body in sent
    ]
    assert [comparable(frame) for frame in found] == expected


def test_bytes_may_come_one_by_one() -> None:
    stream = stream_of([(msg.Close(1), Payload(b"abc")), (msg.Close(2), None)], share=False)
    decoder = FrameDecoder()
    found = [frame for i in range(len(stream)) for frame in decoder.feed(stream[i : i + 1])]
    assert [comparable(frame)[:2] for frame in found] == [
        (msg.Close(1), b"abc"),
        (msg.Close(2), b""),
    ]


@given(several)
@pytest.mark.slow
def test_a_truncated_stream_gives_only_the_whole_frames(
    sent: list[tuple[msg.AnyMessage, Payload | None]],
) -> None:
    stream = stream_of([*sent, (msg.Close(1), None)], share=False)
    assert len(FrameDecoder().feed(stream[:-1])) == len(sent)


def test_payloads_are_views_not_copies() -> None:
    data = stream_of([(msg.Close(1), Payload(b"abc"))], share=False)
    payload = FrameDecoder().feed(data)[0].payload
    assert payload is not None
    assert payload.obj is data


def prefix(
    *, magic: bytes = b"SW", version: int = 1, flags: int = 0, header: int = 0, payload: int = 0
) -> bytes:
    return PREFIX.pack(magic, version, flags, header, payload)


@pytest.mark.parametrize(
    "data",
    [
        prefix(magic=b"GE"),
        prefix(version=2),
        prefix(version=0),
        prefix(flags=0x80),
        prefix(flags=FLAG_SHARED | 0x02),
        prefix(header=MAX_HEADER + 1),
        prefix(header=2**32 - 1),
        prefix(payload=2**64 - 1),
        prefix(payload=frames.MAX_PAYLOAD + 1),
        prefix(flags=FLAG_SHARED, payload=MAX_HEADER + 1),
        prefix(),
        prefix(header=1) + b"\xc0",
        prefix(header=3) + b"\x92\x0b\xc0",
        prefix(header=2) + b"\x91\x63",
        prefix(flags=FLAG_SHARED, header=2, payload=1) + msg.encode(msg.Heartbeat()) + b"\xc0",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_what_is_not_the_protocol_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        FrameDecoder().feed(data)


@pytest.mark.parametrize(
    "data",
    [
        prefix(header=MAX_HEADER),
        prefix(header=1, payload=frames.MAX_PAYLOAD),
        prefix(flags=FLAG_SHARED, header=1, payload=frames.MAX_REFERENCE),
    ],
)
def test_what_is_as_large_as_it_may_be_is_waited_for(data: bytes) -> None:
    assert FrameDecoder().feed(data) == []


def test_the_largest_payload_is_the_one_that_is_told() -> None:
    data = stream_of([(msg.Close(1), Payload(bytes(1000)))], share=False)
    assert FrameDecoder(max_payload=1000).feed(data)
    with pytest.raises(ProtocolError, match="over the limit"):
        FrameDecoder(max_payload=999).feed(data)


def test_a_message_that_is_too_large_is_not_sent() -> None:
    with pytest.raises(ProtocolError, match="over the limit"):
        encode(msg.Refused("x" * (MAX_HEADER + 1)), None, share=False)


def test_a_reference_travels_only_where_memory_is_shared() -> None:
    body = Payload(b"x" * 100, REF)
    assert FrameDecoder().feed(stream_of([(msg.Close(1), body)], share=True))[0].shared == REF
    frame = FrameDecoder().feed(stream_of([(msg.Close(1), body)], share=False))[0]
    assert frame.shared is None
    assert bytes(frame.payload or b"") == b"x" * 100


@pytest.mark.slow
def test_random_frames_are_refused_or_wait_for_more() -> None:
    source = random.Random(2)  # noqa: S311 - a fixed sequence is wanted
    good = msg.encode(msg.Up(1, 2, 0, ((1, 2),), 1.0, b"abc"))
    refused = 0
    for _ in range(20_000):
        kind = source.random()
        if kind < 0.3:
            data = source.randbytes(source.randrange(40))
        elif kind < 0.6:
            header = source.randbytes(source.randrange(30))
            data = prefix(header=len(header), flags=source.randrange(2)) + header
        else:
            damaged = bytearray(prefix(header=len(good)) + good)
            damaged[source.randrange(len(damaged))] = source.randrange(256)
            data = bytes(damaged)
        try:
            FrameDecoder().feed(data)
        except ProtocolError:
            refused += 1
    assert refused > 5_000


@pytest.mark.slow
def test_a_frame_is_decoded_in_time_proportional_to_its_pieces() -> None:
    # A decoder that copied all it has with every piece would take minutes for this.
    body = Payload(bytes(2**24))
    stream = stream_of([(msg.Close(1), body)], share=False)
    decoder = FrameDecoder()
    found = [
        frame for i in range(0, len(stream), 1024) for frame in decoder.feed(stream[i : i + 1024])
    ]
    assert [frame.message for frame in found] == [msg.Close(1)]


def test_a_reference_is_plain_data() -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(REF), type=SharedRef) == REF
