"""Nodes on this machine, without nodes: started processes and their reports."""

from __future__ import annotations

import os

import pytest

from sapwood.contexts.launchers.local import LocalLauncher
from sapwood.core.errors import ResourceError


def test_nodes_are_numbered_from_one() -> None:
    assert LocalLauncher(3).hosts == ("local1", "local2", "local3")


def test_a_command_is_the_leader_of_its_own_session() -> None:
    launcher = LocalLauncher(1)
    with launcher.start("local1", "exec ps -o sid= -p $$") as process:
        out, _ = process.communicate()
    assert int(out) == process.pid != os.getsid(0)


def test_what_it_said_last_or_its_status_is_the_cause() -> None:
    launcher = LocalLauncher(1)
    assert launcher.explain("local1", 3, "first\nlast\n") == "last"
    assert launcher.explain("local1", -9, "") == "killed by SIGKILL"
    assert launcher.explain("local1", 3, " \n") == "exited with code 3"


def test_a_process_that_cannot_be_started_is_an_error_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_args: object, **_named: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", refuse)
    with pytest.raises(ResourceError, match="temporarily unavailable"):
        LocalLauncher(1).start("local1", "true")
