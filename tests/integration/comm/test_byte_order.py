"""A-DATA-2: a peer whose processor has the other byte order, written from the protocol's document.

The peer has its own packing, and whatever it holds is big-endian. What it sends are the
values that it got: byte order and places of arrays are said on the wire, and nothing else there
depends on a processor.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.comm.test_messages import KINDS, instances
from tests.unit.comm.test_values import arrays, nested, same

from sapwood.comm import frames, values
from sapwood.comm.payload import Payload
from sapwood.comm.reductions import make_reduction

pytestmark = pytest.mark.row("A-DATA-2")

Array = np.ndarray[Any, Any]
Ext = msgspec.msgpack.Ext

ARRAY, TUPLE, SET, COMPLEX, SCALAR, BYTES, TEXT, PICKLED = range(1, 9)
STEP = 64


class Foreign(msgspec.Struct, frozen=True):
    """What the peer holds of an extension: its number, and its items or its array."""

    code: int
    held: Any


def dtype_named(text: str) -> np.dtype[Any]:
    """Return the type that a text of the document names."""
    if not text.startswith("["):
        return np.dtype(text)
    described: np.dtype[Any] = np.lib.format.descr_to_dtype(ast.literal_eval(text))
    return described


def swapped(array: Array) -> Array:
    """Return an array as a big-endian processor holds it."""
    return array.astype(array.dtype.newbyteorder(">"))


class BigEndianPeer:
    """Takes values in and sends them on, as its own processor has them."""

    def __init__(self, order: Callable[[list[Array]], list[Array]] = list) -> None:
        self._order = order
        self._held: list[Array] = []

    def read(self, body: bytes, payload: bytes) -> Any:
        """Return what the peer holds of a value."""
        return msgspec.msgpack.decode(body, ext_hook=partial(self._hold, payload))

    def _hold(self, payload: bytes, code: int, data: memoryview) -> Foreign:
        inner = partial(self._hold, payload)
        if code in {ARRAY, BYTES, TEXT}:
            offset, text, shape = msgspec.msgpack.decode(data)
            dtype = dtype_named(text)
            assert offset % STEP == 0
            size = int(np.prod(shape)) * dtype.itemsize
            held: Array = np.zeros(shape, dtype)
            if size:
                held = np.frombuffer(payload[offset : offset + size], dtype).reshape(shape)
            return Foreign(code, swapped(held))
        if code == SCALAR:
            text, raw = msgspec.msgpack.decode(data)
            dtype = dtype_named(text)
            one = np.frombuffer(raw, dtype) if dtype.itemsize else np.zeros(1, dtype)
            return Foreign(code, swapped(one))
        return Foreign(code, msgspec.msgpack.decode(data, ext_hook=inner))

    def write(self, held: Any) -> tuple[bytes, bytes]:
        """Return body and payload of what it holds: of all arrays the bytes that it has."""
        self._held = []
        self._collect(held)
        payload, places = b"", {}
        for array in self._order(self._held):
            places[id(array)] = len(payload)
            payload += array.tobytes()
            payload += bytes(-len(payload) % STEP)
        return msgspec.msgpack.encode(self._packed(held, places)), payload

    def _collect(self, held: Any) -> None:
        if isinstance(held, Foreign):
            if held.code in {ARRAY, BYTES, TEXT}:
                self._held.append(held.held)
            elif held.code != SCALAR:
                self._collect(held.held)
        elif isinstance(held, dict):
            for item in held.values():
                self._collect(item)
        elif isinstance(held, list):
            for item in held:
                self._collect(item)

    def _packed(self, held: Any, places: dict[int, int]) -> Any:
        if isinstance(held, dict):
            return {key: self._packed(item, places) for key, item in held.items()}
        if isinstance(held, list):
            return [self._packed(item, places) for item in held]
        if not isinstance(held, Foreign):
            return held
        pack, inner = msgspec.msgpack.encode, held.held
        if held.code in {ARRAY, BYTES, TEXT}:
            said = [places[id(inner)], _said(inner.dtype), list(inner.shape)]
            return Ext(held.code, pack(said))
        if held.code == SCALAR:
            return Ext(SCALAR, pack([_said(inner.dtype), inner.tobytes()]))
        return Ext(held.code, pack(self._packed(inner, places)))


def _said(dtype: np.dtype[Any]) -> str:
    return dtype.str if dtype.names is None else repr(dtype.descr)


def through_peer(
    value: Any, order: Callable[[list[Array]], list[Array]] = list
) -> tuple[Any, bytes]:
    """Return a value after it was at the peer, and the bytes of its arrays there."""
    encoded = values.encode(value)
    peer = BigEndianPeer(order)
    body, payload = peer.write(peer.read(encoded.body, bytes(encoded.payload())))
    return values.decode(body, payload), payload


def native(value: Any) -> Any:
    """Return a value whose arrays have this processor's byte order."""
    if isinstance(value, np.ndarray):
        return value.astype(value.dtype.newbyteorder("="))
    if isinstance(value, dict):
        return {key: native(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(native, value))
    return value


# --- values ---------------------------------------------------------------------------------------


@given(nested, st.sampled_from([list, lambda held: held[::-1]]))
def test_values_come_back_as_they_were(
    value: Any, order: Callable[[list[Array]], list[Array]]
) -> None:
    found, _ = through_peer(value, order)
    assert same(native(found), native(value))


@given(arrays)
def test_arrays_of_every_type_come_back_as_they_were(array: Array) -> None:
    found, _ = through_peer(array)
    assert same(native(found), native(array))
    assert found.dtype == array.dtype.newbyteorder(">")
    there, _ = through_peer(found)  # a big-endian array here travels as it is
    assert same(there, found)


def test_the_peer_holds_other_bytes_than_this_processor() -> None:
    found, payload = through_peer(np.array([1.0, 2.0]))
    assert payload[:16] == b"\x3f\xf0" + bytes(6) + b"\x40\x00" + bytes(6)
    assert found.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("offset", range(1, 8))
def test_an_array_may_begin_anywhere_in_the_payload_of_a_peer(offset: int) -> None:
    """Ours begin where any processor can read them; of others that is not expected."""
    held = np.arange(5.0).astype(">f8")
    body = msgspec.msgpack.encode(Ext(ARRAY, msgspec.msgpack.encode([offset, ">f8", [5]])))
    found = values.decode(body, bytes(offset) + held.tobytes())
    assert found.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert (found + 1.0).sum() == 15.0


# --- messages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(st.data())
def test_messages_of_every_type_come_back_as_they_were(
    kind: type[Any], data: st.DataObject
) -> None:
    message, payload = data.draw(instances(kind)), data.draw(st.binary(max_size=40))
    sent = b"".join(frames.encode(message, Payload(payload), share=False))
    # The peer knows the document's order of bytes, and its own is another.
    assert (sent[:2], sent[2], sent[3]) == (b"SW", 1, 0)
    header, size = int.from_bytes(sent[4:8], "little"), int.from_bytes(sent[8:16], "little")
    assert len(sent) == 16 + header + size
    held = msgspec.msgpack.decode(sent[16 : 16 + header])
    packed = msgspec.msgpack.encode(held)
    answer = b"SW\x01\x00" + len(packed).to_bytes(4, "little") + size.to_bytes(8, "little")
    (frame,) = frames.FrameDecoder().feed(answer + packed + sent[16 + header :])
    assert frame.message == message
    assert bytes(frame.payload or b"") == payload


# --- reductions -----------------------------------------------------------------------------------

NUMBERS = ("i2", "i8", "u4", "f4", "f8")
COMPUTED = (
    *("sum", "sum:reproducible", "min", "max", "mean", "variance", "concat", "gather", "count"),
    *("union", "classes", "histogram:0:20:4", "top:3"),
)


def reduced(kind: str, parts: list[Array], foreign: set[int]) -> Any:
    """Reduce contributions over two junctions; some places belong to the peer."""

    def sent(value: Any, place: int) -> Any:
        if place in foreign:
            return through_peer(value)[0]
        encoded = values.encode(value)
        return values.decode(encoded.body, bytes(encoded.payload()))

    root = make_reduction(kind)
    for junction, ranks in ((5, (1, 2)), (6, (3, 4))):
        below = make_reduction(kind)
        for rank in ranks:
            below.add(sent(parts[rank - 1], rank), rank, 1.0)
        root.add(sent(below.partial(), junction), ranks[0], 2.0)
    return root.total()


@pytest.mark.parametrize("kind", COMPUTED)
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("foreign", [{1}, {2, 3}, {5}, {1, 2, 3, 4, 5, 6}], ids=str)
def test_contributions_of_the_peer_count_as_those_of_others(
    kind: str, dtype: str, foreign: set[int]
) -> None:
    whole = np.random.default_rng(7).integers(0, 20, (2, 6)).astype(dtype)
    parts = [whole[0], whole[1], whole[0], whole[1]]  # two of them are equal
    expected, found = reduced(kind, parts, set()), reduced(kind, parts, foreign)
    assert same(native(found), native(expected))
