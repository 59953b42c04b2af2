import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.comm import values
from sapwood.comm.shared_memory import ALIGNMENT
from sapwood_lizard.packing import pack_text, pack_value, unpack_text, unpack_value
from sapwood_lizard.structures import b64_json_dec, b64_json_enc

NUMBERS = st.one_of(st.floats(), st.integers(), st.floats(width=32))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=12),
        st.dictionaries(st.text(max_size=5), inner, max_size=4),
        st.lists(st.floats(width=32), min_size=8, max_size=40),
        st.lists(st.lists(st.integers(-5, 300), min_size=4, max_size=4), min_size=2, max_size=9),
    ),
    max_leaves=20,
)


def travelled(value: Any) -> Any:
    encoded = values.encode(value)
    return values.decode(encoded.body, encoded.payload())


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (
            a == b and math.copysign(1, a) == math.copysign(1, b)
        )
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


@given(JSON)
@pytest.mark.slow
def test_values_come_back_with_their_types(value: Any) -> None:
    assert same(unpack_value(travelled(pack_value(value))), value)


@given(JSON)
@pytest.mark.slow
def test_texts_come_back(value: Any) -> None:
    text = b64_json_enc({"n": 1, "dynamic": b64_json_enc(value)})
    found = b64_json_dec(unpack_text(travelled(pack_text(text))))
    assert same(b64_json_dec(found["dynamic"]), value)


@given(st.text())
def test_any_other_text_comes_back(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return  # half a surrogate pair, which no text of a program has
    assert unpack_text(travelled(pack_text(text))) == text


@pytest.mark.parametrize(
    ("numbers", "bytes_each"), [([0.5] * 1000, 4), ([0.1] * 1000, 8), ([7] * 1000, 1)]
)
def test_numbers_travel_as_arrays(numbers: list[Any], bytes_each: int) -> None:
    text = b64_json_enc({"dynamic": b64_json_enc([numbers] * 10)})
    encoded = values.encode(pack_text(text))
    assert len(encoded.body) < 100
    assert 0 <= encoded.nbytes - 10_000 * bytes_each < ALIGNMENT


def test_a_row_of_other_length_keeps_the_lists() -> None:
    ragged = [[1.0] * 9, [2.0] * 8]
    packed = pack_value(ragged)
    assert unpack_value(packed) == ragged
    assert isinstance(packed[0][1], np.ndarray)
