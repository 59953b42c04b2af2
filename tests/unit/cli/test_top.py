"""``sapwood top`` fits the terminal, and shows first what people must know."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from sapwood.activity.progress import RunInfo, RunState
from sapwood.cli.top import Snapshot, drawn
from sapwood.head import calls
from sapwood.head.parts.cluster import HeadFacts
from sapwood.views.overview import RunAndProgress, overview

NOW = 1_800_000_000.0


def snapshot(nodes: int) -> Snapshot:
    found = [
        calls.NodeSnapshot(
            host=host,
            name=f"n{host}",
            state="lost" if host == 2 else "ready",
            reason="nothing heard for 4.2 s" if host == 2 else "",
            cores=8,
            load=None if host == 2 else host % 8,
            free_memory=2**33,
            round_trip=0.00123,
        )
        for host in range(1, nodes + 1)
    ]
    run = calls.RunRecord(
        id="aa11bb22", program="pi", session="day", state="running", created=NOW - 20
    )
    progress = RunInfo(state=RunState.RUNNING, iteration=3, iterations=9, items_per_second=2e6)
    runs = [RunAndProgress(run, progress)]
    head = HeadFacts(
        name="lab", cluster="c", version="1", pid=1, started=NOW - 60, addresses=[], clients=0
    )
    connected = calls.ConnectedUser(
        name="connection-4", user="ann", address="", since=NOW, nodes=["n3", "n1"], agents=6
    )
    connected.runs.append(calls.ConnectedRun("pi-1", NOW - 20))
    snapshot = calls.ClusterSnapshot(time=NOW, nodes=found, connected=[connected] if found else [])
    return Snapshot(
        overview=overview(head, snapshot, [], runs), nodes=found, sessions=[], runs=runs
    )


def lines(shown: Snapshot, room: int, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(drawn(shown, room))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(("nodes", "room"), [(3, 20), (1000, 20), (1000, 46)])
def test_it_fits_the_terminal(nodes: int, room: int) -> None:
    found = lines(snapshot(nodes), room)
    assert len(found) <= room + 4
    assert max(map(len, found)) <= 80


def test_what_is_wrong_comes_first_then_runs_and_the_busiest_nodes() -> None:
    found = "\n".join(lines(snapshot(1000), 30))
    assert found.index("n2 is lost: nothing heard for 4.2 s") < found.index("aa11bb22")
    assert "3/9" in found
    assert re.search("connection-4 +ann +here +6 +n\\[1,3\\]", found)
    assert found.index("n7 ") < found.index("more, less busy")


def test_a_cluster_without_nodes_says_what_to_do() -> None:
    assert "sapwood token create" in "\n".join(lines(snapshot(0), 20))
