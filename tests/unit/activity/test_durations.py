"""Durations in buckets: how wrong a quantile is, and how much room they take."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.activity.durations import FIRST, IN_A_DOUBLING, LAST, Durations

ERROR = 2 ** (0.5 / IN_A_DOUBLING) - 1


def counted(seconds: list[float]) -> Durations:
    made = Durations()
    for one in seconds:
        made.add(one)
    return made


@given(
    seconds=st.lists(st.floats(1e-8, 1e8), min_size=1, max_size=60),
    share=st.floats(0.01, 1.0),
)
@pytest.mark.slow
def test_a_quantile_is_right_to_so_much(seconds: list[float], share: float) -> None:
    exact = sorted(seconds)[math.ceil(share * len(seconds)) - 1]
    assert counted(seconds).quantile(share) == pytest.approx(exact, rel=ERROR + 1e-9)
    assert ERROR < 0.0222


@given(st.lists(st.lists(st.floats(0.0, 1e12), max_size=20), min_size=2, max_size=4))
@pytest.mark.slow
def test_it_does_not_matter_who_is_added_first(parts: list[list[float]]) -> None:
    one, *others = map(counted, parts)
    for other in others:
        one = one + other
    assert one.buckets == counted([s for part in parts for s in part]).buckets


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=30))
def test_there_are_so_many_buckets_and_no_more(seconds: list[float]) -> None:
    assert all(FIRST <= bucket <= LAST for bucket, _ in counted(seconds).buckets)


def test_without_any_it_is_nothing() -> None:
    assert Durations().quantile(0.5) == 0.0
