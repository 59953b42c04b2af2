"""Values encoded one after the other: what is like the last one, and what only looks like it."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.comm import values
from sapwood.comm.alike_encoder import AlikeEncoder
from sapwood.core.errors import DataValueError, SapwoodError

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
def test_what_looks_alike_is_told_apart(before: Any) -> None:
    for after in LOOK_ALIKE:
        encoder = AlikeEncoder()
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
    encoder = AlikeEncoder()
    first = {"x": ARRAY, "y": ARRAY + 1}
    for value in (first, first, other, other, first, {1: ARRAY, 2: ARRAY}, {1.0: ARRAY, 2: ARRAY}):
        assert outcome(encoder.encode, value) == outcome(values.encode, value)


NUMBERS = st.one_of(st.integers(-(2**64), 2**65), st.floats(), st.booleans(), st.none())


@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(0, 3)), min_size=2, max_size=6))
@settings(max_examples=150)
def test_values_one_after_the_other(items: list[tuple[Any, Any, int]]) -> None:
    encoder = AlikeEncoder()
    for first, second, size in items:
        value = {"a": first, "x": np.full(size, 7), "b": second}
        assert outcome(encoder.encode, value) == outcome(values.encode, value)


def test_a_value_that_is_alike_is_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, state = AlikeEncoder(), {"x": ARRAY, "n": 1, "f": 0.5}
    encoder.encode(state)
    expected = outcome(values.encode, {"x": ARRAY.T.copy().T * 2, "n": 2**40, "f": -0.0})
    monkeypatch.setattr(values, "encode", None)
    found = encoder.encode({"x": ARRAY.T.copy().T * 2, "n": 2**40, "f": -0.0})
    assert outcome(lambda _: found, None) == expected


def test_what_was_encoded_is_the_senders_no_more_than_before() -> None:
    encoder, state = AlikeEncoder(), {"x": ARRAY.copy()}
    first, second = encoder.encode(state), encoder.encode(state)
    assert first.arrays[0] is second.arrays[0] is state["x"]
    assert list(state) == ["x"]
    assert type(state["x"]) is np.ndarray


def test_an_error_leaves_the_next_one_alone() -> None:
    encoder = AlikeEncoder()
    encoder.encode({"n": 1})
    with pytest.raises(DataValueError):
        encoder.encode({"n": 2**70})
    assert encoder.encode({"n": 2}).body == values.encode({"n": 2}).body
