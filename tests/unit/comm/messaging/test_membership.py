from __future__ import annotations

from collections import deque

import pytest

from sapwood.comm.messaging import events as mev
from sapwood.core.topology import ROOT, Tree, flat, kary
from sapwood_simulation.network import Network


@pytest.mark.parametrize("tree", [flat(3), kary(9, 3)], ids=str)
def test_everybody_hears_who_is_gone_and_who_is_back(tree: Tree) -> None:
    network = Network(tree)
    network.start()
    network.post(ROOT, mev.AnnounceMembership(((2, 1),), (), "killed"))
    network.run()
    for rank, node in network.nodes.items():
        gone = {other: absence.reason for other, absence in node.delivery.gone.items()}
        assert gone == ({} if rank == 2 else {2: "killed"})
    network.post(ROOT, mev.AnnounceMembership((), (2,)))
    network.run()
    assert all(not node.delivery.gone for node in network.nodes.values())


def test_who_is_new_hears_of_earlier_losses() -> None:
    network = Network(flat(3))
    network.start()
    network.post(ROOT, mev.AnnounceMembership(((1, 1),), (), "killed"))
    network.run()
    network.kill(2)
    network.run()
    network.post(ROOT, mev.AnnounceMembership(((2, 1),), (), "killed"))
    network.begin([2])
    network.run()
    network.post(ROOT, mev.AnnounceMembership((), (2,)))
    network.run()
    assert list(network.nodes[2].delivery.gone) == [1]
    assert list(network.nodes[3].delivery.gone) == [1]


def test_receives_from_a_place_alone_end_with_it_and_others_wait_on() -> None:
    network = Network(flat(3))
    network.start()
    network.post(1, mev.PostReceive(1, 2, -1))
    network.post(1, mev.PostReceive(2, -1, -1))
    network.post(ROOT, mev.AnnounceMembership(((2, 1),), (), "killed"))
    network.run()
    (failed,) = network.observed(mev.ReceiveFailed, 1)
    assert (failed.number, failed.error.what) == (1, "agent 2 is gone: killed")
    network.post(1, mev.PostReceive(3, 2, -1))  # at once, while it is gone
    assert [one.number for one in network.observed(mev.ReceiveFailed, 1)] == [1, 3]
    network.post(3, mev.SendTagged(1, (1,), 0, b"\x01", None))
    network.run()
    (arrived,) = network.observed(mev.TaggedArrived, 1)
    assert arrived.number == 2


def test_who_is_back_is_known_below_a_junction_that_was_cut_off_meanwhile() -> None:
    """The junction heard nothing of it, and its agents took that place for gone ever after."""
    tree = kary(8, 2)
    network = Network(tree)
    network.start()
    network.post(ROOT, mev.AnnounceMembership(((8, 1),), (), "killed"))
    network.run()
    top = tree.children(ROOT)[0]  # over agents 1 to 4
    assert all(8 in network.nodes[rank].delivery.gone for rank in tree.subtree(top))
    network.pause(top)
    network.post(ROOT, mev.AnnounceMembership((), (8,)))
    network.run()
    (link,) = [one.number for one in network.nodes[ROOT].links.values() if one.rank == top]
    (wire,) = [one for one in network.links(ROOT) if one.target == top]
    wire.pieces = deque([b""])  # data on its way is lost
    network.sever(top)
    network.run()
    network.places[ROOT].give_up(link, "cut off")
    network.resume(top)
    network.advance(2.0)
    assert network.nodes[top].router.parent == ROOT
    told = {rank: dict(network.nodes[rank].delivery.gone) for rank in tree.subtree(ROOT)}
    assert not any(told.values())


def test_who_was_cut_off_hears_whose_process_was_replaced_meanwhile() -> None:
    """What it sent to the new one was taken for sent to the old one, and came back as lost."""
    network = Network(flat(2))
    network.start()
    network.post(2, mev.PostReceive(1, -1, -1))
    network.post(1, mev.SendTagged(1, (2,), 0, b"\x01", None))
    network.advance(20.0)
    network.post(ROOT, mev.AnnounceMembership(((2, 1),), (), "killed"))
    network.kill(2)
    network.pause(1)
    network.run()
    (link,) = [one.number for one in network.nodes[ROOT].links.values() if one.rank == 1]
    (wire,) = [one for one in network.links(ROOT) if one.target == 1]
    wire.pieces = deque([b""])  # data on its way is lost
    network.sever(1)
    network.begin([2])
    network.run()
    network.post(ROOT, mev.AnnounceMembership((), (2,)))
    network.places[ROOT].give_up(link, "cut off")
    network.resume(1)
    network.advance(2.0)
    network.post(2, mev.PostReceive(1, -1, -1))
    network.post(1, mev.SendTagged(2, (2,), 0, b"\x01", None))
    network.advance(20.0)
    assert [one.error for one in network.observed(mev.SendEnded, 1)] == [None, None]
