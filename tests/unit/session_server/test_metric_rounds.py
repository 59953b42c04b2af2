"""Metrics of agents on their way to the root, over real places: each adds its children's."""

from __future__ import annotations

import pytest

from sapwood.activity.agent_metrics import BUCKETS, REDUCE, AgentMetrics
from sapwood.comm import events as ev
from sapwood.core.topology import ROOT, kary
from sapwood.head.session_records import WorkMetrics
from sapwood.session_server.metric_rounds import added
from sapwood_simulation.network import Network

FANOUT = 4


def figures_of(rank: int) -> dict[str, int | float]:
    """What one agent tells: it has made as many calls as its rank says."""
    counted = AgentMetrics()
    for _ in range(rank):
        counted.succeeded(0.05, 10, 1)
    return counted.take(busy=rank % 2 == 1, memory=1000)


class Rounds:
    """A tree of agents that are asked."""

    def __init__(self, agents: int) -> None:
        self.network = Network(kary(agents, FANOUT), answer=lambda rank, _value: figures_of(rank))
        self.network.start()
        self.network.open_stream(1, REDUCE)
        self.network.run()

    @property
    def received(self) -> int:
        """Messages that have come to the root."""
        return sum(one.messages_received for one in self.network.places[ROOT].figures())

    def ask(self) -> tuple[int, WorkMetrics]:
        """Run a round; return the number of messages to the root, and the result."""
        before = self.received
        self.network.broadcast(1, {})
        self.network.run()
        total = self.network.observed(ev.WaveCompleted)[-1].total
        return self.received - before, added(WorkMetrics(buckets=[0] * len(BUCKETS)), total)


@pytest.mark.row("D-7")
def test_a_root_gets_as_many_messages_from_64_agents_as_from_4() -> None:
    few, many = Rounds(4), Rounds(64)
    assert few.network.tree.agents == 4
    assert many.network.tree.agents == 64
    of_few, of_many = few.ask(), many.ask()
    assert of_few[0] == of_many[0] == FANOUT
    for rounds, (_, found) in ((few, of_few), (many, of_many)):
        ranks = rounds.network.tree.agent_ranks
        assert found.agents == len(ranks)
        assert found.calls == sum(ranks)
        assert found.bytes_in == 10 * sum(ranks)
        assert found.seconds == pytest.approx(0.05 * sum(ranks))
        assert found.buckets[2] == sum(ranks)
        assert found.busy == sum(rank % 2 for rank in ranks)
        assert found.memory == 1000 * len(ranks)


def test_counters_grow_and_gauges_are_those_of_the_last_round() -> None:
    came = figures_of(3)
    once = added(WorkMetrics(buckets=[0] * len(BUCKETS)), came)
    twice = added(once, came)
    assert (twice.calls, twice.buckets[2], twice.bytes_out) == (6, 6, 6)
    assert (twice.agents, twice.busy, twice.memory) == (1, 1, 1000)
