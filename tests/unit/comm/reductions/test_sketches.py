from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.comm import values
from sapwood.comm.reductions import make_reduction, sketches
from sapwood.core.errors import ExecutionError, ProgramError

datasketches = pytest.importorskip("datasketches")


def travelled(value: Any) -> Any:
    encoded = values.encode(value)
    assert b"pickle" not in encoded.body
    return values.decode(encoded.body, bytes(encoded.payload()))


def in_two_levels(kind: str, parts: Sequence[Any], fanout: int = 3) -> Any:
    root = make_reduction(kind)
    for first in range(0, len(parts), fanout):
        junction = make_reduction(kind)
        for rank, part in enumerate(parts[first : first + fanout], start=first + 1):
            junction.add(travelled(part), rank, 1.0)
        root.add(travelled(junction.partial()), first + 1, float(fanout))
    return root.total()


@pytest.mark.row("C2-RED")
def test_quantiles_are_those_of_all_numbers_within_the_error() -> None:
    numbers = np.random.default_rng(3).normal(size=(16, 5000))
    total = in_two_levels("quantiles:800", list(numbers))
    every = np.sort(numbers.ravel())
    assert total["count"] == every.size
    assert (total["min"], total["max"]) == (every[0], every[-1])
    ranks = np.searchsorted(every, total["percentiles"]) / every.size
    # The error holds for all of them together in 99 of 100 sketches.
    assert np.abs(ranks - np.linspace(0, 1, 101)).max() <= 2 * total["error"]
    kept = datasketches.kll_doubles_sketch.deserialize(total["sketch"])
    assert kept.n == every.size


@given(st.lists(st.lists(st.integers(-1000, 1000), max_size=8), min_size=1, max_size=9))
@pytest.mark.slow
def test_quantiles_of_few_numbers_are_exact(parts: list[list[int]]) -> None:
    total = in_two_levels("quantiles:200", [np.array(part, "i8") for part in parts])
    every = sorted(number for part in parts for number in part)
    assert total["count"] == len(every)
    if every:
        assert total["percentiles"][[0, 100]].tolist() == [every[0], every[-1]]
        assert set(total["percentiles"].tolist()) <= set(every)
    else:
        assert np.isnan(total["percentiles"]).all()


def test_quantiles_leave_nan_out() -> None:
    sketch = make_reduction("quantiles:200")
    sketch.add(np.array([np.nan, 4.0, np.nan]), 1, 1.0)
    assert (sketch.total()["count"], sketch.total()["max"]) == (1, 4.0)


@pytest.mark.row("C2-RED")
def test_distinct_counts_values_that_several_agents_have_once() -> None:
    parts = [np.arange(rank * 1000, rank * 1000 + 3000) for rank in range(10)]
    total = in_two_levels("distinct:14", parts)
    assert total["lower"] <= 12_000 <= total["upper"]
    assert abs(total["estimate"] - 12_000) < 0.03 * 12_000


@given(
    st.lists(st.lists(st.integers(0, 9) | st.text(max_size=2), max_size=5), min_size=1, max_size=6)
)
@pytest.mark.slow
def test_distinct_of_few_values_is_exact(parts: list[list[Any]]) -> None:
    expected = len({(type(member), member) for part in parts for member in part if member != ""})
    assert round(in_two_levels("distinct:12", parts)["estimate"]) == expected


@pytest.mark.parametrize("text", ["quantiles", "quantiles:7", "distinct:22", "distinct:x"])
def test_sizes_out_of_bounds_are_refused(text: str) -> None:
    with pytest.raises(ProgramError) as caught:
        make_reduction(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("quantiles:200", "text"),
        ("quantiles:200", np.array(["a"])),
        ("distinct:12", [object()]),
        ("distinct:12", np.zeros(2, "M8[s]")),
        ("distinct:12", [b"bytes"]),
    ],
)
def test_what_cannot_be_sketched_is_an_error(kind: str, value: Any) -> None:
    with pytest.raises(ExecutionError):
        make_reduction(kind).add(value, 1, 1.0)


@pytest.mark.parametrize("kind", ["quantiles:200", "distinct:12"])
def test_bytes_that_are_no_sketch_are_an_error_and_no_crash(kind: str) -> None:
    sketch = make_reduction(kind)
    sketch.add(np.arange(10_000.0), 1, 1.0)
    good = sketch.partial()
    for cut in (0, 1, 8, 16, 20, 24, 36, 50, len(good) - 8):
        with pytest.raises(ExecutionError):
            make_reduction(kind).add(good[:cut], 1, 1.0)


def test_without_the_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    sketches._datasketches.cache_clear()
    try:
        with pytest.raises(ProgramError) as caught:
            make_reduction("distinct:12")
    finally:
        sketches._datasketches.cache_clear()
    assert "sapwood[sketches]" in caught.value.hint
