"""Processes of sessions without nodes that end unasked are in the ledger of the head."""

from __future__ import annotations

import os
import signal

import pytest

import sapwood
from sapwood.core.errors import RunnerCrashError
from sapwood.head.head import Head
from sapwood.head.ledger import EventQuery, LedgerEvent

from .conftest import PATIENCE, Until


def test_lost_runners_and_processes_of_a_session_on_the_heads_machine_are_events(
    head: Head, until: Until
) -> None:
    def events(kind: str) -> list[LedgerEvent]:
        return head.ledger.find(EventQuery(kinds=[kind], session="here"))

    def leave() -> None:
        os._exit(0)

    with sapwood.connect().create_session(2, name="here", on="local") as cluster:
        with pytest.raises(RunnerCrashError, match="leave ended its process with status 0"):
            cluster.submit_to(1, leave).result(PATIENCE)
        until(lambda: len(events("runner.lost")) == 1)
        runner = cluster.submit_to(2, os.getpid).result(PATIENCE)
        os.kill(runner, signal.SIGKILL)
        until(lambda: len(events("runner.lost")) == 2)
        os.kill(cluster.agents[0].pid, signal.SIGKILL)
        until(lambda: events("process.lost") and events("process.replaced"))
    first, second = events("runner.lost")
    assert first.text == "runner of rank 1: exited with code 0"
    assert second.text == "runner of rank 2: killed by SIGKILL"
    assert second.facts == {"rank": "2", "process": str(runner), "status": "-9"}
    (lost,), (replaced,) = events("process.lost"), events("process.replaced")
    assert lost.text == "rank 1: killed by SIGKILL"
    assert replaced.facts == {"rank": "1", "incarnation": "2"}
