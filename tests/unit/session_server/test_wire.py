"""What clients and roots say to each other, as bytes."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.comm import events as ev
from sapwood.comm.framing import FRAME_VERSION, MAGIC, PREFIX, framed
from sapwood.comm.messages import StreamSpec
from sapwood.comm.messaging import events as mev
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import MappedBlocks, SharedBlock
from sapwood.core.errors import ProtocolError
from sapwood.session_server import wire


def packed(message: msgspec.Struct, *, sharing: bool = False) -> bytes:
    return b"".join(wire.pack(message, sharing=sharing))


@given(st.binary(max_size=10_000), st.binary(max_size=100), st.integers(1, 7))
def test_a_payload_arrives_however_the_bytes_are_cut(data: bytes, body: bytes, pieces: int) -> None:
    said = packed(ev.Broadcast(7, body, Payload(data) if data else None)) * 2
    reader, found = wire.WireReader(wire.TO_SERVER), []
    step = max(1, len(said) // pieces)
    for start in range(0, len(said), step):
        found += reader.feed(said[start : start + step])
    assert len(found) == 2
    for one in found:
        assert isinstance(one, ev.Broadcast)
        assert (one.stream, one.body) == (7, body)
        assert bytes(one.payload.view) == data if one.payload else not data


def test_a_payload_in_shared_memory_does_not_travel() -> None:
    with SharedBlock(8) as block:
        block.view[:2] = b"ab"
        sent = ev.Broadcast(1, b"x", Payload(block.view[:2], block.ref(0, 2), block))
        said = packed(sent, sharing=True)
        (found,) = wire.WireReader(wire.TO_SERVER, MappedBlocks(), lambda ref: ref.fd).feed(said)
        assert isinstance(found, ev.Broadcast)
        assert found.payload is not None
        assert (bytes(found.payload.view), found.payload.owner) == (b"ab", block.fd)
        with pytest.raises(ProtocolError, match="not shared"):
            wire.WireReader(wire.TO_SERVER).feed(said)
        (inline,) = wire.WireReader(wire.TO_SERVER).feed(packed(sent))
        assert isinstance(inline, ev.Broadcast)
        assert inline.payload is not None
        assert bytes(inline.payload.view) == b"ab"


@given(st.binary(max_size=200), st.sampled_from([wire.TO_SERVER, wire.TO_CLIENT]))
def test_hostile_bytes_are_a_protocol_error(data: bytes, kinds: dict[int, type]) -> None:
    with contextlib.suppress(ProtocolError):
        wire.WireReader(kinds).feed(data)


@pytest.mark.parametrize("kinds", [wire.TO_SERVER, wire.TO_CLIENT])
def test_hostile_messages_of_each_kind_are_a_protocol_error(kinds: dict[int, type]) -> None:
    for kind in kinds:
        for body in (b"", b"\x80", b"\xc0", b"\x91\x01", b"\xc1", b"\x81\xa1x\x01"):
            frame = b"".join(framed(kind, body))
            with pytest.raises(ProtocolError, match="malformed"):
                wire.WireReader(kinds).feed(frame)


@pytest.mark.slow
def test_too_much_at_once() -> None:
    with pytest.raises(ProtocolError, match="over the limit"):
        wire.WireReader(wire.TO_SERVER).feed(
            PREFIX.pack(MAGIC, FRAME_VERSION, 1, wire.MAX_MESSAGE + 1, 0)
        )
    with pytest.raises(ProtocolError, match="unknown kind 99"):
        wire.WireReader(wire.TO_SERVER).feed(PREFIX.pack(MAGIC, FRAME_VERSION, 99, 0, 0))
    with pytest.raises(ProtocolError, match="more than"):
        wire.pack(ev.Broadcast(1, b"x" * (wire.MAX_MESSAGE + 1), None), sharing=False)


def test_what_travels_is_fixed_by_the_version() -> None:
    """Whoever changes a field of an event or effect that travels sees it here."""
    fields = {
        f"{code} {kind.__name__}": kind.__struct_fields__
        for kinds in (wire.TO_SERVER, wire.TO_CLIENT)
        for code, kind in kinds.items()
    }
    assert wire.VERSION == 4
    assert fields["16 OpenStream"] == ("spec", "paced", "partial")
    assert fields["17 Broadcast"] == ("stream", "body", "payload")
    assert fields["22 Ask"] == ("destination", "handler", "number", "body", "payload")
    assert fields["24 SendTagged"] == ("number", "destinations", "tag", "body", "payload")
    assert fields["16 WaveCompleted"] == (
        *("stream", "wave", "total", "ranks", "weight", "late", "body", "payload", "version"),
    )
    assert fields["18 Contributed"] == ("stream", "wave", "ranks", "weight", "body", "payload")
    assert fields["20 Answered"] == ("number", "body", "payload", "error")
    assert StreamSpec.__struct_fields__[:3] == ("stream", "handler", "members")
    assert mev.TaggedArrived.__struct_fields__ == ("number", "source", "tag", "body", "payload")
