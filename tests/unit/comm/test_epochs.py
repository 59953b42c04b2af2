"""A tree that changes while it runs: which places learn of it when, and the effect on waves."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.epochs import tree_message, tree_of
from sapwood.comm.messaging import events as mev
from sapwood.core.errors import AgentLostError, ProtocolError
from sapwood.core.rankset import from_ranges
from sapwood.core.topology import ROOT, Tree, flat, kary
from sapwood_simulation.network import Network

REDUCE = {"sum": "sum", "who": "concat"}

TREES = [flat(3), kary(4, 2), kary(8, 2, spares=True)]


def answer(rank: int, value: Any) -> Any:
    return {"sum": rank * value["x"], "who": rank}


def started(tree: Tree, seed: int = 0, **stream: Any) -> Network:
    network = Network(tree, seed, answer)
    network.start()
    network.open_stream(1, REDUCE, **stream)
    network.run()
    return network


def wave(network: Network) -> set[int]:
    """Run a wave; return who was in it."""
    network.observations.clear()
    network.broadcast(1, {"x": 10})
    network.run()
    (done,) = network.observed(ev.WaveCompleted)
    who = sorted(int(rank) for rank in done.total["who"])
    assert len(who) == len(set(who))
    assert set(who) == from_ranges(done.ranks)
    assert done.total["sum"] == 10 * sum(who)
    return set(who)


def add(network: Network, parent: int) -> int:
    rank = network.tree.size
    network.change(network.tree.with_agents({rank: parent}))
    network.begin([rank])
    network.advance(2.0)  # it asks again where its parent has not heard of it yet
    return rank


def end(network: Network, rank: int) -> None:
    """Say that the process of a removed place is gone, as the client does."""
    network.post(ROOT, mev.AnnounceMembership(((rank, 1),), (), "it was removed"))
    network.run()


def trees(network: Network) -> set[int]:
    return {node.router.tree.epoch for node in network.nodes.values()}


@pytest.mark.parametrize("tree", TREES, ids=str)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_a_stream_that_follows_has_an_agent_from_the_wave_after_it_is_there(
    tree: Tree, seed: int
) -> None:
    network = started(tree, seed, follows=True)
    before = set(tree.agent_ranks)
    assert wave(network) == before
    new = add(network, tree.parent_for_more())
    assert trees(network) == {1}
    assert wave(network) == {*before, new}
    newer = add(network, ROOT)
    assert wave(network) == {*before, new, newer}


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_a_wave_does_not_wait_for_an_agent_that_is_not_there_yet(tree: Tree) -> None:
    network = started(tree, follows=True)
    network.change(tree.with_agents({tree.size: tree.parent_for_more()}))
    assert wave(network) == set(tree.agent_ranks)


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_a_stream_keeps_its_members_by_default(tree: Tree) -> None:
    network = started(tree)
    add(network, tree.parent_for_more())
    assert wave(network) == set(tree.agent_ranks)


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_a_removed_agent_contributes_to_the_waves_before_and_to_none_after(tree: Tree) -> None:
    network = started(tree, follows=True)
    network.broadcast(1, {"x": 1})  # begins before the change
    network.change(tree.without([2]))
    network.broadcast(1, {"x": 1})
    network.run()
    first, second = network.observed(ev.WaveCompleted)
    assert from_ranges(first.ranks) == set(tree.agent_ranks)
    assert from_ranges(second.ranks) == set(tree.agent_ranks) - {2}
    end(network, 2)
    assert 2 not in network.nodes
    assert wave(network) == set(tree.agent_ranks) - {2}


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_a_wave_that_follows_goes_on_without_an_agent_that_ends_before_it_answers(
    tree: Tree,
) -> None:
    network = started(tree, follows=True)
    network.pause(2)
    network.broadcast(1, {"x": 1})
    network.change(tree.without([2]))
    network.run()
    assert not network.observed(ev.WaveCompleted)
    network.kill(2)
    end(network, 2)
    (done,) = network.observed(ev.WaveCompleted)
    assert from_ranges(done.ranks) == set(tree.agent_ranks) - {2}


@pytest.mark.parametrize("on_loss", [msg.REPLACE, msg.FAIL])
def test_a_stream_that_cannot_do_without_a_removed_member_fails_at_once(on_loss: str) -> None:
    network = started(kary(4, 2), on_loss=on_loss)
    network.change(network.tree.without([3]))
    network.broadcast(1, {"x": 1})
    network.run()
    (failed,) = network.observed(ev.WaveFailed)
    assert failed.error.code == AgentLostError.code
    assert "agent 3 left" in failed.error.what


def test_a_stream_that_may_be_partial_goes_on_without_a_removed_member() -> None:
    network = started(kary(4, 2), on_loss=msg.PARTIAL)
    network.change(network.tree.without([3]))
    assert wave(network) == {1, 2, 4}


@pytest.mark.parametrize("on_loss", [msg.REPLACE, msg.FAIL])
def test_a_wave_that_a_removed_member_does_not_answer_any_more_fails(on_loss: str) -> None:
    network = started(kary(4, 2), on_loss=on_loss)
    network.pause(3)
    network.broadcast(1, {"x": 1})
    network.run()
    network.change(network.tree.without([3]))
    network.kill(3)
    end(network, 3)
    (failed,) = network.observed(ev.WaveFailed)
    assert failed.error.code == AgentLostError.code


def test_a_tree_may_begin_with_nobody() -> None:
    network = started(flat(0), follows=True)
    network.broadcast(1, {"x": 1})
    network.run()
    (done,) = network.observed(ev.WaveCompleted)
    assert done.ranks == ()
    assert [add(network, ROOT), add(network, ROOT)] == [1, 2]
    assert wave(network) == {1, 2}
    network.change(network.tree.without([2]))
    end(network, 2)
    assert add(network, ROOT) == 3
    assert wave(network) == {1, 3}


def test_a_place_that_missed_an_epoch_is_told_the_last_one_by_its_new_parent() -> None:
    network = started(kary(4, 2), follows=True)
    network.pause(5)
    network.kill(5)  # ranks 1 and 2 are cut off
    network.change(network.tree.with_agents({7: 6}))
    network.begin([7])
    network.run()
    network.advance(30.0)
    assert trees(network) == {1}
    assert wave(network) == {1, 2, 3, 4, 7}


def test_a_place_that_was_removed_is_not_taken_again() -> None:
    network = started(kary(4, 2))
    network.change(network.tree.without([3]))
    end(network, 3)
    assert 3 not in network.nodes
    network.launch(3, 1, 3000)
    network.post(3, ev.Begin())
    network.run()
    assert 3 not in network.nodes  # it was refused, and has ended


def test_a_new_place_asks_again_while_its_parent_has_not_heard_of_it() -> None:
    network = started(kary(4, 2), follows=True)
    tree = network.tree.with_agents({7: 5})
    network.pause(5)
    network.change(tree)
    network.begin([7])
    network.run()
    network.resume(5)
    network.advance(1.0)
    assert wave(network) == {1, 2, 3, 4, 7}


@pytest.mark.parametrize("seed", range(5))
def test_messages_reach_who_came_and_end_for_who_left(seed: int) -> None:
    network = started(kary(4, 2), seed)
    new = add(network, 5)
    network.ask(ROOT, new, 1, {"x": 1})
    network.ask(new, 3, 2, {"x": 1})
    network.ask(3, new, 3, {"x": 1})
    network.run()
    assert sorted(one.number for one in network.observed(ev.Answered)) == [1, 2, 3]
    assert not any(one.error for one in network.observed(ev.Answered))
    network.change(network.tree.without([new]))
    end(network, new)
    network.ask(ROOT, new, 4, {"x": 1})
    network.run()
    *_, last = network.observed(ev.Answered, ROOT)
    assert last.error is not None
    assert last.error.code == AgentLostError.code


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": 0},
        {"planned": 99},
        {"homes": ((0, 0), (6, 0))},
        {"homes": ((4, 5), (1, 6), (1, 5))},
        {"homes": ((6, 1),)},
        {"homes": ((2**40, 0),)},
        {"homes": ((6, 2**40),)},
        {"removed": ((0, 1),)},
        {"removed": ((1, 2**40),)},
        {"added": ((2, 3),)},
        {"spares": ((5, 9),)},
    ],
    ids=str,
)
def test_what_is_no_tree_is_refused(change: dict[str, Any]) -> None:
    message = tree_message(kary(4, 2).without([1]))
    with pytest.raises(ProtocolError):
        tree_of(msgspec.structs.replace(message, **change))


def test_an_epoch_follows_the_one_before() -> None:
    network = started(kary(4, 2))
    other = flat(6).without([1])
    with pytest.raises(ProtocolError, match="does not follow"):
        network.nodes[ROOT].step(0.0, ev.ChangeTree(other))
    with pytest.raises(ProtocolError, match="does not follow"):
        network.nodes[ROOT].step(0.0, ev.ChangeTree(network.tree))
