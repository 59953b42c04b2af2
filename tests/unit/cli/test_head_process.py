"""The deadlines of ``sapwood down`` and of what the head does meanwhile."""

from __future__ import annotations

from sapwood.cli import head_process
from sapwood.contexts import spawner
from sapwood.head import runs, sessions, watched
from sapwood.head.parts import credentials
from sapwood.nodes import control, invitations, processes, starting
from sapwood.session import embedded
from sapwood.session_server import allocating, reporting

NODES = max(processes.CLOSE_TIMEOUT, starting.END_TIMEOUT + starting.CUT_TIMEOUT)
"""Seconds in which the processes of a session on all nodes have ended, or are left to the nodes."""


def test_a_head_waits_longer_than_a_session_that_ends() -> None:
    ending = (
        embedded.CLOSING
        + invitations.END_TIMEOUT
        + max(NODES, spawner.END_TIMEOUT)
        + allocating.CLOSE_TIMEOUT
        + reporting.CALL_TIMEOUT
    )
    assert ending < sessions.END_TIMEOUT


def test_down_waits_longer_than_a_head_that_ends() -> None:
    ending_runs = runs.CANCEL_TIMEOUT + watched.KILL_TIMEOUT
    ending_sessions = sessions.END_TIMEOUT + watched.KILL_TIMEOUT
    ending_nodes = control.LEAVE_TIMEOUT + NODES + credentials.DENIAL_WAIT
    assert ending_runs + ending_sessions + ending_nodes < head_process.END_TIMEOUT
