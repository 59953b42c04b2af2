"""The record of a run: bounded, true about what it dropped, readable as JSON."""

from __future__ import annotations

import msgspec
import pytest

from sapwood.activity.run_record import (
    MAX_EVENTS,
    MAX_ITERATIONS,
    MAX_SHARES,
    MAX_TEXT,
    AgentShare,
    LateChunk,
    Loss,
    Move,
    RecordedAgent,
    RecordedCheckpoint,
    RunRecorder,
    WorkStatistics,
    continued,
)
from sapwood.core import typed


@pytest.fixture
def recorder() -> RunRecorder:
    made = RunRecorder("mean-1", "mean", began=100.0, items=10)
    made.place([RecordedAgent(agent=2, start=5, stop=10), RecordedAgent(agent=1, stop=5)])
    return made


def share(agent: int, seconds: float = 0.5) -> AgentShare:
    return AgentShare(agent=agent, started=1.0, seconds=seconds, waited=0.0, items=5, bytes_up=8)


def move(number: int, reason: str = "") -> Move:
    return Move(at=1.0, iteration=number, source=1, target=2, items=3, reason=reason)


def late(number: int) -> LateChunk:
    return LateChunk(
        at=1.0, iteration=number, agent=1, by=2, start=0, stop=5, outcome="running", reason=""
    )


def test_what_comes_back_from_json_is_the_record(recorder: RunRecorder) -> None:
    recorder.iteration(1, 0.0, 1.0)
    recorder.shares(1, [share(1), share(2)])
    recorder.move([move(2)])
    recorder.late_over(recorder.late(late(1)), "used")
    recorder.loss(Loss(at=1.0, iteration=1, agent=1, what="lost"))
    recorder.checkpoint(RecordedCheckpoint(at=1.0, iteration=1, seconds=0.01))
    record = recorder.record(2.0)
    assert typed.json_reader(WorkStatistics)(msgspec.json.encode(record)) == record
    assert record.late[0].outcome == "used"
    assert record.counts == dict.fromkeys(
        ("iterations", "moves", "late", "losses", "checkpoints"), 1
    )


def test_agents_are_in_order_of_their_ranks(recorder: RunRecorder) -> None:
    recorder.iteration(1, 0.0, 1.0)
    recorder.shares(1, [share(2)])
    recorder.shares(1, [share(1)])
    record = recorder.record(2.0)
    assert [one.agent for one in record.agents] == [1, 2]
    assert [one.agent for one in record.iterations[0].agents] == [1, 2]


def test_a_second_word_about_an_agent_replaces_the_first(recorder: RunRecorder) -> None:
    recorder.iteration(1, 0.0, 1.0)
    recorder.shares(1, [share(1, 0.5)])
    recorder.shares(1, [share(1, 0.6)])
    assert recorder.record(2.0).iterations[0].agents == (share(1, 0.6),)


def test_it_keeps_so_much_and_counts_the_rest(recorder: RunRecorder) -> None:
    many = MAX_EVENTS + MAX_ITERATIONS + 10
    for number in range(1, many + 1):
        recorder.iteration(number, float(number), 1.0)
        recorder.shares(number, [share(1)])
        recorder.move([move(number)])
        recorder.late(late(number))
        recorder.loss(Loss(at=1.0, iteration=number, agent=1, what="lost"))
        recorder.checkpoint(RecordedCheckpoint(at=1.0, iteration=number, seconds=0.01))
    record = recorder.record(2.0)
    assert len(record.iterations) == MAX_ITERATIONS
    assert {len(record.moves), len(record.late), len(record.losses)} == {MAX_EVENTS}
    assert len(record.checkpoints) == MAX_EVENTS
    assert record.iterations[-1].iteration == record.done == many
    assert set(record.counts.values()) == {many}


def test_many_agents_are_kept_for_fewer_iterations() -> None:
    recorder = RunRecorder("wide-1", "wide", began=0.0, items=10)
    agents = MAX_SHARES // 4
    recorder.place(RecordedAgent(agent=rank) for rank in range(1, agents + 1))
    for number in range(1, 10):
        recorder.iteration(number, float(number), 1.0)
        recorder.shares(number, map(share, range(1, agents + 1)))
    shares = sum(len(one.agents) for one in recorder.record(1.0).iterations)
    assert shares == MAX_SHARES


def test_iterations_with_agents_stay_longer_than_others(recorder: RunRecorder) -> None:
    recorder.iteration(1, 0.0, 1.0)
    recorder.shares(1, [share(1)])
    for number in range(2, 2 * MAX_ITERATIONS):
        recorder.iteration(number, float(number), 1.0)
    record = recorder.record(2.0)
    assert record.iterations[0].agents == (share(1),)
    assert len(record.iterations) == MAX_ITERATIONS


def test_shares_that_come_before_the_end_of_their_iteration_are_kept(recorder: RunRecorder) -> None:
    recorder.shares(1, [share(1)])
    assert recorder.record(1.0).iterations == ()
    recorder.iteration(1, 0.0, 1.0)
    assert recorder.record(1.0).iterations[0].agents == (share(1),)


def test_of_what_became_of_a_late_chunk_the_first_word_counts(recorder: RunRecorder) -> None:
    number = recorder.late(late(1))
    recorder.late_over(number, "late")
    recorder.late_over(number, "used")
    recorder.late_over(99, "used")
    assert [one.outcome for one in recorder.record(1.0).late] == ["late"]


def test_long_reasons_are_cut(recorder: RunRecorder) -> None:
    recorder.move([move(1, "x" * 1000)])
    assert len(recorder.record(1.0).moves[0].reason) == MAX_TEXT


def test_rates_are_those_of_agents_that_are_there(recorder: RunRecorder) -> None:
    recorder.measured([(1, 12.5), (7, 1.0)])
    assert [one.rate for one in recorder.record(1.0).agents] == [12.5, 0.0]


def noted(began: float, iterations: range, agents: int = 2) -> WorkStatistics:
    """What a process has noted that began at some time and made some iterations."""
    made = RunRecorder("mean-1", "mean", began=began, items=10)
    made.place([RecordedAgent(agent=rank) for rank in range(1, agents + 1)])
    for number in iterations:
        made.iteration(number, number - iterations.start, 1.0)
        made.shares(number, [share(rank) for rank in range(1, agents + 1)])
        made.move([move(number)])
        made.late(late(number))
        made.loss(Loss(at=1.0, iteration=number, agent=1, what="lost"))
        made.checkpoint(RecordedCheckpoint(at=1.0, iteration=number, seconds=0.01))
    return made.record(float(len(iterations)))


def test_the_record_goes_on_where_another_process_drives_the_run() -> None:
    """The second one has continued from the checkpoint of the third iteration."""
    both = continued(noted(100.0, range(1, 6)), noted(110.0, range(4, 8)))
    assert (both.began, both.seconds, both.done) == (100.0, 14.0, 7)
    assert [one.iteration for one in both.iterations] == list(range(1, 8))
    assert [one.started for one in both.iterations] == [0.0, 1.0, 2.0, 10.0, 11.0, 12.0, 13.0]
    assert both.iterations[3].agents[0].started == 11.0
    assert [one.at for one in both.moves] == [1.0] * 5 + [11.0] * 4
    assert [one.outcome for one in both.late] == ["failed"] * 5 + ["running"] * 4
    assert (len(both.losses), len(both.checkpoints)) == (9, 9)
    assert both.counts["iterations"] == 9, "two were made again"
    assert typed.json_reader(WorkStatistics)(msgspec.json.encode(both)) == both


def test_before_its_first_iteration_it_has_what_was_there() -> None:
    former = noted(100.0, range(1, 4))
    both = continued(former, WorkStatistics(run="m", program="mean", hash="", began=90.0))
    assert both.iterations == former.iterations
    assert both.agents == former.agents
    assert both.seconds == 0.0, "a clock that went back"


def test_a_record_that_goes_on_is_bounded_as_all_are() -> None:
    many = 40
    first, second = range(1, MAX_ITERATIONS + 50), range(MAX_ITERATIONS, 2 * MAX_ITERATIONS)
    both = continued(noted(0.0, first, many), noted(500.0, second, many))
    both = continued(both, noted(999.0, range(600, 900), many))
    assert len(both.iterations) == MAX_ITERATIONS
    assert sum(len(one.agents) for one in both.iterations) <= MAX_SHARES
    assert both.iterations[-1].agents
    for events in (both.moves, both.late, both.losses, both.checkpoints):
        assert len(events) == MAX_EVENTS
    assert both.counts["moves"] == len(first) + len(second) + 300
