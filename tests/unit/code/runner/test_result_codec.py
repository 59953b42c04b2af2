"""Results like the one before are encoded as they would be anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sapwood.code.runner.result_codec import ResultCodec, has_places
from sapwood.comm import values
from sapwood.comm.cached_codec import array_layout

DTYPES: list[Any] = [
    "f8",
    "f4",
    "i8",
    ">i4",
    "u1",
    "b1",
    "c16",
    "M8[s]",
    "S3",
    [("a", "i4"), ("b", "f8")],
]
ARRAYS = st.tuples(
    st.sampled_from([np.dtype(each) for each in DTYPES]),
    hnp.array_shapes(min_dims=0, max_dims=3, max_side=4),
)
LAYOUTS = st.dictionaries(st.sampled_from("abcd"), ARRAYS, min_size=1, max_size=4)


def filled(layout: dict[str, Any], value: int) -> dict[str, np.ndarray[Any, Any]]:
    """Return arrays of the given types and shapes, all bytes of which are ``value``."""
    made = {}
    for name, (dtype, shape) in layout.items():
        array = np.empty(shape, dtype)
        array.reshape(-1).view(np.uint8).fill(value)
        made[name] = array
    return made


@given(LAYOUTS, LAYOUTS)
@pytest.mark.slow
def test_what_is_like_the_last_result_becomes_the_same_bytes(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    results = ResultCodec()
    first = filled(one, 1)
    results.learn(first, values.encode(first))
    for layout in (one, other):
        result = filled(layout, 0)
        found = results.encode(result)
        if layout is one:
            assert found is not None
        if found is not None:
            encoded = values.encode(result)
            assert found[0].inline == encoded.body
            assert found[1].inline == bytes(encoded.payload())


def test_other_results_are_left_to_the_encoder() -> None:
    results = ResultCodec()
    assert results.encode({}) is None
    first = {"a": np.zeros((2, 3)), "b": np.zeros(2)}
    results.learn(first, values.encode(first))
    turned = {"a": np.zeros((3, 2)).T, "b": np.zeros(2)}
    masked = {"a": np.ma.masked_array(np.zeros((2, 3))), "b": np.zeros(2)}
    for other in (
        None,
        [np.zeros((2, 3)), np.zeros(2)],
        {"a": np.zeros((2, 3))},
        {"b": np.zeros(2), "a": np.zeros((2, 3))},
        {"a": np.zeros((2, 3)), "b": np.zeros(3)},
        {"a": np.zeros((2, 3)), "b": np.zeros(2, "f4")},
        {"a": np.zeros((2, 3)), "b": [0.0, 0.0]},
        turned,
        masked,
    ):
        assert results.encode(other) is None
    assert results.encode({"a": np.ones((2, 3)), "b": np.ones(2)}) is not None


def test_arrays_that_were_made_for_a_result_lie_where_they_lay() -> None:
    made = [np.zeros(6), np.zeros(2)]
    result = {"a": made[0].reshape(2, 3), "b": made[1]}
    layout = array_layout(result)
    assert has_places(result, layout, made)
    again = {"a": made[0][:].reshape(2, 3), "b": made[1][:]}
    assert has_places(again, layout, made)


def test_a_part_or_a_copy_of_what_was_made_lies_elsewhere() -> None:
    made = [np.zeros(6), np.zeros(2)]
    result = {"a": made[0].reshape(2, 3), "b": made[1]}
    layout = array_layout(result)
    for other, arrays in (
        ({"a": made[0].reshape(2, 3).copy(), "b": made[1]}, made),
        ({"a": made[0].reshape(3, 2), "b": made[1]}, made),
        ({"a": made[0].reshape(2, 3), "b": made[0][:2]}, made),
        ({"a": made[0].reshape(2, 3), "b": made[1][::-1]}, made),
        ({"b": made[1], "a": made[0].reshape(2, 3)}, made),
        ({"a": made[0].reshape(2, 3), "b": made[1]}, made[::-1]),
        ({"a": made[0].reshape(2, 3), "b": made[1]}, [*made, np.zeros(1)]),
        ({"a": made[0].reshape(2, 3)}, made[:1]),
        ([made[0], made[1]], made),
    ):
        assert not has_places(other, layout, arrays)


def test_a_result_with_arrays_of_the_user_is_like_no_other() -> None:
    made = [np.zeros(6)]
    result = {"a": np.zeros(6)}
    assert not has_places(result, array_layout(result), made)
