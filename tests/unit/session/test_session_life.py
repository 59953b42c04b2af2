"""The states of a session with a session server."""

from __future__ import annotations

import pytest

from sapwood.core.errors import InternalError
from sapwood.session.session_life import TRANSITIONS, SessionState, SessionStep, may_report

S = SessionState


def test_a_session_is_over_once_and_for_all() -> None:
    over = {state for state in S if state.is_over}
    assert over == {S.ENDED, S.FAILED}
    for state in over:
        for step in SessionStep:
            with pytest.raises(InternalError, match="session"):
                TRANSITIONS.after(state, step)


def test_every_state_and_every_step_is_of_use() -> None:
    assert {S.REQUESTED, *TRANSITIONS.values()} == set(S)
    assert {step for _, step in TRANSITIONS} == set(SessionStep)


@pytest.mark.parametrize(
    ("known", "told"),
    [
        (S.REQUESTED, {S.REQUESTED}),
        (S.STARTING, {S.STARTING, S.DELAYED, S.DETACHED, S.READY, S.DRAINING}),
        (S.DELAYED, {S.STARTING, S.DELAYED, S.DETACHED, S.READY, S.DRAINING}),
        (S.DETACHED, {S.DETACHED, S.READY, S.DRAINING}),
        (S.READY, {S.DETACHED, S.READY, S.DRAINING}),
        (S.DRAINING, {S.DRAINING}),
        (S.ENDED, {S.ENDED}),
        (S.FAILED, {S.FAILED}),
    ],
)
def test_a_root_tells_of_nothing_that_the_head_must_see_itself(
    known: SessionState, told: set[SessionState]
) -> None:
    assert {state for state in S if may_report(known, state)} == told
