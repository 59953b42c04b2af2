"""The life of a run: its reasons to end, and its last state."""

from __future__ import annotations

import pytest

from sapwood.activity.progress import RunState
from sapwood.activity.run_life import TRANSITIONS, RunLife, RunStep
from sapwood.core.errors import (
    CancelledError,
    DrainedError,
    InternalError,
    SapwoodError,
    TimeLimitError,
)


@pytest.fixture
def life() -> RunLife:
    return RunLife("test-1", items=10, iterations=3)


def test_a_run_is_built_iterates_and_is_done(life: RunLife) -> None:
    states = [life.progress.state]
    for step in (RunStep.BUILT, RunStep.ITERATES, RunStep.ITERATES):
        life.step(step, agents=2)
        states.append(life.progress.state)
    life.note(iteration=3)
    life.end(None)
    assert states == [RunState.BUILDING, RunState.PREPARING, RunState.RUNNING, RunState.RUNNING]
    ended = life.progress
    assert (ended.state, ended.iteration, ended.agents) == (RunState.DONE, 3, 2)
    assert life.progress is ended  # it changes no more


@pytest.mark.parametrize(
    ("stopped", "error", "state"),
    [
        (None, SapwoodError("it failed"), RunState.FAILED),
        (None, ValueError("a mistake"), RunState.FAILED),
        (CancelledError("by its user"), CancelledError("a wave"), RunState.CANCELLED),
        (CancelledError("by its user"), SapwoodError("an agent ended"), RunState.CANCELLED),
        (CancelledError("by its user"), ValueError("a mistake"), RunState.FAILED),
        (TimeLimitError("too long"), CancelledError("a wave"), RunState.FAILED),
        (None, DrainedError("its machines leave"), RunState.DRAINED),
    ],
)
def test_the_reason_says_in_which_state_a_run_ends(
    life: RunLife, stopped: SapwoodError | None, error: BaseException, state: RunState
) -> None:
    if stopped is not None:
        assert life.stop(stopped) is stopped
        assert life.stop(SapwoodError("later")) is stopped
        with pytest.raises(type(stopped)):
            life.must_go_on()
    life.end(error)
    assert life.progress.state is state


@pytest.mark.parametrize("step", RunStep)
def test_a_run_that_has_ended_stays_so(life: RunLife, step: RunStep) -> None:
    life.end(SapwoodError("it failed"))
    with pytest.raises(InternalError, match="a run test-1 got"):
        life.step(step)
    assert {state.final for state, _ in TRANSITIONS} == {False}
