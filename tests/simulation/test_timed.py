from __future__ import annotations

import pytest

from sapwood.comm import events as ev
from sapwood.comm.messages import StreamSpec
from sapwood.core.topology import ROOT, Tree, flat, kary
from sapwood_simulation.timed import TimedTree


def wave_seconds(tree: Tree, handling: float = 0.0) -> float:
    timed = TimedTree(tree, latency=1e-3, handling=handling)
    timed.start()
    spec = StreamSpec(1, "test", ((1, tree.agents + 1),), {"x": "sum"})
    timed.post(ROOT, ev.OpenStream(spec))
    timed.run()
    seconds = timed.wave(1, {"x": 2})
    assert timed.totals == [{"x": 2 * tree.agents}]
    return seconds


@pytest.mark.row("D-6")
@pytest.mark.parametrize(("tree", "depth"), [(flat(9), 1), (kary(9, 3), 2), (kary(27, 3), 3)])
def test_a_wave_takes_the_depth_of_the_tree_down_and_up(tree: Tree, depth: int) -> None:
    assert wave_seconds(tree) == pytest.approx(2 * depth * 1e-3)


def test_a_place_is_busy_with_one_message_at_a_time() -> None:
    # One link down, one up; nine answers are handled one after the other.
    assert wave_seconds(flat(9), handling=1e-2) == pytest.approx(2e-3 + 1e-2 + 9 * 1e-2)


def test_links_may_differ() -> None:
    timed = TimedTree(flat(2), latency=lambda source, target: 0.5 if 2 in (source, target) else 0.1)
    timed.start()
    timed.post(ROOT, ev.OpenStream(StreamSpec(1, "test", ((1, 3),), {"x": "sum"})))
    timed.run()
    assert timed.wave(1, {"x": 1}) == pytest.approx(1.0)


@pytest.mark.row("D-6")
@pytest.mark.slow
def test_ten_thousand_agents_are_quick_to_simulate() -> None:
    assert wave_seconds(kary(10_000, 16)) == pytest.approx(8e-3)
