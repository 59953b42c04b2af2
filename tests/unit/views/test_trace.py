"""A run as a trace of events that Perfetto reads."""

from __future__ import annotations

import json

import pytest

from sapwood.activity.run_record import (
    AgentShare,
    Loss,
    Move,
    RecordedAgent,
    RecordedCheckpoint,
    RecordedIteration,
    WorkStatistics,
)
from sapwood.views.trace import trace_of


def share(agent: int, started: float, seconds: float, waited: float = 0.0) -> AgentShare:
    return AgentShare(
        agent=agent, started=started, seconds=seconds, waited=waited, items=5, bytes_up=8
    )


RECORD = WorkStatistics(
    run="fit-1",
    program="fit",
    hash="ab",
    began=100.0,
    seconds=2.0,
    agents=(RecordedAgent(agent=1, stop=5), RecordedAgent(agent=2, start=5, stop=10)),
    iterations=(
        RecordedIteration(
            iteration=1, started=0.5, seconds=0.5, agents=(share(1, 0.5, 0.2), share(2, 0.5, 0.4))
        ),
        RecordedIteration(
            iteration=2, started=1.0, seconds=0.25, agents=(share(1, 1.0, 0.2, 0.3),)
        ),
        RecordedIteration(iteration=3, started=1.25, seconds=0.25),
    ),
    moves=(Move(at=1.0, iteration=2, source=2, target=1, items=3, reason="late"),),
    losses=(Loss(at=1.1, iteration=2, agent=2, what="lost", reason="SIGKILL"),),
    checkpoints=(RecordedCheckpoint(at=1.2, iteration=2, seconds=0.01),),
)


@pytest.mark.row("D-19")
def test_each_span_has_its_time_its_agent_and_its_iteration() -> None:
    events = json.loads(json.dumps(trace_of(RECORD)))["traceEvents"]
    spans = [
        (one["name"], one["tid"], one["ts"], one["dur"], one["args"]["iteration"])
        for one in events
        if one["ph"] == "X"
    ]
    assert spans == [
        ("map", 1, 500_000, 200_000, 1),
        ("map", 2, 500_000, 400_000, 1),
        ("wait", 1, 700_000, 300_000, 2),
        ("update", 0, 900_000, 100_000, 1),
        ("map", 1, 1_000_000, 200_000, 2),
        ("update", 0, 1_200_000, 50_000, 2),
        ("iteration", 0, 1_250_000, 250_000, 3),
    ]
    named = {one["tid"]: one["args"]["name"] for one in events if one["name"] == "thread_name"}
    assert named == {0: "root", 1: "agent 1", 2: "agent 2"}


def test_each_event_has_the_fields_of_the_format() -> None:
    for one in trace_of(RECORD)["traceEvents"]:
        assert {"name", "ph", "pid", "tid", "args"} <= one.keys()
        assert one["ph"] in {"X", "i", "M"}
        assert all(isinstance(one[key], int) for key in ("pid", "tid"))
        if one["ph"] != "M":
            assert isinstance(one["ts"], int)
            assert one["ts"] >= 0
        assert (one["ph"] == "X") == ("dur" in one)
        assert (one["ph"] == "i") == ("s" in one)
    marks = [one["name"] for one in trace_of(RECORD)["traceEvents"] if one["ph"] == "i"]
    assert marks == ["3 items moved to agent 1", "lost", "checkpoint"]
