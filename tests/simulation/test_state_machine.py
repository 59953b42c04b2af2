"""D-2: the protocol of waves and attachments as a machine that hypothesis tries to break.

The simulator draws faults evenly; this looks for short courses of events, and shrinks what it
finds to the shortest one.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sapwood.comm import events as ev
from sapwood.comm.link import LinkTiming
from sapwood.comm.streams.wave import Wave
from sapwood.core.rankset import from_ranges
from sapwood.core.topology import ROOT, Tree, kary
from sapwood_simulation.network import Network

TREES = [kary(4, 2), kary(8, 2), kary(6, 3)]
TIMING = LinkTiming(heartbeat=0.5, failure_after=3.0)


def answer(rank: int, value: Any) -> Any:
    return {"who": rank, "sum": rank * value["wave"]}


class Waves(RuleBasedStateMachine):
    """A tree in which processes end, stop, resume and are restarted, while waves continue."""

    network: Network
    tree: Tree

    @initialize(tree=st.sampled_from(TREES), seed=st.integers(0, 1000))
    def begin(self, tree: Tree, seed: int) -> None:
        self.tree = tree
        self.network = Network(tree, seed, answer, TIMING)
        self.network.start()
        self.network.open_stream(1, {"who": "concat", "sum": "sum"})
        self.sent = 0
        self.seen = 0

    @rule()
    @precondition(lambda self: self.sent < 6)
    def broadcast(self) -> None:
        self.sent += 1
        self.network.broadcast(1, {"wave": self.sent})

    @rule(steps=st.integers(1, 25))
    def go_on(self, steps: int) -> None:
        self.network.run(steps)

    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        self.network.kill(data.draw(st.integers(1, self.tree.size - 1)))

    @rule(data=st.data())
    def start_anew(self, data: st.DataObject) -> None:
        away = [rank for rank in range(1, self.tree.size) if rank not in self.network.nodes]
        if away:
            self.network.begin([data.draw(st.sampled_from(away))])

    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        self.network.pause(
            data.draw(st.sampled_from(sorted(set(self.network.nodes) - {ROOT}) or [1]))
        )

    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        self.network.resume(data.draw(st.integers(1, self.tree.size - 1)))

    @rule(seconds=st.sampled_from([0.5, 4.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.network.advance(seconds)

    @invariant()
    def every_wave_has_everybody_once(self) -> None:
        done = self.network.observed(ev.WaveCompleted)
        for wave in done[self.seen :]:
            agents = list(range(1, self.tree.agents + 1))
            assert sorted(wave.total["who"]) == agents
            assert from_ranges(wave.ranks) == set(agents)
            assert wave.total["sum"] == sum(agents) * wave.wave
        self.seen = len(done)
        assert len({wave.wave for wave in done}) == len(done)

    def teardown(self) -> None:
        """Once nothing goes wrong any more, all waves complete."""
        network = self.network
        for rank in range(1, self.tree.size):
            network.resume(rank)
        for _ in range(30):
            away = [
                rank for rank in reversed(range(1, self.tree.size)) if rank not in network.nodes
            ]
            network.begin(away)
            network.advance(1.0)
        self.every_wave_has_everybody_once()
        assert len(network.observed(ev.WaveCompleted)) == self.sent
        assert network.problems == []


class TestWaves(Waves.TestCase):  # type: ignore[misc, valid-type]  # hypothesis makes the class
    pytestmark = [pytest.mark.row("D-2"), pytest.mark.slow]  # noqa: RUF012 - pytest wants a list
    settings = settings(
        max_examples=75,
        phases=[Phase.generate],
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.slow
def test_a_wave_that_counts_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake on purpose: the answer of a lost child is accepted all the same."""
    original = Wave.drop

    def drop(wave: Wave, child: int) -> set[int]:
        asks = wave.waiting.get(child, ())
        asked = original(wave, child)
        if asks:
            wave.waiting[child] = asks
        return asked

    monkeypatch.setattr(Wave, "drop", drop)

    class Broken(Waves):
        pass

    machine = Broken.TestCase
    machine.settings = settings(
        max_examples=60,
        stateful_step_count=25,
        deadline=None,
        database=None,
        derandomize=True,  # other courses of events may go round in circles for long
        phases=[Phase.generate],  # it is enough to find one course of events
        suppress_health_check=list(HealthCheck),
    )
    with pytest.raises(AssertionError):
        machine("runTest").runTest()
