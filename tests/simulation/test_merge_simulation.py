"""C3-SESS-4: sessions are merged and split while lines break and roots and heads end."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from sapwood.merging.joint_stream import JointStream
from sapwood.merging.merges import Merges
from sapwood.session_server.server import SessionServer
from sapwood_simulation.merge_simulation import MergeSimulation
from sapwood_simulation.simulation import InvariantError

pytestmark = pytest.mark.row("C3-SESS-4")

BLOCK = 6
"""Seeds of one test."""


@pytest.mark.parametrize(
    "block", [0, *(pytest.param(one, marks=pytest.mark.nightly) for one in range(1, 40))]
)
@pytest.mark.slow
def test_waves_over_two_sessions_are_whole_and_both_sides_agree(
    block: int, apart: Callable[[Callable[[], Any]], Any]
) -> None:
    seeds = range(BLOCK * block, BLOCK * block + BLOCK)
    reports = apart(lambda: [MergeSimulation(seed).run() for seed in seeds])
    assert sum(report.merges for report in reports) > 20
    assert sum(report.splits for report in reports) > 20
    assert sum(report.waves for report in reports) > 100
    assert sum(report.own for report in reports) > 500
    assert sum(report.cut for report in reports) > 30
    assert sum(report.revoked for report in reports) > 5


@pytest.mark.slow
def test_without_faults_each_wave_is_whole_or_its_session_was_split_off() -> None:
    report = MergeSimulation(1, 200, faults=False).run()
    assert (report.cut, report.heads) == (0, 1)
    assert report.waves > 30


@pytest.mark.slow
def test_no_fresh_seed_breaks_an_invariant(fresh_seed: int) -> None:
    for seed in range(fresh_seed, fresh_seed + 3):
        try:
            MergeSimulation(seed).run()
        except Exception as error:
            error.add_note(f"repeat with SAPWOOD_FRESH_SEED={fresh_seed}; it was seed {seed}")
            raise


# --- killed at each step -------------------------------------------------------------------------


class KilledAtStep:
    """Two sessions are merged, have waves together, and are split; processes are killed in between.

    Args:
        step: The number of the piece of data before which that happens, as pieces arrive anywhere.
        victims: The killed processes: ``head``, and roots by their session.
    """

    def __init__(self, step: int, victims: tuple[str, ...]) -> None:
        self.simulation = simulation = MergeSimulation(7, faults=False)
        self.killed = False
        simulation.begin()
        simulation.open_own(simulation.owners["a"])
        first = simulation.steps
        simulation.step = lambda at: self._kill(victims) if at == first + step else None
        simulation.merge("a", "b")
        simulation.run_for(3.0)
        simulation.open_over("a")
        simulation.run_for(3.0)
        self._broadcast()
        simulation.run_for(3.0)
        simulation.split("a", "b", 10.0)
        simulation.run_for(30.0)
        simulation.step = lambda _: None
        simulation.finish()

    def _broadcast(self) -> None:
        owner = self.simulation.owners["a"]
        for stream in owner.streams if owner.there else ():
            self.simulation.broadcast(owner, stream)
            self.simulation.broadcast(owner, stream)

    def _kill(self, victims: tuple[str, ...]) -> None:
        self.killed = True
        world = self.simulation.world
        if "head" in victims and world.head is not None:
            world.head_ended(world.head)
        for root in list(world.roots.values()):
            if root.plan.wanted.name in victims:
                root.crash()


VICTIMS = [("a",), ("b",), ("head",), ("head", "a"), ("head", "b"), ("a", "b", "head")]


@pytest.mark.slow
def test_killed_at_some_steps_of_a_merge_both_are_as_before_or_as_after() -> None:
    for step, victims in zip(range(1, 37, 2), itertools.cycle(VICTIMS)):
        assert KilledAtStep(step, victims).killed


@pytest.mark.nightly
@pytest.mark.parametrize("victims", VICTIMS, ids="+".join)
def test_killed_at_every_step_of_a_merge_both_are_as_before_or_as_after(
    victims: tuple[str, ...],
) -> None:
    steps = 0
    while KilledAtStep(steps + 1, victims).killed:
        steps += 1
    assert steps > 30, "so many pieces are said"


# --- mistakes on purpose -------------------------------------------------------------------------


class Mistake(msgspec.Struct):
    """A mistake that the simulation must find.

    Attributes:
        make: Makes it.
        found: What it is found by.
    """

    make: Callable[[pytest.MonkeyPatch], None]
    found: str


def _anybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Merges, "begun", property(lambda _: False))


def _waits_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JointStream, "lose", lambda *_: None)


def _counts_twice(patch: pytest.MonkeyPatch) -> None:
    completed = JointStream._part_completed

    def twice(self: JointStream, part: Any, effect: Any) -> None:
        wave = self._waves.get(effect.wave)
        if wave is not None and len(wave.waiting) > 1:
            completed(self, part, effect)
            wave.waiting.add(part)
        completed(self, part, effect)

    patch.setattr(JointStream, "_part_completed", twice)


def _keeps_parts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Merges, "_closed", lambda *_: None)


def _forgives(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SessionServer, "deny", lambda *_: None)


MISTAKES = {
    "a session that has others in it is merged into one": Mistake(_anybody, "is a part of one"),
    "waves wait for a session that is lost": Mistake(_waits_for_ever, "never over"),
    "a part counts twice": Mistake(_counts_twice, "agents are in a wave"),
    "a stream that is closed is remembered": Mistake(_keeps_parts, "still"),
    "a line by a revoked credential stays": Mistake(_forgives, "by a revoked credential"),
}


def until_one_fails() -> None:
    for seed in range(20):
        MergeSimulation(seed, faults=seed % 2 == 1).run()


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=list(MISTAKES))
@pytest.mark.slow
def test_a_mistake_is_found(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake.make(monkeypatch)
    with pytest.raises(InvariantError, match=mistake.found):
        until_one_fails()
