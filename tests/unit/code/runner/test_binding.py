"""Staying on one core."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.code.runner.binding import LARGE, MANY, NOWHERE, Binding, core_for

several_cores = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="this process may use one core only"
)


@given(st.lists(st.integers(0, 512), min_size=1, max_size=16, unique=True), st.integers(0, 64))
def test_each_core_gets_as_many_agents_as_the_others_or_none_is_bound(
    cores: list[int], agents: int
) -> None:
    chosen = Counter(core_for(ordinal, agents, cores) for ordinal in range(agents))
    if set(chosen) != {NOWHERE}:
        assert len(set(chosen.values())) <= 1
        assert set(chosen) <= set(cores)


@several_cores
def test_it_stays_while_anybody_holds() -> None:
    before = os.sched_getaffinity(0)
    binding = Binding(ordinal=1, agents=2 * len(before))
    binding.hold("a")
    binding.hold("b")
    try:
        assert os.sched_getaffinity(0) == {sorted(before)[1]} == {binding.core}
        binding.release("a")
        assert os.sched_getaffinity(0) == {binding.core}
    finally:
        binding.release("b")
    assert os.sched_getaffinity(0) == before
    assert binding.core == NOWHERE


@several_cores
def test_what_user_code_chose_is_left() -> None:
    before = os.sched_getaffinity(0)
    binding = Binding(ordinal=0, agents=len(before))
    binding.hold("a")
    try:
        os.sched_setaffinity(0, {max(before)})
        binding.release("a")
        assert os.sched_getaffinity(0) == {max(before)}
    finally:
        os.sched_setaffinity(0, before)


def test_agents_that_are_no_multiple_are_left_alone() -> None:
    before = os.sched_getaffinity(0)
    binding = Binding(ordinal=0, agents=len(before) + 1 if len(before) > 1 else 0)
    binding.hold("a")
    assert os.sched_getaffinity(0) == before
    binding.release("a")


@several_cores
def test_many_agents_with_large_results_are_not_bound() -> None:
    before = os.sched_getaffinity(0)
    binding = Binding(ordinal=0, agents=MANY * len(before))
    binding.hold("a")
    binding.hold("b")
    try:
        bound = os.sched_getaffinity(0)
        assert bound == {binding.core}
        binding.weigh("a", LARGE - 1)
        binding.weigh("nobody", LARGE)
        assert os.sched_getaffinity(0) == bound
        for _ in range(2):
            binding.weigh("a", LARGE)
            assert os.sched_getaffinity(0) == before
        binding.release("a")
        assert os.sched_getaffinity(0) == bound
        binding.weigh("b", LARGE)
    finally:
        binding.release("a")
        binding.release("b")
    assert os.sched_getaffinity(0) == before


@several_cores
def test_few_agents_stay_whatever_they_make() -> None:
    before = os.sched_getaffinity(0)
    binding = Binding(ordinal=0, agents=(MANY - 1) * len(before))
    binding.hold("a")
    try:
        binding.weigh("a", 1 << 30)
        assert os.sched_getaffinity(0) == {binding.core}
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
    finally:
        binding.release("a")
    assert os.sched_getaffinity(0) == before
