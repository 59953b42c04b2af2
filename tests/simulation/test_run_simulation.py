"""D-3: runs whose driver, session or machines go at any step give the undisturbed result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from sapwood.activity import run_driver as production
from sapwood.activity.checkpoint import Checkpoint, CheckpointWriter, find_checkpoint
from sapwood.activity.run_driver import RunDriver
from sapwood.comm.streams.wave import Wave
from sapwood.head import run_ends
from sapwood.head.run_ends import FOLLOWS, DriverEnd, Follows
from sapwood_simulation.faults import Faults
from sapwood_simulation.run_simulation import RunReport, RunSimulation
from sapwood_simulation.simulation import InvariantError, SimulationOptions

FAULTS = Faults(crash=0.001, pause=0.0003, zygote=0.0001, sever=0.002, clog=0.0005, split=0.1)


def simulated(seed: int, faults: Faults = FAULTS) -> RunReport:
    options = SimulationOptions(
        seed=seed, agents=1 + seed % 8, fanout=[0, 2, 3][seed % 3], waves=3, faults=faults
    )
    report = RunSimulation(options).run()
    assert isinstance(report, RunReport)
    return report


@pytest.mark.row("D-3", "D-10")
@pytest.mark.parametrize(
    "block", [0, *(pytest.param(one, marks=pytest.mark.nightly) for one in range(1, 20))]
)
@pytest.mark.slow
def test_a_run_that_is_killed_at_any_step_gives_the_undisturbed_result(
    block: int, apart: Callable[[Callable[[], Any]], Any]
) -> None:
    reports = apart(lambda: [simulated(seed) for seed in range(16 * block, 16 * block + 16)])
    assert sum(report.drivers for report in reports) > 30
    assert sum(report.sessions for report in reports) > 16
    assert sum(report.resumed for report in reports) > 8
    assert sum(report.anew for report in reports) > 4


@pytest.mark.slow
def test_the_same_seed_gives_the_same_course() -> None:
    assert simulated(5) == simulated(5)


# --- mistakes on purpose -------------------------------------------------------------------------


def _keeps_the_last_state(patch: pytest.MonkeyPatch) -> None:
    note = RunDriver._note_iteration

    def noting(self: RunDriver) -> None:
        note(self)
        if self._checkpoints is not None and self.position.iterated:
            self._checkpoints.write(self.position.iterated, self.position.state)

    patch.setattr(RunDriver, "_note_iteration", noting)


def _keeps_nothing_when_drained(patch: pytest.MonkeyPatch) -> None:
    write = CheckpointWriter.write

    def lazy(self: CheckpointWriter, iteration: int, state: dict[str, Any]) -> str:
        return "" if iteration > 2 else write(self, iteration, state)

    patch.setattr(CheckpointWriter, "write", lazy)


def _ends_when_a_session_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(run_ends, "FOLLOWS", {**FOLLOWS, DriverEnd.SESSION_LOST: Follows.OVER})


def _goes_back_by_one(patch: pytest.MonkeyPatch) -> None:
    def earlier(*words: Any) -> Checkpoint | None:
        found = find_checkpoint(*words)
        return found and msgspec.structs.replace(found, iteration=found.iteration - 1)

    patch.setattr(production, "find_checkpoint", earlier)


def _counts_what_comes_twice(patch: pytest.MonkeyPatch) -> None:
    add_part = Wave._add_part

    def twice(self: Wave, child: int, asks: Any, message: Any, payload: Any) -> None:
        add_part(self, child, asks, message, payload)
        self._put(message, payload)

    patch.setattr(Wave, "_add_part", twice)


def until_one_fails(faults: Faults) -> None:
    for seed in range(80):
        simulated(seed, faults)


MISTAKES: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str, Faults]] = {
    "the last state is kept, and continues": (_keeps_the_last_state, "undisturbed", Faults()),
    "a drained run keeps nothing": (_keeps_nothing_when_drained, "was drained", Faults()),
    "a lost session ends the run": (_ends_when_a_session_is_lost, "not restarted", Faults()),
    "an iteration is made twice": (_goes_back_by_one, "are counted", Faults()),
    "a contribution counts twice": (
        _counts_what_comes_twice,
        "has contributions of",
        Faults(crash=0.005, sever=0.03, pause=0.002, split=0.1),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.slow
def test_a_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, found, faults = MISTAKES[name]
    make(monkeypatch)
    with pytest.raises(InvariantError, match=found):
        until_one_fails(faults)
