"""Policies on loss: a wave does not wait for a process that began after it did."""

from __future__ import annotations

import random

import pytest

from sapwood.comm import events as ev
from sapwood.comm.letters import events as le
from sapwood.comm.messages import FAIL, PARTIAL, REPLACE, StreamSpec
from sapwood.comm.reduction import WHOLE
from sapwood.core.rankset import from_ranges
from sapwood.core.topology import ROOT, plan
from sapwood_simulation.network import Network


def after_a_loss(seed: int, on_loss: str) -> Network:
    """Broadcast a wave, lose agent 1 meanwhile, and let its new process never answer."""
    chance = random.Random(seed)  # noqa: S311 - chance that can be repeated
    tree = plan(chance.choice([4, 6, 8]), 2)
    network = Network(tree, seed, lambda rank, _value: [rank])
    network.start()
    members = ((1, tree.agents + 1),)
    spec = StreamSpec(1, "test", members, {WHOLE: "concat"}, on_loss=on_loss, counted=True)
    network.post(ROOT, ev.OpenStream(spec))
    network.run()
    network.broadcast(1, {"x": 1})
    network.run(chance.randint(0, 12))
    network.kill(1)
    network.post(ROOT, le.Announce(((1, 1),), (), "killed"))
    network.begin([1])
    junction = network.nodes[tree.parents[1]].router
    while (placed := junction.placed(1)) is None or placed.incarnation < 2:
        network.step()
    network.pause(1)
    network.run()
    return network


@pytest.mark.row("D-2")
def test_a_wave_goes_on_without_an_agent_that_was_replaced_before_it_got_there() -> None:
    partial = 0
    for seed in range(80):
        network = after_a_loss(seed, PARTIAL)
        (wave,) = network.observed(ev.WaveCompleted)
        others = set(range(2, network.tree.agents + 1))
        named = from_ranges(wave.ranks)
        assert others <= named  # agent 1 may have answered before it was lost
        assert sorted(wave.total) == sorted(named)
        partial += named == others
        assert network.observed(ev.WaveFailed) == []
        network.resume(1)
        network.run()
        assert len(network.observed(ev.WaveCompleted)) == 1
        streams = [node.streams[1] for node in network.nodes.values()]
        assert not any(stream.waves for stream in streams)
        assert network.problems == []
    assert partial > 40


def test_a_wave_fails_or_waits_as_its_policy_says() -> None:
    for seed in range(40):
        failed = after_a_loss(seed, FAIL)
        over = failed.observed(ev.WaveFailed) + failed.observed(ev.WaveCompleted)
        assert len(over) == 1
        waiting = after_a_loss(seed, REPLACE)
        waiting.resume(1)
        waiting.run()
        (wave,) = waiting.observed(ev.WaveCompleted)
        assert from_ranges(wave.ranks) == set(range(1, waiting.tree.agents + 1))


@pytest.mark.row("D-2")
@pytest.mark.parametrize("on_loss", [PARTIAL, FAIL])
def test_a_wave_that_begins_while_an_agent_is_lost_does_not_wait_for_it(on_loss: str) -> None:
    network = Network(plan(4, 2), 1, lambda rank, _value: [rank])
    network.start()
    spec = StreamSpec(1, "test", ((1, 5),), {WHOLE: "concat"}, on_loss=on_loss)
    network.post(ROOT, ev.OpenStream(spec))
    network.run()
    network.kill(1)
    network.run()
    network.post(ROOT, le.Announce(((1, 1),), (), "killed"))
    network.run()
    for _ in range(2):
        network.broadcast(1, None)
        network.run()
    completed, failed = network.observed(ev.WaveCompleted), network.observed(ev.WaveFailed)
    if on_loss == PARTIAL:
        assert [sorted(wave.total) for wave in completed] == [[2, 3, 4]] * 2
        assert failed == []
    else:
        assert [wave.wave for wave in failed] == [1, 2]
        assert all("agent 1 ended: lost and not back yet" in one.error.what for one in failed)
    network.begin([1])
    network.run()
    network.broadcast(1, None)
    network.run()
    assert sorted(network.observed(ev.WaveCompleted)[-1].total) == [1, 2, 3, 4]
