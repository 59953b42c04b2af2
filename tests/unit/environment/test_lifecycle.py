import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.core.clock import VirtualClock
from sapwood.core.errors import SapwoodError
from sapwood.environment.lifecycle import (
    MAX_STORY,
    TRANSITIONS,
    Lifecycle,
    State,
    table_dot,
    table_markdown,
)


def test_a_whole_life() -> None:
    clock = VirtualClock(100.0)
    life = Lifecycle("cache", clock)
    for state in (State.STARTING, State.READY, State.DEGRADED, State.READY, State.STOPPING):
        step = life.move(state)
        assert (step.at, step.after) == (clock.now(), state)
        clock.advance(1.0)
    life.move(State.STOPPED, "asked to")
    assert life.state is State.STOPPED
    assert life.story().splitlines()[-1].split() == [
        *("5.000", "s", "stopping", "->", "stopped:", "asked", "to"),
    ]


def test_a_step_that_the_table_does_not_have_tells_the_story() -> None:
    life = Lifecycle("cache", VirtualClock())
    life.move(State.STARTING)
    life.move(State.FAILED, "port taken")
    with pytest.raises(SapwoodError, match="'cache' is failed and cannot become ready") as caught:
        life.move(State.READY)
    assert caught.value.hint == "after failed comes starting, stopped"
    assert "starting -> failed: port taken" in caught.value.details["its story"]
    assert life.state is State.FAILED


def test_the_first_error_has_an_empty_story() -> None:
    with pytest.raises(SapwoodError, match="nothing since"):
        Lifecycle("cache", VirtualClock()).move(State.READY)


@given(st.lists(st.sampled_from(State)))
@pytest.mark.slow
def test_only_the_table_decides(moves: list[State]) -> None:
    life = Lifecycle("x", VirtualClock())
    for after in moves:
        before = life.state
        if after in TRANSITIONS[before]:
            life.move(after)
            assert life.state is after
        else:
            with pytest.raises(SapwoodError):
                life.move(after)
            assert life.state is before


def test_the_story_is_bounded_and_keeps_the_newest() -> None:
    life = Lifecycle("x", VirtualClock())
    life.move(State.STARTING)
    for number in range(MAX_STORY):
        life.move(State.FAILED, f"failure {number}")
        life.move(State.STARTING)
    assert len(life.steps) == MAX_STORY
    assert f"failure {MAX_STORY - 1}" in life.story()


def test_every_state_but_the_first_can_be_reached_and_all_can_be_left() -> None:
    reached = {after for steps in TRANSITIONS.values() for after in steps}
    assert reached | {State.CREATED} == set(State) == set(TRANSITIONS)
    assert all(TRANSITIONS.values())
    assert list(TRANSITIONS[State.STOPPED]) == [State.STARTING]


def test_the_printed_tables_hold_every_step() -> None:
    markdown, dot = table_markdown(), table_dot()
    for before, steps in TRANSITIONS.items():
        for after, why in steps.items():
            assert f"| {before.value} | {after.value} | {why} |" in markdown
            assert f'{before.value} -> {after.value} [label="{why}"]' in dot
