from __future__ import annotations

import contextlib
import string
from collections import OrderedDict
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sapwood.comm import frames, plain, values
from sapwood.comm.shared_memory import ALIGNMENT
from sapwood.core.errors import DataValueError, ProtocolError

simple_dtypes = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(),
    hnp.unsigned_integer_dtypes(),
    hnp.floating_dtypes(),
    hnp.complex_number_dtypes(),
    hnp.datetime64_dtypes(),
    hnp.timedelta64_dtypes(),
    hnp.byte_string_dtypes(min_len=1),
    hnp.unicode_string_dtypes(min_len=1),
)
dtypes = st.one_of(
    simple_dtypes,
    st.lists(simple_dtypes, min_size=1, max_size=3).map(
        lambda fields: np.dtype(
            [(string.ascii_letters[i], field) for i, field in enumerate(fields)]
        )
    ),
)
arrays = dtypes.flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0)))
keys = st.one_of(st.text(max_size=5), st.integers(-5, 5))
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=10),
    st.binary(max_size=10),
    arrays,
)
hashable = st.one_of(st.integers(-9, 9), st.text(max_size=3), st.tuples(st.integers(-9, 9)))
nested = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.sets(hashable, max_size=4),
    ),
    max_leaves=12,
)


def there_and_back(value: Any) -> Any:
    encoded = values.encode(value)
    return values.decode(encoded.body, encoded.payload())


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        return (
            isinstance(right, np.ndarray)
            and left.dtype == right.dtype
            and left.shape == right.shape
            and left.tobytes() == right.tobytes()
        )
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, (float, complex)):
        return repr(left) == repr(right)
    return bool(left == right)


@given(nested)
@pytest.mark.slow
def test_what_travels_arrives_equal(value: Any) -> None:
    assert same(there_and_back(value), value)


@given(arrays)
@pytest.mark.slow
def test_arrays_that_are_not_contiguous_arrive_equal(array: np.ndarray[Any, Any]) -> None:
    for view in (array.T, array[::-1] if array.ndim else array, np.asfortranarray(array)):
        assert same(there_and_back(view), view)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", ["i2", "u8", "f4", "f8", "c16", "M8[ns]", "U3"])
def test_the_byte_order_stays(kind: str, order: Literal["<", ">"]) -> None:
    array = np.zeros(3, np.dtype(kind).newbyteorder(order))
    assert there_and_back(array).dtype.str == array.dtype.str


@pytest.mark.parametrize("kind", ["?", "i1", "u4", ">i8", "f2", "f8", "c8", "M8[s]", "U4"])
def test_numpy_scalars_stay_numpy_scalars(kind: str) -> None:
    scalar = np.ones(1, "i8").astype(kind)[0]
    again = there_and_back([scalar])[0]
    assert type(again) is type(scalar)
    assert again == scalar


@pytest.mark.parametrize("scalar", [np.str_(""), np.bytes_(b""), np.str_("é"), np.void(b"ab")])
def test_texts_of_numpy_may_be_empty(scalar: np.generic) -> None:
    again = there_and_back(scalar)
    assert type(again) is type(scalar)
    assert again == scalar


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype([("a", "i1"), ("b", "<f8")], align=True),
        np.dtype([("a", "i1"), ("b", [("c", ">i4", (2, 3)), ("d", "S3")])]),
        np.dtype(
            {"names": ["a", "b"], "formats": ["i1", "i8"], "offsets": [4, 16], "itemsize": 40}
        ),
    ],
)
def test_structures_keep_their_layout(dtype: np.dtype[Any]) -> None:
    array = np.frombuffer(bytes(range(5 * dtype.itemsize)), dtype)
    again = there_and_back(array)
    assert again.dtype == dtype
    assert (again == array).all()


@given(st.lists(arrays, min_size=2, max_size=4))
@pytest.mark.slow
def test_every_array_of_a_payload_is_aligned(several: list[np.ndarray[Any, Any]]) -> None:
    encoded = values.encode(several)
    assert all(offset % ALIGNMENT == 0 for offset in encoded.offsets)
    assert len(encoded.payload()) == encoded.nbytes


@given(st.lists(arrays, max_size=4))
@pytest.mark.slow
def test_the_parts_of_a_payload_are_the_payload(several: list[np.ndarray[Any, Any]]) -> None:
    encoded = values.encode(several)
    put_together = bytearray(encoded.nbytes)
    for offset, part in encoded.parts():
        put_together[offset : offset + len(part)] = part
    assert put_together == bytes(encoded.payload()).ljust(encoded.nbytes, b"\0")


def test_a_single_array_is_neither_copied_out_nor_in() -> None:
    array = np.arange(1000.0)
    encoded = values.encode({"a": array})
    assert np.shares_memory(np.frombuffer(encoded.payload()), array)
    payload = bytearray(encoded.payload())
    assert np.shares_memory(
        values.decode(encoded.body, payload)["a"], np.frombuffer(payload, np.uint8)
    )


def test_a_payload_is_free_as_soon_as_nobody_looks_at_its_arrays() -> None:
    """The last holder frees it, and not the collector of cycles, which may come much later."""
    encoded = values.encode({"x": np.ones(4), "pair": (np.ones(2), "y" * 10_000)})
    payload = bytearray(encoded.payload())
    value = values.decode(encoded.body, payload)
    with pytest.raises(BufferError):
        payload.clear()
    del value
    payload.clear()


def test_bytes_like_values_and_structures_become_plain_ones() -> None:
    class Point(msgspec.Struct):
        x: int
        y: list[int]


class Point(msgspec.Struct, frozen=True):
    x: int


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [
        frozenset({1}),
        {frozenset({1})},
        bytearray(b"ab"),
        memoryview(b"cd"),
        Point(1),
        OrderedDict(a=1),
        Text("x"),
        np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])[0],
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_would_arrive_as_another_type_is_refused(value: Any) -> None:
    for given_value in (value, [value]):
        with pytest.raises(DataValueError, match=r"of type .* cannot travel"):
            values.encode(given_value)


@pytest.mark.parametrize(
    "key", [frozenset({1}), (1, frozenset()), np.float64(1.0), Point(1), Text("x"), Decimal(1)]
)
def test_keys_that_would_arrive_as_another_type_are_refused(key: Any) -> None:
    with pytest.raises(DataValueError, match=r"key of a dictionary of type .* cannot travel"):
        values.encode({"a": [{key: 1}]})


@pytest.mark.parametrize("key", ["a", 1, 1.5, True, None, b"a", (1, ("a", 2.5)), ()])
def test_keys_arrive_as_they_are(key: Any) -> None:
    ((again, _),) = there_and_back({key: 1}).items()
    assert same(again, key)


def test_a_mapped_file_travels_as_an_array(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    again = there_and_back(np.load(tmp_path / "a.npy", mmap_mode="r"))
    assert type(again) is np.ndarray
    assert again.tolist() == [0, 1, 2]


def test_a_pickle_travels_unopened() -> None:
    buffers = [np.arange(5, dtype=np.uint8), np.zeros(100_000, np.uint8)]
    again = there_and_back({"a": values.Pickled(b"x" * values.LONG, buffers)})["a"]
    assert type(again) is values.Pickled
    assert again.data == b"x" * values.LONG
    assert all(map(same, again.buffers, buffers))


@pytest.mark.parametrize("items", [[], [1], [[b"x"]], [b"x", b"y"], ["x"]])
def test_a_pickle_of_another_form_is_a_protocol_error(items: list[Any]) -> None:
    body = msgspec.msgpack.encode(
        msgspec.msgpack.Ext(values.EXT_PICKLED, msgspec.msgpack.encode(items))
    )
    with pytest.raises(ProtocolError, match="peer"):
        values.decode(body, b"")


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {"a": [print]},
        np.array([object()]),
        np.zeros(3, "V0"),
        np.zeros(3, {"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 2]}),
        np.array([(1, None)], dtype=[("a", "i4"), ("b", "O")]),
        2**64,
        -(2**63) - 1,
        lambda: None,
        ValueError("x"),
    ],
)
def test_what_cannot_travel_is_refused_by_name(value: Any) -> None:
    with pytest.raises(DataValueError, match=r"cannot travel"):
        values.encode(value)


def test_values_that_contain_themselves_are_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(DataValueError, match="nested"):
        values.encode(endless)


def array_body(offset: int, dtype: str, shape: tuple[int, ...]) -> bytes:
    meta = msgspec.msgpack.encode((offset, dtype, shape))
    return msgspec.msgpack.encode(msgspec.msgpack.Ext(values.EXT_ARRAY, meta))


def scalar_body(dtype: str, raw: bytes) -> bytes:
    data = msgspec.msgpack.encode((dtype, raw))
    return msgspec.msgpack.encode(msgspec.msgpack.Ext(values.EXT_SCALAR, data))


@pytest.mark.parametrize(
    "body",
    [
        array_body(0, "<f8", (9,)),
        array_body(8, "<f8", (8,)),
        array_body(-8, "<f8", (1,)),
        array_body(0, "<f8", (-1,)),
        array_body(0, "<f8", (2**40, 2**40)),
        array_body(0, "<f8", (0, 2**63)),
        array_body(0, "<f8", (0,) * 200),
        array_body(0, "|S0", (2**50,)),
        array_body(0, "|V0", (2**50,)),
        array_body(0, "O", (1,)),
        array_body(0, "[('a', 'O')]", (1,)),
        array_body(0, "[('a', 'O')]", (0,)),
        array_body(0, "[('a', 'f8')", (1,)),
        array_body(0, "[" * 5000, (1,)),
        array_body(0, "[__import__('os')]", (1,)),
        array_body(0, "no dtype", (1,)),
        array_body(0, "i4,i4", (1,)),
        array_body(0, "f8", (1,)),
        array_body(0, "|S99999999999999999999", (1,)),
        array_body(0, "[('a', '<f8', (-1,))]", (1,)),
        array_body(0, "[('a', '<f8'), ('a', '<f8')]", (1,)),
        array_body(0, "[5]", (1,)),
        array_body(0, "[]", (1,)),
        scalar_body("O", b"12345678"),
        scalar_body("[('a', 'O')]", b"12345678"),
        scalar_body("<f8", b"1234"),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(99, b"")),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(values.EXT_COMPLEX, b"\xc0")),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(values.EXT_SET, b"\x91\x91\x01")),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(values.EXT_TUPLE, b"\x01")),
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x91" * 100_000,
        b"",
        b"\xc1",
        b"\x01\x01",
    ],
)
def test_a_hostile_body_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="peer"):
        values.decode(body, bytes(64))


def test_extensions_nested_without_end_are_a_protocol_error() -> None:
    body = msgspec.msgpack.encode(1)
    for _ in range(3000):
        body = msgspec.msgpack.encode(msgspec.msgpack.Ext(values.EXT_TUPLE, b"\x91" + body))
    with pytest.raises(ProtocolError, match="peer"):
        values.decode(body, b"")


@settings(max_examples=500)
@given(st.binary(max_size=200), st.binary(max_size=64))
@pytest.mark.slow
def test_random_bytes_are_a_value_or_a_protocol_error(body: bytes, payload: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        values.decode(body, payload)


@given(nested, st.data())
@pytest.mark.slow
def test_a_damaged_body_is_a_value_or_a_protocol_error(value: Any, data: st.DataObject) -> None:
    encoded = values.encode(value)
    body = bytearray(encoded.body)
    where = data.draw(st.integers(0, len(body) - 1))
    body[where] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        values.decode(bytes(body), encoded.payload())


@pytest.mark.parametrize(
    "value",
    [b"q" * values.LONG, "ä" * values.LONG, {"a": ("b" * 10**6,)}],
    ids=["bytes", "text", "inside"],
)
def test_long_bytes_and_texts_lie_in_the_payload(value: Any) -> None:
    encoded = values.encode(value)
    assert len(encoded.body) < 100
    assert values.decode(encoded.body, encoded.payload()) == value


@pytest.mark.slow
def test_a_value_whose_body_fits_into_no_header_is_refused() -> None:
    assert plain.MAX_BODY + 2**19 <= frames.MAX_HEADER
    with pytest.raises(DataValueError, match=str(plain.MAX_BODY)):
        values.encode(list(range(2**21)))


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("kind", [np.ma.MaskedArray, np.matrix])
def test_an_array_that_would_mean_something_else_is_refused(kind: type[Any]) -> None:
    with pytest.raises(DataValueError, match=kind.__name__):
        values.encode({"x": kind([[1, 2], [3, 4]])})


def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(DataValueError, match="surrogates"):
        values.encode("\ud800" * values.LONG)


class Exported:
    """What arrays of other packages have in common, and no more."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def test_the_hint_for_an_array_of_another_package_copies_nothing() -> None:
    array = np.arange(3.0)
    for exported in (Exported(array), pa.array(array)):
        with pytest.raises(DataValueError) as caught:
            values.encode({"x": exported})
        assert "send numpy.from_dlpack(" in caught.value.hint
        encoded = values.encode({"x": np.from_dlpack(exported)})
        assert np.shares_memory(encoded.arrays[0], np.from_dlpack(exported))
        assert list(values.decode(encoded.body, encoded.payload())["x"]) == [0, 1, 2]
    assert np.shares_memory(np.from_dlpack(Exported(array)), array)
