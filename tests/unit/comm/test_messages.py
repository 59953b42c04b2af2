from __future__ import annotations

import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.comm import messages as msg
from sapwood.comm.messages import groups as gmsg
from sapwood.comm.messages import messaging
from sapwood.comm.messages.base import WireMessage
from sapwood.core.errors import ErrorRecord, ProtocolError
from sapwood.core.rankset import Ranges

KINDS: tuple[type[Any], ...] = typing.get_args(msg.AnyMessage)
"""Every message."""

int64 = st.integers(-(2**63), 2**64 - 1)
ranges = st.lists(st.tuples(int64, int64), max_size=3).map(tuple)
texts = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3)
BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    int: int64,
    bool: st.booleans(),
    tuple[msg.Placed, ...]: st.lists(
        st.builds(msg.Placed, int64, int64, int64, int64, int64), max_size=3
    ).map(tuple),
    float: st.floats(allow_nan=False),
    str: st.text(max_size=20),
    bytes: st.binary(max_size=20),
    Ranges: ranges,
    msg.StreamSpec: st.builds(
        msg.StreamSpec,
        int64,
        st.text(max_size=5),
        ranges,
        texts,
        st.text(max_size=5),
        st.binary(max_size=20),
        st.builds(msg.Synchronisation, st.text(max_size=5), st.floats(0, 9), st.text(max_size=5)),
        st.text(max_size=5),
        st.lists(st.builds(msg.FilterAt, st.text(max_size=5), st.binary()), max_size=2).map(tuple),
        st.dictionaries(int64, st.binary(max_size=5), max_size=2),
        st.booleans(),
    ),
    tuple[msg.FilterAt, ...]: st.lists(
        st.builds(msg.FilterAt, st.text(max_size=5), st.binary()), max_size=2
    ).map(tuple),
    tuple[msg.PlaceStatistics, ...]: st.lists(
        st.builds(msg.PlaceStatistics, int64, st.text(max_size=5), int64), max_size=3
    ).map(tuple),
    gmsg.GroupNumber: st.tuples(int64, int64, int64),
    gmsg.GroupCall: st.builds(
        gmsg.GroupCall, st.text(max_size=9), st.text(max_size=5), int64, st.text(max_size=5)
    ),
    ErrorRecord: st.builds(ErrorRecord, code=st.text(), what=st.text(), details=texts),
    ErrorRecord | None: st.none() | st.builds(ErrorRecord, code=st.text(), what=st.text()),
}


def fields_of(kind: type[Any]) -> list[st.SearchStrategy[Any]]:
    return [BY_TYPE[kind.__annotations__[name]] for name in kind.__struct_fields__]


BY_TYPE |= {
    tuple[int, ...]: st.lists(int64, max_size=3).map(tuple),
    messaging.RoutedMessage: st.builds(
        messaging.RoutedMessage, *fields_of(messaging.RoutedMessage)
    ),
    tuple[messaging.MulticastAddress, ...]: st.lists(
        st.builds(messaging.MulticastAddress, int64, int64, int64, int64, int64), max_size=3
    ).map(tuple),
}


def instances(kind: type[Any]) -> st.SearchStrategy[Any]:
    return st.builds(kind, *fields_of(kind))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(st.data())
@pytest.mark.slow
def test_every_message_arrives_as_it_was_sent(kind: type[Any], data: st.DataObject) -> None:
    message = data.draw(instances(kind))
    again = msg.decode(msg.encode(message))
    assert type(again) is kind
    assert again == message


def test_tags_are_unique_numbers() -> None:
    tags = [msgspec.inspect.type_info(kind) for kind in KINDS]
    numbers = [info.tag for info in tags if isinstance(info, msgspec.inspect.StructType)]
    assert len(set(numbers)) == len(KINDS)
    assert all(isinstance(number, int) for number in numbers)


def test_every_class_of_message_is_part_of_the_protocol() -> None:
    assert set(WireMessage.__subclasses__()) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_messages_cannot_be_changed(kind: type[Any]) -> None:
    assert kind.__struct_config__.frozen
    assert kind.__struct_config__.array_like


def test_a_newer_peer_may_send_more_fields() -> None:
    raw = msgspec.msgpack.decode(msg.encode(msg.Close(7)))
    assert msg.decode(msgspec.msgpack.encode([*raw, "new"])) == msg.Close(7)


def test_an_older_peer_may_leave_out_fields_with_a_default() -> None:
    raw = msgspec.msgpack.decode(msg.encode(msg.Down(1, 2, 3, b"")))
    assert msg.decode(msgspec.msgpack.encode(raw[:-2])) == msg.Down(1, 2, 3, b"")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc0",
        b"\x90",
        b"\x91\x63",
        msgspec.msgpack.encode([11]),
        msgspec.msgpack.encode([11, "x"]),
        msgspec.msgpack.encode([13, 1, 1, 0, [[1]], 1.0, b""]),
        msgspec.msgpack.encode({"tag": 11}),
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
    ],
)
def test_malformed_messages_are_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="malformed"):
        msg.decode(data)
