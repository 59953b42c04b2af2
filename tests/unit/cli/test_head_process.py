"""The answer of ``sapwood up``, and the deadlines of ``sapwood down``."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize(
    ("listen", "shown"),
    [
        ("127.0.0.1:7700", "--listen 0.0.0.0:7700 lets others join"),
        ("0.0.0.0:7700", "this machine has only its loopback interface"),
    ],
)
def test_up_suggests_no_option_that_was_given(
    listen: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = head_process.UpAnswer(
        name="lab", pid=7, addresses=["127.0.0.1:7700"], nodes=["n1"], join="", expires=0.0
    )
    head_process._show(answer, listen, as_json=False)
    text = capsys.readouterr().out
    assert shown in " ".join(text.split())
    assert ("--listen" in text) == listen.startswith("127.")
