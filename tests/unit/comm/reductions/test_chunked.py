"""What contributions come to piece by piece is what they come to as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.comm import values
from sapwood.comm.reduction import WHOLE, Accumulator
from sapwood.comm.reductions.chunked import ElementwiseReduction, chunked
from sapwood.comm.streams.wave import Advertised
from sapwood.core.errors import ProtocolError

PIECE = 64


def offered(rank: int, value: Any, weight: float = 1.0) -> tuple[Advertised, memoryview]:
    encoded = values.encode(value)
    payload = memoryview(bytes(encoded.payload()).ljust(encoded.nbytes, b"\0"))
    return Advertised(
        rank, rank, ((rank, rank + 1),), weight, encoded.body, encoded.nbytes
    ), payload


def in_pieces(
    reduction: ElementwiseReduction, parts: list[tuple[Advertised, memoryview]], order: list[int]
) -> Any:
    result = bytearray(reduction.size)
    for start in range(0, reduction.size, PIECE):
        chunk = reduction.chunk(start)
        for index in order:
            offer, payload = parts[index]
            chunk.add(payload[start : start + PIECE], offer.weight)
        result[start : start + PIECE] = chunk.view
    return reduction.total(result)


def as_a_whole(reduce: dict[str, str], given: list[tuple[Any, float]]) -> Any:
    accumulator = Accumulator(reduce)
    for rank, (value, weight) in enumerate(given, 1):
        accumulator.add(value, rank, weight)
    return accumulator.total()


@given(
    st.sampled_from(["sum", "min", "max", "mean"]),
    st.sampled_from(["f8", "f4", "c16", "i8", "u2"]),
    st.integers(1, 60),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
@pytest.mark.slow
def test_pieces_give_what_the_whole_gives(
    kind: str, dtype: str, size: int, count: int, chance: Any
) -> None:
    if (kind == "mean" and dtype in {"i8", "u2"}) or (kind in {"min", "max"} and dtype == "c16"):
        return
    reduce = {"x": kind, "y": "sum", "n": "max"}
    given = []
    for _ in range(count):
        x = np.array([chance.randrange(100) for _ in range(size)], dtype)
        value = {"x": x, "y": np.full((2, size), chance.randrange(9)), "n": chance.randrange(9)}
        given.append((value, float(chance.randint(1, 5))))
    parts = [offered(rank, *one) for rank, one in enumerate(given, 1)]
    reduction = chunked(reduce, WHOLE, [offer for offer, _ in parts])
    assert reduction is not None
    order = list(range(count))
    chance.shuffle(order)
    total, expected = in_pieces(reduction, parts, order), as_a_whole(reduce, given)
    assert total["n"] == expected["n"]
    assert total["x"].dtype == expected["x"].dtype
    np.testing.assert_array_equal(total["y"], expected["y"])
    np.testing.assert_allclose(total["x"], expected["x"], rtol=1e-5)


def test_a_value_without_fields_is_put_together_as_it_is() -> None:
    parts = [offered(rank, np.full(20, rank)) for rank in (1, 2, 3)]
    reduction = chunked({WHOLE: "sum"}, WHOLE, [offer for offer, _ in parts])
    assert reduction is not None
    np.testing.assert_array_equal(in_pieces(reduction, parts, [2, 0, 1]), np.full(20, 6))


ARRAY = np.arange(16.0)


@pytest.mark.parametrize(
    ("reduce", "first", "second"),
    [
        ({"x": "concat"}, {"x": ARRAY}, {"x": ARRAY}),
        ({"x": "sum"}, {"x": ARRAY}, {"x": ARRAY[:8]}),
        ({"x": "sum"}, {"x": ARRAY}, {"x": ARRAY.astype("f4").repeat(2)}),
        ({"x": "sum"}, {"x": ARRAY > 3}, {"x": ARRAY > 3}),  # a sum of booleans counts
        ({"x": "sum"}, {"x": ARRAY.astype(">f8")}, {"x": ARRAY.astype(">f8")}),
        ({"x": "mean"}, {"x": ARRAY.astype(int)}, {"x": ARRAY.astype(int)}),
        ({"x": "sum", "y": "sum"}, {"x": ARRAY, "y": 1}, {"x": ARRAY}),
        ({"x": "sum"}, {"x": [ARRAY]}, {"x": [ARRAY]}),
        ({"x": "sum"}, {"x": ARRAY}, ARRAY),
    ],
)
def test_what_is_not_alike_is_put_together_as_a_whole(
    reduce: dict[str, str], first: Any, second: Any
) -> None:
    offers = [offered(1, first)[0], offered(2, second)[0]]
    assert chunked(reduce, WHOLE, offers) is None


@pytest.mark.parametrize(("kind", "weight"), [("mean", 0.0), ("mean", -1.0), ("sum", 0.0)])
def test_a_mean_of_what_weighs_nothing_is_no_sum_of_pieces(kind: str, weight: float) -> None:
    offers = [offered(1, ARRAY)[0], offered(2, ARRAY, weight)[0]]
    assert (chunked({WHOLE: kind}, WHOLE, offers) is None) == (kind == "mean")


def test_pieces_of_different_length_are_refused() -> None:
    parts = [offered(rank, ARRAY) for rank in (1, 2)]
    reduction = chunked({WHOLE: "sum"}, WHOLE, [offer for offer, _ in parts])
    assert reduction is not None
    chunk = reduction.chunk(0)
    chunk.add(parts[0][1][:64], 1.0)
    with pytest.raises(ProtocolError):
        chunk.add(parts[1][1][:56], 1.0)
