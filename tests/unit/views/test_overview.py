"""Each fault of a cluster is described in one sentence."""

from __future__ import annotations

import pytest

from sapwood.activity.progress import RunInfo, RunState
from sapwood.head import calls, session_records
from sapwood.head.parts.cluster import HeadFacts
from sapwood.nodes.refusals import RefusedMachine
from sapwood.views.overview import MAX_ALERTS, Level, Overview, RunAndProgress, overview

NOW = 1_800_000_000.0


def head() -> HeadFacts:
    return HeadFacts(
        name="lab", cluster="sw", version="1", pid=1, started=NOW - 60, addresses=[], clients=0
    )


def ready(host: int, **others: object) -> calls.NodeSnapshot:
    facts = {"load": 1.5, "cores": 8, "free_memory": 2**33, "state": "ready", **others}
    return calls.NodeSnapshot(host=host, name=f"n{host}", **facts)  # type: ignore[arg-type]  # by name


def seen(
    nodes: list[calls.NodeSnapshot],
    sessions: list[session_records.SessionRecord] | None = None,
    runs: list[RunAndProgress] | None = None,
    **others: object,
) -> Overview:
    snapshot = calls.ClusterSnapshot(time=NOW, nodes=nodes, **others)  # type: ignore[arg-type]  # by name
    return overview(head(), snapshot, sessions or [], runs or [])


def run(state: str, ended: float = 0.0) -> calls.RunRecord:
    return calls.RunRecord(
        id="aa11", program="pi", session="", state=state, created=NOW - 100, ended=ended
    )


def test_a_whole_cluster_has_no_alerts_and_its_sums() -> None:
    progress = RunInfo(state=RunState.RUNNING, iteration=3, items_per_second=2.5e6)
    session = session_records.SessionRecord(
        id="s1",
        name="day",
        state="ready",
        on="head",
        created=NOW,
        report=session_records.SessionReport(id="s1", state="ready", agents=16),
    )
    over = session_records.SessionRecord(id="s2", name="old", state="ended", on="head", created=NOW)
    found = seen(
        [ready(1), ready(2)],
        [session, over],
        [RunAndProgress(run("running"), progress), RunAndProgress(run("done"))],
    )
    assert (found.health, found.alerts) == ("good", [])
    assert found.sentence == "Everything works: 2 nodes are ready."
    assert (found.nodes, found.cores, found.load) == ({"ready": 2}, 16, 3.0)
    assert (found.sessions, found.agents) == ({"ready": 1}, 16)
    assert (found.runs, found.items_per_second) == ({"running": 1, "done": 1}, 2.5e6)


def test_nodes_with_the_same_cause_share_a_sentence() -> None:
    lost = [ready(host, state="lost", reason="nothing heard for 4.2 s") for host in (3, 4, 5)]
    found = seen([ready(1), *lost])
    assert [one.text for one in found.alerts] == ["n[3-5] are lost: nothing heard for 4.2 s"]
    assert (found.health, found.sentence) == ("bad", "One thing is wrong.")
    assert found.alerts[0].page == "nodes"


def test_what_cannot_be_reached_counts_for_nothing_and_is_said_once() -> None:
    lost = ready(2, state="lost", reason="killed", trouble=["link is failed"], load=99.0)
    found = seen([ready(1), lost])
    assert (found.cores, found.load, found.free_memory) == (8, 1.5, 2**33)
    assert [one.text for one in found.alerts] == ["n2 is lost: killed"]


def test_agents_of_connected_programs_count() -> None:
    programs = [
        calls.ConnectedUser(
            name=f"connection-{number}",
            user="ann",
            address="",
            since=NOW,
            nodes=["n1"],
            agents=agents,
            runs=[calls.ConnectedRun("pi-1", NOW)] if agents else [],
        )
        for number, agents in ((4, 3), (5, None))
    ]
    found = seen([ready(1)], connected=programs)
    assert (found.agents, found.runs, found.connected) == (3, {"running": 1}, programs)


@pytest.mark.parametrize(
    ("change", "level", "text"),
    [
        ({"trouble": ["stage is failed: disk full"]}, Level.BAD, "stage is failed: disk full"),
        ({"skew": -3.2}, Level.POOR, "n1 is off: the clock is 3.2 s behind the head's"),
        ({"load": 40.0}, Level.POOR, "n1 is overloaded: the load is 40 on 8 cores"),
        ({"free_memory": 2**20}, Level.POOR, "n1 is short of memory: 1 MiB are free"),
        ({"certificate_end": NOW + 30}, Level.BAD, "and was not renewed"),
        ({"state": "closed", "reason": "no room"}, Level.POOR, "n1 is closed: no room"),
    ],
)
def test_each_thing_that_is_wrong_with_a_node_is_said(
    change: dict[str, object], level: Level, text: str
) -> None:
    (alert,) = seen([ready(1, **change)]).alerts
    assert alert.level == level
    assert text in alert.text
    assert alert.page == "nodes/n1"


def test_failed_runs_refusals_and_trouble_of_the_head_are_said_and_the_worst_first() -> None:
    refusal = RefusedMachine(time=NOW - 5, name="n7", reason="the join token was used before")
    old = RefusedMachine(time=NOW - 7200, name="n8", reason="late")
    runs = [
        RunAndProgress(run("failed", NOW - 10), None, "the map failed"),
        RunAndProgress(run("failed", NOW - 7200), None, "long ago"),
    ]
    found = seen([], runs=runs, refusals=[refusal, old], trouble=["store is failed"])
    texts = [one.text for one in found.alerts]
    assert texts[0] == "head: store is failed"
    assert texts[1].startswith("the run aa11 of pi failed at ")
    assert texts[1].endswith(": the map failed")
    assert texts[2].startswith("'n7' was not let in at ")
    assert len(texts) == 3
    assert found.sentence == "2 things are wrong."


def test_there_are_not_more_alerts_than_people_read() -> None:
    nodes = [ready(host, state="lost", reason=f"cause {host}") for host in range(1, 200)]
    found = seen(nodes)
    assert len(found.alerts) == MAX_ALERTS + 1
    assert found.alerts[-1].text == f"{199 - MAX_ALERTS} more things are wrong"
