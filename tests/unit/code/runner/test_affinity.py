"""CPU affinity: staying on one core."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.code.runner.affinity import NOWHERE, CoreAffinity, core_for

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
    affinity = CoreAffinity(ordinal=1, agents=2 * len(before))
    affinity.hold("a")
    affinity.hold("b")
    try:
        assert os.sched_getaffinity(0) == {sorted(before)[1]} == {affinity.core}
        affinity.release("a")
        assert os.sched_getaffinity(0) == {affinity.core}
    finally:
        affinity.release("b")
    assert os.sched_getaffinity(0) == before
    assert affinity.core == NOWHERE


@several_cores
def test_what_user_code_chose_is_left() -> None:
    before = os.sched_getaffinity(0)
    affinity = CoreAffinity(ordinal=0, agents=len(before))
    affinity.hold("a")
    try:
        os.sched_setaffinity(0, {max(before)})
        affinity.release("a")
        assert os.sched_getaffinity(0) == {max(before)}
    finally:
        os.sched_setaffinity(0, before)


def test_agents_that_are_no_multiple_are_left_alone() -> None:
    before = os.sched_getaffinity(0)
    affinity = CoreAffinity(ordinal=0, agents=len(before) + 1 if len(before) > 1 else 0)
    affinity.hold("a")
    assert os.sched_getaffinity(0) == before
    affinity.release("a")
