"""Values that come again are decoded as those that come first."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sapwood.comm import values
from sapwood.comm.alike import Alike
from sapwood.core.errors import ProtocolError

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
def test_what_comes_again_is_decoded_as_the_first(value: Any, byte: int) -> None:
    encoded = values.encode(value)
    alike = Alike()
    payload = bytes(encoded.payload())
    other = bytes([byte]) * len(payload)
    for arrays in (payload, payload, payload, other, payload):
        found = alike.decode(encoded.body, arrays)
        _same(found, values.decode(encoded.body, arrays))


@given(VALUES, VALUES)
def test_values_that_take_turns(one: Any, other: Any) -> None:
    alike = Alike()
    for value in (one, one, one, other, one, other, other, other, one):
        encoded = values.encode(value)
        payload = bytes(encoded.payload())
        _same(alike.decode(encoded.body, payload), values.decode(encoded.body, payload))


def test_arrays_stay_views() -> None:
    encoded = values.encode({"a": np.arange(4.0), "b": np.ones((2, 2), np.int32)})
    alike, payload = Alike(), bytearray(encoded.payload())
    found = [alike.decode(encoded.body, memoryview(payload)) for _ in range(3)][-1]
    payload[:] = bytes(len(payload))
    assert not found["a"].any()
    assert not found["b"].any()
    assert found["b"].shape == (2, 2)


@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_a_payload_that_is_too_short_is_refused(before: int) -> None:
    encoded = values.encode({"a": np.arange(4.0), "b": np.arange(3)})
    alike, payload = Alike(), bytes(encoded.payload())
    for _ in range(before):
        alike.decode(encoded.body, payload)
    with pytest.raises(ProtocolError, match="ends outside its payload"):
        alike.decode(encoded.body, payload[:40])
    _same(alike.decode(encoded.body, payload), {"a": np.arange(4.0), "b": np.arange(3)})


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
