"""Items that move, late agents that are helped, agents that die: each item counts once.

Mistakes made on purpose show that the simulation would find them.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from sapwood.activity.delegation import FirstContribution, SpeculativeRange, Substitute
from sapwood_simulation.delegation_simulation import (
    BrokenCountError,
    DelegationFaults,
    DelegationSimulation,
)

SEEDS = 20
ENOUGH = 60
"""Seeds within which a mistake must be found."""


@pytest.mark.slow
def test_each_item_counts_once() -> None:
    courses = [DelegationSimulation(seed, agents=2 + seed % 6).run() for seed in range(SEEDS)]
    assert sum(course.cuts for course in courses) > 2 * SEEDS
    assert sum(course.used for course in courses) > SEEDS
    assert sum(course.deaths for course in courses) > SEEDS


@pytest.mark.row("A-ACT-4")
@pytest.mark.parametrize(
    "guess",
    [(0.1, 10.0), (10.0, 0.1), (0.0, 1.0), (math.nan, 1.0), (math.inf, -1.0)],
    ids=["too slow", "too fast", "zero", "no number", "infinite"],
)
@pytest.mark.slow
def test_each_item_counts_once_whatever_was_said_of_agents_before(
    guess: tuple[float, float],
) -> None:
    first = {rank: guess[rank % 2] for rank in range(1, 5)}
    for seed in range(SEEDS // 4):
        DelegationSimulation(seed, first=first).run()


@pytest.mark.slow
def test_a_wrong_first_guess_is_corrected() -> None:
    quiet = DelegationFaults(death=0.0, change=0.0, twice=0.0, hang=0.0, delay=0.0)
    wrong = {1: 1.0, 2: 100.0, 3: 1.0, 4: 100.0}
    courses = [DelegationSimulation(s, faults=quiet, first=wrong).run() for s in range(SEEDS)]
    assert sum(course.cuts for course in courses) > SEEDS * 3 // 2, (
        "the first cut, and a better one"
    )
    assert all(course.cuts <= 6 for course in courses), "and no more when rates are known"


@pytest.mark.nightly
def test_each_item_counts_once_for_longer() -> None:
    for seed in range(SEEDS, 2000):
        DelegationSimulation(seed, agents=2 + seed % 6).run()


def test_a_seed_gives_the_same_course_again() -> None:
    assert DelegationSimulation(5).run() == DelegationSimulation(5).run()


def test_without_faults_nobody_is_lost() -> None:
    quiet = DelegationFaults(death=0.0, change=0.0, twice=0.0, hang=0.0, delay=0.01)
    course = DelegationSimulation(1, faults=quiet, iterations=40).run()
    assert course.deaths == 0
    assert 2 <= course.cuts <= 10, "as rates become known, and then no more"


def is_found(**options: Any) -> bool:
    for seed in range(ENOUGH):
        try:
            DelegationSimulation(seed, agents=2 + seed % 6, **options).run()
        except BrokenCountError:
            return True
    return False


def test_it_finds_an_answer_that_counts_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def counts(self: FirstContribution, wave: int) -> bool:
        return True

    monkeypatch.setattr(FirstContribution, "counts", counts)
    assert is_found()


def test_it_finds_an_answer_to_another_wave(monkeypatch: pytest.MonkeyPatch) -> None:
    def counts(self: FirstContribution, wave: int) -> bool:
        is_open = bool(self._open)
        self._open.clear()
        return is_open

    monkeypatch.setattr(FirstContribution, "counts", counts)
    assert is_found()


def test_it_finds_a_part_that_is_added_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def answered(self: Substitute[Any], piece: SpeculativeRange, value: Any) -> Any:
        found = self._found
        found[SpeculativeRange(len(found), piece.start, piece.stop)] = value
        if self.over or len(found) < len(self._pieces):
            return None
        self.over = True
        return self._merge(list(found.values()))

    monkeypatch.setattr(Substitute, "answered", answered)
    assert is_found()


@pytest.mark.slow
def test_it_finds_items_of_another_cut() -> None:
    assert is_found(name_cuts=False)
