"""Values with the layout of the last one are encoded and decoded as those that come first."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sapwood.comm import values
from sapwood.comm.cached_codec import (
    NO_LAYOUT,
    CachedDecoder,
    CachedEncoder,
    array_layout,
    layout_of,
)
from sapwood.core.errors import DataValueError, ProtocolError, SapwoodError

ARRAYS = hnp.arrays(
    st.sampled_from(["f8", "f4", "i4", "u1", "?", ">i2", "c16"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
VALUES = st.one_of(
    st.dictionaries(st.text(max_size=3), ARRAYS, max_size=4),
    st.dictionaries(st.text(max_size=3), ARRAYS | st.integers(-5, 5) | st.none(), max_size=4),
    st.lists(ARRAYS, max_size=2),
    ARRAYS,
)


@given(VALUES, st.integers(0, 255))
@pytest.mark.slow
def test_what_comes_again_is_decoded_as_the_first(value: Any, byte: int) -> None:
    encoded = values.encode(value)
    decoder = CachedDecoder()
    payload = bytes(encoded.payload())
    other = bytes([byte]) * len(payload)
    for arrays in (payload, payload, payload, other, payload):
        found = decoder.decode(encoded.body, arrays)
        _same(found, values.decode(encoded.body, arrays))


@given(VALUES, VALUES)
@pytest.mark.slow
def test_values_that_take_turns(one: Any, other: Any) -> None:
    decoder = CachedDecoder()
    for value in (one, one, one, other, one, other, other, other, one):
        encoded = values.encode(value)
        payload = bytes(encoded.payload())
        _same(decoder.decode(encoded.body, payload), values.decode(encoded.body, payload))


def test_arrays_stay_views() -> None:
    encoded = values.encode({"a": np.arange(4.0), "b": np.ones((2, 2), np.int32)})
    decoder, payload = CachedDecoder(), bytearray(encoded.payload())
    found = [decoder.decode(encoded.body, memoryview(payload)) for _ in range(3)][-1]
    payload[:] = bytes(len(payload))
    assert not found["a"].any()
    assert not found["b"].any()
    assert found["b"].shape == (2, 2)


@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_a_payload_that_is_too_short_is_refused(before: int) -> None:
    encoded = values.encode({"a": np.arange(4.0), "b": np.arange(3)})
    decoder, payload = CachedDecoder(), bytes(encoded.payload())
    for _ in range(before):
        decoder.decode(encoded.body, payload)
    with pytest.raises(ProtocolError, match="ends outside its payload"):
        decoder.decode(encoded.body, payload[:40])
    _same(decoder.decode(encoded.body, payload), {"a": np.arange(4.0), "b": np.arange(3)})


# --- encoding

ARRAY = np.arange(6.0).reshape(2, 3)


class Level(enum.IntEnum):
    LOW = 1


def outcome(encode: Any, value: Any) -> Any:
    """Return what encoding comes to, byte by byte, or the error."""
    try:
        encoded = encode(value)
    except SapwoodError as error:
        return type(error), str(error)
    buffer = bytearray(encoded.nbytes)
    encoded.write_into(memoryview(buffer))
    return encoded.body, bytes(encoded.payload()), bytes(buffer), encoded.offsets, encoded.nbytes


LOOK_ALIKE: list[Any] = [
    1,
    1.0,
    True,
    None,
    -0.0,
    0.0,
    float("nan"),
    float("inf"),
    2**63,
    -(2**63),
    2**64,
    1 + 0j,
    "1",
    b"1",
    Level.LOW,
    np.float64(1.0),
    np.int64(1),
    np.bool_(True),
    np.array(1.0),
    [1],
    (1,),
    {1},
    {"n": 1},
    {"n": ARRAY},
    ARRAY,
    ARRAY.astype(np.float32),
    ARRAY.astype(np.int64),
    ARRAY.astype(np.uint64),
    ARRAY.astype(">f8"),
    ARRAY.astype(complex),
    ARRAY.astype(bool),
    ARRAY.astype("datetime64[s]"),
    ARRAY.astype("S3"),
    ARRAY.astype(object),
    ARRAY.T,
    ARRAY.T.copy(),
    ARRAY.reshape(3, 2),
    ARRAY.reshape(6),
    ARRAY[:, ::2],
    ARRAY[::-1],
    np.asfortranarray(ARRAY),
    ARRAY[:0],
    ARRAY.view(np.recarray),
    np.ma.masked_array(ARRAY, ARRAY > 2),
    np.zeros((2, 3), [("a", "f4"), ("b", "i4")]),
    object(),
]


@pytest.mark.parametrize("before", LOOK_ALIKE)
@pytest.mark.slow
def test_what_looks_alike_is_told_apart(before: Any) -> None:
    for after in LOOK_ALIKE:
        encoder = CachedEncoder()
        for item in (before, before, after, after, before):
            value = {"x": ARRAY, "n": item, "y": ARRAY}
            assert outcome(encoder.encode, value) == outcome(values.encode, value)


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"y": ARRAY, "x": ARRAY + 1},
        {"x": ARRAY + 1},
        {"x": ARRAY, "y": ARRAY, "z": ARRAY},
        {"x": ARRAY, "z": ARRAY},
        {np.str_("x"): ARRAY, "y": ARRAY},
        {1: ARRAY, True + 1: ARRAY},
        [ARRAY, ARRAY],
        ARRAY,
        7,
        {"x": [ARRAY], "y": ARRAY},
    ],
)
def test_another_value_is_encoded_anew(other: Any) -> None:
    encoder = CachedEncoder()
    first = {"x": ARRAY, "y": ARRAY + 1}
    for value in (first, first, other, other, first, {1: ARRAY, 2: ARRAY}, {1.0: ARRAY, 2: ARRAY}):
        assert outcome(encoder.encode, value) == outcome(values.encode, value)


NUMBERS = st.one_of(st.integers(-(2**64), 2**65), st.floats(), st.booleans(), st.none())


@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(0, 3)), min_size=2, max_size=6))
@settings(max_examples=150)
@pytest.mark.slow
def test_values_one_after_the_other(items: list[tuple[Any, Any, int]]) -> None:
    encoder = CachedEncoder()
    for first, second, size in items:
        value = {"a": first, "x": np.full(size, 7), "b": second}
        assert outcome(encoder.encode, value) == outcome(values.encode, value)


def test_a_value_that_is_alike_is_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, state = CachedEncoder(), {"x": ARRAY, "n": 1, "f": 0.5}
    encoder.encode(state)
    expected = outcome(values.encode, {"x": ARRAY.T.copy().T * 2, "n": 2**40, "f": -0.0})
    monkeypatch.setattr(values, "encode", None)
    found = encoder.encode({"x": ARRAY.T.copy().T * 2, "n": 2**40, "f": -0.0})
    assert outcome(lambda _: found, None) == expected


def test_what_was_encoded_is_the_senders_no_more_than_before() -> None:
    encoder, state = CachedEncoder(), {"x": ARRAY.copy()}
    first, second = encoder.encode(state), encoder.encode(state)
    assert first.arrays[0] is second.arrays[0] is state["x"]
    assert list(state) == ["x"]
    assert type(state["x"]) is np.ndarray


def test_an_error_leaves_the_next_one_alone() -> None:
    encoder = CachedEncoder()
    encoder.encode({"n": 1})
    with pytest.raises(DataValueError):
        encoder.encode({"n": 2**70})
    assert encoder.encode({"n": 2}).body == values.encode({"n": 2}).body


def test_one_idea_of_a_layout_serves_both_ways() -> None:
    value = {"a": np.arange(3.0), "n": 1, "b": np.zeros((2, 2), "i4")}
    encoded = values.encode(value)
    layout = layout_of(value, encoded.offsets, encoded.nbytes)
    assert layout.names == ("a", "n", "b")
    assert [field[:4] for field in layout.arrays] == [
        ("a", np.dtype("f8"), (3,), 3),
        ("b", np.dtype("i4"), (2, 2), 4),
    ]
    assert [field.offset for field in layout.arrays] == encoded.offsets
    for other in ({1: np.zeros(3)}, {"a": "text"}, [1], np.zeros(3)):
        assert not layout_of(other, [0], 24).names


def _same(found: Any, expected: Any) -> None:
    if isinstance(expected, np.ndarray):
        assert isinstance(found, np.ndarray)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes()
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for name in expected:
            _same(found[name], expected[name])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            _same(one, other)
    else:
        assert found == expected


def test_what_is_no_dictionary_of_arrays_has_no_layout_of_arrays() -> None:
    turned = np.zeros((3, 2)).T
    for value in (1, [ARRAY], {}, {"a": 1}, {1: ARRAY}, {"a": np.zeros(0)}, {"a": turned}):
        assert array_layout(value) == NO_LAYOUT
        assert not NO_LAYOUT.fits(value)


def test_a_layout_fits_values_with_the_same_arrays_in_the_same_order() -> None:
    layout = array_layout({"x": np.zeros((2, 3)), "y": np.zeros(2)})
    assert layout.fits({"x": np.ones((2, 3)), "y": np.ones(2)})
    for other in (
        {"y": np.zeros(2), "x": np.zeros((2, 3))},
        {"x": np.zeros((2, 3))},
        {"x": np.zeros((2, 3)), "y": np.zeros(2), "z": np.zeros(2)},
        {"x": np.zeros((3, 2)), "y": np.zeros(2)},
        {"x": np.zeros((3, 2)).T, "y": np.zeros(2)},
        {"x": np.zeros((2, 3)), "y": np.zeros(2, "f4")},
        {"x": np.zeros((2, 3)), "y": 2},
    ):
        assert not layout.fits(other)
    assert not layout_of({"x": ARRAY, "n": 1}, [0], 24).fits({"x": ARRAY, "n": 1})
