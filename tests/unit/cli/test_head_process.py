"""The deadlines of ``sapwood down`` and of what the head does meanwhile."""

from __future__ import annotations

from sapwood.cli import head_process
from sapwood.head import head, runs, sessions, watched
from sapwood.nodes import control, processes, starting


def test_down_waits_longer_than_a_head_that_ends() -> None:
    ending_runs = runs.CANCEL_TIMEOUT + watched.KILL_TIMEOUT
    ending_sessions = sessions.END_TIMEOUT + watched.KILL_TIMEOUT
    ending_nodes = (
        control.LEAVE_TIMEOUT
        + max(processes.CLOSE_TIMEOUT, starting.END_TIMEOUT + starting.CUT_TIMEOUT)
        + head.DENIAL_WAIT
    )
    assert ending_runs + ending_sessions + ending_nodes < head_process.END_TIMEOUT
