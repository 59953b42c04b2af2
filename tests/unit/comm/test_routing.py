from hypothesis import given
from hypothesis import strategies as st

from sapwood.comm.routing import Router
from sapwood.core.rankset import from_ranges, to_ranges
from sapwood.core.topology import ROOT, Tree, plan

trees = st.builds(plan, st.integers(1, 40), st.sampled_from([0, 2, 3, 5]))


@given(trees, st.data())
def test_following_the_next_hops_leads_to_the_destination(tree: Tree, data: st.DataObject) -> None:
    here = data.draw(st.integers(0, tree.size - 1))
    destination = data.draw(st.integers(0, tree.size - 1))
    seen: list[int] = []
    while here != destination:
        assert here not in seen
        seen.append(here)
        here = Router(tree, here).next_hop(destination)


@given(trees, st.data())
def test_members_are_reached_by_the_children_that_cover_them(
    tree: Tree, data: st.DataObject
) -> None:
    members = data.draw(st.sets(st.integers(1, tree.agents)))
    for rank in (ROOT, *tree.junctions):
        router = Router(tree, rank)
        towards = router.towards(to_ranges(members))
        wanted = [child for child in tree.children(rank) if members & router.covered(child)]
        assert towards == wanted
        assert from_ranges(to_ranges(members)) == members


@given(trees)
def test_what_is_below_is_what_the_children_cover(tree: Tree) -> None:
    for rank in range(tree.size):
        router = Router(tree, rank)
        below = {place for child in router.children for place in router.covered(child)}
        assert below == set(tree.subtree(rank)) - {rank}
        assert all(router.is_below(place) == (place in below) for place in range(tree.size))
