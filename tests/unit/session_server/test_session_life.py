"""When a session ends without a request."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sapwood.core.clock import VirtualClock
from sapwood.session.session_life import SessionState
from sapwood.session_server.session_life import ABANDONED, FIRST_PATIENCE, SessionLife
from sapwood_simulation.processes import VirtualLoop


def living(
    idle: float, *, abandoned: bool = False
) -> tuple[SessionLife, Callable[[float], None], list[str]]:
    """Return a life, what lets time pass, and why it has ended."""
    clock = VirtualClock()
    loop = VirtualLoop(clock)
    ended: list[str] = []
    life = SessionLife("5b9a", idle, loop.call_later, clock.now, lambda: ended.append(life.reason))
    life.started(abandoned=abandoned)

    def wait(seconds: float) -> None:
        clock.advance(seconds)
        loop.run_due()

    return life, wait, ended


def test_who_only_watches_does_not_keep_a_session() -> None:
    life, wait, ended = living(100.0)
    life.changed(attached=True)
    life.changed(attached=False)
    for _ in range(9):
        wait(10.0)
        life.changed(attached=False)  # an observer has come, or left
    assert not ended
    wait(10.0)
    assert ended == ["no client was attached for 100 s"]


def test_the_first_client_has_more_time() -> None:
    life, wait, ended = living(0.5)
    wait(FIRST_PATIENCE - 1.0)
    life.changed(attached=True)
    wait(FIRST_PATIENCE)
    assert not ended
    assert life.state is SessionState.READY
    life.changed(attached=False)
    wait(0.4)
    life.changed(attached=True)
    life.changed(attached=False)
    wait(0.4)
    assert not ended
    wait(0.1)
    assert len(ended) == 1


def test_a_session_may_stay_for_ever_and_the_first_reason_counts() -> None:
    life, wait, ended = living(0.0)
    wait(1e6)
    assert not ended
    life.end("it was deleted")
    life.end("something else")
    life.draining()
    assert (life.reason, life.state) == ("it was deleted", SessionState.DRAINING)


def test_a_session_that_is_merged_is_not_idle() -> None:
    life, wait, ended = living(1.0)
    life.changed(attached=True)
    life.changed(attached=False, merged=True)
    wait(FIRST_PATIENCE)
    life.changed(attached=False, merged=True)  # an observer has come
    assert not ended
    life.changed(attached=False, merged=False)
    wait(0.9)
    assert not ended
    wait(0.1)
    assert ended == ["no client was attached for 1 s"]


def test_another_idle_time_counts_from_when_the_last_one_left() -> None:
    life, wait, ended = living(100.0)
    life.changed(attached=True)
    life.change_idle(50.0)
    life.changed(attached=False)
    wait(40.0)
    life.change_idle(1000.0)
    wait(400.0)
    assert not ended
    life.change_idle(0.0)
    wait(1e4)
    assert not ended
    life.change_idle(60.0)
    wait(0.0)
    assert ended == ["no client was attached for 60 s"]


@pytest.mark.parametrize("idle", [3600.0, 0.0])
def test_a_restarted_server_waits_as_short_for_an_owner_that_may_be_gone(idle: float) -> None:
    life, wait, ended = living(idle, abandoned=True)
    wait(ABANDONED - 1.0)
    assert not ended
    life.changed(attached=True)  # it was not gone
    life.changed(attached=False)
    wait(ABANDONED)
    assert not ended
    life, wait, ended = living(idle, abandoned=True)
    wait(ABANDONED)
    assert ended == ["its owner ended without detaching, and no program attached within 60 s"]


@pytest.mark.parametrize("idle", [3600.0, 0.0])
def test_a_session_whose_owner_is_gone_without_a_word_ends_soon(idle: float) -> None:
    life, wait, ended = living(idle)
    life.changed(attached=True)
    life.changed(attached=True, abandoned=True)  # a run still works with the agents
    wait(ABANDONED)
    assert not ended
    life.changed(attached=False, abandoned=True)
    wait(ABANDONED - 1.0)
    life.changed(attached=True)  # another owner has come
    life.changed(attached=False)
    wait(ABANDONED)
    assert not ended
    life.changed(attached=True)
    life.changed(attached=False, abandoned=True)
    wait(ABANDONED - 1.0)
    assert not ended
    wait(1.0)
    assert ended == ["its owner ended without detaching, and no program attached within 60 s"]


def test_a_session_that_waits_less_ends_earlier_also_when_its_owner_is_gone() -> None:
    life, wait, ended = living(5.0)
    life.changed(attached=True)
    life.changed(attached=False, abandoned=True)
    wait(5.0)
    assert ended == ["its owner ended without detaching, and no program attached within 5 s"]
