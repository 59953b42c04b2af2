from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.comm.messages import NOBODY, Placed
from sapwood.comm.routing import FENCED, Router
from sapwood.core.topology import ROOT, Tree, kary, plan

trees = st.builds(plan, st.integers(1, 40), st.sampled_from([0, 2, 3, 5]))


def at_home(tree: Tree, rank: int) -> Router:
    """Return a router that knows that everybody below it is at home."""
    router = Router(tree, rank)
    router.parent = tree.parents[rank]
    for place in tree.subtree(rank)[1:]:
        router.attach(Placed(place, 1, 1, 100 + place, tree.parents[place]))
    return router


@given(trees, st.data())
@pytest.mark.slow
def test_following_the_next_hops_leads_to_the_destination(tree: Tree, data: st.DataObject) -> None:
    here = data.draw(st.integers(0, tree.size - 1))
    destination = data.draw(st.integers(0, tree.size - 1))
    seen: list[int] = []
    while here != destination:
        assert here not in seen
        seen.append(here)
        here = at_home(tree, here).next_hop(destination)


@given(trees)
@pytest.mark.slow
def test_at_home_the_tree_is_the_one_that_was_planned(tree: Tree) -> None:
    for rank in range(tree.size):
        router = at_home(tree, rank)
        below = set(tree.subtree(rank)) - {rank}
        assert router.children == sorted(tree.children(rank))
        assert {placed.rank for placed in router.everybody()} == below
        assert all(router.is_below(place) == (place in below) for place in range(tree.size))
        assert all(router.is_home(place) == (place in below) for place in range(-2, tree.size + 2))


@given(trees, st.data())
@pytest.mark.slow
def test_moves_in_any_order_of_arrival_end_at_the_newest(tree: Tree, data: st.DataObject) -> None:
    router = at_home(tree, ROOT)
    mover = data.draw(st.integers(1, tree.size - 1))
    homes = list(tree.ancestors(mover))
    moves = [
        Placed(mover, 1, number, 1, data.draw(st.sampled_from(homes))) for number in range(2, 6)
    ]
    for placed in data.draw(st.permutations(moves)):
        router.attach(placed)
    assert router.placed(mover) == moves[-1]
    # The vertices below it moved with it, and none has two positions.
    everybody = [placed.rank for placed in router.everybody()]
    assert sorted(everybody) == list(range(1, tree.size))


def test_the_end_of_an_attachment_takes_along_what_is_below_it() -> None:
    router = at_home(kary(4, 2), ROOT)
    version = router.version
    assert set(router.detach(5, 1, 1)) == {5, 1, 2}
    assert router.version > version
    assert router.next_hop(1) == NOBODY
    assert router.children == [6]


def test_the_end_of_an_older_attachment_is_no_news() -> None:
    router = at_home(kary(4, 2), ROOT)
    router.attach(Placed(1, 1, 2, 101, ROOT))
    assert router.detach(1, 1, 1) == []
    assert router.next_hop(1) == 1


def test_an_attachment_that_ended_does_not_begin_again() -> None:
    router = at_home(kary(4, 2), ROOT)
    router.detach(1, 1, 1)
    assert not router.attach(Placed(1, 1, 1, 101, 5))
    assert router.attach(Placed(1, 1, 2, 101, 5))


@pytest.mark.parametrize(
    ("incarnation", "attachment", "known"), [(1, 9, True), (2, 1, False), (1, FENCED, True)]
)
def test_no_attachment_of_a_condemned_process_is_news(
    incarnation: int, attachment: int, known: bool
) -> None:
    router = at_home(kary(4, 2), ROOT)
    router.note(5, 1, FENCED)
    assert router.knows(5, incarnation, attachment) == known


def test_what_is_attached_anew_tells_itself_who_is_below_it() -> None:
    router = at_home(kary(4, 2), ROOT)
    assert sorted(router.clear_below(5)) == [1, 2]
    assert router.is_below(5)
    assert not router.is_below(1)
    assert router.attach(Placed(1, 1, 1, 101, 5))


@given(
    st.builds(plan, st.integers(1, 30), st.sampled_from([0, 2, 3]), spares=st.booleans()),
    st.data(),
)
@pytest.mark.slow
def test_whatever_a_child_may_tell_every_way_has_an_end(tree: Tree, data: st.DataObject) -> None:
    router = Router(tree, ROOT)
    child = data.draw(st.sampled_from(tree.children(ROOT)))
    router.attach(Placed(child, 1, 1, 100, ROOT))
    ranks = st.integers(-1, tree.size)
    for number in range(20):
        placed = Placed(data.draw(ranks), 2, number, 1, data.draw(ranks))
        if router.may_tell(child, placed):
            router.attach(placed)
    parent = {rank: entry.parent for rank in range(tree.size) if (entry := router.placed(rank))}
    for rank in parent:
        way = [rank]
        while way[-1] in parent:
            way.append(parent[way[-1]])
            assert len(way) <= tree.size, f"a circle: {way}"


@given(
    st.builds(plan, st.integers(1, 30), st.sampled_from([0, 2, 3]), spares=st.booleans()),
    st.data(),
)
def test_a_child_may_tell_where_any_place_can_be(tree: Tree, data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, tree.size - 1))
    above = tree.above(rank)
    parent = data.draw(st.sampled_from(above))
    for child in (parent, *tree.above(parent)):
        if child != ROOT:
            for over in (ROOT, tree.parents[child]):
                assert Router(tree, over).may_tell(child, Placed(rank, 1, 1, 1, parent))
